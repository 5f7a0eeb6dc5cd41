package remote

import (
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// MaxStepBytes bounds the chunks of a step. They stay in memory until the step is committed.
const MaxStepBytes = 8 << 20

// Mirror copies the chunks of one remote session into steps. It is for one goroutine.
type Mirror struct {
	localID func(callID string) string
	after   int32 // remote steps up to this one are committed here

	step    int32 // the remote step in flight; 0 for none
	bytes   int   // of its chunks
	parts   []agent.Part
	tail    *strings.Builder            // the text of the last part; nil if it is a call, or there is none
	calls   map[string]int              // index into parts, by local id
	texts   map[string]*strings.Builder // arguments so far, by local id
	results []agent.ToolResult
	waiting map[string]bool // calls for a client, by local id
}

// NewMirror returns a mirror that skips the steps up to after. localID returns the id of a call here. It must return
// different ids for different calls.
func NewMirror(after int32, localID func(callID string) string) *Mirror {
	m := &Mirror{localID: localID, after: after}
	m.Void()
	return m
}

// Void drops the step in flight: its chunks were void, or it is committed.
func (m *Mirror) Void() {
	m.step, m.bytes, m.parts, m.tail, m.results = 0, 0, nil, nil, nil
	m.calls, m.texts, m.waiting = map[string]int{}, map[string]*strings.Builder{}, map[string]bool{}
}

// InFlight reports whether a step has begun and is not committed.
func (m *Mirror) InFlight() bool { return m.step != 0 }

// TooLarge reports whether the step in flight has more than MaxStepBytes.
func (m *Mirror) TooLarge() bool { return m.bytes > MaxStepBytes }

// Add takes the next chunk. It returns the chunk for readers here, nil for none, and reports whether it commits the
// step in flight.
func (m *Mirror) Add(c *eventv1.Chunk) (shown *eventv1.Chunk, committed bool) {
	if c.GetStep() <= m.after {
		return nil, false
	}
	m.bytes += proto.Size(c)
	shown = &eventv1.Chunk{Event: proto.CloneOf(c).GetEvent()}
	switch e := shown.GetEvent().(type) {
	case *eventv1.Chunk_StepCommitted:
		m.step = c.GetStep()
		return nil, true
	case *eventv1.Chunk_StepStarted, *eventv1.Chunk_Custom, *eventv1.Chunk_Output:
	case *eventv1.Chunk_TextDelta:
		m.addText(e.TextDelta.GetDelta())
	case *eventv1.Chunk_Thinking:
		m.addThought(e.Thinking.GetContent())
	case *eventv1.Chunk_ToolArgStreamStart, *eventv1.Chunk_ToolArgStreamDelta, *eventv1.Chunk_ToolArgStreamEnd,
		*eventv1.Chunk_ToolStart, *eventv1.Chunk_ToolEnd, *eventv1.Chunk_ToolApprovalResponse:
		m.addOfCall(shown)
	case *eventv1.Chunk_ToolApprovalRequest: // the suspension here asks
		m.waiting[m.localID(e.ToolApprovalRequest.GetToolCallId())] = true
		shown = nil
	default: // of the run there, its custom state and its own sub-agents
		return nil, false
	}
	m.step = c.GetStep()
	return shown, false
}

// addOfCall takes a chunk of a call, and gives it the id of the call here. No client here has a type for its tool.
func (m *Mirror) addOfCall(shown *eventv1.Chunk) {
	switch e := shown.GetEvent().(type) {
	case *eventv1.Chunk_ToolArgStreamStart:
		e.ToolArgStreamStart.ToolCallId, e.ToolArgStreamStart.Dynamic = m.localID(e.ToolArgStreamStart.GetToolCallId()), true
		m.addCall(agent.ToolCall{ID: e.ToolArgStreamStart.GetToolCallId(), Name: e.ToolArgStreamStart.GetToolName(), Dynamic: true})
	case *eventv1.Chunk_ToolArgStreamDelta:
		e.ToolArgStreamDelta.ToolCallId = m.localID(e.ToolArgStreamDelta.GetToolCallId())
		m.addArguments(e.ToolArgStreamDelta.GetToolCallId(), e.ToolArgStreamDelta.GetDelta())
	case *eventv1.Chunk_ToolArgStreamEnd:
		e.ToolArgStreamEnd.ToolCallId = m.localID(e.ToolArgStreamEnd.GetToolCallId())
	case *eventv1.Chunk_ToolStart:
		e.ToolStart.ToolCallId, e.ToolStart.Dynamic = m.localID(e.ToolStart.GetToolCallId()), true
		if e.ToolStart.GetAwaitsClient() {
			m.waiting[e.ToolStart.GetToolCallId()] = true
		}
		m.addCall(agent.ToolCall{
			ID: e.ToolStart.GetToolCallId(), Name: e.ToolStart.GetToolName(), Arguments: toJSON(e.ToolStart.GetArguments()), Dynamic: true,
		})
	case *eventv1.Chunk_ToolEnd:
		e.ToolEnd.ToolCallId = m.localID(e.ToolEnd.GetToolCallId())
		delete(m.waiting, e.ToolEnd.GetToolCallId())
		m.results = append(m.results, agent.ToolResult{
			CallID: e.ToolEnd.GetToolCallId(), Name: e.ToolEnd.GetToolName(), Result: toJSON(e.ToolEnd.GetResult()),
			Success: e.ToolEnd.GetSuccess(), Error: e.ToolEnd.GetError(),
		})
	case *eventv1.Chunk_ToolApprovalResponse:
		e.ToolApprovalResponse.ToolCallId = m.localID(e.ToolApprovalResponse.GetToolCallId())
	}
}

// toJSON returns the text as JSON, a string if it is none, and nil for an empty text.
func toJSON(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return arguments(text)
}

func (m *Mirror) addArguments(callID, delta string) {
	if m.texts[callID] == nil {
		m.texts[callID] = &strings.Builder{}
	}
	m.texts[callID].WriteString(delta)
}

func (m *Mirror) addText(delta string) {
	if _, continues := m.last().(agent.Text); !continues {
		m.beginText(agent.Text{})
	}
	m.tail.WriteString(delta)
}

func (m *Mirror) addThought(delta string) {
	if _, continues := m.last().(agent.Reasoning); !continues {
		m.beginText(agent.Reasoning{})
	}
	m.tail.WriteString(delta)
}

// last returns the last part; nil for none.
func (m *Mirror) last() agent.Part {
	if len(m.parts) == 0 {
		return nil
	}
	return m.parts[len(m.parts)-1]
}

// beginText adds a part whose text comes in pieces.
func (m *Mirror) beginText(part agent.Part) {
	m.endText()
	m.parts = append(m.parts, part)
	m.tail = &strings.Builder{}
}

// endText stores the text of the last part.
func (m *Mirror) endText() {
	if m.tail == nil {
		return
	}
	text := m.tail.String()
	if _, thought := m.last().(agent.Reasoning); thought {
		m.parts[len(m.parts)-1] = agent.Reasoning{Text: text}
	} else {
		m.parts[len(m.parts)-1] = agent.Text{Text: text}
	}
	m.tail = nil
}

// addCall adds a call, or completes it.
func (m *Mirror) addCall(call agent.ToolCall) {
	if i, known := m.calls[call.ID]; known {
		m.parts[i] = call
		return
	}
	m.endText()
	m.calls[call.ID] = len(m.parts)
	m.parts = append(m.parts, call)
}

// Step is a committed step of the remote session.
type Step struct {
	Number  int32        // there
	Parts   []agent.Part // of the agent's message; none for a step that only has results
	Results []agent.ToolResult
	Waits   bool // a call waits for a client
}

// Commit returns the step in flight, and begins the next one.
func (m *Mirror) Commit() Step {
	m.endText()
	for id, i := range m.calls {
		call, ok := m.parts[i].(agent.ToolCall)
		if ok && call.Arguments == nil { // a refused call has no start
			text := ""
			if streamed := m.texts[id]; streamed != nil {
				text = streamed.String()
			}
			call.Arguments = arguments(text)
			m.parts[i] = call
		}
	}
	s := Step{Number: m.step, Parts: slices.Clone(m.parts), Results: slices.Clone(m.results), Waits: len(m.waiting) > 0}
	m.after = m.step
	m.Void()
	return s
}

// arguments returns the text of arguments as JSON: a string if it is none.
func arguments(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	quoted, err := json.Marshal(text)
	if err != nil { // strings always marshal
		return json.RawMessage(`""`)
	}
	return quoted
}
