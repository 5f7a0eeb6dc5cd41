package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/rpc/internal/pipe"
)

// piped are the methods called over a pipe in these tests.
var piped = []string{grpc_testing.TestService_EmptyCall_FullMethodName, grpc_testing.TestService_UnaryCall_FullMethodName}

// overPipe reports, inside a handler, whether the call came over a pipe.
func overPipe(ctx context.Context) bool {
	method, _ := grpc.Method(ctx)
	return strings.HasPrefix(method, "/holdfast.pipe.v1.")
}

// startPiped serves s and returns a client with a pipe.
func startPiped(t *testing.T, network rpc.Network, address string, c rpc.ServerConfig, s grpc_testing.TestServiceServer) grpc_testing.TestServiceClient {
	t.Helper()
	address = serve(t, network, address, c, s)
	return grpc_testing.NewTestServiceClient(dial(t, network, address, rpc.ClientConfig{Security: c.Security, Piped: piped}))
}

func TestAPipedCallIsAnsweredOverThePipe(t *testing.T) {
	t.Parallel()
	onEachConnection(t, func(t *testing.T, network rpc.Network, address string) {
		var over atomic.Bool
		client := startPiped(t, network, address, rpc.ServerConfig{}, service{fail: func(ctx context.Context) error {
			over.Store(overPipe(ctx))
			return nil
		}})
		for _, text := range []string{"hello", "", strings.Repeat("x", 60<<10)} {
			if got, err := echo(t.Context(), client, text); err != nil || got != text || !over.Load() {
				t.Errorf("UnaryCall = %d bytes, %v (over a pipe: %v), want %d bytes over a pipe", len(got), err, over.Load(), len(text))
			}
		}
	})
}

func echo(ctx context.Context, client grpc_testing.TestServiceClient, text string) (string, error) {
	reply, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{Payload: &grpc_testing.Payload{Body: []byte(text)}})
	return string(reply.GetPayload().GetBody()), err
}

func TestARequestThatWouldHoldUpAPipeIsAUnaryCall(t *testing.T) {
	t.Parallel()
	var over atomic.Bool
	client := startPiped(t, rpc.NewMemory(), "state", rpc.ServerConfig{}, service{fail: func(ctx context.Context) error {
		over.Store(overPipe(ctx))
		return nil
	}})
	overhead := len("\x0a\x80\x80\x04") + len("\x12\x80\x80\x04") // of the payload in the request, and of the text in the payload
	for size, want := range map[int]bool{pipe.FrameBytes - overhead: true, pipe.FrameBytes - overhead + 1: false} {
		text := strings.Repeat("x", size)
		if got, err := echo(t.Context(), client, text); err != nil || got != text || over.Load() != want {
			t.Errorf("UnaryCall of %d bytes = %d bytes, %v, over a pipe: %v, want %v", size, len(got), err, over.Load(), want)
		}
	}
}

func TestAnAnswerAboveTheLimitOfMessagesIsTooLarge(t *testing.T) {
	t.Parallel()
	client := startPiped(t, rpc.NewMemory(), "state", rpc.ServerConfig{MaxMessageBytes: 32 << 10}, service{})
	if got, err := echo(t.Context(), client, strings.Repeat("x", 31<<10)); err != nil || len(got) != 31<<10 {
		t.Errorf("an answer below the limit = %d bytes, %v", len(got), err)
	}
	sized := sizedService{size: 32 << 10}
	client = startPiped(t, rpc.NewMemory(), "state", rpc.ServerConfig{MaxMessageBytes: 32 << 10}, sized)
	if _, err := echo(t.Context(), client, "x"); !errors.Is(err, fault.TooLarge) {
		t.Errorf("an answer above the limit = %v, want TooLarge", err)
	}
	if _, err := client.EmptyCall(t.Context(), &grpc_testing.Empty{}); err != nil {
		t.Errorf("the next call = %v", err)
	}
}

// sizedService answers with the requested number of bytes.
type sizedService struct {
	service
	size int
}

func (s sizedService) UnaryCall(context.Context, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	return &grpc_testing.SimpleResponse{Payload: &grpc_testing.Payload{Body: make([]byte, s.size)}}, nil
}

func TestTenThousandCallsAtOnceGetTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	onEachConnection(t, func(t *testing.T, network rpc.Network, address string) {
		client := startPiped(t, network, address, rpc.ServerConfig{}, service{})
		var calls sync.WaitGroup
		for i := range 10_000 {
			calls.Go(func() {
				text := fmt.Sprint("call ", i)
				if got, err := echo(t.Context(), client, text); err != nil || got != text {
					t.Errorf("UnaryCall(%q) = %q, %v", text, got, err)
				}
			})
		}
		calls.Wait()
	})
}

