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
		return transient("checkpoint", checkpoint{e.Checkpoint.GetCheckpointId(), e.Checkpoint.GetStepCount()})
	case *eventv1.Chunk_StreamResync:
		return transient("stream-resync", resync{e.StreamResync.GetReason(), e.StreamResync.GetSequence()})
	case *eventv1.Chunk_Error:
		// An error part would end the message at the client, so it is sent only at the end of a failed run. An error that
		// the run survives is transient.
		if e.Error.GetRecoverable() {
			return transient("error", failed{e.Error.GetCode(), e.Error.GetError()})
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
	return jsonData("error", runID, failed{code, cmp.Or(sentence, failedText)})
}

func data(name, text string) Part {
	return Part{Type: "data-" + dataName(name), Data: jsonValue(text, "null")}
}

// jsonData returns the data part of a value. A part with the same id replaces it at the client.
func jsonData(name, id string, v any) Part {
	text, _ := json.Marshal(v) // the values of this package always marshal
	part := data(name, string(text))
	part.ID = id
	return part
}

func transient(name string, v any) []Part {
	part := jsonData(name, "", v)
	part.Transient = true
	return []Part{part}
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
