package holdfast

import (
	"context"
	"net"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
)

// exposeConfig says where executors of other processes reach state and stream, with Options.Expose. The variables are those
// of the services.
type exposeConfig struct {
	State    string       `env:"HOLDFAST_STATE_LISTEN" envDefault:"127.0.0.1:7411" doc:"address of the state service for executors of other processes"`
	Stream   string       `env:"HOLDFAST_STREAM_LISTEN" envDefault:"127.0.0.1:7412" doc:"address of the stream service for executors of other processes"`
	Internal rpc.Security `envPrefix:"HOLDFAST_INTERNAL_"`
}

// exposed has the listeners for executors of other processes; both are nil without Options.Expose.
type exposed struct {
	state, stream net.Listener
}

// expose listens at both addresses. Invalid (INSECURE_LISTEN), Unavailable (LISTEN_FAILED).
func (r *Runtime) expose(ctx context.Context) error {
	c := r.settings.Expose
	for _, endpoint := range []struct {
		variable, address string
		listener          *net.Listener
	}{{"HOLDFAST_STATE_LISTEN", c.State, &r.exposed.state}, {"HOLDFAST_STREAM_LISTEN", c.Stream, &r.exposed.stream}} {
		if err := rpc.CheckListen(endpoint.variable, endpoint.address, c.Internal, r.log); err != nil {
			return err
		}
		listener, err := rpc.TCP().Listen(ctx, endpoint.address)
		if err != nil {
			return fault.New(fault.Unavailable, "LISTEN_FAILED", "%v; choose another address with %s", err, endpoint.variable)
		}
		*endpoint.listener = listener
		r.closeAtRelease(listener)
	}
	return nil
}

// closeAtRelease closes a listener on release. Its server has closed it already, unless it never ran.
func (r *Runtime) closeAtRelease(l net.Listener) {
	r.onRelease(func() error {
		_ = l.Close()
		return nil
	})
}

// serveExposed returns the tasks that serve the listeners of Options.Expose.
func (r *Runtime) serveExposed() []process.Task {
	if r.exposed.state == nil {
		return nil
	}
	internal := r.settings.Expose.Internal
	return []process.Task{
		r.serveOn("exposed state", r.exposed.state, internal, r.state), r.serveOn("exposed stream", r.exposed.stream, internal, r.stream),
	}
}
