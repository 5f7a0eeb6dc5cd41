// Package gateway is the only door to the public: HTTP for browsers (the AI SDK's
// chat, the native stream as server-sent events and over WebSockets, a page to chat on)
// and the Connect service, on one port. It holds no state that matters; any replica serves any client.
//
//	browser ── POST /chat ──▶ chat ── StartRun ──▶ state
//	        ◀─ UI message stream ── uistream ◀── follow ◀── ListSteps ── state
//	                                                    ◀── Read ─────── stream
package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/rpc"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/api"
	"github.com/holdfast-run/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/chat"
	"github.com/holdfast-run/holdfast/services/gateway/internal/chatws"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
	"github.com/holdfast-run/holdfast/services/gateway/internal/native"
	"github.com/holdfast-run/holdfast/services/gateway/internal/page"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/stop"
	"github.com/holdfast-run/holdfast/services/gateway/internal/submit"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
	"github.com/holdfast-run/holdfast/services/gateway/internal/view"
	"github.com/holdfast-run/holdfast/services/gateway/internal/ws"
)

// maxStopBytes bounds the body of a request to stop a run.
const maxStopBytes = 64 << 10

// Service is a gateway. It may be used by many goroutines.
type Service struct {
	config  Config
	peers   Peers
	state   *grpc.ClientConn
	stream  *grpc.ClientConn
	streams *httpapi.Streams
	handler http.Handler
}

