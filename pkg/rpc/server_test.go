package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
)

// onEachShape runs the test with every shape of call over every network.
func onEachShape(t *testing.T, c rpc.ServerConfig, s service, test func(t *testing.T, call func(context.Context) error)) {
	t.Helper()
	onEachNetwork(t, func(t *testing.T, network rpc.Network, address string) {
		client := start(t, network, address, c, s)
		for name, shape := range shapes {
			t.Run(name, func(t *testing.T) {
				test(t, func(ctx context.Context) error { return shape(ctx, client) })
			})
		}
	})
}

func TestGoodCallsEndWell(t *testing.T) {
	t.Parallel()
	onEachShape(t, rpc.ServerConfig{}, service{}, func(t *testing.T, call func(context.Context) error) {
		if err := call(t.Context()); err != nil {
			t.Errorf("call = %v, want nil", err)
		}
	})
}

func TestAFaultKeepsItsKindOverEveryShapeOfCall(t *testing.T) {
	t.Parallel()
	want := fault.New(fault.TooLarge, "STATE_SIZE_EXCEEDED", "custom state of s1: 2 MiB").With("limit", "1 MiB")
	fail := func(context.Context) error { return fmt.Errorf("commit step: %w", want) }
	onEachShape(t, rpc.ServerConfig{}, service{fail: fail}, func(t *testing.T, call func(context.Context) error) {
		err := call(t.Context())
		if got, ok := fault.From(err); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("call = %#v, want %#v", err, want)
		}
		if !errors.Is(err, fault.TooLarge) || errors.Is(err, fault.Invalid) {
			t.Errorf("call = %v, want TooLarge and not Invalid", err)
		}
	})
}

func TestAPlainErrorIsLoggedAndDoesNotLeak(t *testing.T) {
	t.Parallel()
	const secret = "password=hunter2"
	ways := map[string]func(context.Context) error{
		"error": func(context.Context) error { return errors.New(secret) },
		"panic": func(context.Context) error { panic(secret) },
	}
	for name, fail := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log logbook
			onEachShape(t, rpc.ServerConfig{Log: log.logger()}, service{fail: fail}, func(t *testing.T, call func(context.Context) error) {
				err := call(t.Context())
				if !errors.Is(err, fault.Internal) || fault.ReasonOf(err) != "INTERNAL" || strings.Contains(err.Error(), secret) {
					t.Errorf("call = %v, want Internal (INTERNAL) and nothing of the error", err)
				}
			})
			t.Cleanup(func() { // after the parallel subtests
				lines := strings.Count(log.String(), secret)
				if want := (len(connected) + 1) * len(shapes); lines != want {
					t.Errorf("logged %d times, want %d:\n%s", lines, want, log.String())
				}
				if hasStack := strings.Contains(log.String(), "harness_test.go"); hasStack != (name == "panic") {
					t.Errorf("the log has a stack: %v", hasStack)
				}
			})
		})
	}
}

func TestAFaultOfTheCallerIsNotLogged(t *testing.T) {
	t.Parallel()
	var log logbook
	client := start(t, rpc.NewMemory(), "state", rpc.ServerConfig{Log: log.logger()}, service{
		fail: func(context.Context) error { return fault.New(fault.NotFound, "SESSION_NOT_FOUND", "no session") },
	})
	if err := shapes["unary"](t.Context(), client); !errors.Is(err, fault.NotFound) {
		t.Errorf("call = %v, want NotFound", err)
	}
	if log.String() != "" {
		t.Errorf("logged %s", log.String())
	}
}

func TestTheEndOfTheCallersContextIsItsOwn(t *testing.T) {
	t.Parallel()
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	onEachShape(t, rpc.ServerConfig{}, service{fail: wait}, func(t *testing.T, call func(context.Context) error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if err := call(ctx); err != context.DeadlineExceeded {
			t.Errorf("call = %v, want %v", err, context.DeadlineExceeded)
		}
		ctx, cancel = context.WithCancel(t.Context())
		defer time.AfterFunc(5*time.Millisecond, cancel).Stop()
		if err := call(ctx); err != context.Canceled {
			t.Errorf("call = %v, want %v", err, context.Canceled)
		}
	})
}

func TestAContextThatEndsBehindTheServerMakesItUnavailable(t *testing.T) {
	t.Parallel()
	fail := func(context.Context) error { return fmt.Errorf("query: %w", context.DeadlineExceeded) }
	onEachShape(t, rpc.ServerConfig{}, service{fail: fail}, func(t *testing.T, call func(context.Context) error) {
		err := call(t.Context())
		if !errors.Is(err, fault.Unavailable) || fault.ReasonOf(err) != "DEADLINE_EXCEEDED" || strings.Contains(err.Error(), "query") {
			t.Errorf("call = %v, want Unavailable (DEADLINE_EXCEEDED)", err)
		}
	})
}

