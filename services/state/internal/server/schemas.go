package server

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// newSchemas returns functions for the schemas of executors. They keep compiled schemas.
func newSchemas() session.SchemaFuncs {
	cache := &agent.SchemaCache{}
	return session.SchemaFuncs{
		Fill: func(schema, state string) (string, error) {
			compiled, err := cache.Compile(json.RawMessage(schema))
			if err != nil {
				return "", err
			}
			filled, err := compiled.ApplyDefaults(json.RawMessage(state))
			return string(filled), err
		},
		Check: func(schema, before, after string) error {
			compiled, err := cache.Compile(json.RawMessage(schema))
			if err != nil {
				return err
			}
			if err := compiled.CheckChange(json.RawMessage(before), json.RawMessage(after)); err != nil {
				return invalid("STATE_INVALID", "the custom state does not fit the schema of its agent: %v", err)
			}
			return nil
		},
	}
}
