package loop_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// mostModelCalls is the bound for one message: each of the two replies of a run follows at most ten refusals, and a
// summary before each request is one more call.
const mostModelCalls = 2 * 2 * 11

// A provider refuses by rules that the planner does not know, in words or without. Whatever it refuses, nothing is sent
// twice unchanged, each run ends after few calls, and the second plain message after the trouble gets an answer.
func TestWhateverAProviderRefusesAConversationGoesOn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &refusedConversation{T: t, provider: drawProvider(t), world: newWorld(loop.Start{
			Run:      loop.Run{Tenant: "acme", SessionID: "s", RunID: "r0"},
			Agent:    agent.Agent{Name: "any", Model: "test/mind", MaxSteps: 3, Tools: []agent.Tool{tool("look:read")}},
			MaxDepth: 1,
		})}
		if rapid.Bool().Draw(t, "policy") {
			c.world.start.Agent.Context = agent.ContextPolicy{MaxTokens: rapid.IntRange(100, 2000).Draw(t, "budget")}
			if rapid.Bool().Draw(t, "summaries") {
				c.world.start.Agent.Context.Compaction = agent.CompactSummary
			}
		}
		for turn := range rapid.IntRange(1, 6).Draw(t, "turns") {
			c.turn(fmt.Sprintf("r%d", turn), c.message())
		}
		c.turn("plain1", []agent.Part{agent.Text{Text: "Hello?"}})
		if got := c.turn("plain2", []agent.Part{agent.Text{Text: "Are you there?"}}); got != loop.StatusCompleted {
			t.Fatalf("the conversation is dead: the last message has %s, the provider refuses %s; it was sent\n%s", got, strings.Join(c.provider.rules, ", "), strings.Join(c.sent, "\n"))
		}
	})
}

// A provider that names a file by its place loses only that file. One that would refuse every file, one after the other, is asked only a
// few times.
func TestAFileThatAProviderNamesIsLeftOutAlone(t *testing.T) {
	t.Parallel()
	const images = 12 // more than the refusals that end a run
	for refused := range images + 1 {
		var sent []int
		w := newWorld(loop.Start{
			Run:   loop.Run{Tenant: "acme", SessionID: "s", RunID: "r1"},
			Agent: agent.Agent{Name: "any", Model: "test/mind", MaxSteps: 3}, MaxDepth: 1,
		})
		w.next("r1", "x")
		question := []agent.Part{agent.Text{Text: "Look."}}
		for n := range images {
			question = append(question, agent.File{MediaType: "image/png", URL: fmt.Sprint("data:image/png,", n), Filename: fmt.Sprint(n, ".png")})
		}
		w.start.Transcript[len(w.start.Transcript)-1].Parts = question
		p := loop.New(w.newStart())
		for done := false; !done; {
			switch e := p.Next().(type) {
			case loop.CallModel:
				sent = append(sent, len(imagesOf(e.Request)))
				var bad *model.Refusal
				for _, m := range e.Request.Messages {
					for i, part := range m.Parts {
						f, ok := part.(agent.File)
						if ok && bad == nil && (refused == images || f.Filename == fmt.Sprint(refused, ".png")) {
							bad = &model.Refusal{Part: model.RefusedFile, Files: []model.FileRef{{MessageID: m.ID, Part: i}}}
						}
					}
				}
				if bad != nil {
					p.Failed(nil, &model.Error{Code: model.CodeInvalidRequest, StatusCode: 400, Refusal: bad})
					continue
				}
				r := p.NewReply()
				if _, err := r.Add(model.TextDelta{Text: "Yes."}); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Add(model.Finish{Reason: model.FinishStop}); err != nil {
					t.Fatal(err)
				}
				p.Replied(r)
			case loop.Commit:
				w.commit(e)
				p.Committed()
			case loop.Done:
				if e.Outcome.Status != loop.StatusCompleted {
					t.Errorf("refused %d: the run has %s", refused, e.Outcome.Status)
				}
				done = true
			default:
				t.Fatalf("the effect %T", e)
			}
		}
		want := []int{images, images - 1}
		if refused == images {
			want = []int{images, images - 1, images - 2, images - 3, 0}
		}
		if !slices.Equal(sent, want) {
			t.Errorf("refused %d: the requests had %v images, want %v", refused, sent, want)
		}
	}
}

// refusingProvider refuses requests above its limits.
type refusingProvider struct {
	rules   []string
	checks  []func(model.Request) *model.Refusal
	silent  bool // it never says what it refuses
	refused map[string]bool
}

