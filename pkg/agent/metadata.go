package agent

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// MetadataEvent is the event of SetMetadata.
const MetadataEvent = "message-metadata"

// SetMetadata merges values into the metadata of the assistant message that the run writes. Readers
// see them at once, and /messages has them: useChat in message.metadata. values is marshalled to a
// JSON object. Objects are merged in depth, any other value replaces the earlier one. Every change
// is stored, so use a data part for progress: Emit with WithID.
//
// Faults are those of Host.Emit. EVENT_INVALID also for values other than an object, or with a key
// of the runtime: runId, agentType, createdAt, usage, interrupted and completionReason.
func (c *Call) SetMetadata(ctx context.Context, values any) error {
	return c.Emit(ctx, MetadataEvent, values)
}

// SetMetadata is Call.SetMetadata.
func (c *HookCall) SetMetadata(ctx context.Context, values any) error {
	return c.Emit(ctx, MetadataEvent, values)
}

// CheckMetadata gives Invalid (EVENT_INVALID) for values that SetMetadata refuses. It is for
// implementations of Host.
func CheckMetadata(text json.RawMessage) error {
	var members map[string]json.RawMessage
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) || json.Unmarshal(text, &members) != nil {
		return fault.New(fault.Invalid, "EVENT_INVALID", "the metadata of a message must be a JSON object")
	}
	for key := range members {
		switch key {
		case "runId", "agentType", "createdAt", "usage", MetadataInterrupted, "completionReason", "__proto__", "constructor", "prototype":
			return fault.New(fault.Invalid, "EVENT_INVALID", "the metadata key %q is reserved; choose another name", key)
		}
	}
	return nil
}