// New makes a gateway; it connects to nobody yet. Invalid (CONFIG_INVALID,
// API_KEYS_INVALID, CORS_ORIGIN_INVALID, and the reasons of rpc.Dial): the
// configuration cannot be used.
func New(_ context.Context, c Config, p Peers) (*Service, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	p = p.complete()
	var keys *auth.Keys
	if c.APIKeys != "" {
		var err error
		if keys, err = auth.ReadKeys(c.APIKeys); err != nil {
			return nil, err
		}
	}
	origins := auth.Origins{Allowed: c.CORSOrigins, Loopback: keys == nil}
	if err := origins.CheckOrigins(); err != nil {
		return nil, err
	}
	s := &Service{config: c, peers: p, streams: httpapi.NewStreams(c.MaxStreams)}
	if err := s.dial(); err != nil {
		return nil, err
	}
	if err := s.build(keys, origins); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (p Peers) complete() Peers {
	if p.Network == nil {
		p.Network = rpc.TCP()
	}
	if p.Log == nil {
		p.Log = slog.Default()
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	if p.NewID == nil {
		p.NewID = func() string { return strings.ToLower(rand.Text()) }
	}
	return p
}

func (s *Service) dial() (err error) {
	client := rpc.ClientConfig{Security: s.peers.Security}
	if s.state, err = rpc.Dial(s.peers.Network, s.config.StateAddress, client); err != nil {
		return fmt.Errorf("HOLDFAST_GATEWAY_STATE_ADDRESS: %w", err)
	}
	if s.stream, err = rpc.Dial(s.peers.Network, s.config.StreamAddress, client); err != nil {
		return errors.Join(fmt.Errorf("HOLDFAST_GATEWAY_STREAM_ADDRESS: %w", err), s.state.Close())
	}
	return nil
}

// build puts the rooms together.
func (s *Service) build(keys *auth.Keys, origins auth.Origins) error {
	c, p := s.config, s.peers
	patience := retry.Policy{Limit: c.StatePatience, Now: p.Now}
	runs, calls := statev1.NewRunServiceClient(s.state), statev1.NewCallServiceClient(s.state)
	sessions := &conversation.Reader{Runs: runs, Sessions: statev1.NewSessionServiceClient(s.state), Policy: patience, DefaultAgent: c.DefaultAgent}
	hub := &live.Hub{Client: streamv2.NewStreamServiceClient(s.stream), Log: p.Log, Records: c.ReaderChunks, Bytes: c.ReaderBytes}
	follower := &follow.Follower{Sessions: sessions, Live: hub, Beat: c.Heartbeat}
	views := &view.Handlers{Sessions: sessions, Follower: follower, Now: p.Now, Limit: c.MaxSnapshots}
	chats := chat.New(
		chat.Config{ReplayWindow: c.ReplayWindow, Padding: c.HeartbeatPadding, Major: uistream.Major(c.AISDK), Metadata: c.MessageMetadata},
		chat.Parts{
			Limits: httpapi.Limits{
				MaxBytes: c.MaxBodyBytes, Timeout: c.ReadTimeout, Now: p.Now,
				Advice: "send the last message only, or raise HOLDFAST_GATEWAY_MAX_BODY_BYTES",
			},
			Runs: runs, Calls: calls, Sessions: sessions, Follower: follower, Streams: s.streams, Policy: patience, NewID: p.NewID, Log: p.Log,
		})
	events := &native.Events{Follower: follower, Streams: s.streams, Padding: c.HeartbeatPadding, Timeout: c.WriteTimeout, Log: p.Log}
	sockets := &ws.Sockets{Follower: follower, Streams: s.streams, Timeout: c.WriteTimeout, Log: p.Log}
	talks := &chatws.Sockets{
		Chat: chats, Streams: s.streams, MaxBytes: c.MaxBodyBytes, Requests: c.MaxSocketChats,
		Heartbeat: c.Heartbeat, Arrival: c.ReadTimeout, Timeout: c.WriteTimeout, Log: p.Log,
	}
	stops := &stop.Stops{
		Runs: runs, Sessions: sessions, Streams: s.streams, Policy: patience,
		Limits: httpapi.Limits{MaxBytes: maxStopBytes, Timeout: c.ReadTimeout, Now: p.Now, Advice: "give a shorter reason"},
	}
	answers := &submit.Answers{
		Calls: calls, Policy: patience,
		Limits: httpapi.Limits{MaxBytes: c.MaxBodyBytes, Timeout: c.ReadTimeout, Now: p.Now, Advice: "send a smaller result, or raise HOLDFAST_GATEWAY_MAX_BODY_BYTES"},
	}
	public := &api.Server{
		Keys: keys, Runs: runs, Sessions: sessions,
		Follower: follower, Stops: stops, Answers: answers, Streams: s.streams,
		Policy: patience, NewID: p.NewID, Log: p.Log, MaxBytes: int(c.MaxBodyBytes),
	}
	prefix, connect, err := public.Handler()
	if err != nil {
		return fmt.Errorf("build the Connect service: %w", err)
	}
	server := &httpapi.Server{
		Keys: keys, Origins: origins, Log: p.Log, Now: p.Now,
		Routes: routes(chats, talks, events, sockets, views, stops, answers, s.health()),
		Mounts: map[string]http.Handler{prefix: connect},
	}
	s.handler = httpapi.TimeWrites(server.Handler(), c.WriteTimeout, p.Now)
	return nil
}

func (s *Service) health() *httpapi.Health {
	return &httpapi.Health{Services: map[string]grpc.ClientConnInterface{"state": s.state, "stream": s.stream}}
}

// routes is the whole HTTP surface beside Connect.
func routes(chats *chat.Chat, talks *chatws.Sockets, events *native.Events, sockets *ws.Sockets, views *view.Handlers, stops *stop.Stops, answers *submit.Answers, health *httpapi.Health) []httpapi.Route {
	list := []httpapi.Route{
		{Method: http.MethodPost, Pattern: "/chat", Handler: chats.Post},
		{Method: http.MethodGet, Pattern: "/chat/{id}/stream", Handler: chats.Resume},
		{Method: http.MethodGet, Pattern: "/chat/ws", Handler: talks.Serve},
		{Method: http.MethodPost, Pattern: "/chat/{id}/interrupt", Handler: stops.Interrupt},
		{Method: http.MethodPost, Pattern: "/chat/{id}/abort", Handler: stops.Abort},
		{Method: http.MethodPost, Pattern: "/interrupt", Handler: stops.Interrupt},
		{Method: http.MethodPost, Pattern: "/abort", Handler: stops.Abort},
		{Method: http.MethodPost, Pattern: "/chat/{id}/submit-tool-result", Handler: answers.Serve},
		{Method: http.MethodPost, Pattern: "/submit-tool-result", Handler: answers.Serve},
		{Method: http.MethodGet, Pattern: "/sse", Handler: sockets.Or(events.Serve)},
		{Method: http.MethodGet, Pattern: "/ws", Handler: sockets.Serve},
		{Method: http.MethodGet, Pattern: "/messages", Handler: views.Messages},
		{Method: http.MethodGet, Pattern: "/snapshot", Handler: views.Snapshot},
		{Method: http.MethodGet, Pattern: "/history", Handler: views.History},
		{Method: http.MethodGet, Pattern: "/status", Handler: views.Status},
		{Method: http.MethodGet, Pattern: "/agents", Handler: views.Agents},
		{Method: http.MethodGet, Pattern: "/healthz", Handler: health.Live, Public: true},
		{Method: http.MethodGet, Pattern: "/readyz", Handler: health.Ready, Public: true},
	}
	return append(list, page.Routes()...)
}

// Handler serves everything. Serve is the better way to serve it: it ends open
// streams at shutdown.
func (s *Service) Handler() http.Handler { return s.handler }

// Run waits for the end of ctx and then ends the open streams, in a way that
// clients take for a drop.
func (s *Service) Run(ctx context.Context) error {
	<-ctx.Done()
	s.streams.Drain()
	return nil
}

// Close closes the connections to the other services.
func (s *Service) Close() error {
	return errors.Join(s.state.Close(), s.stream.Close())
}

// NewAPIKey makes an API key and the digest that stands for it in the file of
// HOLDFAST_GATEWAY_API_KEYS.
func NewAPIKey() (key, sha256hex string) { return auth.New() }
