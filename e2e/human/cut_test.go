package human_test

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// story is a conversation that suspends in the middle.
type story struct {
	word string
	// answers are sent one line after the other, those of a line at once.
	answers func(r *round) [][]harness.ToolAnswer
	// chunks is the least number of chunks in the first answer and in each continuation.
	chunks int
}

var stories = map[string]story{
	"a client tool": {word: "ask", chunks: 6, answers: func(r *round) [][]harness.ToolAnswer {
		return [][]harness.ToolAnswer{{r.result("ask", "42")}}
	}},
	"an approval": {word: "pay", chunks: 6, answers: func(r *round) [][]harness.ToolAnswer {
		return [][]harness.ToolAnswer{{r.verdict("pay", true, "go ahead")}}
	}},
	"a denial": {word: "pay", chunks: 6, answers: func(r *round) [][]harness.ToolAnswer {
		return [][]harness.ToolAnswer{{r.verdict("pay", false, "too dear")}}
	}},
	"a mixed batch": {word: "mixed", chunks: 6, answers: func(r *round) [][]harness.ToolAnswer {
		return [][]harness.ToolAnswer{{r.result("ask", "42"), r.verdict("pay", true, "")}}
	}},
	"a mixed batch, one by one": {word: "mixed", chunks: 3, answers: func(r *round) [][]harness.ToolAnswer {
		return [][]harness.ToolAnswer{{r.result("ask", "42")}, {r.verdict("pay", true, "")}}
	}},
}

// anAnswerThatIsCutIsTheSame cuts the stream of the first message, or of a continuation, after every single
// chunk. The client attaches again and continues.
func anAnswerThatIsCutIsTheSame(t *testing.T, w *world) {
	for name, s := range stories {
		t.Run(name, func(t *testing.T) {
			var want harness.UIMessage
			var lengths []int // of the streams, in chunks
			w.rounds(t, 1, func(r *round) string {
				c := &cutter{round: r, pace: w.model.pace(r.session), stream: -1}
				want, lengths = c.play(s)
				return fmt.Sprintf("streams of %v chunks", lengths)
			})
			if t.Failed() {
				return
			}
			for stream, length := range lengths {
				if length < s.chunks {
					t.Errorf("stream %d has %d chunks, want at least %d to cut it behind", stream, length, s.chunks)
				}
				t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
					w.rounds(t, length+1, func(r *round) string {
						c := &cutter{round: r, pace: w.model.pace(r.session), stream: stream, behind: r.number}
						got, _ := c.play(s)
						if got, want := c.shape(got), c.shape(want); got != want {
							r.Errorf("cut behind chunk %d of stream %d, the message is\n%s\nwant\n%s", c.behind, stream, got, want)
						}
						return c.happened
					})
				})
			}
		})
	}
}

// sessionOf matches the session in tool results.
var sessionOf = regexp.MustCompile(`Test[^"]*✂`)

// cutter plays a story as a client with one cut connection.
type cutter struct {
	*round
	pace     *pace
	stream   int // index of the stream to cut; below 0 for none
	behind   int // chunks before the cut
	happened string
}

// play returns the final message, and the number of chunks in each stream.
func (c *cutter) play(s story) (m harness.UIMessage, lengths []int) {
	c.Helper()
	c.said = []harness.UIMessage{harness.UserMessage("user-1", s.word+" "+c.session)}
	lengths = append(lengths, c.talk(0, c.said))
	for i, answers := range s.answers(c.round) {
		said := c.answered(answers...)
		lengths = append(lengths, c.talk(i+1, said))
	}
	m = c.said[len(c.said)-1]
	stored := c.settled("completed")
	c.same("the client", m, stored[len(stored)-1])
	c.effects(s)
	if c.pace.fellBehind() {
		c.Errorf("a reader did not follow the model")
	}
	return m, lengths
}

// effects checks the effects: every approved call took effect once.
func (c *cutter) effects(s story) {
	c.Helper()
	p := c.said[len(c.said)-1].Call("pay")
	switch {
	case p == nil:
	case p.State == "output-available":
		c.once("pay")
	default:
		if there := c.ledger.Entry("pay " + c.session); there.Posts > 0 {
			c.Errorf("it was refused, and paid %d times", there.Posts)
		}
	}
	if s.word == "mixed" {
		c.once("record")
	}
}

// talk sends the conversation, reads the answer with its cut, and stores the message. It returns the number of
// chunks.
func (c *cutter) talk(n int, said []harness.UIMessage) (chunks int) {
	c.Helper()
	stream, err := c.At(n%2).Post(c.ctx, harness.ChatPost{Session: c.session, Agent: c.agent, Messages: said})
	if err != nil {
		c.Fatalf("POST /chat: %v", err)
	}
	limit := -1
	if n == c.stream {
		limit = c.behind
	}
	chunks, over := c.read(stream, limit)
	stream.Close()
	m := stream.Message
	if !over {
		m = c.resume(m)
	}
	if n > 0 {
		said = said[:len(said)-1]
	}
	c.said = append(said, m)
	return chunks
}

// resume attaches again after the cut and reads like the chat class: the first start begins the message again.
func (c *cutter) resume(m harness.UIMessage) harness.UIMessage {
	c.Helper()
	stream, err := c.At(c.behind%2).Reconnect(c.ctx, c.session)
	if err != nil {
		c.Fatalf("attach again: %v", err)
	}
	if stream == nil {
		c.happened = "cut, and nothing more to be told"
		return m
	}
	c.happened = "cut, and attached again"
	if _, over := c.read(stream, -1); !over {
		c.Fatalf("the stream after the cut is not whole\n%s", stream.Dump())
	}
	stream.Close()
	return stream.Message
}

// read reads limit chunks, or all if limit is below 0, and then lets the model continue. over reports the end of
// the stream.
func (c *cutter) read(stream *harness.UIStream, limit int) (chunks int, over bool) {
	c.Helper()
	for ; chunks != limit; chunks++ {
		err := stream.Next()
		if errors.Is(err, io.EOF) {
			if err := stream.Complete(); err != nil {
				c.Fatalf("%v\n%s", err, stream.Dump())
			}
			return chunks, true
		}
		if err != nil {
			c.Fatalf("%v\n%s", err, stream.Dump())
		}
		c.pace.follow(stream.Message)
	}
	return chunks, false
}

// shape returns the message without session-specific parts.
func (c *cutter) shape(m harness.UIMessage) string {
	var b strings.Builder
	for _, p := range m.Parts {
		fmt.Fprintf(&b, "%s %s %q %s %s %q", p.Type, p.State, p.Text, p.ToolCallID, p.Output, p.ErrorText)
		if p.Approval != nil && p.Approval.Approved != nil {
			fmt.Fprintf(&b, " approved %v %q", *p.Approval.Approved, p.Approval.Reason)
		}
		b.WriteString("\n")
	}
	return sessionOf.ReplaceAllString(b.String(), "SESSION")
}
