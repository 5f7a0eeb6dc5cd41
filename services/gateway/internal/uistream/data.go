package uistream

import (
	"encoding/json"
	"strings"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// dataParts gives the data part of a chunk that is not the message's own text. A
// text that grows goes on around it, so that the message has the text whole, as
// the conversation has it. What only means something at its time is transient: the
// message does not keep it.
func dataParts(c *eventv1.Chunk) []Part {
	switch e := c.GetEvent().(type) {
	case *eventv1.Chunk_Custom:
		part := data(e.Custom.GetEventName(), e.Custom.GetData())
		part.ID, part.Transient = e.Custom.GetId(), e.Custom.GetTransient()
		return []Part{part}
	case *eventv1.Chunk_Output:
		return []Part{data("output", e.Output.GetOutput())}
	case *eventv1.Chunk_StatePatch:
		return []Part{data("state-patch", e.StatePatch.GetPatches())}
	case *eventv1.Chunk_SubagentStart:
		s := e.SubagentStart
		return withID(jsonData("subagent-start", subagent{s.GetToolCallId(), s.GetSubSessionId(), s.GetSubAgentType(), nil, nil}), s.GetToolCallId())
	case *eventv1.Chunk_SubagentEnd:
		s, success := e.SubagentEnd, e.SubagentEnd.GetSuccess()
		return withID(jsonData("subagent-end", subagent{s.GetToolCallId(), s.GetSubSessionId(), s.GetSubAgentType(), &success, jsonValue(s.GetResult(), "null")}), s.GetToolCallId())
	case *eventv1.Chunk_Checkpoint:
		return asTransient(jsonData("checkpoint", checkpoint{e.Checkpoint.GetCheckpointId(), e.Checkpoint.GetStepCount()}))
	case *eventv1.Chunk_StreamResync:
		return asTransient(jsonData("stream-resync", resync{e.StreamResync.GetReason(), e.StreamResync.GetSequence()}))
	case *eventv1.Chunk_Error:
		return errorData(c.GetAgentId(), e.Error)
	default:
		return nil
	}
}

// subagent tells of a session that a call has begun below this one; its end has a result.
type subagent struct {
	ToolCallID string          `json:"toolCallId"`
	SessionID  string          `json:"sessionId"`
	AgentType  string          `json:"agentType"`
	Success    *bool           `json:"success,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
}

type checkpoint struct {
	ID        string `json:"checkpointId"`
	StepCount int32  `json:"stepCount"`
}

type resync struct {
	Reason   string `json:"reason"`
	Sequence int64  `json:"sequence"`
}

// errorData gives the data part of an error. An error part would end the message at the
// client, so that of a failed run only comes with the run's end. An error that the run
// survives is transient.
func errorData(runID string, e *eventv1.Error) []Part {
	if e.GetRecoverable() {
		return asTransient(jsonData("error", failed{e.GetCode(), e.GetError()}))
	}
	return []Part{Failed(runID, e.GetError(), e.GetCode())}
}

// failed is the data of an error.
type failed struct {
	Code  string `json:"code"`
	Error string `json:"error"`
}

// Failed gives the part that keeps in the message why its run has failed. It has the run's
// id, so a client that is sent it twice has it once. The error part, which ends the stream,
// comes behind it and leaves nothing in the message.
func Failed(runID, sentence, code string) Part {
	return withID(jsonData("error", failed{code, orText(sentence, failedText)}), runID)[0]
}

func data(name, text string) Part {
	return Part{Type: "data-" + dataName(name), Data: jsonValue(text, "null")}
}

// jsonData is a data part of a value of ours.
func jsonData(name string, v any) []Part {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return []Part{data(name, string(text))}
}

// withID gives the parts the id: a repetition takes the place of what the client has.
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

// maxDataName bounds the name of a data part in bytes.
const maxDataName = 64

// dataName makes a part's name of an event's: letters, digits, "-", "_" and
// "." stay, everything else becomes "-".
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
	return orText(name, "event")
}
