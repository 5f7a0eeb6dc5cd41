package harness

import (
	"slices"
	"strings"
	"testing"
)

// Successor returns a service like p at an address of its own, which the caller starts while p still runs. It ends
// with the test.
func (p *Process) Successor(t testing.TB) *Process {
	t.Helper()
	service, _, _ := strings.Cut(p.Name, "-")
	next := &Process{Name: p.Name, Address: FreeAddress(t), t: p.t, path: p.path, args: p.args}
	next.env = append(slices.Clone(p.env), "HOLDFAST_"+strings.ToUpper(service)+"_LISTEN="+next.Address)
	if p.metrics != "" {
		next.measureAt(FreeAddress(p.t))
	}
	next.ready = grpcReady(next.Address)
	if service == "gateway" {
		next.ready = ok("http://" + next.Address + "/readyz")
	}
	t.Cleanup(next.cleanup)
	return next
}
