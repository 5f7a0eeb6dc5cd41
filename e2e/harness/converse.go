package harness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// retryPause is the time between two attempts of a persistent client.
const retryPause = 100 * time.Millisecond

// Converse makes one turn like a persistent client. It repeats the request with the same key until it receives a
// stream, attaches again when the connection breaks, and requests the whole answer again when there is nothing
// to attach to. The error is ctx's, or describes a violation of the protocol.
func (c Client) Converse(ctx context.Context, session, agent, text string) (UIMessage, error) {
	ask := turn(session, agent, text)
	attach := request{method: http.MethodGet, path: resumePath(session)}
	next := ask
	for {
		stream, err := c.open(ctx, next)
		if err == nil {
			err = stream.Rest()
			stream.Close()
			if err == nil {
				return stream.Message, explain(stream, stream.Complete())
			}
			next = attach
		}
		if refusal, ok := errors.AsType[*notOKError](err); ok {
			switch refusal.code {
			case http.StatusNoContent:
				next = ask
			case http.StatusServiceUnavailable, http.StatusTooManyRequests:
			default:
				return UIMessage{}, err
			}
		} else if stream != nil && !errors.Is(err, ErrDropped) {
			return UIMessage{}, explain(stream, err)
		}
		if c.OnRetry != nil {
			c.OnRetry(err)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return UIMessage{}, fmt.Errorf("the answer of %q is not whole: %w; the last attempt: %w", session, ctx.Err(), err)
		}
	}
}

// turn returns the request for a turn. It is equal on every call.
func turn(session, agent, text string) request {
	key := session + " " + text
	return request{method: http.MethodPost, path: "/chat", body: chatBody(session, agent, text, key), requestKey: key}
}

// Ask starts a turn and disconnects as soon as the gateway accepts it. It repeats the request with the same key
// until then. Converse with the same text reads the answer.
func (c Client) Ask(ctx context.Context, session, agent, text string) error {
	q := turn(session, agent, text)
	for {
		stream, err := c.open(ctx, q)
		if err == nil {
			stream.Close()
			return nil
		}
		if refusal, ok := errors.AsType[*notOKError](err); ok && refusal.code == http.StatusNoContent {
			return nil // the answer has ended already
		}
		if !isRetryable(err) {
			return err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return fmt.Errorf("%q is not accepted: %w; the last attempt: %w", session, ctx.Err(), err)
		}
	}
}

func explain(s *UIStream, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w\n%s", err, s.Dump())
}
