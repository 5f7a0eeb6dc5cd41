package main

import (
	"context"
	"fmt"
	"net"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
)

// exposeConfig says where executors of other processes reach state and stream, with --expose. The variables are those
// of the services.
type exposeConfig struct {
	State    string       `env:"HOLDFAST_STATE_LISTEN" envDefault:"127.0.0.1:7411" doc:"address of the state service for executors of other processes"`
	Stream   string       `env:"HOLDFAST_STREAM_LISTEN" envDefault:"127.0.0.1:7412" doc:"address of the stream service for executors of other processes"`
	Internal rpc.Security `envPrefix:"HOLDFAST_INTERNAL_"`
}

// exposed has the listeners for executors of other processes; both are nil without --expose.
type exposed struct {
	state, stream net.Listener
}

// listen listens at both addresses. Invalid (INSECURE_LISTEN), Unavailable (LISTEN_FAILED).
func (c exposeConfig) listen(ctx context.Context, h *services) (e exposed, err error) {
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	for _, endpoint := range []struct {
		variable, address string
		listener          *net.Listener
	}{{"HOLDFAST_STATE_LISTEN", c.State, &e.state}, {"HOLDFAST_STREAM_LISTEN", c.Stream, &e.stream}} {
		if err := rpc.CheckListen(endpoint.variable, endpoint.address, c.Internal, h.log); err != nil {
			return e, err
		}
		listener, err := rpc.TCP().Listen(ctx, endpoint.address)
		if err != nil {
			return e, fault.New(fault.Unavailable, "LISTEN_FAILED", "%v; choose another address with %s", err, endpoint.variable)
		}
		*endpoint.listener = listener
	}
	return e, nil
}

// tasks serve the listeners.
func (e exposed) tasks(h *services, c devConfig) []process.Task {
	if e.state == nil {
		return nil
	}
	return []process.Task{
		h.serveOn("exposed state", e.state, c.Expose.Internal, h.state, c),
		h.serveOn("exposed stream", e.stream, c.Expose.Internal, h.stream, c),
	}
}

func (e exposed) close() {
	for _, listener := range []net.Listener{e.state, e.stream} {
		if listener != nil {
			_ = listener.Close() // the server has closed it already, unless it never ran
		}
	}
}

// invitation says how an executor of another process joins; empty without --expose.
func (e exposed) invitation() string {
	if e.state == nil {
		return ""
	}
	return fmt.Sprintf("\n  join    HOLDFAST_EXECUTOR_STATE_ADDRESS=%v HOLDFAST_EXECUTOR_STREAM_ADDRESS=%v go run ./your/executor\n",
		e.state.Addr(), e.stream.Addr())
}
