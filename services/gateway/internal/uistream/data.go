package uistream

import (
	"cmp"
	"encoding/json"
	"strings"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// dataParts returns the data part of a chunk without text of the message. It does not interrupt a
// streaming text, so the message has the text in one part, like the stored conversation. Events for
// live readers alone are transient: the message does not keep them.
func dataParts(c *eventv1.Chunk) []Part {
	switch e := c.GetEvent().(type) {
	case *eventv1.Chunk_Custom:
		if e.Custom.GetEventName() == agentMetadata {
			text := e.Custom.GetData()
			if isRefused([]byte(text)) || mergeJSON("{}", text) == "{}" { // no object, or one that clients refuse
				return nil
			}
			return []Part{metadata(Metadata{agentJSON: text})}
		}
		part := data(e.Custom.GetEventName(), e.Custom.GetData())
		part.ID, part.Transient = e.Custom.GetId(), e.Custom.GetTransient()
		return []Part{part}
	case *eventv1.Chunk_Output:
		return []Part{data("output", e.Output.GetOutput())}
	case *eventv1.Chunk_StatePatch:
		return []Part{data("state-patch", e.StatePatch.GetPatches())}
	case *eventv1.Chunk_SubagentStart, *eventv1.Chunk_SubagentEnd:
		return []Part{subAgentOf(c).part()}
	case *eventv1.Chunk_Checkpoint:
		return asTransient(jsonData("checkpoint", checkpoint{e.Checkpoint.GetCheckpointId(), e.Checkpoint.GetStepCount()}))
	case *eventv1.Chunk_StreamResync:
		return asTransient(jsonData("stream-resync", resync{e.StreamResync.GetReason(), e.StreamResync.GetSequence()}))
	case *eventv1.Chunk_Error:
		// An error part would end the message at the client, so it is sent only at the end of a failed run. An error that
		// the run survives is transient.
		if e.Error.GetRecoverable() {
			return asTransient(jsonData("error", failed{e.Error.GetCode(), e.Error.GetError()}))
		}
		return []Part{Failed(c.GetAgentId(), e.Error.GetError(), e.Error.GetCode())}
	default:
		return nil
	}
}

type checkpoint struct {
	ID        string `json:"checkpointId"`
	StepCount int32  `json:"stepCount"`
}

type resync struct {
	Reason   string `json:"reason"`
	Sequence int64  `json:"sequence"`
}

type failed struct {
	Code  string `json:"code"`
	Error string `json:"error"`
}

// Failed returns the data part that records in the message why its run failed. Its id is the run's,
// so repetitions replace it. The error part that follows ends the stream and leaves nothing in the
// message.
func Failed(runID, sentence, code string) Part {
	return withID(jsonData("error", failed{code, cmp.Or(sentence, failedText)}), runID)[0]
}

func data(name, text string) Part {
	return Part{Type: "data-" + dataName(name), Data: jsonValue(text, "null")}
}

func jsonData(name string, v any) []Part {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return []Part{data(name, string(text))}
}

// withID sets the id of the parts: a repetition replaces the client's part.
func withID(parts []Part, id string) []Part {
	for i := range parts {
		parts[i].ID = id
	}
	return parts
}

func asTransient(parts []Part) []Part {
	for i := range parts {
		parts[i].Transient = true
	}
	return parts
}

const maxDataName = 64 // bytes

// dataName derives the name of a data part from an event's name. Letters, digits, "-", "_" and "."
// stay. Other characters become "-".
func dataName(event string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		default:
			return '-'
		}
	}, event)
	if len(name) > maxDataName {
		name = name[:maxDataName]
	}
	return cmp.Or(name, "event")
}
