package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// Listen opens the native stream of a session after the sequence.
func (c Client) Listen(ctx context.Context, session string, wire Wire, after int64) (*Events, error) {
	r := Reader{Client: c, Session: session, Wire: wire, base: after}
	return r.open(ctx)
}

// Relisten is Listen as an EventSource reconnects: with the id of its last event.
func (c Client) Relisten(ctx context.Context, session string, lastEventID int64) (*Events, error) {
	r := Reader{Client: c, Session: session, Wire: SSE, lastID: strconv.FormatInt(lastEventID, 10)}
	return r.open(ctx)
}

// Body reads limit bytes of GET /sse after the sequence, or all of them if limit is 0, and then disconnects.
func (c Client) Body(ctx context.Context, session string, after, limit int64) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	response, err := c.sse(ctx, session, after)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if limit == 0 {
		return io.ReadAll(response.Body)
	}
	body := make([]byte, limit)
	_, err = io.ReadFull(response.Body, body)
	return body, err
}

// Comments reads GET /sse until a number of heartbeats has arrived, and returns all comments.
func (c Client) Comments(ctx context.Context, session string, beats int) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	response, err := c.sse(ctx, session, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var comments []string
	lines := bufio.NewScanner(response.Body)
	for beats > 0 && lines.Scan() {
		line, comment := strings.CutPrefix(lines.Text(), ":")
		if comment {
			comments = append(comments, strings.TrimSpace(line))
		}
		if comment && strings.TrimSpace(line) == "keep-alive" {
			beats--
		}
	}
	if beats > 0 {
		return comments, errors.Join(lines.Err(), io.ErrUnexpectedEOF)
	}
	return comments, nil
}

func (c Client) sse(ctx context.Context, session string, after int64) (*http.Response, error) {
	r := request{method: http.MethodGet, path: "/sse?sessionId=" + url.QueryEscape(session) + "&fromSequence=" + strconv.FormatInt(after, 10)}
	response, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		return nil, &notOKError{r, response.StatusCode, string(text)}
	}
	return response, nil
}

// Stored is a page of GET /history, with the original bytes of each chunk.
type Stored struct {
	Chunks []struct {
		Sequence int64    `json:"sequence"`
		Chunk    RawChunk `json:"chunk"`
		Session  string   `json:"sessionId"`
	} `json:"chunks"`
	HasMore        bool  `json:"hasMore"`
	LatestSequence int64 `json:"latestSequence"`
}

// RawChunk is the JSON of a chunk, unchanged.
type RawChunk string

// UnmarshalJSON keeps the text.
func (c *RawChunk) UnmarshalJSON(text []byte) error {
	*c = RawChunk(text)
	return nil
}

// History returns one page of stored chunks after the sequence.
func (c Client) History(t testing.TB, session string, after int64, limit int) Stored {
	t.Helper()
	var page Stored
	c.get(t, fmt.Sprintf("/history?sessionId=%s&fromSequence=%d&limit=%d", url.QueryEscape(session), after, limit), &page)
	return page
}

// SessionSnapshot is the response of GET /snapshot.
type SessionSnapshot struct {
	RunID          string      `json:"runId"`
	Messages       []UIMessage `json:"messages"`
	StreamSequence int64       `json:"streamSequence"`
	Status         string      `json:"status"`
}

// Snapshot returns the conversation with the unfinished answer.
func (c Client) Snapshot(ctx context.Context, session string) (SessionSnapshot, error) {
	var s SessionSnapshot
	err := c.load(ctx, "/snapshot?sessionId="+url.QueryEscape(session), &s)
	return s, err
}

// Refusal returns the status and the body of a response without a stream. ok is false for other errors.
func Refusal(err error) (status int, body string, ok bool) {
	refusal, ok := errors.AsType[*notOKError](err)
	if !ok {
		return 0, "", false
	}
	return refusal.code, refusal.body, true
}
