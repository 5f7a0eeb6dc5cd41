package bench_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
)

var suspendedSessions = flag.Int("suspended.sessions", 100_000, "how many sessions wait for somebody in BenchmarkSuspended")

const (
	// realSessions are suspended by executors, with all their records in the stream; the others are copies in
	// the database.
	realSessions = 1_000
	// askers is the number of concurrent conversations, and askings the total.
	askers  = 4
	askings = 400
	// turnsOfEach is how often the empty and the full system are measured in turn.
	turnsOfEach = 8
	// fillLimit bounds the creation of sessions.
	fillLimit = 3 * time.Minute
)

// suspendedAgents request approval before they calculate.
const suspendedAgents = `
models:
  scripted:
    script: |
      models:
        careful:
          chunk: whole
          delay: 0s
          rules:
            - when: {toolResult: calculate}
              reply: 'It is {{.LastResult}}.'
            - reply: [{text: 'May I? '}, {call: {name: calculate, arguments: {expression: '6 * 7'}}}]
agents:
  - {name: careful, model: scripted/careful, tools: [{use: calculate, approval: always}]}
`

// BenchmarkSuspended measures the cost of very many suspended sessions: the memory of each process, and the time
// from an answer to the first resulting chunk, in an empty system and beside them.
func BenchmarkSuspended(b *testing.B) {
	for b.Loop() {
		n := max(*suspendedSessions, realSessions)
		quiet, w := newWaiting(b), newWaiting(b)
		quiet.talk(b, realSessions, &measuredWaiting{}) // the same work as for the suspended sessions
		begin := time.Now()
		w.suspend(b, n)
		fmt.Printf("\n%d sessions that wait for an approval on Postgres, made within %.0fs (%d by executors, the others copied):\n",
			n, time.Since(begin).Seconds(), realSessions)
		empty, full := compareWaiting(b, quiet, w)

		fmt.Printf("  %-36s %10s %10s\n", "", "empty", "beside")
		for i, p := range w.processes {
			fmt.Printf("  %-36s %6.1f MiB %6.1f MiB %6.2fx: %.2f KiB a session\n", "memory of "+p.Name,
				mib(empty.memory[i]), mib(full.memory[i]), float64(full.memory[i])/float64(empty.memory[i]), float64(full.memory[i]-empty.memory[i])/float64(n)/1024)
		}
		for i, p := range w.processes {
			fmt.Printf("  %-36s %10d %10d\n", "goroutines of "+p.Name, empty.goroutines[i], full.goroutines[i])
		}
		for i, what := range waitingTimes {
			for _, q := range []float64{0.5, 0.99} {
				before, beside := quantile(empty.times[i], q), quantile(full.times[i], q)
				fmt.Printf("  %-36s %10s %10s %6.2fx\n", fmt.Sprintf("%s, p%.0f", what, 100*q), before, beside, float64(beside)/float64(before))
			}
		}
		b.ReportMetric(float64(full.memory[0])/float64(empty.memory[0]), "x-memory-executor")
		b.ReportMetric(float64(quantile(full.times[1], 0.5))/float64(quantile(empty.times[1], 0.5)), "x-submit-p50")
		b.ReportMetric(float64(quantile(full.times[1], 0.99))/float64(quantile(empty.times[1], 0.99)), "x-submit-p99")
	}
}

// waitingTimes are the measured times.
var waitingTimes = [...]string{"POST /chat to its first chunk", "submit to the first chunk behind it", "POST /chat with the answer to the same"}

// measuredWaiting is the measurement of one system.
type measuredWaiting struct {
	memory     []int64 // of each process
	goroutines []int
	times      [len(waitingTimes)][]time.Duration // sorted
}

// waiting is a system with suspended sessions.
type waiting struct {
	*harness.System
	db        *pgxpool.Pool
	processes []*harness.Process
	made      atomic.Int64 // sessions, for their names
}

func newWaiting(b *testing.B) *waiting {
	b.Helper()
	url := pgtest.URL(b)
	s := harness.Start(b, harness.Options{Agents: suspendedAgents, LogLevel: "warn", StateEnv: []string{"HOLDFAST_STATE_POSTGRES_URL=" + url}})
	return &waiting{System: s, db: open(b, url), processes: []*harness.Process{s.Executors[0], s.Gateway, s.State, s.Stream}}
}

// compareWaiting lets two systems work in turn, so other load on the machine affects both. It samples their
// memory once it is steady, and ends their processes.
func compareWaiting(b *testing.B, quiet, busy *waiting) (empty, full measuredWaiting) {
	b.Helper()
	systems := []*waiting{quiet, busy}
	measured := make([]measuredWaiting, len(systems))
	for _, w := range systems {
		w.talk(b, askings/4, &measuredWaiting{}) // to warm up
	}
	for range turnsOfEach {
		for i, w := range systems {
			w.talk(b, askings/turnsOfEach, &measured[i])
		}
	}
	for i, w := range systems {
		m := &measured[i]
		for what := range m.times {
			slices.Sort(m.times[what])
		}
		for _, p := range w.processes {
			steady(b, p)
			m.memory = append(m.memory, p.Resident())
		}
		for _, p := range w.processes {
			m.goroutines = append(m.goroutines, p.Goroutines())
		}
	}
	return measured[0], measured[1]
}

