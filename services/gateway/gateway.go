// Package gateway serves the public on one port: HTTP for browsers (the AI SDK's chat, the native
// stream as server-sent events and over WebSockets, a chat page) and the Connect service. It stores
// nothing, so any replica serves any client.
//
//	browser ── POST /chat ──▶ chat ── StartRun ──▶ state
//	        ◀─ UI message stream ── uistream ◀── follow ◀── ListSteps ── state
//	                                                    ◀── Read ─────── stream
package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/api"
	"github.com/holdfast-run/holdfast/services/gateway/internal/audit"
	"github.com/holdfast-run/holdfast/services/gateway/internal/chat"
	"github.com/holdfast-run/holdfast/services/gateway/internal/chat/chatws"
	"github.com/holdfast-run/holdfast/services/gateway/internal/cloudflare"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/entry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/erasure"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/flat"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
	"github.com/holdfast-run/holdfast/services/gateway/internal/native"
	"github.com/holdfast-run/holdfast/services/gateway/internal/openapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/page"
	"github.com/holdfast-run/holdfast/services/gateway/internal/price"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/stop"
	"github.com/holdfast-run/holdfast/services/gateway/internal/submit"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
	"github.com/holdfast-run/holdfast/services/gateway/internal/view"
)

// spareReads is how many of the spare reads of files may be of one file.
const spareReads = 10

// maxStopBytes bounds the body of a request to stop a run.
const maxStopBytes = 64 << 10

// Service is a gateway. It may be used by many goroutines.
type Service struct {
	config    Config
	peers     Peers
	state     *grpc.ClientConn
	stream    *grpc.ClientConn
	executors []*grpc.ClientConn
	callers   *auth.Credentials
	within    *pipes
	streams   *httpapi.Streams
	bodies    *httpapi.Memory
	meters    *httpapi.Meters
	prices    *price.Table
	handler   http.Handler
	audit     *audit.Reporter
	guard     *entry.Guard // nil without hooks

	described []httpapi.Route // for the tests of the OpenAPI document
}

