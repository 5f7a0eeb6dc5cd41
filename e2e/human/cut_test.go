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

// story is a conversation that waits for somebody in its middle.
type story struct {
	word string
	// answers are sent one after the other, those of a line at once.
	answers func(r *round) [][]harness.ToolAnswer
	// chunks is how many the first answer and each continuation have at least.
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

// anAnswerThatIsCutIsTheSame cuts the stream of the first
// message, or that of a continuation, behind every chunk of it, and the client attaches
// again and goes on.
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

// sessionOf matches the session in what tools give back.
var sessionOf = regexp.MustCompile(`Test[^"]*✂`)

// cutter plays a story as a client whose connection is cut once.
type cutter struct {
	*round
	pace     *pace
	stream   int // which of its streams is cut; below 0 for none
	behind   int // how many chunks
	happened string
}

// play gives the message in the end, and how many chunks each stream had.
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
	if c.pace.lagged() {
		c.Errorf("a reader did not follow the model")
	}
	return m, lengths
}

// effects checks the effects: what was approved was done once.
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

// talk sends the conversation and reads the answer, which is cut where that is its turn.
// It gives how many chunks the answer had, and keeps the message.
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

// resume attaches again after the cut, and reads on as the chat class does: the first
// start begins the message anew.
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
		c.Fatalf("the stream after the cut is not whole\n%s", stream.Heard())
	}
	stream.Close()
	return stream.Message
}

// read reads so many chunks, or below 0 all, and lets the model go on when they are
// there. over says that the stream has come to its end.
func (c *cutter) read(stream *harness.UIStream, limit int) (chunks int, over bool) {
	c.Helper()
	for ; chunks != limit; chunks++ {
		err := stream.Next()
		if errors.Is(err, io.EOF) {
			if err := stream.Complete(); err != nil {
				c.Fatalf("%v\n%s", err, stream.Heard())
			}
			return chunks, true
		}
		if err != nil {
			c.Fatalf("%v\n%s", err, stream.Heard())
		}
		c.pace.follow(stream.Message)
	}
	return chunks, false
}

// shape is the message without what differs from session to session.
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
