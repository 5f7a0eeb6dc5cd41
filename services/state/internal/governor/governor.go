// Package governor has the rules that keep the calls of models within the limits of their
// providers. It is pure: it changes the loaded governors of one call, and the store writes them.
//
//	executor ──Acquire──▶ room in every governor? ──yes──▶ a lease, counted in the window
//	    ▲                          │ no
//	    └──── wait, ask again ◀────┴──▶ a ticket in the queue of each governor without room
//
// # Window
//
// A governor counts requests and tokens in slots of two seconds. A slot counts until its last
// instant is a minute old, so no 60 seconds have more than the limit. The price is 2 of 62 seconds
// of throughput. A whole minute's limit may be used at once, as providers allow.
//
// Tokens are counted by estimate when the call begins. At its end the actual tokens replace the
// estimate: what was not used is returned to the slot of the begin, and the excess counts now.
//
// # Queue
//
// A call without room takes a ticket, which reserves room before later calls. A ticket expires soon
// after its next ask is due, so a call that is gone delays others for seconds only. A governor with
// room gives no ticket, so a call that waits for one governor takes no room from another.
//
// # Leases
//
// The store counts no expired lease, and none of an unregistered executor. So the
// leases of a dead executor come back with its runs, and nothing renews them.
//
// # Time
//
// A governor's clock never goes back: calls through replicas whose clocks differ see the latest
// time. Only a window that spans a jump of the clock is shorter than a minute, by the difference.
package governor

import "slices"

// Millis is a time or duration in milliseconds.
type Millis int64

const (
	window       Millis = 60_000
	slotLength   Millis = 2_000
	poll         Millis = 250 // the wait for a call's end, for each place in the queue
	longestPoll  Millis = 2_000
	ticketGrace  Millis = 2_000
	maxQueue            = 1_000 // tickets; later calls ask again without one
	maxPause     Millis = 5 * 60_000
	longestRetry Millis = 5_000
)

// Limits of a governor. 0 is no limit.
type Limits struct {
	Requests    int64 // in any minute
	Tokens      int64 // in any minute
	Concurrency int64 // calls in progress
}

// State is the stored part of a governor. The zero value is a governor without calls.
type State struct {
	Clock  Millis   `json:"clock"`            // the latest time seen
	Paused Millis   `json:"paused,omitempty"` // no call begins before this time
	Spent  []Slot   `json:"spent,omitempty"`  // by time, without empty slots
	Queue  []Ticket `json:"queue,omitempty"`  // first come, first served
}

// Slot counts the calls that began in a slot of time.
type Slot struct {
	Start    Millis `json:"at"`
	Requests int64  `json:"requests"`
	Tokens   int64  `json:"tokens"`
}

// Ticket is the place of a waiting call.
type Ticket struct {
	LeaseID string `json:"id"`
	Tokens  int64  `json:"tokens"`
	Expires Millis `json:"expires"` // exclusive
}

// Lease is a call in progress.
type Lease struct {
	Executor string
	Slot     Millis // the start of the slot that counts the call
	Tokens   int64  // the estimate
	Expires  Millis // exclusive
}

// Governor is a governor as a command about one call sees it.
type Governor struct {
	State
	Running int64  // leases of other calls
	Lease   *Lease // of the call; nil for none
}

// Call is a model call that asks for a lease.
type Call struct {
	LeaseID  string
	Executor string
	Tokens   int64
	TTL      Millis
}

// Acquire gives the call a lease in each governor, and returns 0. If one of them has no room, it
// gives none, and returns the wait until the next ask.
func Acquire(governors []*Governor, limits []Limits, c Call, now Millis) Millis {
	var wait Millis
	full := make([]bool, len(governors))
	for i, g := range governors {
		g.advance(now)
		w := g.wait(limits[i], c)
		full[i] = w > 0
		wait = max(wait, w)
	}
	wait = min(wait, longestRetry)
	for i, g := range governors {
		switch tokens := limits[i].clamp(c.Tokens); {
		case wait == 0:
			g.grant(c, tokens)
		case full[i] || g.ticketIndex(c.LeaseID) >= 0:
			g.enqueue(Ticket{LeaseID: c.LeaseID, Tokens: tokens, Expires: g.Clock + wait + ticketGrace})
		}
	}
	return wait
}