// talk runs concurrent conversations and adds their times.
func (w *waiting) talk(b *testing.B, n int, m *measuredWaiting) {
	b.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var begun atomic.Int64
	for range askers {
		wg.Go(func() {
			for i := begun.Add(1); i <= int64(n) && !b.Failed(); i = begun.Add(1) {
				ctx, cancel := context.WithTimeout(b.Context(), requestLimit)
				took, err := w.converse(ctx, fmt.Sprint("asked-", w.made.Add(1)), i%2 == 0)
				cancel()
				if err != nil {
					b.Error(err)
				}
				mu.Lock()
				for what, d := range took {
					m.times[what] = append(m.times[what], d)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// converse asks, and answers the approval request by chat or by the submit route.
func (w *waiting) converse(ctx context.Context, session string, chat bool) (took map[int]time.Duration, err error) {
	took = map[int]time.Duration{}
	said := []harness.UIMessage{harness.UserMessage("u", "Go on.")}
	begin := time.Now()
	stream, err := w.Post(ctx, harness.ChatPost{Session: session, Agent: "careful", Messages: said})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	took[0], err = until(stream, begin, func(m harness.UIMessage) bool { return m.Text() != "" })
	if err == nil {
		err = errors.Join(stream.Rest(), stream.Complete())
	}
	call := stream.Message.Call("calculate")
	if err != nil || call == nil || call.Approval == nil {
		return nil, fmt.Errorf("%s: nobody was asked: %w\n%s", session, err, stream.Dump())
	}
	yes := true
	begin = time.Now()
	if !chat {
		a := harness.ToolAnswer{ToolCallID: call.ToolCallID, Kind: "approval-response", ApprovalID: call.Approval.ID, Approved: &yes}
		took[1], err = w.submitted(ctx, session, a, begin)
		return took, err
	}
	call.State, call.Approval = "approval-responded", &harness.UIApproval{ID: call.Approval.ID, Approved: &yes}
	going, err := w.Post(ctx, harness.ChatPost{Session: session, Agent: "careful", Messages: append(said, stream.Message)})
	if err != nil {
		return nil, err
	}
	defer going.Close()
	took[2], err = until(going, begin, func(m harness.UIMessage) bool { return m.Call("calculate").State == "output-available" })
	return took, errors.Join(err, going.Rest(), going.Complete())
}

// until reads until look is satisfied, and returns the time since begin.
func until(s *harness.UIStream, begin time.Time, look func(harness.UIMessage) bool) (time.Duration, error) {
	for !look(s.Message) {
		if err := s.Next(); err != nil {
			return 0, fmt.Errorf("the stream ended too soon: %w\n%s", err, s.Dump())
		}
	}
	return time.Since(begin), nil
}

// submitted answers, and reads until the first chunk of the continuation.
func (w *waiting) submitted(ctx context.Context, session string, a harness.ToolAnswer, begin time.Time) (took time.Duration, err error) {
	got, err := w.Submit(ctx, session, a)
	if err != nil {
		return 0, err
	}
	events, err := w.Listen(ctx, session, harness.SSE, 0)
	if err != nil {
		return 0, err
	}
	defer events.Close()
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) && took > 0 {
			return took, nil
		}
		if err != nil {
			return 0, fmt.Errorf("the run that goes on has told nothing: %w", err)
		}
		if took == 0 && strings.Contains(e.Data, got.RunID) {
			took = time.Since(begin)
		}
	}
}

// suspend creates suspended sessions.
func (w *waiting) suspend(b *testing.B, n int) {
	b.Helper()
	d := newDirect(b, w.State)
	if err := each(realSessions-1, func(i int) error { return d.start(b.Context(), fmt.Sprint("real-", i), "careful") }); err != nil {
		b.Fatal(err)
	}
	if err := d.start(b.Context(), "template", "careful"); err != nil {
		b.Fatal(err)
	}
	w.await(b, realSessions)
	for first := realSessions + 1; first <= n; first += copiesAtOnce {
		w.copy(b, first, min(first+copiesAtOnce-1, n))
	}
	for _, statement := range []string{`VACUUM ANALYZE`, `CHECKPOINT`} {
		if _, err := w.db.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	w.await(b, n)
}

// await waits until this many sessions are suspended and no run is live.
func (w *waiting) await(b *testing.B, n int) {
	b.Helper()
	harness.WaitFor(b, fillLimit, "the sessions to wait", func() (bool, string) {
		var waiting, open int
		err := w.db.QueryRow(b.Context(), `SELECT (SELECT count(*) FROM sessions WHERE status = 'suspended_client_tool'), (SELECT count(*) FROM runs WHERE status IN ('queued', 'running'))`).Scan(&waiting, &open)
		return err == nil && waiting == n && open == 0, fmt.Sprint(waiting, open, err)
	})
}

// copiesAtOnce is the number of copies per statement.
const copiesAtOnce = 20_000

// copy copies all rows of the template under new numbers.
func (w *waiting) copy(b *testing.B, first, last int) {
	b.Helper()
	for _, table := range tablesOfSessions(b, w.db) {
		rows, err := w.db.Query(b.Context(), `SELECT column_name::text FROM information_schema.columns
			WHERE table_schema = 'public' AND table_name = $1 ORDER BY ordinal_position`, table)
		if err != nil {
			b.Fatal(err)
		}
		columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			b.Fatal(err)
		}
		values := slices.Clone(columns)
		for i, c := range columns {
			if c == "session_id" || c == "root_id" {
				values[i] = `'copy-' || n`
			}
		}
		statement := fmt.Sprintf(`INSERT INTO %[1]s (%[2]s) SELECT %[3]s FROM %[1]s, generate_series(%[4]d, %[5]d) n WHERE session_id = 'template'`,
			table, strings.Join(columns, ", "), strings.Join(values, ", "), first, last)
		if _, err := w.db.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
}
