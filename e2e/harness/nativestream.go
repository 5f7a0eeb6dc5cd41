package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// NativeStream is a response of GET /sse. It keeps the chunks that a correct reader keeps: rewound chunks are
// dropped.
type NativeStream struct {
	// Chunks are the current chunks.
	Chunks []NativeChunk
	// Cursor is the sequence up to which the reader has everything: the highest one seen, or the target of the
	// last rewound frame.
	Cursor int64
	// Rewinds counts rewound frames, and RewoundAt is the sequence of the last one.
	Rewinds   int
	RewoundAt int64
	// End is the name and EndData the data of the terminal frame. Both are empty before it arrives.
	End, EndData string

	t      testing.TB
	events *Events
}

// NativeChunk has the fields of all chunk types that tests examine.
type NativeChunk struct {
	Sequence   int64           `json:"-"`
	SessionID  string          `json:"-"` // of a descendant's chunk; empty for the session's own
	Type       string          `json:"type"`
	AgentID    string          `json:"agentId"`
	Step       int             `json:"step"`
	MessageID  string          `json:"messageId"`
	Delta      string          `json:"delta"`
	ToolCallID string          `json:"toolCallId"`
	ToolName   string          `json:"toolName"`
	Arguments  json.RawMessage `json:"arguments"`
	Result     json.RawMessage `json:"result"`
	Error      string          `json:"error"`
	Patches    json.RawMessage `json:"patches"`
	Decision   string          `json:"decision"`
	Code       string          `json:"code"`
	Reason     string          `json:"reason"`
}

func (c NativeChunk) String() string {
	return fmt.Sprintf("%d step %d %s %s%s%s%s", c.Sequence, c.Step, c.Type, c.ToolName, c.Delta, c.Result, c.Error)
}

// Next reads one frame. It returns io.EOF at the end of the body, ErrDropped if the connection breaks, and
// another error on a violation of the protocol.
func (s *NativeStream) Next() error {
	e, err := s.events.Next()
	if err != nil {
		return err
	}
	if s.End != "" {
		return fmt.Errorf("%v after the terminal frame", e)
	}
	if err := s.apply(e); err != nil {
		return fmt.Errorf("the frame %v: %w", e, err)
	}
	return nil
}

// ReadAll reads to the end of the body. It fails the test if the body ends without a terminal frame.
func (s *NativeStream) ReadAll() {
	s.t.Helper()
	for {
		err := s.Next()
		if errors.Is(err, io.EOF) && s.End != "" {
			return
		}
		if err != nil {
			s.t.Fatalf("the stream ended with %v and the terminal frame %q\n%s", err, s.End, s.Dump())
		}
	}
}

// Until reads until accept is satisfied. It fails the test if the stream ends first.
func (s *NativeStream) Until(what string, accept func(*NativeStream) bool) {
	s.t.Helper()
	for !accept(s) {
		if err := s.Next(); err != nil {
			s.t.Fatalf("the stream ended (%v) before %s\n%s", err, what, s.Dump())
		}
	}
}

func (s *NativeStream) apply(e Event) error {
	switch e.Name {
	case "chunk":
		return s.chunk(e)
	case "rewound":
		return s.rewound(e)
	case "caught-up":
		return nil
	case "end", "fail":
		s.End, s.EndData = e.Name, e.Data
		return nil
	default:
		return errors.New("the name of the event is unknown")
	}
}

// rewound drops the rewound chunks of the session in the frame.
func (s *NativeStream) rewound(e Event) error {
	var frame struct {
		At        int64  `json:"at"`
		SessionID string `json:"sessionId"`
	}
	if err := json.Unmarshal([]byte(e.Data), &frame); err != nil {
		return err
	}
	if frame.SessionID == "" {
		if frame.At >= s.Cursor {
			return errors.New("it takes back what comes behind it")
		}
		if got, want := e.ID, strconv.FormatInt(frame.At, 10); got != want && (got != "" || frame.At != 0) {
			return fmt.Errorf("its id is %q, want the position that it goes back to, %q", got, want)
		}
		s.Cursor = frame.At
	}
	s.Rewinds++
	s.RewoundAt = frame.At
	s.Chunks = slices.DeleteFunc(s.Chunks, func(c NativeChunk) bool {
		return c.SessionID == frame.SessionID && c.Sequence > frame.At
	})
	return nil
}

func (s *NativeStream) chunk(e Event) error {
	var frame struct {
		Sequence  int64       `json:"sequence"`
		SessionID string      `json:"sessionId"`
		Chunk     NativeChunk `json:"chunk"`
	}
	if err := json.Unmarshal([]byte(e.Data), &frame); err != nil {
		return err
	}
	want := strconv.FormatInt(frame.Sequence, 10)
	if frame.SessionID != "" {
		want = "" // clients resume the followed session with the last id
	}
	if got := e.ID; got != want {
		return fmt.Errorf("its id is %q, want its sequence %q", got, want)
	}
	frame.Chunk.Sequence, frame.Chunk.SessionID = frame.Sequence, frame.SessionID
	if err := s.advance(e.ID); err != nil {
		return err
	}
	s.Chunks = append(s.Chunks, frame.Chunk)
	return nil
}

func (s *NativeStream) advance(id string) error {
	if id == "" {
		return nil
	}
	sequence, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return err
	}
	if sequence <= s.Cursor {
		return fmt.Errorf("its sequence is not above the last one, %d", s.Cursor)
	}
	s.Cursor = sequence
	return nil
}

// Text returns the current text.
func (s *NativeStream) Text() string {
	var b strings.Builder
	for _, c := range s.Chunks {
		if c.Type == "text_delta" {
			b.WriteString(c.Delta)
		}
	}
	return b.String()
}

// Count counts the current chunks of a type.
func (s *NativeStream) Count(kind string) int {
	n := 0
	for _, c := range s.Chunks {
		if c.Type == kind {
			n++
		}
	}
	return n
}

// Content describes the content of the stream. Two streams with the same content have equal descriptions,
// regardless of how the text was divided, and of ids and sequences.
func (s *NativeStream) Content() string {
	var b strings.Builder
	text := ""
	flush := func() {
		if text != "" {
			fmt.Fprintf(&b, "text %q\n", text)
			text = ""
		}
	}
	for _, c := range s.Chunks {
		switch c.Type {
		case "text_delta":
			text += c.Delta
			continue
		case "step_started", "step_committed", "run_started", "run_completed":
			flush()
			fmt.Fprintf(&b, "%s\n", c.Type)
		case "tool_start":
			flush()
			fmt.Fprintf(&b, "%s %s %s\n", c.Type, c.ToolName, compact(c.Arguments))
		case "tool_end":
			flush()
			fmt.Fprintf(&b, "%s %s %s%s\n", c.Type, c.ToolName, compact(c.Result), c.Error)
		}
	}
	flush()
	fmt.Fprintf(&b, "%s\n", s.End)
	return b.String()
}

// Close disconnects before the end.
func (s *NativeStream) Close() { s.events.Close() }

// Dump prints the stream so far, for failure messages.
func (s *NativeStream) Dump() string { return "the stream held\n" + show(s.events.Seen) }

// Holds reports whether a received frame has the text.
func (s *NativeStream) Holds(text string) bool { return holds(s.events.Seen, text) }