// Release ends the lease of the call, or its wait. used has the actual tokens; nil keeps the
// estimate. A pause keeps other calls from beginning.
func Release(governors []*Governor, leaseID string, used *int64, pause, now Millis) {
	for _, g := range governors {
		g.advance(now)
		if at := g.ticketIndex(leaseID); at >= 0 {
			g.Queue = slices.Delete(g.Queue, at, at+1)
		}
		if g.Lease == nil {
			continue
		}
		if used != nil {
			g.correct(*used)
		}
		if pause > 0 {
			g.Paused = max(g.Paused, g.Clock+min(pause, maxPause))
		}
		g.Lease = nil
	}
}

// advance sets the clock, and drops what lies behind it.
func (g *Governor) advance(now Millis) {
	g.Clock = max(g.Clock, now)
	g.Spent = slices.DeleteFunc(g.Spent, func(s Slot) bool { return s.end() <= g.Clock })
	g.Queue = slices.DeleteFunc(g.Queue, func(t Ticket) bool { return t.Expires <= g.Clock })
}

// end is when the slot does not count any more.
func (s Slot) end() Millis { return s.Start + slotLength + window }

// wait returns how long the call has to wait for room; 0 for room now.
func (g *Governor) wait(l Limits, c Call) Millis {
	if g.Lease != nil {
		return 0
	}
	before, reserved := g.before(c.LeaseID)
	wait := max(0, g.Paused-g.Clock)
	if l.Concurrency > 0 && g.Running+before >= l.Concurrency {
		wait = max(wait, min(poll*Millis(before+1), longestPoll))
	}
	if l.Requests > 0 {
		wait = max(wait, g.untilSpent(l.Requests-before-1, func(s Slot) int64 { return s.Requests }))
	}
	if l.Tokens > 0 {
		wait = max(wait, g.untilSpent(l.Tokens-reserved-l.clamp(c.Tokens), func(s Slot) int64 { return s.Tokens }))
	}
	return wait
}

// untilSpent returns how long it takes until at most that much counts.
func (g *Governor) untilSpent(most int64, count func(Slot) int64) Millis {
	var spent int64
	for _, s := range g.Spent {
		spent += count(s)
	}
	if spent <= most {
		return 0
	}
	for _, s := range g.Spent {
		if spent -= count(s); spent <= most {
			return s.end() - g.Clock
		}
	}
	return longestRetry // the calls before this one need all that there is
}

// before returns the number of the tickets before the call, and their tokens.
func (g *Governor) before(leaseID string) (count, tokens int64) {
	for _, t := range g.Queue {
		if t.LeaseID == leaseID {
			break
		}
		count++
		tokens += t.Tokens
	}
	return count, tokens
}

// ticketIndex returns the index of the call's ticket; -1 for none.
func (g *Governor) ticketIndex(leaseID string) int {
	return slices.IndexFunc(g.Queue, func(t Ticket) bool { return t.LeaseID == leaseID })
}

func (g *Governor) enqueue(t Ticket) {
	if at := g.ticketIndex(t.LeaseID); at >= 0 {
		g.Queue[at] = t
	} else if len(g.Queue) < maxQueue {
		g.Queue = append(g.Queue, t)
	}
}

func (g *Governor) grant(c Call, tokens int64) {
	if g.Lease != nil {
		return
	}
	if at := g.ticketIndex(c.LeaseID); at >= 0 {
		g.Queue = slices.Delete(g.Queue, at, at+1)
	}
	s := g.currentSlot()
	s.Requests++
	s.Tokens += tokens
	g.Lease = &Lease{Executor: c.Executor, Slot: s.Start, Tokens: tokens, Expires: g.Clock + c.TTL}
}

// correct replaces the estimate of the lease by the actual tokens.
func (g *Governor) correct(used int64) {
	if used > g.Lease.Tokens {
		g.currentSlot().Tokens += used - g.Lease.Tokens
		return
	}
	for i := range g.Spent {
		if s := &g.Spent[i]; s.Start == g.Lease.Slot {
			s.Tokens = max(0, s.Tokens-(g.Lease.Tokens-used))
		}
	}
}

// currentSlot returns the slot of the clock, and begins it if needed.
func (g *Governor) currentSlot() *Slot {
	start := g.Clock - g.Clock%slotLength
	if n := len(g.Spent); n == 0 || g.Spent[n-1].Start != start {
		g.Spent = append(g.Spent, Slot{Start: start})
	}
	return &g.Spent[len(g.Spent)-1]
}

// clamp bounds an estimate, so that a call above the limit can begin in an empty window.
func (l Limits) clamp(tokens int64) int64 {
	if l.Tokens > 0 {
		return min(tokens, l.Tokens)
	}
	return tokens
}
