package agent

import (
	"encoding/json"
	"sync"
)

// maxCachedSchemas bounds a SchemaCache.
const maxCachedSchemas = 1024

// SchemaCache compiles schemas, and keeps them for the next time. A full cache is cleared. The zero
// value is ready. Safe for concurrent use.
type SchemaCache struct {
	mu       sync.Mutex
	compiled map[string]*Schema
}

// Compile is CompileSchema.
func (c *SchemaCache) Compile(raw json.RawMessage) (*Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if schema, ok := c.compiled[string(raw)]; ok {
		return schema, nil
	}
	schema, err := CompileSchema(raw)
	if err != nil {
		return nil, err
	}
	if c.compiled == nil || len(c.compiled) >= maxCachedSchemas {
		c.compiled = map[string]*Schema{}
	}
	c.compiled[string(raw)] = schema
	return schema, nil
}
