package gateway_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/coder/websocket"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/holdfast-run/holdfast/pkg/config"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// runService runs the background work of a gateway until the end of the test.
func (h *fixture) runService(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.service.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
}

// wantUnauthorized waits for the close of a socket.
func wantUnauthorized(t *testing.T, path string, conn *websocket.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for {
		_, _, err := conn.Read(ctx)
		if err == nil {
			continue
		}
		var closed websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != 3000 || !strings.HasPrefix(closed.Reason, "CREDENTIAL_ENDED") {
			t.Errorf("%s: got %v, want the close code 3000 (CREDENTIAL_ENDED)", path, err)
		}
		return
	}
}

func TestEveryOpenStreamEndsSoonAfterItsKeyIsRemoved(t *testing.T) {
	t.Parallel()
	key, sum := gateway.NewAPIKey()
	_, other := gateway.NewAPIKey()
	rest := "- {name: other, tenant: default, sha256: " + other + "}\n"
	file := keysFile(t, rest+"- {name: gone, tenant: default, scopes: [operate], sha256: "+sum+"}\n")
	h := open(t, func(c *gateway.Config) {
		c.APIKeys, c.InsecureNoAuth, c.TokenSecrets = file, false, []string{strings.Repeat("s", 32)}
	})
	h.runService(t)
	header := "Bearer " + key
	var token struct{ Token string }
	decodeBody(t, h.request(t, http.MethodPost, "/tokens", `{"subject":"ann"}`, "Authorization", header), &token)

	chat := h.chat(t, chatBody("s1", "hi"), "Authorization", "Bearer "+token.Token) // the session is ann's
	h.AwaitRun(t, "default", "s1", nil).Show(1, Started(), StepStarted(), Text("One"))
	chat.until("One")
	page := h.resume(t, "/chat/s1/stream", "Authorization", "Bearer "+token.Token)
	events := h.resume(t, "/sse?sessionId=s1", "Authorization", header)
	sockets := map[string]*websocket.Conn{}
	for _, path := range []string{"/ws?sessionId=s1", "/chat/ws", "/agents/demo/room"} {
		conn, _, err := h.upgrade(t, path, nil, "Authorization", header) //nolint:bodyclose // the body is the socket
		if err != nil {
			t.Fatal(err)
		}
		sockets[path] = conn
	}
	conn, _, err := h.upgrade(t, "/ws?sessionId=s1", []string{"holdfast.v2", "holdfast.key." + token.Token}) //nolint:bodyclose // the body is the socket
	if err != nil {
		t.Fatal(err)
	}
	sockets["/ws of a token"] = conn
	client := agentv1connect.NewAgentServiceClient(http.DefaultClient, h.url, connect.WithInterceptors(&sendingStreams{header}))
	stream, err := client.Stream(t.Context(), &agentv1.StreamRequest{SessionId: "s1"})
	if err != nil || !stream.Receive() {
		t.Fatal(err, stream.Err())
	}
	waited := make(chan *reply, 1)
	go func() {
		waited <- h.request(t, http.MethodGet, "/result?sessionId=s1&wait=60000", "", "Authorization", header)
	}()
	waitFor(t, "all streams are open", func() bool { return h.service.OpenStreams() == 9 })

	if err := os.WriteFile(file, []byte(rest), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*reader{"POST /chat": chat, "GET /chat/s1/stream": page, "GET /sse": events} {
		if got, err := r.all(); err == nil {
			t.Errorf("%s ends well after %v", name, got)
		}
	}
	for path, conn := range sockets {
		wantUnauthorized(t, path, conn)
	}
	for stream.Receive() {
	}
	if reasonOf(stream.Err()) != "CREDENTIAL_ENDED" {
		t.Errorf("Stream: got %v", stream.Err())
	}
	wantFault(t, <-waited, http.StatusUnauthorized, "CREDENTIAL_ENDED")
	waitFor(t, "no stream is open", func() bool { return h.service.OpenStreams() == 0 })
	wantFault(t, h.request(t, http.MethodGet, "/status?sessionId=s1", "", "Authorization", header), 401, "API_KEY_WRONG")
	wantFault(t, h.request(t, http.MethodGet, "/status?sessionId=s1", "", "Authorization", "Bearer "+token.Token), 401, "TOKEN_INVALID")
}

// sendingStreams sends the header Authorization with streams.
type sendingStreams struct{ header string }

func (s *sendingStreams) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

func (s *sendingStreams) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Authorization", s.header)
		return conn
	}
}

