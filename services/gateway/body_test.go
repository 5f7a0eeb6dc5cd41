package gateway_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	"github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// change replaces the body of a client's request. Reads of rest block until the body is closed.
type change func(body, rest io.Reader) io.Reader

// bodies is a transport that replaces request bodies, without a declared length.
type bodies struct {
	next   http.RoundTripper
	change change
}

func (b bodies) RoundTrip(r *http.Request) (*http.Response, error) {
	changed := r.Clone(r.Context())
	rest, stop := io.Pipe()
	changed.Body = body{b.change(r.Body, rest), r.Body, stop}
	changed.ContentLength, changed.GetBody = -1, nil
	return b.next.RoundTrip(changed)
}

type body struct {
	io.Reader
	sent io.Closer
	stop io.Closer
}

func (b body) Close() error { return errors.Join(b.stop.Close(), b.sent.Close()) }

// keyed is a transport that adds an Authorization header, unless it is empty.
type keyed struct {
	next          http.RoundTripper
	authorization string
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	if k.authorization == "" {
		return k.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", k.authorization)
	return k.next.RoundTrip(r)
}

// endlessBody is a body without an end.
type endlessBody struct{}

func (endlessBody) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// callers returns clients of all protocols, with replaced bodies unless changed is nil.
func callers(t *testing.T, h *fixture, key string, changed change) map[string]agentv1connect.AgentServiceClient {
	t.Helper()
	first := &http.Transport{}
	t.Cleanup(first.CloseIdleConnections)
	one, two := &http.Client{Transport: first}, http2(t)
	if changed != nil {
		one.Transport, two.Transport = bodies{first, changed}, bodies{two.Transport, changed}
	}
	one.Transport, two.Transport = keyed{one.Transport, key}, keyed{two.Transport, key}
	client := agentv1connect.NewAgentServiceClient
	return map[string]agentv1connect.AgentServiceClient{
		"connect":              client(one, h.url),
		"connect over HTTP/2":  client(two, h.url, connect.WithProtoJSON()),
		"grpc":                 client(two, h.url, connect.WithGRPC()),
		"grpc-web":             client(one, h.url, connect.WithGRPCWeb()),
		"grpc-web over HTTP/2": client(two, h.url, connect.WithGRPCWeb()),
	}
}

func TestACallerWithoutAKeyIsRefusedBeforeItsBodyIsRead(t *testing.T) {
	t.Parallel()
	h, _, _ := openWithKeys(t)
	for name, change := range map[string]change{
		"nothing comes": func(_, rest io.Reader) io.Reader { return rest },
		"half comes": func(r, rest io.Reader) io.Reader {
			return io.MultiReader(io.LimitReader(r, 3), rest)
		},
		"it never stops": func(r, _ io.Reader) io.Reader { return io.MultiReader(r, endlessBody{}) },
	} {
		for protocol, client := range callers(t, h, "", change) {
			t.Run(name+" "+protocol, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), gatewaytest.Patience)
				defer cancel()
				_, err := client.Get(ctx, &agentv1.GetRequest{SessionId: "s1"})
				wantReason(t, "get", err, "API_KEY_MISSING")
				if connect.CodeOf(err) != connect.CodeUnauthenticated {
					t.Errorf("got %v, want unauthenticated", err)
				}
				stream, err := client.Stream(ctx, &agentv1.StreamRequest{SessionId: "s1"})
				if err == nil {
					stream.Receive()
					err = stream.Err()
				}
				wantReason(t, "stream", err, "API_KEY_MISSING")
			})
		}
	}
}

func TestACallerWithAKeyIsServedAsItsTenant(t *testing.T) {
	t.Parallel()
	h, acme, other := openWithKeys(t)
	same := func(r, _ io.Reader) io.Reader { return r }
	for protocol, client := range callers(t, h, acme, same) {
		started, err := client.Start(t.Context(), &agentv1.StartRequest{Message: strings.Repeat("x", 1000<<10)})
		if err != nil {
			t.Fatalf("%s: %v", protocol, err)
		}
		h.AwaitRun(t, "acme", started.GetSessionId(), nil)
		_, err = callers(t, h, other, same)[protocol].Get(t.Context(), &agentv1.GetRequest{SessionId: started.GetSessionId()})
		wantReason(t, protocol+": another tenant", err, "SESSION_NOT_FOUND")
	}
}

func TestABodyThatIsTooLargeIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	h, acme, _ := openWithKeys(t)
	for name, tc := range map[string]struct {
		message string
		change  change
	}{
		"it never stops": {strings.Repeat("x", 9<<20), func(r, _ io.Reader) io.Reader { return io.MultiReader(r, endlessBody{}) }},
		"it stalls": {strings.Repeat("x", 9<<20), func(r, rest io.Reader) io.Reader {
			return io.MultiReader(io.LimitReader(r, 8<<20+10), rest)
		}},
	} {
		for protocol, client := range callers(t, h, acme, tc.change) {
			t.Run(name+" "+protocol, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), gatewaytest.Patience)
				defer cancel()
				_, err := client.Start(ctx, &agentv1.StartRequest{Message: tc.message})
				wantReason(t, "start", err, "BODY_TOO_LARGE")
				if connect.CodeOf(err) != connect.CodeInvalidArgument {
					t.Errorf("got %v, want invalid argument", err)
				}
			})
		}
	}
}

func TestAStreamRequestThatIsTooLargeIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for protocol, client := range clients(t, h) {
		stream, err := client.Stream(t.Context(), &agentv1.StreamRequest{SessionId: strings.Repeat("x", 9<<20)})
		if err == nil {
			stream.Receive()
			err = stream.Err()
		}
		wantReason(t, protocol, err, "BODY_TOO_LARGE")
	}
}

func TestACompressedRequestMayNotInflateOutOfProportion(t *testing.T) {
	t.Parallel()
	h, key, _ := openWithKeys(t)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	one, two := &http.Client{Transport: keyed{transport, key}}, http2(t)
	two.Transport = keyed{two.Transport, key}
	client, zipped := agentv1connect.NewAgentServiceClient, connect.WithSendGzip()
	for protocol, client := range map[string]agentv1connect.AgentServiceClient{
		"connect":  client(one, h.url, zipped),
		"grpc":     client(two, h.url, zipped, connect.WithGRPC()),
		"grpc-web": client(one, h.url, zipped, connect.WithGRPCWeb()),
	} {
		text := make([]byte, 200_000)
		for i := range text {
			text[i] = byte('a' + rand.N(26)) //nolint:gosec // no secret
		}
		if _, err := client.Start(t.Context(), &agentv1.StartRequest{SessionId: protocol, AgentType: "demo", Message: string(text)}); err != nil {
			t.Errorf("%s: a compressed request: %v", protocol, err)
		}
		_, err := client.Start(t.Context(), &agentv1.StartRequest{SessionId: protocol + "-bomb", AgentType: "demo", Message: strings.Repeat("x", 7<<20)})
		wantReason(t, protocol, err, "BODY_TOO_LARGE")
	}
}
