package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Wire is how a Reader reads.
type Wire string

// The wires of the native frames.
const (
	SSE       Wire = "sse"
	WebSocket Wire = "ws"
)

// Reader reads the native stream of a session as a client does that never gives
// up and holds to the rules: it goes on from the last sequence where its
// connection breaks, drops what is taken back, and loads the conversation anew
// where it is told that it cannot have everything.
type Reader struct {
	Client  Client
	Session string
	Wire    Wire

	// Held is what it holds, over all connections since the last reload.
	Held NativeStream
	// Loaded are the answers as the last reload had them, the oldest first; what
	// Held has comes behind them.
	Loaded []UIMessage
	// Frames are all that it has been given.
	Frames []Event
	// Connections, Drops and Reloads count: connections that were answered, those
	// of them that ended without a terminal frame, and loads of the conversation.
	Connections, Drops, Reloads int

	base   int64  // the sequence up to which Loaded goes
	lastID string // of the last frame since, which is what an EventSource sends; "" for none
}

// Text is the text of all answers that the reader holds.
func (r *Reader) Text() string {
	var text strings.Builder
	for _, m := range r.Loaded {
		text.WriteString(m.Text())
	}
	return text.String() + r.Held.Text()
}

// Heard prints what the reader has been given, for messages of failures.
func (r *Reader) Heard() string { return "the reader was given\n" + show(r.Frames) }

// Read reads on until the frame that ends the stream, `end` or `fail`, which Held
// then has. The error is ctx's, or says what a client must never see.
func (r *Reader) Read(ctx context.Context) error {
	r.Held.End, r.Held.EndData = "", ""
	for reload := false; ; {
		var err error
		if reload {
			err = r.reload(ctx)
			reload = err != nil // what the reader has stays void until it is loaded again
		} else if err = r.connection(ctx); err == nil {
			return nil
		}
		if errors.Is(err, errReload) {
			reload = true
		} else if err != nil && !passes(err) {
			return fmt.Errorf("session %s: %w\n%s", r.Session, err, r.Heard())
		}
		select {
		case <-time.After(rand.N(retryPause)):
		case <-ctx.Done():
			return fmt.Errorf("the stream of %q does not end: %w; the last attempt: %w\n%s", r.Session, ctx.Err(), err, r.Heard())
		}
	}
}

// errReload says that what was loaded is taken back.
var errReload = errors.New("load the conversation again")

// passes reports whether a client tries again after the error.
func passes(err error) bool {
	if refusal, ok := errors.AsType[*notOKError](err); ok {
		return refusal.code == http.StatusServiceUnavailable || refusal.code == http.StatusTooManyRequests
	}
	_, unreachable := errors.AsType[*url.Error](err)
	return unreachable || errors.Is(err, ErrDropped)
}

// connection reads one connection, to the terminal frame: nil.
func (r *Reader) connection(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer events.Close()
	r.Connections++
	r.Held.events = events
	defer func() { r.Frames = append(r.Frames, events.Seen...) }()
	for {
		if err := onceCaughtUp(events.Seen); err != nil {
			return err
		}
		rewinds := r.Held.Rewinds
		err := r.Held.Next()
		if err == nil {
			r.lastID = cmp.Or(events.Seen[len(events.Seen)-1].ID, r.lastID)
			if r.Held.Rewinds > rewinds && r.Held.Cursor == 0 {
				r.lastID = "" // it goes back to the beginning, which has no id
			}
		}
		switch {
		case errors.Is(err, io.EOF) && r.Held.End != "":
			return nil
		case errors.Is(err, io.EOF):
			err = fmt.Errorf("%w: it ended without a terminal frame", ErrDropped)
		}
		if errors.Is(err, ErrDropped) && r.Held.End != "" {
			return nil // it was cut behind the terminal frame
		}
		if errors.Is(err, ErrDropped) {
			r.Drops++
		}
		if err != nil {
			return err
		}
		if err := r.beginAnew(); err != nil {
			return err
		}
		if r.Held.Rewinds > rewinds && r.Held.RewoundAt < r.base {
			return errReload
		}
	}
}

// beginAnew drops what the reader has of a run that begins: after a reload a run
// may be told again from its start.
func (r *Reader) beginAnew() error {
	chunks := r.Held.Chunks
	if len(chunks) == 0 || chunks[len(chunks)-1].Type != "run_started" {
		return nil
	}
	last := chunks[len(chunks)-1]
	r.Loaded = slices.DeleteFunc(r.Loaded, func(m UIMessage) bool { return m.ID == last.MessageID })
	r.Held.Chunks = slices.DeleteFunc(chunks, func(c NativeChunk) bool { return c.AgentID == last.AgentID && c.Sequence < last.Sequence })
	if len(r.Held.Chunks) < len(chunks) && r.Reloads == 0 {
		return fmt.Errorf("%v tells a run again that was not taken back", last)
	}
	return nil
}

// onceCaughtUp says what is wrong when the last event is the second of its
// connection that tells that the reader has caught up.
func onceCaughtUp(seen []Event) error {
	if len(seen) == 0 || seen[len(seen)-1].Name != "caught-up" {
		return nil
	}
	if slices.ContainsFunc(seen[:len(seen)-1], func(e Event) bool { return e.Name == "caught-up" }) {
		return errors.New("one connection has caught up twice")
	}
	return nil
}

func (r *Reader) open(ctx context.Context) (*Events, error) {
	from := strconv.FormatInt(r.base, 10)
	if r.Wire == WebSocket {
		return r.Client.dialSocket(ctx, r.Session, cmp.Or(r.lastID, from))
	}
	q := request{
		method: http.MethodGet, lastEventID: r.lastID,
		path: "/sse?sessionId=" + url.QueryEscape(r.Session) + "&fromSequence=" + from,
	}
	response, err := r.Client.send(ctx, q)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		return nil, &notOKError{q, response.StatusCode, string(text)}
	}
	return newEvents(response.Body), nil
}

// reload loads the conversation, the unfinished answer included, and goes on from
// where it ends.
func (r *Reader) reload(ctx context.Context) error {
	snapshot, err := r.Client.Snapshot(ctx, r.Session)
	if err != nil {
		return err
	}
	r.Reloads++
	r.Loaded = slices.DeleteFunc(snapshot.Messages, func(m UIMessage) bool { return m.Role != "assistant" })
	r.base, r.lastID = snapshot.StreamSequence, ""
	r.Held = NativeStream{Cursor: snapshot.StreamSequence, Rewinds: r.Held.Rewinds}
	return nil
}