func TestAFaultIsTheSameOverAPipe(t *testing.T) {
	t.Parallel()
	want := &fault.Fault{Kind: fault.Stale, Reason: "EPOCH_STALE", Detail: "epoch 3 is over \xff", Meta: map[string]string{"epoch": "3"}}
	client := startPiped(t, rpc.NewMemory(), "state", rpc.ServerConfig{}, service{fail: func(context.Context) error { return want }})
	_, err := client.EmptyCall(t.Context(), &grpc_testing.Empty{})
	got, ok := fault.From(err)
	if !ok || got.Kind != want.Kind || got.Reason != want.Reason || got.Detail != "epoch 3 is over \uFFFD" || got.Meta["epoch"] != "3" {
		t.Errorf("EmptyCall = %v, want %v", err, want)
	}
}

func TestAPanicOverAPipeIsLoggedAndEndsItsCallOnly(t *testing.T) {
	t.Parallel()
	var log logbook
	client := startPiped(t, rpc.NewMemory(), "state", rpc.ServerConfig{Log: log.logger()}, service{fail: func(context.Context) error { panic("no such thing") }})
	_, err := client.EmptyCall(t.Context(), &grpc_testing.Empty{})
	if f, ok := fault.From(err); !ok || f.Kind != fault.Internal || strings.Contains(err.Error(), "no such thing") {
		t.Errorf("EmptyCall = %v, want Internal without the panic", err)
	}
	if text := log.String(); !strings.Contains(text, "no such thing") || !strings.Contains(text, "EmptyCall") {
		t.Errorf("the log holds no panic of EmptyCall:\n%s", text)
	}
	if _, err := client.EmptyCall(t.Context(), &grpc_testing.Empty{}); errors.Is(err, fault.Unavailable) {
		t.Errorf("the pipe is gone: %v", err)
	}
}

func TestAPipeNeedsTheToken(t *testing.T) {
	t.Parallel()
	network := rpc.NewMemory()
	address := serve(t, network, "state", rpc.ServerConfig{Security: rpc.Security{Token: "right"}, Log: slog.New(slog.DiscardHandler)}, service{})
	for token, want := range map[string]bool{"right": true, "wrong": false, "": false} {
		conn := dial(t, network, address, rpc.ClientConfig{Security: rpc.Security{Token: token}, Piped: piped})
		_, err := grpc_testing.NewTestServiceClient(conn).EmptyCall(t.Context(), &grpc_testing.Empty{})
		if f, _ := fault.From(err); want != (err == nil) || !want && (f == nil || f.Reason != "BAD_TOKEN") {
			t.Errorf("with the token %q: %v", token, err)
		}
	}
}

func TestAMethodThatTheServerLacksIsUnimplementedOverAPipe(t *testing.T) {
	t.Parallel()
	network := rpc.NewMemory()
	serve(t, network, "state", rpc.ServerConfig{}, service{})
	conn := dial(t, network, "state", rpc.ClientConfig{Piped: []string{"/grpc.testing.TestService/Later"}})
	err := conn.Invoke(t.Context(), "/grpc.testing.TestService/Later", &grpc_testing.Empty{}, &grpc_testing.Empty{})
	if f, _ := fault.From(err); f == nil || f.Reason != "UNIMPLEMENTED" {
		t.Errorf("Invoke = %v, want UNIMPLEMENTED", err)
	}
}

func TestAServerWithoutPipesGetsUnaryCalls(t *testing.T) {
	t.Parallel()
	network := rpc.NewMemory()
	server := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(server, service{})
	listener, err := network.Listen(t.Context(), "state")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	client := grpc_testing.NewTestServiceClient(dial(t, network, "state", rpc.ClientConfig{Piped: piped}))
	for range 3 {
		if got, err := echo(t.Context(), client, "hello"); err != nil || got != "hello" {
			t.Errorf("UnaryCall = %q, %v", got, err)
		}
	}
}

func TestTheContextOfACallReachesItsHandlerOverAPipe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, ended := make(chan time.Duration), make(chan error)
		client := startPiped(t, rpc.NewMemory(), "state", rpc.ServerConfig{}, service{fail: func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			began <- time.Until(deadline)
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		failed := make(chan error, 1)
		call := func() {
			_, err := client.EmptyCall(ctx, &grpc_testing.Empty{})
			failed <- err
		}
		go call()
		if limit := <-began; limit != time.Minute {
			t.Errorf("the handler has %v, want a minute", limit)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the handler's context = %v, want it cancelled", err)
		}
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("the call = %v, want it cancelled", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go call()
		<-began
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the handler's context = %v, want it out of time", err)
		}
		if err := <-failed; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the call = %v, want it out of time", err)
		}
	})
}

// slow is a service whose calls block until released, regardless of their callers.
type slow struct {
	service
	began   atomic.Int32
	release chan struct{}
}

func (s *slow) EmptyCall(context.Context, *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	s.began.Add(1)
	<-s.release
	return &grpc_testing.Empty{}, nil
}

