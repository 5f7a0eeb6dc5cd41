package cloudflare

import (
	"github.com/holdfast-run/holdfast/services/gateway/internal/chat"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/stop"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// probe tells a client which turn it can resume.
func (c *connection) probe(f received) error {
	now, err := c.instance.read(retry.Request(c.ctx))
	if err != nil {
		return c.failed("the session of an instance cannot be read", err)
	}
	if next := c.chat.next; next != nil {
		c.chat.offer = nil
		return c.conn.Write(resumingFrame(next.run, f.ProbeID))
	}
	run := now.GetCurrentRun()
	t := c.turns.of(run)
	switch {
	case t != nil:
		return c.conn.Write(resumingFrame(t.id, f.ProbeID))
	case isLive(now.GetSessionResponse):
		c.chat.offered = requestID(run)
		return c.conn.Write(resumingFrame(c.chat.offered, f.ProbeID))
	}
	if t := c.turns.any(); t != nil { // its message waits for the live run, or is about to end
		return c.conn.Write(resumingFrame(t.id, f.ProbeID))
	}
	return c.conn.Write(resumeNoneFrame(f.ProbeID))
}

// offerNext offers the run after the client's answer.
func (c *connection) offerNext() error {
	c.chat.offer = nil
	if c.chat.next == nil {
		return nil
	}
	return c.conn.Write(resumingFrame(c.chat.next.run, ""))
}

// acknowledge delivers the offered turn.
func (c *connection) acknowledge(f received) error {
	t, r := &turn{id: f.ID, kind: replayed}, chat.ReopenRequest{}
	next, current := c.chat.next, c.turns.find(f.ID)
	switch {
	case next != nil && f.ID == next.run:
		c.chat.next, c.chat.offer = nil, nil
		r.RunID = next.run
		if next.adds {
			t.kind = continuation
			r.After, r.HasAfter = chat.Cursor{Sequence: next.after}, true
		}
	case current != nil:
		r.RunID = current.run
	case c.chat.offered != f.ID:
		return nil
	}
	c.chat.offered = ""
	e, err := c.reopen(r)
	if err != nil {
		return c.refuse(f.ID, err)
	}
	if e == nil { // it has ended meanwhile
		if err := c.sendConversation(false); err != nil {
			return err
		}
		return c.conn.Write(response{ID: f.ID, Done: true, Outcome: outcomeCompleted}.encode())
	}
	c.turns.drop(e.MessageID())
	c.start(t, e)
	return nil
}

// stopTurn stops the run of a request.
func (c *connection) stopTurn(f received) error {
	now, err := c.instance.read(retry.Request(c.ctx))
	if err != nil {
		return c.failed("a turn cannot be stopped", err)
	}
	run := c.runOf(f.ID, now)
	if run == "" || c.readOnly {
		return nil
	}
	if t := c.turns.find(f.ID); t != nil {
		c.turns.abort(t)
	}
	_, err = c.Stops.Stop(retry.Request(c.ctx), stop.Request{
		Tenant: c.tenant, SessionID: c.address.session, RunID: run, Kind: statev1.StopKind_STOP_KIND_INTERRUPT, Reason: "user",
	})
	return c.ignore("a turn cannot be stopped", err)
}

// runOf returns the live or waiting run of a request; "" for none. A run that awaits sub-agents is live.
func (c *connection) runOf(id string, now *reading) string {
	current := now.GetCurrentRun()
	t := c.turns.find(id)
	if isLive(now.GetSessionResponse) && (requestID(current) == id || t != nil && t.message == current.GetMessageId()) {
		return current.GetRunId()
	}
	for _, run := range now.GetWaiting() {
		if requestID(run) == id {
			return run.GetRunId()
		}
	}
	return ""
}