// New returns a gateway. It connects to no service yet. Invalid (CONFIG_INVALID, API_KEYS_INVALID,
// PRICES_INVALID, CORS_ORIGIN_INVALID, HOOKS_INVALID, ROUTE_INVALID, and the reasons of rpc.Dial): the configuration is invalid.
func New(_ context.Context, c Config, p Peers) (*Service, error) {
	if err := c.check(p.Authenticate != nil); err != nil {
		return nil, err
	}
	p = p.complete()
	callers, err := credentials(c, p)
	if err != nil {
		return nil, err
	}
	origins := auth.Origins{Allowed: c.CORSOrigins, Loopback: callers.Open, Cookies: p.Authenticate != nil}
	if err := origins.CheckOrigins(); err != nil {
		return nil, err
	}
	s := &Service{
		config: c, peers: p, callers: callers, within: newPipes(), bodies: httpapi.NewMemory(c.BodyMemory, c.SparePercent, c.MaxBodyBytes),
		streams: httpapi.NewStreams(httpapi.StreamLimits{
			All: c.MaxStreams, SparePercent: c.SparePercent, Tenant: c.MaxTenantStreams, User: c.MaxUserStreams,
		}),
	}
	if s.meters, err = httpapi.NewMeters(p.Meter, s.streams); err != nil {
		return nil, err
	}
	callers.NotAdmitted = s.meters.NotAdmitted
	if s.prices, err = price.Read(c.Prices); err != nil {
		return nil, err
	}
	if err := s.dial(); err != nil {
		return nil, err
	}
	s.audit = &audit.Reporter{State: statev1.NewAuditServiceClient(s.state), Now: p.Now, NewID: p.NewID, Log: p.Log}
	if callers.Audit == nil {
		callers.Audit = s.audit
	}
	if s.guard, err = s.newGuard(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.build(origins); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// credentials returns what authenticates callers.
func credentials(c Config, p Peers) (callers *auth.Credentials, err error) {
	callers = &auth.Credentials{
		Open: !c.hasCredentials() && p.Authenticate == nil, Program: p.authenticator(), Audit: p.Audit, Log: p.Log, Now: p.Now,
	}
	if callers.Open && len(c.TokenSecrets) == 0 { // nobody checks its tokens, but apps in development can ask for them
		c.TokenSecrets = []string{rand.Text() + rand.Text()}
	}
	if callers.Throttle, err = auth.NewThrottle(c.AuthFailures, c.AuthWindow, p.Now); err != nil {
		return nil, err
	}
	if c.APIKeys != "" {
		if callers.Keys, err = auth.ReadKeys(c.APIKeys, p.Now); err != nil {
			return nil, err
		}
	}
	if c.JWT.Issuer != "" {
		if callers.Issuer, err = auth.NewIssuer(c.JWT, p.Now); err != nil {
			return nil, err
		}
	}
	if len(c.TokenSecrets) > 0 {
		callers.Tokens, err = auth.NewMinter(c.TokenSecrets, c.TokenMaxTTL)
	}
	return callers, err
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
	for _, address := range s.config.Executors {
		conn, err := rpc.Dial(s.peers.Network, address, client)
		if err != nil {
			return errors.Join(fmt.Errorf("HOLDFAST_GATEWAY_EXECUTOR_ADDRESSES: %w", err), s.Close())
		}
		s.executors = append(s.executors, conn)
	}
	return nil
}

// build makes the handler of all routes.
func (s *Service) build(origins auth.Origins) error {
	p := s.parts()
	methods := s.methods(p)
	mounts, err := methods.Handlers()
	if err != nil {
		return fmt.Errorf("build the Connect service: %w", err)
	}
	limits := s.limits(s.config.MaxBodyBytes, "send less, or raise HOLDFAST_GATEWAY_MAX_BODY_BYTES")
	own := slices.Concat(s.chatRoutes(p), s.agentRoutes(p), s.streamRoutes(p), s.viewRoutes(p), p.stops.Routes(), p.answers.Routes(),
		p.callbacks.Routes(), p.files.Routes(), p.export.Routes(), s.health().Routes(), openapi.Routes(), page.Routes(),
		flat.Routes(methods, limits))
	routes, err := s.programRoutes(own, mounts)
	if err != nil {
		return err
	}
	server := &httpapi.Server{
		Callers: s.callers, Origins: origins, Log: s.peers.Log, Now: s.peers.Now, Mounts: mounts, Meters: s.meters,
		Routes: slices.Concat(own, routes),
	}
	if err := server.Check(); err != nil {
		return err
	}
	s.described = own
	s.handler = httpapi.TimeWrites(retry.PerRequest(chat.ResumeBehindQuery(server.Handler())), s.config.WriteTimeout, s.peers.Now)
	return nil
}

// parts are shared by several handlers.
type parts struct {
	runs      statev1.RunServiceClient
	calls     statev1.CallServiceClient
	sessions  *conversation.Reader
	follower  *follow.Follower
	stops     *stop.Stops
	answers   *submit.Answers
	callbacks *submit.Callbacks
	policy    retry.Policy
	hub       *live.Hub
	chats     *chat.Chat
	files     *files.Files
	eraser    *erasure.Eraser
	export    *audit.Export
}

func (s *Service) parts() *parts {
	c := s.config
	policy := retry.Policy{Limit: c.StatePatience, Now: s.peers.Now}
	state := s.stateOfCallers()
	runs, calls := statev1.NewRunServiceClient(state), statev1.NewCallServiceClient(state)
	sessions := &conversation.Reader{
		Runs: runs, Sessions: statev1.NewSessionServiceClient(state), Policy: policy, DefaultAgent: c.DefaultAgent,
	}
	if s.guard != nil {
		s.guard.Sessions = sessions
	}
	hub := &live.Hub{Client: streamv2.NewStreamServiceClient(s.stream), Log: s.peers.Log, Records: c.ReaderChunks, Bytes: c.ReaderBytes}
	p := &parts{
		runs: runs, calls: calls, sessions: sessions, policy: policy, hub: hub,
		files: files.New(statev1.NewFileServiceClient(state), policy, files.Limits{
			File: c.MaxFileBytes, Files: c.MaxFiles, Memory: httpapi.NewPool(c.FileMemory, c.SparePercent, files.MemoryOf(c.MaxFileBytes)),
			Reads: httpapi.NewPool(int64(c.MaxFileReads), c.SparePercent, spareReads),
			Text:  c.MaxBodyBytes, Body: c.MaxUploadBytes, Bodies: s.bodies, Timeout: c.ReadTimeout,
		}, c.PublicURL),
		follower: &follow.Follower{Sessions: sessions, Live: hub, HeartbeatInterval: c.Heartbeat},
		stops: &stop.Stops{
			Runs: runs, Sessions: sessions, Streams: s.streams, Policy: policy,
			Limits: s.limits(maxStopBytes, "give a shorter reason"),
		},
		eraser: s.eraser(policy),
		export: &audit.Export{Streams: s.streams, State: statev1.NewAuditServiceClient(state), Policy: policy, Audit: s.callers.Audit},
		answers: &submit.Answers{
			Calls: calls, Policy: policy, Limits: s.limits(c.MaxBodyBytes, "send a smaller result, or raise HOLDFAST_GATEWAY_MAX_BODY_BYTES"),
		},
	}
	p.callbacks = &submit.Callbacks{
		Calls: statev1.NewCallServiceClient(s.state), Callers: s.callers, Policy: policy, Limits: p.answers.Limits,
	}
	p.chats = s.newChat(p)
	return p
}

// eraser returns the eraser for requests, and for Run.
func (s *Service) eraser(policy retry.Policy) *erasure.Eraser {
	return &erasure.Eraser{
		Callers: statev1.NewErasureServiceClient(s.stateOfCallers()), State: statev1.NewErasureServiceClient(s.state),
		Stream: streamv2.NewStreamServiceClient(s.stream), Policy: policy, Limit: s.config.ErasureTime, NewID: s.peers.NewID, Log: s.peers.Log,
	}
}

// stateOfCallers is the connection to the state service for requests on behalf of callers.
func (s *Service) stateOfCallers() grpc.ClientConnInterface {
	stamped := auth.Stamped{ClientConnInterface: s.state, Audit: s.callers.Audit}
	if s.guard != nil {
		stamped.Entrance = s.guard
	}
	return stamped
}

// limits bounds request bodies. advice is for the sender of a larger one.
func (s *Service) limits(bytes int64, advice string) httpapi.Limits {
	return httpapi.Limits{MaxBytes: bytes, Timeout: s.config.ReadTimeout, Now: s.peers.Now, Advice: advice, Memory: s.bodies}
}

// methods returns the methods of the Connect service.
func (s *Service) methods(p *parts) *api.Server {
	return &api.Server{
		Files: p.files, Stored: statev1.NewStoredAgentServiceClient(s.stateOfCallers()), Executors: s.executorClients(),
		Callers: s.callers, Runs: p.runs, Checkpoints: statev1.NewCheckpointServiceClient(s.stateOfCallers()),
		Usage: statev1.NewUsageServiceClient(s.stateOfCallers()), Sessions: p.sessions,
		Follower: p.follower, Stops: p.stops, Answers: p.answers, Streams: s.streams, Health: s.health(),
		Audit: p.export.State, Erasure: p.eraser, Policy: p.policy, NewID: s.peers.NewID, Now: s.peers.Now, Meters: s.meters,
		Prices: s.prices, Log: s.peers.Log,
		MaxBytes: int(s.config.MaxBodyBytes), Bodies: s.bodies,
	}
}

// chatRoutes serve clients of the AI SDK.
func (s *Service) chatRoutes(p *parts) []httpapi.Route {
	c := s.config
	sockets := &chatws.Sockets{
		Chat: p.chats, Streams: s.streams, Files: p.files, MaxBytes: c.MaxUploadBytes, Requests: c.MaxSocketChats,
		Heartbeat: c.Heartbeat, Arrival: c.ReadTimeout, Timeout: c.WriteTimeout, Log: s.peers.Log,
	}
	return slices.Concat(p.chats.Routes(), sockets.Routes())
}

// newChat returns the chat for all transports.
func (s *Service) newChat(p *parts) *chat.Chat {
	c := s.config
	return chat.New(
		chat.Config{
			ReplayWindow: c.ReplayWindow, Padding: c.HeartbeatPadding, Major: uistream.Major(c.AISDK), Metadata: c.MessageMetadata,
			History: c.ChatHistory, Missing: chat.MissingPolicy(c.ChatMissing), MaxParts: c.MaxParts,
		},
		chat.Parts{
			Runs: p.runs, Calls: p.calls, Sessions: p.sessions, Follower: p.follower, Streams: s.streams, Policy: p.policy, Files: p.files,
			Limits: s.limits(c.MaxBodyBytes, "send the last message only, or raise HOLDFAST_GATEWAY_MAX_BODY_BYTES"),
			NewID:  s.peers.NewID, Log: s.peers.Log,
		})
}

// executorClients returns the executors that the gateway knows.
func (s *Service) executorClients() (clients []executorv1.ExecutorServiceClient) {
	for _, conn := range s.executors {
		clients = append(clients, executorv1.NewExecutorServiceClient(conn))
	}
	return clients
}

// agentRoutes serve clients of Cloudflare Agents.
func (s *Service) agentRoutes(p *parts) []httpapi.Route {
	c := s.config
	methods := &cloudflare.Methods{
		Sessions: statev1.NewSessionServiceClient(s.state), Timeout: c.MethodTimeout, Executors: s.executorClients(),
	}
	sockets := &cloudflare.Sockets{
		Methods: methods, MethodTimeout: c.MethodTimeout, Major: cmp.Or(uistream.Major(c.AISDK), uistream.DefaultMajor),
		Chat: p.chats, Answers: p.answers, Stops: p.stops, Sessions: p.sessions, Live: p.hub, Files: p.files, Streams: s.streams,
		MaxBytes: c.MaxUploadBytes, MaxText: c.MaxBodyBytes, Requests: c.MaxSocketChats, Heartbeat: c.Heartbeat, Arrival: c.ReadTimeout,
		Bodies:  s.limits(c.MaxBodyBytes, "send smaller arguments, or raise HOLDFAST_GATEWAY_MAX_BODY_BYTES"),
		Timeout: c.WriteTimeout, Poll: c.SessionPoll, Log: s.peers.Log,
	}
	return sockets.Routes()
}

// streamRoutes serve the native stream.
func (s *Service) streamRoutes(p *parts) []httpapi.Route {
	c := s.config
	events := &native.Events{Follower: p.follower, Streams: s.streams, Padding: c.HeartbeatPadding, Timeout: c.WriteTimeout, Log: s.peers.Log}
	sockets := &native.Sockets{Follower: p.follower, Streams: s.streams, Timeout: c.WriteTimeout, Log: s.peers.Log}
	return native.Routes(events, sockets)
}

// viewRoutes serve stored conversations.
func (s *Service) viewRoutes(p *parts) []httpapi.Route {
	views := &view.Handlers{
		Sessions: p.sessions, Files: p.files, Follower: p.follower, Now: s.peers.Now,
		Snapshots: httpapi.NewPool(int64(s.config.MaxSnapshots), s.config.SparePercent, 1),
	}
	return views.Routes()
}

func (s *Service) health() *httpapi.Health {
	return &httpapi.Health{
		Services: []httpapi.Dependency{
			{Name: "state", Variable: "HOLDFAST_GATEWAY_STATE_ADDRESS", Conn: s.state},
			{Name: "stream", Variable: "HOLDFAST_GATEWAY_STREAM_ADDRESS", Conn: s.stream},
		},
		Agents: func(ctx context.Context) (a httpapi.AgentHealth, err error) {
			got, err := statev1.NewSessionServiceClient(s.state).ListAgents(ctx, &statev1.ListAgentsRequest{})
			a.Known = len(got.GetAgents())
			a.Served = a.Known - len(got.GetUnservedAgentTypes())
			for _, p := range got.GetProblems() {
				a.Broken = append(a.Broken, httpapi.PartName(p.GetKind(), p.GetName(), p.GetAgentType()))
			}
			return a, err
		},
	}
}

// NotReady returns why GET /readyz would answer 503, in words; nil for a ready gateway.
func (s *Service) NotReady(ctx context.Context) (reasons []string) {
	problems, _ := s.health().Check(ctx)
	for _, p := range problems {
		reasons = append(reasons, p.Text)
	}
	return reasons
}

// Handler returns the handler of all routes, for a server of the program. Run ends its open streams. Without credentials it
// refuses requests of other machines: Denied (HOST_REFUSED).
func (s *Service) Handler() http.Handler {
	if !s.callers.Open {
		return s.handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !auth.Loopback(r.RemoteAddr) {
			httpapi.WriteError(w, fault.New(fault.Denied, "HOST_REFUSED",
				"without credentials the gateway answers only this machine, not %.100q: set HOLDFAST_GATEWAY_API_KEYS, "+
					"HOLDFAST_GATEWAY_JWT_ISSUER or a function that authenticates callers", r.RemoteAddr))
			return
		}
		s.handler.ServeHTTP(w, r)
	})
}

// Run takes over changes of the API keys until ctx ends, and ends the streams of callers whose credential has ended. It
// then cuts the open streams, so that clients reconnect.
func (s *Service) Run(ctx context.Context) error {
	var background sync.WaitGroup
	background.Go(func() { s.audit.Run(ctx) })
	background.Go(func() { s.eraser(retry.Policy{Now: s.peers.Now}).Run(ctx) })
	s.callers.Watch(ctx, func() { s.streams.EndCallers(s.callers.Check) })
	<-ctx.Done()
	s.streams.Drain()
	background.Wait()
	return nil
}

// Close closes the connections to the other services.
func (s *Service) Close() error {
	err := errors.Join(s.state.Close(), s.stream.Close())
	for _, conn := range s.executors {
		err = errors.Join(err, conn.Close())
	}
	return err
}

// NewAPIKey returns an API key and its digest for the file of HOLDFAST_GATEWAY_API_KEYS.
func NewAPIKey() (key, sha256hex string) { return auth.New() }

// DefaultScopes returns the scopes of an API key that names none.
func DefaultScopes() []string {
	var names []string
	for _, s := range auth.DefaultScopes() {
		names = append(names, string(s))
	}
	return names
}

// CheckScopes gives Invalid (SCOPE_UNKNOWN) for a name without a scope.
func CheckScopes(names []string) error { return auth.CheckScopes(names) }
