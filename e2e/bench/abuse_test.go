package bench_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/abuse"
	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	// abuseWindow is how long an attack is repeated, and how long the calm client is watched before.
	abuseWindow = 5 * time.Second
	// abuseEnd is when an attack with connections that are never cut ends.
	abuseEnd = 30 * time.Second
)

// BenchmarkAbuse measures how a calm client and the gateway's memory fare during attacks. The gateway has its
// default limits.
func BenchmarkAbuse(b *testing.B) {
	for b.Loop() {
		fmt.Printf("\nPOST /chat of a calm client to its first chunk, and the gateway's resident memory, during attacks:\n")
		for _, a := range abuse.All() {
			needFiles(b, a.Connections)
			s := harness.Start(b, harness.Options{Agents: agents, LogLevel: "warn"})
			before := abuse.Watch(b.Context(), s, "text", "before", func() { <-time.After(lasting(abuseWindow)) })
			during := abuse.Watch(b.Context(), s, "text", "during", func() { attack(b, s, a) })
			fmt.Printf("  %-17s %6d connections  p99 %9v before (n=%d), %9v during (n=%d)  %4.0f MB before, %4.0f MB at most  failed: %v\n",
				a.Name, sized(a.Connections), before.Quantile(0.99).Round(10*time.Microsecond), len(before.First),
				during.Quantile(0.99).Round(10*time.Microsecond), len(during.First), mb(before.Peak), mb(during.Peak), during.Err)
			unit := strings.ReplaceAll(a.Name, " ", "-")
			b.ReportMetric(ms(before.Quantile(0.99)), "ms-p99-before-"+unit)
			b.ReportMetric(ms(during.Quantile(0.99)), "ms-p99-during-"+unit)
			b.ReportMetric(mb(during.Peak), "MB-"+unit)
			end(s)
		}
	}
}

// attack repeats an attack for the window.
func attack(b *testing.B, s *harness.System, a abuse.Attack) {
	ctx, cancel := context.WithTimeout(b.Context(), abuseEnd)
	defer cancel()
	for begin := time.Now(); time.Since(begin) < lasting(abuseWindow) && ctx.Err() == nil; {
		a.Run(ctx, abuse.Target{Address: s.Gateway.Address, Key: harness.Key}, sized(a.Connections))
	}
}
