package harness

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/rpc"
)

// StartStates starts replicas of the state service over one database and waits until they are ready. They end
// with the test.
func StartStates(t testing.TB, replicas int, env ...string) []*Process {
	t.Helper()
	o := Options{LogLevel: "warn"}
	var states []*Process
	for i := range replicas {
		states = append(states, o.service(t, "state", fmt.Sprintf("-%d", i+1), env...))
	}
	t.Cleanup(func() {
		for _, p := range states {
			p.cleanup()
		}
	})
	for _, p := range states {
		p.StartOnly()
	}
	for _, p := range states {
		p.WaitReady()
	}
	return states
}

// DialInternal connects to a service's gRPC port like another service. The connection ends with the test. Calls
// of the piped methods share one stream.
func DialInternal(t testing.TB, address string, piped ...string) *grpc.ClientConn {
	t.Helper()
	conn, err := rpc.Dial(rpc.TCP(), address, rpc.ClientConfig{Security: rpc.Security{Token: InternalToken}, Piped: piped})
	if err != nil {
		t.Fatalf("dial %s: %v", address, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
