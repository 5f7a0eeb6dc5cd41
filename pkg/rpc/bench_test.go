package rpc_test

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/holdfast-run/holdfast/pkg/rpc"
)

func BenchmarkCall(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("unary/callers=%d", callers), func(b *testing.B) { benchmarkCall(b, rpc.TCP(), callers, nil) })
		b.Run(fmt.Sprintf("pipe/callers=%d", callers), func(b *testing.B) { benchmarkCall(b, rpc.TCP(), callers, piped) })
		b.Run(fmt.Sprintf("memory/callers=%d", callers), func(b *testing.B) { benchmarkCall(b, rpc.NewMemory(), callers, nil) })
		b.Run(fmt.Sprintf("process/callers=%d", callers), func(b *testing.B) { benchmarkCall(b, rpc.NewProcess(), callers, nil) })
	}
}

// benchmarkCall measures calls with a token, a deadline and 1 KiB each way between two ends in this process,
// without spans. It reports the processor time of both ends and the kernel.
func benchmarkCall(b *testing.B, network rpc.Network, callers int, methods []string) {
	provider := otel.GetTracerProvider()
	otel.SetTracerProvider(noop.NewTracerProvider())
	defer otel.SetTracerProvider(provider)
	security := rpc.Security{Token: "secret"}
	server, err := rpc.NewServer(rpc.ServerConfig{Security: security})
	if err != nil {
		b.Fatal(err)
	}
	grpc_testing.RegisterTestServiceServer(server, service{})
	listener, err := network.Listen(b.Context(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() { _ = rpc.Serve(ctx, server, listener, 0) })
	defer served.Wait()
	defer stop()
	conn, err := rpc.Dial(network, listener.Addr().String(), rpc.ClientConfig{Security: security, Piped: methods})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	client := grpc_testing.NewTestServiceClient(conn)
	request := &grpc_testing.SimpleRequest{Payload: &grpc_testing.Payload{Body: make([]byte, 1<<10)}}
	b.ReportAllocs()
	before := processorTime(b)
	b.ResetTimer()
	var work sync.WaitGroup
	for i := range callers {
		work.Go(func() {
			for range (b.N + i) / callers {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				if _, err := client.UnaryCall(ctx, request); err != nil {
					b.Error(err)
				}
				cancel()
			}
		})
	}
	work.Wait()
	b.StopTimer()
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
}

// processorTime returns this process's processor time.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