func (s *sendingStreams) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func TestAStreamEndsSoonAfterItsTokenExpires(t *testing.T) {
	t.Parallel()
	key, sum := gateway.NewAPIKey()
	file := keysFile(t, "- {name: a, tenant: default, scopes: [operate], sha256: "+sum+"}\n")
	h := open(t, func(c *gateway.Config) {
		c.APIKeys, c.InsecureNoAuth, c.TokenSecrets = file, false, []string{strings.Repeat("s", 32)}
	})
	h.runService(t)
	var token struct {
		Token     string
		ExpiresAt int64
	}
	decodeBody(t, h.request(t, http.MethodPost, "/tokens", `{"subject":"ann","ttlSeconds":10}`, "Authorization", "Bearer "+key), &token)
	conn, _, err := h.upgrade(t, "/agents/demo/room", nil, "Authorization", "Bearer "+token.Token) //nolint:bodyclose // the body is the socket
	if err != nil {
		t.Fatal(err)
	}
	wantUnauthorized(t, "/agents", conn)
	if before := time.Until(time.UnixMilli(token.ExpiresAt)); before > 0 {
		t.Errorf("the socket ended %v before its token", before)
	}
}

func TestKeysAreListedWithTheirLastUseToAdminsOfTheirTenant(t *testing.T) {
	t.Parallel()
	h, acme, _ := openWithKeys(t)
	var list struct {
		Keys []struct {
			Name       string
			Scopes     []string
			LastUsedAt int64
		}
	}
	began := time.Now().UnixMilli()
	decodeBody(t, h.request(t, http.MethodGet, "/keys", "", "Authorization", acme), &list)
	if len(list.Keys) != 1 || list.Keys[0].Name != "a" || fmt.Sprint(list.Keys[0].Scopes) != "[admin]" || list.Keys[0].LastUsedAt < began {
		t.Errorf("got %+v, want the key a of acme, used since %d", list, began)
	}
}

func TestWrongCredentialsAreThrottledWithTheTimeToWait(t *testing.T) {
	t.Parallel()
	_, sum := gateway.NewAPIKey()
	file := keysFile(t, "- {name: a, tenant: acme, sha256: "+sum+"}\n")
	h := open(t, func(c *gateway.Config) { c.APIKeys, c.InsecureNoAuth, c.AuthFailures = file, false, 2 })
	for range 2 {
		wantFault(t, h.request(t, http.MethodGet, "/agents", "", "Authorization", "Bearer hf_wrong"), 401, "API_KEY_WRONG")
	}
	r := h.request(t, http.MethodGet, "/agents", "", "Authorization", "Bearer hf_wrong")
	if got := r.Header.Get("Retry-After"); got == "" {
		t.Error("no Retry-After")
	}
	wantFault(t, r, http.StatusTooManyRequests, "AUTH_THROTTLED")
	_, err := clients(t, h, connect.WithInterceptors(sending("Bearer hf_wrong")))["grpc"].ListAgents(t.Context(), &agentv1.ListAgentsRequest{})
	if reasonOf(err) != "AUTH_THROTTLED" {
		t.Errorf("over gRPC: got %v", err)
	}
}

func TestAJWTAuthenticatesOverEveryTransport(t *testing.T) {
	t.Parallel()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: "k1"}}})
	if err != nil {
		t.Fatal(err)
	}
	const issuer = "https://login.example.com"
	var loaded gateway.Config
	if err := config.Load(&loaded, []string{
		"HOLDFAST_GATEWAY_JWT_ISSUER=" + issuer, "HOLDFAST_GATEWAY_JWT_AUDIENCE=holdfast", "HOLDFAST_GATEWAY_JWT_JWKS=" + keysFile(t, string(set)),
		"HOLDFAST_GATEWAY_JWT_TENANT_CLAIM=org",
	}); err != nil {
		t.Fatal(err)
	}
	h := open(t, func(c *gateway.Config) { c.JWT, c.InsecureNoAuth = loaded.JWT, false })
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: private}, (&jose.SignerOptions{}).WithHeader("kid", "k1"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": issuer, "aud": "holdfast", "sub": "ann", "org": "default", "scope": "chat", "exp": time.Now().Add(time.Minute).Unix(),
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	h.chat(t, chatBody("s1", "hi"), "Authorization", "Bearer "+token)
	for name, c := range clients(t, h, connect.WithInterceptors(sending("Bearer "+token))) {
		got, err := c.GetSession(t.Context(), &agentv1.GetSessionRequest{SessionId: "s1"})
		if err != nil || got.GetSession().GetUserId() != "ann" {
			t.Errorf("over %s: got %v, %v, want a session of ann", name, got, err)
		}
	}
	if _, _, err := h.upgrade(t, "/ws?sessionId=s1", []string{"holdfast.v2", "holdfast.key." + token}); err != nil { //nolint:bodyclose // the body is the socket
		t.Errorf("over a WebSocket: %v", err)
	}
	wantFault(t, h.request(t, http.MethodGet, "/status?sessionId=s1", "", "Authorization", "Bearer "+token[:len(token)-4]+"AAAA"), 401, "TOKEN_INVALID")
	wantFault(t, h.request(t, http.MethodPost, "/tokens", `{"subject":"ann"}`, "Authorization", "Bearer "+token), 403, "SCOPE_MISSING")
}
