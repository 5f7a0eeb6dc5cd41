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

// Wire is the transport of a Reader.
type Wire string

// The transports of native frames.
const (
	SSE       Wire = "sse"
	WebSocket Wire = "ws"
)

// Reader reads the native stream of a session like a persistent, correct client: it resumes from the last
// sequence after a break, drops rewound chunks, and reloads the conversation when the gateway cannot deliver
// everything.
type Reader struct {
	Client  Client
	Session string
	Wire    Wire

	// Content is the current content over all connections since the last reload.
	Content NativeStream
	// Loaded are the answers of the last reload, oldest first. Content follows them.
	Loaded []UIMessage
	// Frames are all received frames.
	Frames []Event
	// Connections counts answered connections, Drops those without a terminal frame, Reloads the loads of the
	// conversation.
	Connections, Drops, Reloads int

	base   int64  // the sequence at the end of Loaded
	lastID string // the id of the last frame since, as an EventSource sends it; "" for none
}

// Text returns the text of all answers of the reader.
func (r *Reader) Text() string {
	var text strings.Builder
	for _, m := range r.Loaded {
		text.WriteString(m.Text())
	}
	return text.String() + r.Content.Text()
}

// Dump prints the received frames, for failure messages.
func (r *Reader) Dump() string { return "the reader was given\n" + show(r.Frames) }

// Read reads until the terminal frame, `end` or `fail`. The error is ctx's, or describes a violation of the
// protocol.
func (r *Reader) Read(ctx context.Context) error {
	r.Content.End, r.Content.EndData = "", ""
	for reload := false; ; {
		var err error
		if reload {
			err = r.reload(ctx)
			reload = err != nil // the content stays void until it is reloaded
		} else if err = r.connection(ctx); err == nil {
			return nil
		}
		if errors.Is(err, errReload) {
			reload = true
		} else if err != nil && !isRetryable(err) {
			return fmt.Errorf("session %s: %w\n%s", r.Session, err, r.Dump())
		}
		select {
		case <-time.After(rand.N(retryPause)):
		case <-ctx.Done():
			return fmt.Errorf("the stream of %q does not end: %w; the last attempt: %w\n%s", r.Session, ctx.Err(), err, r.Dump())
		}
	}
}

// errReload means that loaded content was rewound.
var errReload = errors.New("load the conversation again")

// isRetryable reports whether a client retries after the error.
func isRetryable(err error) bool {
	if refusal, ok := errors.AsType[*notOKError](err); ok {
		return refusal.code == http.StatusServiceUnavailable || refusal.code == http.StatusTooManyRequests
	}
	_, unreachable := errors.AsType[*url.Error](err)
	return unreachable || errors.Is(err, ErrDropped)
}

// connection reads one connection. It returns nil at the terminal frame.
func (r *Reader) connection(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer events.Close()
	r.Connections++
	r.Content.events = events
	defer func() { r.Frames = append(r.Frames, events.Seen...) }()
	for {
		if err := checkCaughtUpOnce(events.Seen); err != nil {
			return err
		}
		rewinds := r.Content.Rewinds
		err := r.Content.Next()
		if err == nil {
			r.lastID = cmp.Or(events.Seen[len(events.Seen)-1].ID, r.lastID)
			if r.Content.Rewinds > rewinds && r.Content.Cursor == 0 {
				r.lastID = "" // rewound to the beginning, which has no id
			}
		}
		switch {
		case errors.Is(err, io.EOF) && r.Content.End != "":
			return nil
		case errors.Is(err, io.EOF):
			err = fmt.Errorf("%w: it ended without a terminal frame", ErrDropped)
		}
		if errors.Is(err, ErrDropped) && r.Content.End != "" {
			return nil // the cut came after the terminal frame
		}
		if errors.Is(err, ErrDropped) {
			r.Drops++
		}
		if err != nil {
			return err
		}
		if err := r.restartRun(); err != nil {
			return err
		}
		if r.Content.Rewinds > rewinds && r.Content.RewoundAt < r.base {
			return errReload
		}
	}
}

// restartRun drops the chunks of a run that starts again: after a reload a run may be replayed from its start.
func (r *Reader) restartRun() error {
	chunks := r.Content.Chunks
	if len(chunks) == 0 || chunks[len(chunks)-1].Type != "run_started" {
		return nil
	}
	last := chunks[len(chunks)-1]
	r.Loaded = slices.DeleteFunc(r.Loaded, func(m UIMessage) bool { return m.ID == last.MessageID })
	r.Content.Chunks = slices.DeleteFunc(chunks, func(c NativeChunk) bool { return c.AgentID == last.AgentID && c.Sequence < last.Sequence })
	if len(r.Content.Chunks) < len(chunks) && r.Reloads == 0 {
		return fmt.Errorf("%v tells a run again that was not taken back", last)
	}
	return nil
}

// checkCaughtUpOnce returns an error if the last event is the second caught-up event of its connection.
func checkCaughtUpOnce(seen []Event) error {
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

// reload loads the conversation with the unfinished answer and continues from its end.
func (r *Reader) reload(ctx context.Context) error {
	snapshot, err := r.Client.Snapshot(ctx, r.Session)
	if err != nil {
		return err
	}
	r.Reloads++
	r.Loaded = slices.DeleteFunc(snapshot.Messages, func(m UIMessage) bool { return m.Role != "assistant" })
	r.base, r.lastID = snapshot.StreamSequence, ""
	r.Content = NativeStream{Cursor: snapshot.StreamSequence, Rewinds: r.Content.Rewinds}
	return nil
}
