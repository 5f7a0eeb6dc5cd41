package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/holdfast-run/holdfast/pkg/rpc"
)

const grace = 10 * time.Second

// service answers every shape of call with one message and then with fail's error; a nil fail ends calls without
// an error.
type service struct {
	grpc_testing.UnimplementedTestServiceServer
	fail func(context.Context) error
}

func (s service) end(ctx context.Context) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(ctx)
}

func (s service) EmptyCall(ctx context.Context, _ *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	return &grpc_testing.Empty{}, s.end(ctx)
}

func (s service) UnaryCall(ctx context.Context, r *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	return &grpc_testing.SimpleResponse{Payload: r.GetPayload()}, s.end(ctx)
}

func (s service) StreamingOutputCall(_ *grpc_testing.StreamingOutputCallRequest, stream grpc_testing.TestService_StreamingOutputCallServer) error {
	if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
		return err
	}
	return s.end(stream.Context())
}

func (s service) StreamingInputCall(stream grpc_testing.TestService_StreamingInputCallServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := s.end(stream.Context()); err != nil {
		return err
	}
	return stream.SendAndClose(&grpc_testing.StreamingInputCallResponse{})
}

func (s service) FullDuplexCall(stream grpc_testing.TestService_FullDuplexCallServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
		return err
	}
	return s.end(stream.Context())
}

// shapes are the four shapes of a call. Each returns the error at the end of the call, or nil.
var shapes = map[string]func(context.Context, grpc_testing.TestServiceClient) error{
	"unary": func(ctx context.Context, c grpc_testing.TestServiceClient) error {
		_, err := c.EmptyCall(ctx, &grpc_testing.Empty{})
		return err
	},
	"server stream": func(ctx context.Context, c grpc_testing.TestServiceClient) error {
		stream, err := c.StreamingOutputCall(ctx, &grpc_testing.StreamingOutputCallRequest{})
		if err != nil {
			return err
		}
		return drain(stream.Recv)
	},
	"client stream": func(ctx context.Context, c grpc_testing.TestServiceClient) error {
		stream, err := c.StreamingInputCall(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&grpc_testing.StreamingInputCallRequest{}); err != nil && err != io.EOF {
			return err
		}
		_, err = stream.CloseAndRecv()
		return err
	},
	"both ways": func(ctx context.Context, c grpc_testing.TestServiceClient) error {
		stream, err := c.FullDuplexCall(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&grpc_testing.StreamingOutputCallRequest{}); err != nil && err != io.EOF {
			return err
		}
		return drain(stream.Recv)
	},
}

func drain[T any](receive func() (T, error)) error {
	for {
		_, err := receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// network is one of the networks, with an address to listen on.
type network struct {
	make    func() rpc.Network
	address string
}

// connected are the networks with connections.
var connected = map[string]network{
	"memory": {func() rpc.Network { return rpc.NewMemory() }, "state"},
	"tcp":    {rpc.TCP, "127.0.0.1:0"},
}

func onEachConnection(t *testing.T, test func(t *testing.T, network rpc.Network, address string)) {
	t.Helper()
	for name, n := range connected {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, n.make(), n.address)
		})
	}
}

func onEachNetwork(t *testing.T, test func(t *testing.T, network rpc.Network, address string)) {
	t.Helper()
	onEachConnection(t, test)
	t.Run("process", func(t *testing.T) {
		t.Parallel()
		test(t, rpc.NewProcess(), "state")
	})
}

// serve serves s until the test ends and returns its address.
func serve(t *testing.T, network rpc.Network, address string, c rpc.ServerConfig, s grpc_testing.TestServiceServer) string {
	t.Helper()
	server, err := rpc.NewServer(c)
	if err != nil {
		t.Fatal(err)
	}
	grpc_testing.RegisterTestServiceServer(server, s)
	listener, err := network.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(ctx, server, listener, 0) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	return listener.Addr().String()
}

func dial(t *testing.T, network rpc.Network, address string, c rpc.ClientConfig) *grpc.ClientConn {
	t.Helper()
	conn, err := rpc.Dial(network, address, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// start serves s and returns a client for it.
func start(t *testing.T, network rpc.Network, address string, c rpc.ServerConfig, s grpc_testing.TestServiceServer) grpc_testing.TestServiceClient {
	t.Helper()
	address = serve(t, network, address, c, s)
	return grpc_testing.NewTestServiceClient(dial(t, network, address, rpc.ClientConfig{Security: c.Security}))
}

// logbook is a log for concurrent reading and writing.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
