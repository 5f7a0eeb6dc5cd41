package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/executor/internal/trusted"
)

// A call whose answer was cut is repeated until its answers were cut minCuts times and cutPatience has passed since the first
// cut. Behind a proxy, an application that restarts is a series of cuts.
const (
	minCuts     = 5
	cutPatience = time.Minute
)

// The delay before a repetition grows from firstDelay to maxDelay.
const (
	firstDelay = 100 * time.Millisecond
	maxDelay   = 5 * time.Second
)

// defaultLimit is the time limit of a call outside of a run, as in a test.
const defaultLimit = time.Minute

// request is the body of a call. Its members are those of the specification.
type request struct {
	Type    string          `json:"type"`
	Agent   string          `json:"agent"`
	Build   string          `json:"build,omitempty"`
	Name    string          `json:"name,omitempty"`
	Context trusted.Context `json:"context"`
	State   agent.State     `json:"state"`
	members members         // of the type
}

// members are the further members of a request.
type members map[string]any

// pending is a call of an application, with all of its attempts.
type pending struct {
	client  *Client
	request request
	// limit is the time of one attempt; 0 for the deadline of the context.
	limit time.Duration
	// repeatable means that the call may be executed twice.
	repeatable bool
	// impatient gives up with an *unsentError if the endpoint cannot be reached: the caller repeats the call.
	impatient bool
	sink      sink
	// reset drops the writes of a cut attempt; nil for none.
	reset func() error
}

// errTimedOut is the cause of the end of an attempt at its limit.
var errTimedOut = errors.New("the call has not ended in time")

// run makes attempts until the call has an end. The error is an *unsentError of an impatient call, a *refusalError, a *Failure, a
// *cutError if it is not known whether the call was executed, errTimedOut, an error of the sink, or the cause of the end of ctx.
func (p *pending) run(ctx context.Context) (json.RawMessage, error) {
	cuts := 0
	var firstCut time.Time
	waited := false
	delay := firstDelay
	for attempt := 1; ; attempt++ {
		result, err := p.attempt(ctx, attempt)
		cut, wasCut := errors.AsType[*cutError](err)
		unsent, wasUnsent := errors.AsType[*unsentError](err)
		switch {
		case err != nil && ctx.Err() != nil:
			if wasUnsent {
				return nil, fmt.Errorf("%w: the endpoint cannot be reached: %w", context.Cause(ctx), err)
			}
			return nil, context.Cause(ctx)
		case wasUnsent && p.impatient:
			return nil, unsent
		case wasUnsent:
			if !waited {
				p.log(ctx, "a call waits for its endpoint", err)
			}
			waited = true
		case wasCut:
			if cuts++; cuts == 1 {
				firstCut = time.Now()
			}
			if !p.repeatable || cuts >= minCuts && time.Since(firstCut) >= cutPatience {
				return nil, cut
			}
			p.log(ctx, "the answer of an endpoint was cut; the call is repeated", err)
			if p.reset != nil {
				if err := p.reset(); err != nil {
					return nil, err
				}
			}
		default:
			return result, err
		}
		wait := delay
		if wasUnsent {
			wait = max(wait, unsent.after)
		}
		wait += time.Duration(p.client.peers.Jitter() * float64(wait) / 2)
		delay = min(2*delay, maxDelay)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// attempt makes one attempt. Its time begins when one of the client's slots is free.
func (p *pending) attempt(ctx context.Context, number int) (json.RawMessage, error) {
	select {
	case p.client.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, &unsentError{err: errors.New("too many calls of it are in progress")}
	}
	if p.limit > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, p.limit, errTimedOut)
		defer cancel()
		ctx = limited
	}
	body, err := p.body(ctx, number)
	if err != nil {
		<-p.client.slots
		return nil, err
	}
	result, err := p.client.attempt(ctx, body, p.sink.take)
	if _, wasCut := errors.AsType[*cutError](err); wasCut && errors.Is(context.Cause(ctx), errTimedOut) {
		return nil, errTimedOut
	}
	return result, err
}

// body returns the body of an attempt.
func (p *pending) body(ctx context.Context, attempt int) ([]byte, error) {
	q := p.request
	if q.Context.Call != nil {
		call := *q.Context.Call
		call.Attempt = attempt
		q.Context.Call = &call
	}
	if deadline, ok := ctx.Deadline(); ok {
		q.Context.Deadline = p.client.peers.Now().Add(time.Until(deadline)).UTC()
	}
	q.Context.Traceparent, _ = telemetry.Traceparent(ctx)
	if q.State == nil {
		q.State = agent.State{}
	}
	text, err := encode(q)
	if err != nil || len(q.members) == 0 {
		return text, err
	}
	more, err := encode(q.members)
	if err != nil {
		return nil, err
	}
	return append(append(bytes.TrimSuffix(text, []byte("}")), ','), more[1:]...), nil
}

// encode returns the JSON of a value, without escapes for HTML.
func encode(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("the request of a call cannot be written as JSON: %w", err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

func (p *pending) log(ctx context.Context, text string, err error) {
	q := p.request
	p.client.peers.Log.WarnContext(ctx, text, "endpoint", p.client.name, "type", q.Type, "name", q.Name, "agent", q.Agent,
		"session", q.Context.Session.ID, "error", err)
}
