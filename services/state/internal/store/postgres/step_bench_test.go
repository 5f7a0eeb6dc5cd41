package postgres

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// BenchmarkStep commits steps with one tool call, of several runs at the same time. It
// reports the costs of a step: statements, round trips, bytes of the write-ahead log, and
// the processor time of this process and of the database's connections.
func BenchmarkStep(b *testing.B) {
	for _, recorded := range []bool{false, true} {
		for _, sessions := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("recorded=%t/runs=%d", recorded, sessions), func(b *testing.B) {
				s, err := Open(b.Context(), pgtest.URL(b), 16, commits, nil)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				w := newWorker(b, s)
				refs := w.begin(longKeys(sessions)...)
				for _, ref := range refs {
					w.must(w.step(b.Context(), ref, 1, recorded))
				}
				if _, err := s.pool.Exec(b.Context(), `CHECKPOINT`); err != nil {
					b.Fatal(err)
				}
				before := w.spent()
				b.ReportAllocs()
				b.ResetTimer()
				var all sync.WaitGroup
				for i, ref := range refs {
					all.Go(func() {
						for n := range (b.N + sessions - 1 - i) / sessions {
							if err := w.step(b.Context(), ref, int32(n+2), recorded); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.StopTimer()
				w.report(b, before)
			})
		}
	}
}

// longKeys returns keys of typical length.
func longKeys(n int) []session.Key {
	keys := keysOf("tenant", n)
	for i := range keys {
		keys[i].SessionID = "0198f3c2-aa11-7bcd-9012-" + keys[i].SessionID
	}
	return keys
}

// step commits a step with one call, with or without records of its plan and result.
func (w *worker) step(ctx context.Context, ref session.ClaimRef, step int32, recorded bool) error {
	if recorded {
		call := fmt.Sprintf("call-%s-%d", ref.SessionID, step)
		plan := session.RecordPlan{ClaimRef: ref, Step: step, Body: make([]byte, 300), CallIDs: []string{call}, Usage: usageOfModel}
		if err := w.run(ctx, ref.Key, plan.Need(), plan.Decide); err != nil {
			return err
		}
		result := session.RecordResult{ClaimRef: ref, Step: step, Result: session.Result{CallID: call, Body: make([]byte, 100)}, Limits: session.Limits{State: 1 << 20, Journal: 1 << 20}}
		err := w.run(ctx, ref.Key, result.Need(), func(v *session.View) (*session.Change, error) {
			change, _, err := result.Decide(v)
			return change, err
		})
		if err != nil {
			return err
		}
	}
	c := w.stepOf(ref, step)
	c.CheckpointID = fmt.Sprintf("cpv1-%s-s%d-t%d-abcdef", ref.SessionID, step, c.Now)
	c.Record = make([]byte, 100)
	if recorded {
		c.Usage = nil
	}
	return w.commit(ctx, c)
}

var usageOfModel = []session.Usage{{Kind: session.UsageTokens, Source: "agent", Model: "m", PromptTokens: 100, CompletionTokens: 20, TotalTokens: 120}}

// costs are the costs of a store so far.
type costs struct {
	traffic
	wal            int64
	here, database time.Duration
}

func (w *worker) spent() (all costs) {
	w.Helper()
	all.wal = ask[int64](w, w.store, `SELECT (pg_current_wal_lsn() - '0/0')::bigint`)
	for _, conn := range w.store.pool.AcquireAllIdle(w.Context()) {
		raw := conn.Conn().PgConn()
		sent := stateOf(raw).sent
		all.statements += sent.statements
		all.trips += sent.trips
		all.database += processTime(w, raw.PID())
		conn.Release()
	}
	var usage syscall.Rusage
	w.must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	all.here = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	return all
}

func (w *worker) report(b *testing.B, before costs) {
	after, n := w.spent(), float64(b.N)
	b.ReportMetric(float64(after.statements-before.statements)/n, "statements/step")
	b.ReportMetric(float64(after.trips-before.trips)/n, "trips/step")
	b.ReportMetric(float64(after.wal-before.wal)/n, "wal-B/step")
	b.ReportMetric(float64((after.here-before.here).Microseconds())/n, "cpu-us/step")
	b.ReportMetric(float64((after.database-before.database).Microseconds())/n, "db-us/step")
}

// processTime returns the processor time of a process of the database, from
// /proc/PID/schedstat; 0 when it runs on another machine.
func processTime(t testing.TB, pid uint32) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0
	}
	ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ns)
}
