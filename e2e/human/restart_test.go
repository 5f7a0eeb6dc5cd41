package human_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	// talkers is the number of concurrent conversations during restarts.
	talkers = 6
	// between is the number of completed conversations between two restarts.
	between = 4
	// restartLimit bounds all restarts, and each conversation.
	restartLimit = 8 * time.Minute
	// again is the time between two attempts of a client.
	retryPause = 50 * time.Millisecond
)

// TestAnswersAreTakenOnceWhileEveryServiceIsRestarted restarts each process in turn, by SIGTERM and by SIGKILL,
// during conversations. Two people answer each question at once.
func TestAnswersAreTakenOnceWhileEveryServiceIsRestarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), restartLimit)
	defer cancel()
	c := &people{T: t, world: w, ctx: ctx, happened: map[string]int{}}
	var talking sync.WaitGroup
	for i := range talkers {
		talking.Go(func() { c.talk(i) })
	}
	for _, p := range []*harness.Process{
		w.States[0], w.States[1], w.Stream, w.Executors[0], w.Executors[1], w.Gateways[0], w.Gateways[1],
	} {
		c.progress()
		p.Stop(harness.StopLimit)
		p.Start()
		c.progress()
		p.Restart()
	}
	c.progress()
	c.over.Store(true)
	talking.Wait()
	t.Logf("%d conversations over %d restarts: %v", c.ended.Load(), 14, c.happened)
	// Each may win any number of times.
	for _, word := range []string{"ask: ", "pay: "} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(c.happened)), func(what string) bool { return strings.HasPrefix(what, word) }) {
			t.Errorf("%v: nobody has answered %q; the test has proved little", c.happened, word)
		}
	}
}

// people is a group of people in continuous conversations.
type people struct {
	*testing.T
	*world
	ctx   context.Context //nolint:containedctx // the crowd is one test: it ends when everything has to be over
	over  atomic.Bool     // no new conversation begins
	ended atomic.Int64

	mu       sync.Mutex
	happened map[string]int
}

// progress waits for the end of some more conversations.
func (c *people) progress() {
	c.Helper()
	begin := c.ended.Load()
	harness.WaitFor(c, restartLimit, "conversations to come to their end", func() (bool, string) {
		n := c.ended.Load() - begin
		return n >= between || c.Failed(), fmt.Sprint(n)
	})
	if c.Failed() {
		c.FailNow()
	}
}

func (c *people) talk(i int) {
	for n := 0; !c.over.Load() && c.ctx.Err() == nil; n++ {
		p := &person{people: c, session: fmt.Sprintf("restarts/%d/%d", i, n), word: []string{"ask", "pay"}[n%2]}
		if err := p.converse(); err != nil {
			c.Errorf("session %s: %v", p.session, err)
			return
		}
		c.ended.Add(1)
	}
}

// person has one conversation and retries every request.
type person struct {
	*people
	session, word string
}

func (p *person) converse() error {
	first, err := p.At(0).Converse(p.ctx, p.session, agentType, p.word+" "+p.session)
	if err != nil {
		return fmt.Errorf("the first answer: %w", err)
	}
	call := first.Call(p.word)
	if call == nil {
		return fmt.Errorf("there is no call of %s in\n%s", p.word, first.Content())
	}
	answers := p.answers(call)
	var told [2]string
	var errs [2]error
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { told[i], errs[i] = p.submit(p.At(i), answers[i]) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	stored, err := p.end()
	if err != nil {
		return err
	}
	return p.check(call.ToolCallID, told, stored)
}

// answers returns the answers of two people. The first one approves.
func (p *person) answers(call *harness.UIPart) [2]harness.ToolAnswer {
	var all [2]harness.ToolAnswer
	for i := range all {
		all[i] = harness.ToolAnswer{ToolCallID: call.ToolCallID, Result: fmt.Appendf(nil, "%q", marks[i])}
		if p.word == "pay" {
			approved := i == 0
			all[i] = harness.ToolAnswer{
				ToolCallID: call.ToolCallID, Kind: "approval-response", ApprovalID: call.Approval.ID, Approved: &approved, Reason: marks[i],
			}
		}
	}
	return all
}

// marks distinguish the two people.
var marks = [2]string{"the first one says so", "the second one says so"}

// submit repeats an answer until it receives a definite status.
func (p *person) submit(c harness.Client, a harness.ToolAnswer) (status string, err error) {
	for {
		got, err := c.Submit(p.ctx, p.session, a)
		if err == nil {
			return got.Status, nil
		}
		if !harness.IsRetryable(err) {
			return "", fmt.Errorf("submit: %w", err)
		}
		if !p.pause() {
			return "", fmt.Errorf("submit: %w; the last attempt: %w", p.ctx.Err(), err)
		}
	}
}

// pause waits a moment and reports whether time remains.
func (p *person) pause() bool {
	select {
	case <-time.After(retryPause):
		return true
	case <-p.ctx.Done():
		return false
	}
}

// end waits for the end of the session and returns its conversation.
func (p *person) end() ([]harness.UIMessage, error) {
	for {
		snapshot, err := p.At(1).Snapshot(p.ctx, p.session)
		switch {
		case err != nil && !harness.IsRetryable(err):
			return nil, fmt.Errorf("look at it: %w", err)
		case err == nil && snapshot.Status == "ended":
			return snapshot.Messages, nil
		}
		if !p.pause() {
			return nil, fmt.Errorf("it does not end (%w): %s, %w", p.ctx.Err(), snapshot.Status, err)
		}
	}
}

// check compares the responses to both people with the model's view, the ledger, and the conversation.
func (p *person) check(call string, told [2]string, stored []harness.UIMessage) error {
	all := p.model.requests(p.session)
	var seen string
	for _, q := range all {
		if problem := q.problem(); problem != "" {
			return fmt.Errorf("the model was asked with a broken conversation: %s\n%v", problem, q)
		}
		if text, n := q.result(call); n > 0 && seen == "" {
			seen = text
		} else if n > 0 && text != seen {
			return fmt.Errorf("the model saw %q, and then %q", seen, text)
		}
	}
	winner := 0
	if strings.Contains(seen, marks[1]) {
		winner = 1
	}
	if seen == "" || told[1-winner] == "accepted" {
		return fmt.Errorf("they were told %q, and the model saw %q", told, seen)
	}
	for _, status := range told {
		if status != "accepted" && status != "already_completed" {
			return fmt.Errorf("they were told %q", told)
		}
	}
	there := p.ledger.Entry("pay " + p.session)
	if keys := len(there.Keys); p.word == "pay" && keys != 1-winner {
		return fmt.Errorf("the model saw %q, and the ledger has %+v", seen, there)
	}
	last := stored[len(stored)-1]
	part := last.Call(p.word)
	if len(stored) != 2 || last.Text() != strings.TrimSpace(last.Text()) || strings.Count(last.Text(), done) != 1 || part == nil ||
		part.State != map[bool]string{true: "output-denied", false: "output-available"}[p.word == "pay" && winner == 1] {
		return fmt.Errorf("they were told %q, the model saw %q, and the conversation is\n%s", told, seen, harness.Transcript(stored))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.happened[fmt.Sprintf("%s: %s, %s", p.word, told[0], told[1])]++
	return nil
}
