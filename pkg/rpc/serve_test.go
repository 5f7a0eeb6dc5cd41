package rpc_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
)

// shutdown serves s in memory, opens a stream, ends the server's context once the handler runs, and returns the
// results of Serve and the stream. It runs inside a bubble.
func shutdown(t *testing.T, s service, before func(*grpc.ClientConn)) (took time.Duration, serveErr, streamErr error) {
	t.Helper()
	network := rpc.NewMemory()
	server, err := rpc.NewServer(rpc.ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	grpc_testing.RegisterTestServiceServer(server, s)
	listener := listen(t, network, "state")
	conn := dial(t, network, "state", rpc.ClientConfig{})

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served, ended := make(chan error, 1), make(chan error, 1)
	go func() { served <- rpc.Serve(ctx, server, listener, grace) }()
	go func() { ended <- shapes["server stream"](t.Context(), grpc_testing.NewTestServiceClient(conn)) }()
	synctest.Wait()
	before(conn)
	synctest.Wait()

	begin := time.Now()
	stop()
	serveErr = <-served
	took = time.Since(begin)
	conn.Close()
	return took, serveErr, <-ended
}

func nothing(*grpc.ClientConn) {}

func TestServeCutsAStreamThatIsOpenForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		took, serveErr, streamErr := shutdown(t, service{fail: wait}, nothing)
		if serveErr != nil || took != grace {
			t.Errorf("Serve = %v after %v, want nil after %v", serveErr, took, grace)
		}
		if !errors.Is(streamErr, fault.Unavailable) {
			t.Errorf("stream = %v, want Unavailable", streamErr)
		}
	})
}

func TestServeLetsCallsEndWithinTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		finish := func(context.Context) error { time.Sleep(grace / 2); return nil }
		took, serveErr, streamErr := shutdown(t, service{fail: finish}, nothing)
		if serveErr != nil || took > grace/2 {
			t.Errorf("Serve = %v after %v, want nil after at most %v", serveErr, took, grace/2)
		}
		if streamErr != nil {
			t.Errorf("stream = %v, want a good end", streamErr)
		}
	})
}

func TestServeEndsAlthoughAHandlerIgnoresItsContext(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*grpc.ClientConn){
		"while the client is there": nothing,
		"after the client has left": func(conn *grpc.ClientConn) { conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				stuck := func(context.Context) error { <-release; return nil }
				took, serveErr, _ := shutdown(t, service{fail: stuck}, before)
				if serveErr == nil || !strings.Contains(serveErr.Error(), "handlers still run") {
					t.Errorf("Serve = %v, want an error about handlers", serveErr)
				}
				if limit := grace + 5*time.Second; took != limit {
					t.Errorf("Serve took %v, want %v", took, limit)
				}
				close(release)
			})
		})
	}
}

func TestServeEndsAlthoughAConnectionSaysNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := rpc.NewMemory()
		server, err := rpc.NewServer(rpc.ServerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		listener := listen(t, network, "state")
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- rpc.Serve(ctx, server, listener, 0) }()
		conn, err := network.DialContext(t.Context(), "state")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		synctest.Wait()
		time.Sleep(time.Second)
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
	})
}

func TestServeWithAnEndedContextReturnsAtOnce(t *testing.T) {
	t.Parallel()
	onEachNetwork(t, func(t *testing.T, network rpc.Network, address string) {
		server, err := rpc.NewServer(rpc.ServerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		listener := listen(t, network, address)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := rpc.Serve(ctx, server, listener, time.Hour); err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
		listen(t, network, listener.Addr().String()) // the address is free again
	})
}

func TestServeReportsAListenerThatFails(t *testing.T) {
	t.Parallel()
	onEachNetwork(t, func(t *testing.T, network rpc.Network, address string) {
		server, err := rpc.NewServer(rpc.ServerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		listener := listen(t, network, address)
		listener.Close()
		if err := rpc.Serve(t.Context(), server, listener, grace); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve = %v, want net.ErrClosed", err)
		}
	})
}

func TestAnHourOfSilenceDoesNotBreakAStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := func(context.Context) error { time.Sleep(time.Hour); return nil }
		client := start(t, rpc.NewMemory(), "state", rpc.ServerConfig{}, service{fail: slow})
		for name, shape := range shapes {
			if err := shape(t.Context(), client); err != nil {
				t.Errorf("%s call = %v, want a good end", name, err)
			}
		}
	})
}