func TestNobodyThereIsUnavailable(t *testing.T) {
	t.Parallel()
	onEachNetwork(t, func(t *testing.T, network rpc.Network, address string) {
		l := listen(t, network, address)
		l.Close()
		client := grpc_testing.NewTestServiceClient(dial(t, network, l.Addr().String(), rpc.ClientConfig{}))
		for name, shape := range shapes {
			if err := shape(t.Context(), client); !errors.Is(err, fault.Unavailable) || fault.ReasonOf(err) != "UNAVAILABLE" {
				t.Errorf("%s call = %v, want Unavailable (UNAVAILABLE)", name, err)
			}
		}
	})
}

func TestAClientFindsAServerThatComesBack(t *testing.T) {
	t.Parallel()
	network := rpc.NewMemory()
	client := grpc_testing.NewTestServiceClient(dial(t, network, "state", rpc.ClientConfig{}))
	if err := shapes["unary"](t.Context(), client); !errors.Is(err, fault.Unavailable) {
		t.Fatalf("call = %v, want Unavailable", err)
	}
	serve(t, network, "state", rpc.ServerConfig{}, service{})
	deadline := time.Now().Add(90 * time.Second)
	for {
		err := shapes["unary"](t.Context(), client)
		if err == nil {
			return
		}
		if !errors.Is(err, fault.Unavailable) || time.Now().After(deadline) {
			t.Fatalf("call = %v, want nil in the end", err)
		}
	}
}

func TestAMessageOverTheLimitIsTooLarge(t *testing.T) {
	t.Parallel()
	small := rpc.ServerConfig{MaxMessageBytes: 1000}
	payload := func(bytes int) *grpc_testing.SimpleRequest {
		return &grpc_testing.SimpleRequest{Payload: &grpc_testing.Payload{Body: make([]byte, bytes)}}
	}
	onEachConnection(t, func(t *testing.T, network rpc.Network, address string) {
		address = serve(t, network, address, small, service{})
		tests := []struct {
			name  string
			limit int
			bytes int
			kind  error
		}{
			{"fits", 0, 900, nil},
			{"refused by the server", 0, 1100, fault.TooLarge},
			{"refused by the client", 500, 900, fault.TooLarge},
		}
		for _, test := range tests {
			client := grpc_testing.NewTestServiceClient(dial(t, network, address, rpc.ClientConfig{MaxMessageBytes: test.limit}))
			_, err := client.UnaryCall(t.Context(), payload(test.bytes))
			if !errors.Is(err, test.kind) || err != nil && fault.ReasonOf(err) != "MESSAGE_TOO_LARGE" {
				t.Errorf("%s: call = %v, want %v", test.name, err, test.kind)
			}
		}
	})
}

func TestACallThatIsNotImplementedSaysSo(t *testing.T) {
	t.Parallel()
	client := start(t, rpc.NewMemory(), "state", rpc.ServerConfig{}, service{})
	_, err := client.UnimplementedCall(t.Context(), &grpc_testing.Empty{})
	if fault.ReasonOf(err) != "UNIMPLEMENTED" {
		t.Errorf("call = %v, want UNIMPLEMENTED", err)
	}
}

func TestHealthIsServedToAnybody(t *testing.T) {
	t.Parallel()
	network := rpc.NewMemory()
	serve(t, network, "state", rpc.ServerConfig{Security: rpc.Security{Token: "secret"}}, service{})
	health := grpc_health_v1.NewHealthClient(dial(t, network, "state", rpc.ClientConfig{}))
	answer, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("Check = %v, %v, want SERVING", answer, err)
	}
	watch, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := watch.Recv(); err != nil || answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("Watch = %v, %v, want SERVING", answer, err)
	}
	if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "other"}); !errors.Is(err, fault.NotFound) {
		t.Errorf("Check of another service = %v, want NotFound", err)
	}
}

func TestAnErrorOfAHopBehindReachesTheFirstCallerWithoutItsText(t *testing.T) {
	t.Parallel()
	network := rpc.NewMemory()
	gone := grpc_testing.NewTestServiceClient(dial(t, network, "state", rpc.ClientConfig{}))
	front := start(t, network, "gateway", rpc.ServerConfig{}, service{
		fail: func(ctx context.Context) error { return shapes["unary"](ctx, gone) },
	})
	err := shapes["unary"](t.Context(), front)
	if !errors.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "memory address") {
		t.Errorf("call = %v, want Unavailable and nothing of the network behind", err)
	}
}
