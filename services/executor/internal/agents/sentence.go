package agents

import (
	"errors"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// sentence is what an error says to people: of a fault its detail.
func sentence(err error) string {
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return f.Detail
	}
	return err.Error()
}
