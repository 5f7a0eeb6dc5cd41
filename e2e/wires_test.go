package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/e2e/harness"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// frame is a native frame on any transport.
type frame struct {
	sequence int64
	bytes    string // unchanged, without the transport's envelope
	readable string
	mark     bool // caught-up, without content of the run
	terminal bool
	chunk    json.RawMessage // a chunk in the native form
	rewound  bool            // everything after at is void
	at       int64
	end      string // name of the terminal frame
}

func (f frame) String() string { return f.readable }

// connection is one connection of a reader.
type connection interface {
	// next returns the next frame, or io.EOF at the end.
	next() (frame, error)
	close()
}

// wire opens a connection for everything after the sequence.
type wire func(ctx context.Context, after int64) (connection, error)

// wires returns every way to read a session of the first tenant, by name. Readers share no connection.
func wires(t *testing.T, s *harness.System, session string) map[string]wire {
	t.Helper()
	return map[string]wire{
		"SSE by fromSequence": listen(func(ctx context.Context, after int64) (*harness.Events, error) {
			return s.Listen(ctx, session, harness.SSE, after)
		}),
		"SSE by Last-Event-ID": listen(func(ctx context.Context, after int64) (*harness.Events, error) {
			return s.Relisten(ctx, session, after)
		}),
		"WebSocket": listen(func(ctx context.Context, after int64) (*harness.Events, error) {
			return s.Listen(ctx, session, harness.WebSocket, after)
		}),
		"Connect": calling(s, &http.Transport{DisableKeepAlives: true}, session),
		"gRPC":    calling(s, cleartextHTTP2(), session, connect.WithGRPC()),
	}
}

// tenant is the tenant of harness.System's client.
const tenant = "first"

// listening reads events of a body or a socket.
type listening struct{ events *harness.Events }

func listen(open func(ctx context.Context, after int64) (*harness.Events, error)) wire {
	return func(ctx context.Context, after int64) (connection, error) {
		events, err := open(ctx, after)
		return listening{events}, err
	}
}

func (l listening) close() { l.events.Close() }

func (l listening) next() (frame, error) {
	e, err := l.events.Next()
	if err != nil {
		return frame{}, err
	}
	f := frame{bytes: e.Name + " " + e.Data, readable: e.String(), mark: e.Name == "caught-up"}
	if f.terminal = e.Name == "end" || e.Name == "fail"; f.terminal {
		f.end = e.Name
	}
	var data struct {
		Chunk json.RawMessage `json:"chunk"`
		At    int64           `json:"at"`
	}
	if err := json.Unmarshal([]byte(e.Data), &data); err != nil {
		return frame{}, fmt.Errorf("the frame %v: %w", e, err)
	}
	f.chunk, f.rewound, f.at = data.Chunk, e.Name == "rewound", data.At
	if e.ID == "" {
		return f, nil
	}
	f.bytes = e.ID + " " + f.bytes
	f.sequence, err = strconv.ParseInt(e.ID, 10, 64)
	return f, err
}

// called reads from the public Connect API.
type called struct {
	stream    *connect.ServerStreamForClient[agentv1.StreamResponse]
	cancel    context.CancelFunc
	transport *http.Transport
}

// calling uses a separate transport per connection, so a cut connection leaves nothing behind.
func calling(s *harness.System, transport *http.Transport, session string, options ...connect.ClientOption) wire {
	return func(ctx context.Context, after int64) (connection, error) {
		own := transport.Clone()
		client := agentv1connect.NewAgentServiceClient(&http.Client{Transport: withKey{own}}, s.URL, options...)
		ctx, cancel := context.WithCancel(ctx)
		stream, err := client.Stream(ctx, &agentv1.StreamRequest{SessionId: session, FromSequence: after})
		return &called{stream, cancel, own}, err
	}
}

func (c *called) close() {
	c.cancel()
	_ = c.stream.Close() // it was cut
	c.transport.CloseIdleConnections()
}

func (c *called) next() (frame, error) {
	if !c.stream.Receive() {
		return frame{}, errors.Join(c.stream.Err(), io.EOF)
	}
	answer := c.stream.Msg()
	f, err := message(answer)
	f.mark = answer.GetCaughtUp() != nil
	f.rewound, f.at = answer.GetRewound() != nil, answer.GetRewound().GetAt()
	switch {
	case answer.GetEnd() != nil:
		f.terminal, f.end = true, "end"
	case answer.GetFail() != nil:
		f.terminal, f.end = true, "fail"
	case answer.GetChunk() != nil:
		if f.chunk, err = eventv1.MarshalChunk(answer.GetChunk().GetChunk()); err != nil {
			return f, err
		}
	}
	f.sequence = max(answer.GetChunk().GetSequence(), answer.GetRewound().GetSequence(), answer.GetEnd().GetSequence(), answer.GetFail().GetSequence())
	return f, err
}

// message fills the fields common to all frames of a protocol message.
func message(m proto.Message) (frame, error) {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return frame{}, fmt.Errorf("a frame: %w", err)
	}
	return frame{bytes: string(text), readable: protojson.Format(m)}, nil
}

// withKey sends the first tenant's API key.
type withKey struct{ http.RoundTripper }

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+harness.Key)
	return k.RoundTripper.RoundTrip(r)
}

// cleartextHTTP2 speaks HTTP/2 from the first byte, as gRPC requires without TLS.
func cleartextHTTP2() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: protocols}
}
