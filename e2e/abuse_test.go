package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/abuse"
	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	// abuseMemory bounds the gateway's resident memory under each attack, in bytes. Without the bounds on bodies it was
	// 1.3 GB; on a busy machine the collector may lag by half of the bound.
	abuseMemory = 800 << 20
	// abuseLimit bounds an attack whose connections are not cut.
	abuseLimit = time.Minute
	// abuseConnections is the gateway's limit on connections; abuseIdle connections wait without a request.
	abuseConnections = 300
	abuseIdle        = 1000
)

// abusers is how many connections an attack opens; cut is how many the gateway must have cut at least.
var abusers = map[string]struct{ connections, cut int }{
	"slow readers":     {20, 20},
	"gzip bombs":       {20, 20},
	"huge bodies":      {60, 60},
	"answers":          {40, 40},
	"slow headers":     {100, 100},
	"slow bodies":      {100, 100},
	"header floods":    {20, 20},
	"continuations":    {20, 20},
	"rapid resets":     {5, 0}, // each costs a lookup
	"idle connections": {abuseIdle, abuseIdle - abuseConnections},
}

func TestAGatewayUnderAttackServesItsClients(t *testing.T) {
	t.Parallel()
	// The calm client needs the time to send and read on a busy machine, too.
	s := harness.Start(t, harness.Options{Agents: agents(), LogLevel: "warn", GatewayEnv: []string{
		"HOLDFAST_GATEWAY_HEADER_TIMEOUT=2s", "HOLDFAST_GATEWAY_READ_TIMEOUT=20s", "HOLDFAST_GATEWAY_WRITE_TIMEOUT=10s", "HOLDFAST_GATEWAY_IDLE_TIMEOUT=5s",
		"HOLDFAST_GATEWAY_MAX_CONNECTIONS=300",
	}})
	for _, a := range abuse.All() {
		t.Run(a.Name, func(t *testing.T) { //nolint:paralleltest // one attack at a time
			want, known := abusers[a.Name]
			if !known {
				t.Fatal("the test does not know the attack")
			}
			ctx, cancel := context.WithTimeout(t.Context(), abuseLimit)
			defer cancel()
			var cut int
			calm := abuse.Watch(t.Context(), s, "talker", a.Name, func() {
				cut = a.Run(ctx, abuse.Target{Address: s.Gateway.Address, Key: harness.Key}, want.connections)
			})
			t.Logf("%d of %d connections were cut, the calm client had %d turns, the gateway %d MB", cut, want.connections, len(calm.First), calm.Peak>>20)
			if calm.Err != nil {
				t.Errorf("the calm client: %v", calm.Err)
			}
			if cut < want.cut {
				t.Errorf("%d of %d connections were cut, want %d", cut, want.connections, want.cut)
			}
			if calm.Peak > abuseMemory {
				t.Errorf("the gateway had %d bytes of memory, want at most %d", calm.Peak, abuseMemory)
			}
			if !s.Gateway.Running() {
				t.Fatal("the gateway has ended")
			}
		})
	}
}