func drawProvider(t *rapid.T) *refusingProvider {
	p := &refusingProvider{silent: rapid.Bool().Draw(t, "silent"), refused: map[string]bool{}}
	rule := func(name string, check func(model.Request) *model.Refusal) {
		if rapid.IntRange(0, 2).Draw(t, name) == 0 {
			p.rules, p.checks = append(p.rules, name), append(p.checks, check)
		}
	}
	limit, perToken := rapid.IntRange(600, 2000).Draw(t, "tokens"), rapid.IntRange(1, 6).Draw(t, "bytes a token")
	rule("context", func(r model.Request) *model.Refusal {
		if tokens := sizeOf(r) / perToken; tokens > limit {
			return &model.Refusal{Part: model.RefusedContext, Limit: int64(limit), Count: int64(tokens)}
		}
		return nil
	})
	rule("images", func(r model.Request) *model.Refusal {
		return refuseIf(len(imagesOf(r)) > 0, model.Refusal{Part: model.RefusedFile, Kind: model.KindImage, Reason: model.FileKindNotTaken})
	})
	most := rapid.IntRange(1, 3).Draw(t, "images at once")
	rule("many images", func(r model.Request) *model.Refusal {
		return refuseIf(len(imagesOf(r)) > most, model.Refusal{Part: model.RefusedFile, Kind: model.KindImage, Reason: model.FilesTooMany, Limit: int64(most)})
	})
	rule("large images", func(r model.Request) *model.Refusal {
		large := slices.ContainsFunc(imagesOf(r), func(f agent.File) bool { return strings.Contains(f.URL, "large") })
		return refuseIf(large, model.Refusal{Part: model.RefusedFile, Kind: model.KindImage, Reason: model.FileTooLarge, Limit: 5 << 20})
	})
	rule("any image, one by one", func(r model.Request) *model.Refusal {
		for _, m := range r.Messages {
			for i, part := range m.Parts {
				if _, ok := part.(agent.File); ok {
					return &model.Refusal{Part: model.RefusedFile, Files: []model.FileRef{{MessageID: m.ID, Part: i}}}
				}
			}
		}
		return nil
	})
	rule("bad words", func(r model.Request) *model.Refusal {
		return refuseIf(strings.Contains(textOf(r), "forbidden"), model.Refusal{Part: model.RefusedContent})
	})
	rule("odd words", func(r model.Request) *model.Refusal {
		return refuseIf(strings.Contains(textOf(r), "odd"), model.Refusal{})
	})
	rule("calls", func(r model.Request) *model.Refusal {
		return refuseIf(slices.ContainsFunc(r.Messages, func(m agent.Message) bool { return len(m.Calls()) > 0 }), model.Refusal{})
	})
	rule("roles in a row", func(r model.Request) *model.Refusal {
		for i := 1; i < len(r.Messages); i++ {
			if r.Messages[i].Role == r.Messages[i-1].Role {
				return &model.Refusal{}
			}
		}
		return nil
	})
	rule("context messages", func(r model.Request) *model.Refusal {
		return refuseIf(slices.ContainsFunc(r.Messages, func(m agent.Message) bool { return m.Role == agent.RoleContext }), model.Refusal{})
	})
	rule("tools", func(r model.Request) *model.Refusal {
		return refuseIf(len(r.Tools) > 0, model.Refusal{Part: model.RefusedTool, Name: "look"})
	})
	return p
}

func refuseIf(is bool, r model.Refusal) *model.Refusal {
	if !is {
		return nil
	}
	return &r
}

func sizeOf(r model.Request) int { return len(textOf(r)) }

// textOf returns all texts of a request.
func textOf(r model.Request) string {
	var text strings.Builder
	for _, m := range r.Messages {
		for _, part := range m.Parts {
			switch part := part.(type) {
			case agent.Text:
				text.WriteString(part.Text)
			case agent.ToolCall:
				text.WriteString(part.Name + string(part.Arguments))
			case agent.ToolResult:
				text.WriteString(string(part.Result) + part.Error)
			}
		}
	}
	return text.String()
}

func imagesOf(r model.Request) (images []agent.File) {
	for _, m := range r.Messages {
		for _, part := range m.Parts {
			if f, ok := part.(agent.File); ok {
				images = append(images, f)
			}
		}
	}
	return images
}

// answer returns the refusal of a request, or nil.
func (p *refusingProvider) answer(t *rapid.T, r model.Request) error {
	for i, check := range p.checks {
		refusal := check(r)
		if refusal == nil {
			continue
		}
		if p.silent && refusal.Part != model.RefusedTool {
			refusal = &model.Refusal{}
		}
		sent := fmt.Sprint(len(r.Tools), r.Choice)
		for _, m := range r.Messages {
			sent += fmt.Sprintf("\n%s %v", m.Role, m.Parts)
		}
		if p.refused[sent] {
			t.Fatalf("refused before, and sent again: %s", sent)
		}
		p.refused[sent] = true
		return &model.Error{Code: model.CodeInvalidRequest, StatusCode: 400, Message: p.rules[i], Refusal: refusal}
	}
	return nil
}