func TestCallsBeyondTheLimitOfAPipeWaitAsLongAsTheirContexts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{release: make(chan struct{})}
		client := startPiped(t, rpc.NewMemory(), "state", rpc.ServerConfig{}, s)
		var calls sync.WaitGroup
		for range pipe.MaxCalls + 1 {
			calls.Go(func() {
				if _, err := client.EmptyCall(t.Context(), &grpc_testing.Empty{}); err != nil {
					t.Errorf("EmptyCall = %v", err)
				}
			})
		}
		synctest.Wait()
		if n := s.began.Load(); n != pipe.MaxCalls {
			t.Errorf("the server has begun %d calls, want %d", n, pipe.MaxCalls)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := client.EmptyCall(ctx, &grpc_testing.Empty{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another call = %v, want it out of time", err)
		}
		close(s.release)
		calls.Wait()
		if n := s.began.Load(); n != pipe.MaxCalls+1 {
			t.Errorf("the server has begun %d calls, want %d: the one that was given up was never sent", n, pipe.MaxCalls+1)
		}
	})
}

func TestCallsThatAreGivenUpFreeTheirPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{release: make(chan struct{})}
		client := startPiped(t, rpc.NewMemory(), "state", rpc.ServerConfig{}, s)
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range pipe.MaxCalls {
			calls.Go(func() {
				if _, err := client.EmptyCall(ctx, &grpc_testing.Empty{}); !errors.Is(err, context.Canceled) {
					t.Errorf("EmptyCall = %v, want it cancelled", err)
				}
			})
		}
		synctest.Wait()
		cancel()
		calls.Wait()
		close(s.release)
		for range pipe.MaxCalls {
			if _, err := client.EmptyCall(t.Context(), &grpc_testing.Empty{}); err != nil {
				t.Fatalf("EmptyCall = %v", err)
			}
		}
	})
}

// cuttable is a network with connections under the test's control.
type cuttable struct {
	rpc.Network
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cuttable) DialContext(ctx context.Context, address string) (net.Conn, error) {
	conn, err := c.Network.DialContext(ctx, address)
	if err == nil {
		c.mu.Lock()
		c.conns = append(c.conns, conn)
		c.mu.Unlock()
	}
	return conn, err
}

func (c *cuttable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

func TestABrokenPipeFailsItsCallsAndTheNextOneOpensAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{release: make(chan struct{})}
		network := &cuttable{Network: rpc.NewMemory()}
		client := startPiped(t, network, "state", rpc.ServerConfig{}, s)
		var calls sync.WaitGroup
		for range pipe.MaxCalls + 10 { // including calls without a place
			calls.Go(func() {
				_, err := client.EmptyCall(t.Context(), &grpc_testing.Empty{})
				if f, _ := fault.From(err); f == nil || f.Kind != fault.Unavailable {
					t.Errorf("EmptyCall = %v, want Unavailable", err)
				}
			})
		}
		synctest.Wait()
		network.cut()
		calls.Wait()
		close(s.release)
		if _, err := client.EmptyCall(t.Context(), &grpc_testing.Empty{}); err != nil {
			t.Errorf("the next call = %v", err)
		}
	})
}

func TestAServerThatStopsAnswersTheCallsOfItsPipesAndEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{release: make(chan struct{})}
		network := rpc.NewMemory()
		stop, ended := serveUntil(t, network, s)
		client := grpc_testing.NewTestServiceClient(dial(t, network, "state", rpc.ClientConfig{Piped: piped}))
		idle := grpc_testing.NewTestServiceClient(dial(t, network, "state", rpc.ClientConfig{Piped: piped}))
		if _, err := echo(t.Context(), idle, "opens a pipe"); err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		go func() {
			_, err := client.EmptyCall(t.Context(), &grpc_testing.Empty{})
			answered <- err
		}()
		synctest.Wait()
		began := time.Now()
		stop()
		synctest.Wait()
		if _, err := echo(t.Context(), client, "too late"); !errors.Is(err, fault.Unavailable) {
			t.Errorf("a call while the server stops = %v, want Unavailable", err)
		}
		again, endedAgain := serveUntil(t, network, s)
		if got, err := echo(t.Context(), idle, "another server"); err != nil || got != "another server" {
			t.Errorf("a call to the next server = %q, %v", got, err)
		}
		close(s.release)
		if err := <-answered; err != nil {
			t.Errorf("the call in flight = %v, want an answer", err)
		}
		if err := <-ended; err != nil || time.Since(began) > time.Second {
			t.Errorf("Serve = %v after %v, want nil at once", err, time.Since(began))
		}
		again()
		<-endedAgain
	})
}

// serveUntil serves s on the address "state" until stop is called.
func serveUntil(t *testing.T, network rpc.Network, s grpc_testing.TestServiceServer) (stop func(), ended <-chan error) {
	t.Helper()
	server, err := rpc.NewServer(rpc.ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	grpc_testing.RegisterTestServiceServer(server, s)
	listener, err := network.Listen(t.Context(), "state")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(ctx, server, listener, grace) }()
	return cancel, served
}
