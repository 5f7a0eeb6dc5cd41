package server

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// mostHandedOver is how many bytes a claim may carry that a command makes: it is made
// while others wait for the same transaction. Larger ones are left to the claim loops,
// which also know what to do with those that no message can take.
const mostHandedOver = 4 << 20

// A stream is handed nothing more while so many claims wait for it, or while it has
// taken none of those that wait for so long: its client does not read.
const (
	mostUnsent = claimBatch
	handWithin = 50 * time.Millisecond
)

// slot is room for a place of an executor whose claim loop is here. A command takes
// the place for the run that it begins, which is then claimed where it is begun, and
// nobody has to look for it. Who begins none takes no place from others. A nil slot never
// has one.
//
// A slot lives as long as its command: end gives the place back, or lets the stream
// have the claim for it; leave does so for a command that comes to no end.
type slot struct {
	server *Server
	of     *claimer       // whose place it may be; nil for nobody's so far
	asked  bool           // somebody was looked for
	taken  bool           // the place is the slot's
	made   *store.Decided // the claim of the last try that has made one
	stands bool           // the last try has made it
	wrote  bool           // the last try writes something
	over   bool
}

// slotFor finds a place for a run of the agent, where an executor that serves it has one
// to spare. With an empty agent the command finds out for whom to ask.
func (s *Server) slotFor(agent string) *slot {
	p := &slot{server: s}
	if agent != "" {
		p.ask(agent)
	}
	return p
}

func (p *slot) ask(agent string) {
	p.of, p.asked = p.server.hub.placed(agent), true
}

func (p *slot) handOver() session.HandOver {
	return session.HandOver{
		Claim: session.Claim{ExecutorID: p.of.executorID, Now: p.server.millis()},
		Tail:  p.server.tail(), Bytes: mostHandedOver,
	}
}

// need adds what a claim carries to what the command wants to see.
func (p *slot) need(n session.Need) session.Need {
	if p.of == nil {
		return n
	}
	return p.handOver().Need(n)
}

// try begins another try of the command, which claims nothing so far.
func (p *slot) try() {
	if p != nil {
		p.stands, p.wrote = false, false
	}
}

// claim claims the run that the command begins in its own session with this try. It
// gives Wider when the try has not been shown what that takes.
func (p *slot) claim(v *session.View, own *session.Change) error {
	if p == nil || own == nil {
		return nil
	}
	p.wrote = true
	if p.of == nil && !p.asked && own.Begins() {
		if p.ask(own.NewRun.AgentType); p.of != nil {
			return &session.Wider{Targets: []session.Target{{Key: own.Session.Key, Need: p.need(session.Need{})}}}
		}
	}
	if p.of == nil || !own.Begins() {
		return nil
	}
	if p.taken = p.taken || p.server.hub.reserve(p.of); !p.taken { // others have been faster
		return nil
	}
	begun, change, err := p.handOver().Decide(v, own)
	if err != nil {
		return err
	}
	p.made, p.stands = nil, change != nil
	if p.stands {
		p.made = &store.Decided{View: begun, Change: change}
	}
	return nil
}

// end ends the slot with its command, whose error is given. A claim that is written
// goes to the stream, or back where that has ended meanwhile.
//
// Of a claim that was made and not written nobody may know whether it was: a commit
// whose answer is lost, or a command that has found its own former try written. It
// goes back too, which changes nothing where there is no such claim.
func (p *slot) end(ctx context.Context, err error) {
	if p.over = true; !p.taken {
		return
	}
	written := err == nil && p.stands
	if written && p.of.handed.put(*p.made, p.server.now()) {
		return
	}
	p.of.credits.back(1)
	switch {
	case written:
		p.of.giveBack(ctx, []store.Decided{*p.made})
	case p.made != nil && (err != nil || !p.wrote):
		p.server.begin(func() { p.of.recall(ctx, *p.made) })
	}
}

func (p *slot) leave() {
	if !p.over && p.taken {
		p.of.credits.back(1)
	}
}

// recall gives a claim back that may not have been written. What it does not reach
// the executor does not hold, and says so.
func (c *claimer) recall(ctx context.Context, claim store.Decided) {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	run := claim.Change.Runs[0]
	ref := session.Ref{Key: claim.View.Session.Key, RunID: run.RunID, Epoch: run.Epoch}
	if err := c.server.release(ctx, ref, 0); err == nil {
		c.server.log.WarnContext(ctx, "a claim whose writing was not answered was given back", "session", ref.SessionID, "run", ref.RunID)
	}
}

// handed are the claims that commands have made for a stream and that are to be sent.
// There are no more than the executor has places.
type handed struct {
	more chan struct{} // holds one signal: something waits

	mu     sync.Mutex
	waits  []store.Decided
	unsent int       // waiting and being sent
	since  time.Time // when the stream last took claims, or when the first claim came
	closed bool
}

// put reports false when the stream takes no more.
func (h *handed) put(claim store.Decided, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	if h.unsent == 0 {
		h.since = now
	}
	h.waits = append(h.waits, claim)
	h.unsent++
	signal(h.more)
	return true
}

// room reports whether the stream takes what it is handed.
func (h *handed) room(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	slow := h.unsent > 0 && now.Sub(h.since) > handWithin
	return h.unsent < mostUnsent && !slow && !h.closed
}

func (h *handed) sent(n int, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsent -= n
	h.since = now
}

func (h *handed) take() []store.Decided {
	h.mu.Lock()
	defer h.mu.Unlock()
	waits := h.waits
	h.waits = nil
	return waits
}

// close returns what is left, and lets nothing more come.
func (h *handed) close() []store.Decided {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	return h.take()
}

// handOut sends the claims that commands have made until ctx ends. It does not wait
// for those that the loop looks for, which may be slow to be found. The error is why
// the stream cannot go on. What is not sent is given back.
func (c *claimer) handOut(ctx context.Context) error {
	defer func() { c.giveBack(ctx, c.handed.close()) }()
	for {
		select {
		case <-c.handed.more:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil
		}
		claims := c.handed.take()
		sent, err := c.send(ctx, claims)
		if err != nil {
			return err
		}
		c.handed.sent(len(claims), c.server.now())
		c.credits.back(len(claims) - sent)
	}
}
