package entry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// Hook is asked about entries.
type Hook struct {
	// Ask may change the entry. A *httpapi.Refusal refuses the request; any other error fails it.
	Ask     func(ctx context.Context, e *Entry) error
	Timeout time.Duration
}

// Guard asks hooks about the commands of callers. It implements auth.Entrance, and may be used by many goroutines.
type Guard struct {
	Before  []Hook // in this order; each sees the changes of those before it
	After   func(context.Context, Entered)
	Timeout time.Duration // of After
	Audit   auth.Auditor  // of refusals; nil for none
	Log     *slog.Logger
	// Sessions reads the sessions of entries. Set it before the first command.
	Sessions *conversation.Reader

	hanging atomic.Int64 // hooks that have not returned in time
}

var _ auth.Entrance = (*Guard)(nil)

// maxHanging is how many hooks may go on after their time. A hook that ignores its context keeps a goroutine, and beyond this
// number requests fail at once.
const maxHanging = 1000

// Enter implements auth.Entrance. It returns a *httpapi.Refusal, or an error that is no fault: then a hook has failed, and the
// answer is INTERNAL.
func (g *Guard) Enter(ctx context.Context, caller auth.Identity, command proto.Message) error {
	e := read(caller, command)
	if e == nil {
		return nil
	}
	e.Request, e.sessions = auth.RequestFrom(ctx), g.Sessions
	kind, session := e.Kind, e.SessionID // a hook that goes on after its time may still write to the entry
	for _, before := range g.Before {
		err := g.run(ctx, before.Timeout, func(ctx context.Context) error { return before.Ask(ctx, e) })
		refusal := httpapi.RefusalOf(err)
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx) // the client has left, or the gateway ends
		case refusal == nil:
			return fmt.Errorf("the hook before an entry (%s) has failed: %v", kind, err) //nolint:errorlint // without its fault
		case !refusal.Valid():
			return fmt.Errorf("the hook before an entry (%s) refuses with the status %d and the code %.100q: "+
				"a status is 400 to 499 or 503, and a code UPPER_SNAKE", kind, refusal.Status, refusal.Code)
		}
		g.record(ctx, caller, kind, session, refusal)
		return refusal
	}
	if len(g.Before) == 0 {
		return nil
	}
	return e.write(caller, command)
}

// Entered implements auth.Entrance. A hook that fails is logged.
func (g *Guard) Entered(ctx context.Context, caller auth.Identity, command proto.Message, answer any) {
	if g.After == nil {
		return
	}
	e := read(caller, command)
	if e == nil {
		return
	}
	e.Request, e.sessions = auth.RequestFrom(ctx), g.Sessions
	done := outcome(e, answer)
	kind, session := e.Kind, e.SessionID
	err := g.run(ctx, g.Timeout, func(ctx context.Context) error {
		g.After(ctx, done)
		return nil
	})
	if err != nil {
		g.Log.WarnContext(ctx, "the hook after an entry has failed", "kind", kind, "session", session, "error", err)
	}
}

// run runs a hook for at most timeout. One that panics has failed. One that goes on after its time is left alone: the caller must
// not touch what it was given.
func (g *Guard) run(ctx context.Context, timeout time.Duration, hook func(context.Context) error) error {
	if g.hanging.Load() >= maxHanging {
		return fmt.Errorf("%d hooks hang: they must return when their context ends", maxHanging)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	done := make(chan error, 1) // room for the only result, so that a late hook can end
	var late atomic.Bool
	go func() {
		defer func() {
			if p := recover(); p != nil {
				g.Log.ErrorContext(ctx, "a hook of the gateway panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				done <- errors.New("it panicked")
			}
			if late.Swap(true) {
				g.hanging.Add(-1)
			}
		}()
		done <- hook(limited)
	}()
	select {
	case err := <-done:
		return err
	case <-limited.Done():
	}
	g.hanging.Add(1)
	if late.Swap(true) { // it has ended at this moment
		g.hanging.Add(-1)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("it has not returned within %v", timeout)
}

func (g *Guard) record(ctx context.Context, caller auth.Identity, kind Kind, session string, refusal *httpapi.Refusal) {
	if g.Audit == nil {
		return
	}
	g.Audit.Record(ctx, auth.Event{
		Action: auth.EntryRefused, Tenant: caller.Tenant, Actor: caller.Actor(), Target: string(kind),
		Detail: map[string]string{"reason": refusal.Reason(), "session_id": session},
	})
}