// refusedConversation is a session whose provider refuses requests.
type refusedConversation struct {
	*rapid.T
	provider *refusingProvider
	world    *world
	images   int
	sent     []string // the requests of the turn
	called   bool     // the model has called a tool in the turn
}

// message returns the parts of a user message: long, with images, odd, or plain.
func (c *refusedConversation) message() []agent.Part {
	words := rapid.SampledFrom([]string{"hello", "a forbidden word", "an odd word", strings.Repeat("long ", 100), strings.Repeat("longer ", 2000), ""}).Draw(c.T, "text")
	if words != "" { // a user may repeat a message, and the planner then may send it again
		words += fmt.Sprint(" ", len(c.world.start.Transcript))
	}
	parts := []agent.Part{agent.Text{Text: words}}
	for range rapid.IntRange(0, 3).Draw(c.T, "images") {
		c.images++
		size := rapid.SampledFrom([]string{"small", "large"}).Draw(c.T, "size")
		parts = append(parts, agent.File{MediaType: "image/png", URL: fmt.Sprintf("data:image/png,%s%d", size, c.images), Filename: fmt.Sprintf("x%d.png", c.images)})
	}
	if words == "" && len(parts) == 1 {
		parts = append(parts, agent.Text{Text: fmt.Sprint(len(c.world.start.Transcript))})
	}
	return parts
}

// turn is a run with a message. Executors may be lost in it.
func (c *refusedConversation) turn(runID string, parts []agent.Part) loop.Status {
	w := c.world
	w.next(runID, "x")
	w.start.Transcript[len(w.start.Transcript)-1].Parts = parts
	c.sent, c.called = nil, strings.HasPrefix(runID, "plain")
	p := loop.New(w.newStart())
	for calls := 0; ; {
		switch e := p.Next().(type) {
		case loop.CallModel:
			if calls++; calls > mostModelCalls {
				c.Fatalf("%d model calls for one message", calls)
			}
			err := c.provider.answer(c.T, e.Request)
			c.sent = append(c.sent, fmt.Sprintf("%s%v", describe(e), err))
			if err != nil {
				p.Failed(nil, err)
				continue
			}
			p.Replied(c.reply(p, e))
		case loop.Compact:
			if calls++; calls > mostModelCalls {
				c.Fatalf("%d model calls for one message", calls)
			}
			if err := c.provider.answer(c.T, e.Request); err != nil {
				p.CompactFailed(err)
				continue
			}
			p.Compacted(fmt.Sprint("In short, they talked ", len(w.start.Transcript)))
		case loop.RunCalls:
			ends := endsOf(e, nil)
			for i := range ends {
				if ends[i].Result.Success {
					ends[i].Result.Result, _ = json.Marshal(rapid.SampledFrom([]string{"ok", "forbidden", "odd", strings.Repeat("found ", 1000)}).Draw(c.T, "result"))
				}
			}
			p.Ended(ends)
		case loop.Commit:
			w.commit(e)
			if rapid.IntRange(0, 3).Draw(c.T, "lost") == 0 && e.Outcome == nil {
				p = loop.New(w.newStart())
				continue
			}
			p.Committed()
		case loop.Finish:
			w.outcome = &e.Outcome
			p.Finished()
		case loop.Done:
			return e.Outcome.Status
		default:
			c.Fatalf("the effect %T", e)
		}
	}
}

// reply calls a tool once in a run, at most.
func (c *refusedConversation) reply(p *loop.Planner, e loop.CallModel) *loop.Reply {
	r := p.NewReply()
	events := []model.Event{model.TextDelta{Text: fmt.Sprint("Yes ", len(c.world.start.Transcript))}, model.Finish{Reason: model.FinishStop}}
	if len(e.Request.Tools) > 0 && !c.called && rapid.Bool().Draw(c.T, "call") {
		c.called = true
		events = []model.Event{
			model.CallStart{ID: "c", Name: "look"}, model.CallDelta{Text: `{"q":1}`}, model.CallEnd{Arguments: json.RawMessage(`{"q":1}`)},
			model.Finish{Reason: model.FinishToolCalls},
		}
	}
	for _, event := range events {
		if _, err := r.Add(event); err != nil {
			c.Fatal(err)
		}
	}
	return r
}
