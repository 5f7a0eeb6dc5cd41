package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
)

// A service and its client in one process. Over rpc.TCP only the address would change.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	network := rpc.NewMemory()

	server, err := rpc.NewServer(rpc.ServerConfig{})
	if err != nil {
		panic(err)
	}
	grpc_testing.RegisterTestServiceServer(server, service{fail: func(context.Context) error {
		return fault.New(fault.Stale, "EPOCH_STALE", "run r1 was claimed again")
	}})
	listener, err := network.Listen(ctx, "state")
	if err != nil {
		panic(err)
	}
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(ctx, server, listener, time.Second) }()

	conn, err := rpc.Dial(network, "state", rpc.ClientConfig{})
	if err != nil {
		panic(err)
	}
	_, err = grpc_testing.NewTestServiceClient(conn).EmptyCall(ctx, &grpc_testing.Empty{})
	fmt.Println(errors.Is(err, fault.Stale), err)

	conn.Close()
	stop()
	fmt.Println("served:", <-served)
	// Output:
	// true EPOCH_STALE: run r1 was claimed again
	// served: <nil>
}
