package bench_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/client"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

const (
	longSessions = 16   // concurrently growing sessions
	fewSteps     = 10   // a short session
	manySteps    = 1000 // a long one
	perStep      = 10   // messages per step: the long session has 10,000
	stateSteps   = 130  // steps with a large state: it is stored whole twice meanwhile
	fewSessions  = 1_000
	manySessions = 1_000_000
	samples      = 300
	publicPage   = 50 // sessions of a page
)

// BenchmarkStateGrowth measures the cost of a step, a claim and a submit in a short and in a long session, and
// of a large state.
func BenchmarkStateGrowth(b *testing.B) {
	for b.Loop() {
		url := pgtest.URL(b)
		db := open(b, url)
		s := startState(b, "HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL="+url)
		g := &growing{stateUnderTest: s, db: db, refs: s.live(b, longSessions, "")}
		g.advance(b, fewSteps-5)
		short := g.window(b)
		g.advance(b, manySteps-5)
		long := g.window(b)
		fmt.Printf("\nA session at step %d and at step %d (%d and %d messages), Postgres:\n", fewSteps, manySteps, fewSteps*perStep, manySteps*perStep)
		line := func(what string, short, long float64, unit string) {
			fmt.Printf("  %-28s %9.2f %9.2f %-6s %.2fx\n", what, short, long, unit, long/short)
		}
		line("commit, p50", ms(short.commit), ms(long.commit), "ms")
		line("submit, p50", ms(short.submit), ms(long.submit), "ms")
		line("submit to claim, p50", ms(short.claim), ms(long.claim), "ms")
		line("rows of a step", short.rows, long.rows, "bytes")
		line("write-ahead log of a step", short.wal, long.wal, "bytes")
		fmt.Printf("  (a step's messages alone: %d bytes)\n", messageBytes())
		g.states(b)
		b.ReportMetric(float64(long.commit)/float64(short.commit), "x-time-1000")
		b.ReportMetric(long.rows/short.rows, "x-bytes-1000")
	}
}

func open(b *testing.B, url string) *pgxpool.Pool {
	b.Helper()
	db, err := pgxpool.New(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(db.Close)
	return db
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// growing holds sessions that take one step after the other.
type growing struct {
	*stateUnderTest
	db    *pgxpool.Pool
	refs  []*statev1.RunRef
	steps int32
	calls int
}

// bigStep is a step with many messages.
func bigStep(ref *statev1.RunRef, n int32) *statev1.CommitStepRequest {
	r := step(ref, n)
	for i := len(r.GetMessages()); i < perStep; i++ {
		r.Messages = append(r.Messages, &eventv1.Message{Id: fmt.Sprintf("t%d-%d", n, i), Role: eventv1.Role_ROLE_TOOL, Parts: []*eventv1.Part{textPart(body)}})
	}
	return r
}

func messageBytes() int { return perStep * bodyBytes }

func (g *growing) commit(b *testing.B, i int, r *statev1.CommitStepRequest) time.Duration {
	begin := time.Now()
	if _, err := g.work(i).CommitStep(b.Context(), r); err != nil {
		b.Fatal(err)
	}
	return time.Since(begin)
}

// advance takes all sessions to a step.
func (g *growing) advance(b *testing.B, to int32) {
	b.Helper()
	from := g.steps
	g.steps = to
	err := each(longSessions, func(i int) error {
		for n := from + 1; n <= to; n++ {
			if _, err := g.work(i).CommitStep(b.Context(), bigStep(g.refs[i], n)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// each calls f for every number below n concurrently and returns one of the errors.
func each(n int, f func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	var first error
	for range n {
		if err := <-errs; err != nil {
			first = err
		}
	}
	return first
}

type cost struct {
	commit, submit, claim time.Duration
	rows, wal             float64
}

// window measures ten steps of each session in sequence.
func (g *growing) window(b *testing.B) cost {
	b.Helper()
	const steps = 10
	var commits, submits, claims []time.Duration
	rows, wal := g.rows(b, g.refs[0].GetSessionId()), g.wal(b)
	for range steps {
		g.steps++
		for i, ref := range g.refs {
			commits = append(commits, g.commit(b, i, bigStep(ref, g.steps)))
		}
	}
	c := cost{rows: float64(g.rows(b, g.refs[0].GetSessionId())-rows) / steps, wal: float64(g.wal(b)-wal) / (steps * longSessions)}
	g.steps++
	for i := range g.refs {
		submit, claim := g.human(b, i)
		submits, claims = append(submits, submit), append(claims, claim)
	}
	for _, times := range [][]time.Duration{commits, submits, claims} {
		slices.Sort(times)
	}
	c.commit, c.submit, c.claim = quantile(commits, 0.5), quantile(submits, 0.5), quantile(claims, 0.5)
	return c
}

// human suspends a session on a call, answers the call, and claims the continuation.
func (g *growing) human(b *testing.B, i int) (submit, claim time.Duration) {
	b.Helper()
	g.calls++
	call, ref := fmt.Sprint("call-", g.calls), g.refs[i]
	r := bigStep(ref, g.steps)
	r.Outcome = &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL}
	r.Calls = []*statev1.Call{{ToolCallId: call, ToolName: "ask", Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL, Input: "{}"}}
	g.commit(b, i, r)
	if err := g.stateUnderTest.claim.Send(&statev1.ClaimRunsRequest{Credits: 1}); err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	_, err := statev1.NewCallServiceClient(g.conns[0]).SubmitCall(b.Context(), &statev1.SubmitCallRequest{
		Tenant: benchTenant, SessionId: ref.GetSessionId(), ToolCallId: call,
		Answer: &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: `"yes"`}},
	})
	submit = time.Since(begin)
	if err != nil {
		b.Fatal(err)
	}
	work, err := g.stateUnderTest.claim.Recv()
	claim = time.Since(begin)
	if err != nil {
		b.Fatal(err)
	}
	c := work.GetExecute()
	g.refs[i] = &statev1.RunRef{Tenant: benchTenant, SessionId: ref.GetSessionId(), RunId: c.GetRun().GetRunId(), Epoch: c.GetEpoch()}
	return submit, claim
}

// wal returns the position of the write-ahead log in bytes.
func (g *growing) wal(b *testing.B) (bytes int64) {
	b.Helper()
	if err := g.db.QueryRow(b.Context(), `SELECT (pg_current_wal_lsn() - '0/0')::bigint`).Scan(&bytes); err != nil {
		b.Fatal(err)
	}
	return bytes
}

// rows returns the size of a session's rows in bytes.
func (g *growing) rows(b *testing.B, session string) (bytes int64) {
	b.Helper()
	for _, table := range tablesOfSessions(b, g.db) {
		var n int64
		query := fmt.Sprintf(`SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM %s t WHERE session_id = $1`, table)
		if err := g.db.QueryRow(b.Context(), query, session).Scan(&n); err != nil {
			b.Fatal(err)
		}
		bytes += n
	}
	return bytes
}

func tablesOfSessions(b *testing.B, db *pgxpool.Pool) []string {
	b.Helper()
	rows, err := db.Query(b.Context(), `SELECT table_name::text FROM information_schema.columns
		WHERE table_schema = 'public' AND column_name = 'session_id' ORDER BY 1`)
	if err != nil {
		b.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.Fatal(err)
	}
	return tables
}

// states measures steps with a state of 100 KB: unchanged, and with a small change in each step.
func (g *growing) states(b *testing.B) {
	b.Helper()
	var large strings.Builder
	large.WriteString(`{"count":0`)
	for i := range 100 {
		fmt.Fprintf(&large, `,"key%d":"%s"`, i, randomText(1000, i))
	}
	large.WriteString("}")
	refs := g.live(b, 2, large.String())
	fmt.Printf("\nA step over a state of %d KB, without its messages, over %d steps, Postgres:\n", large.Len()/1000, stateSteps)
	for i, what := range []string{"that does not change", "of which one key changes"} {
		before, wal := g.rows(b, refs[i].GetSessionId()), g.wal(b)
		var times []time.Duration
		for n := int32(1); n <= stateSteps; n++ {
			r := step(refs[i], n)
			if i == 1 {
				r.Ops = []*statev1.StateOp{{Key: "count", Op: &statev1.StateOp_Replace{Replace: fmt.Sprint(n)}}}
			}
			times = append(times, g.commit(b, i, r))
		}
		slices.Sort(times)
		fmt.Printf("  %-28s %9.0f bytes of rows, %9.0f of write-ahead log, p50 %s, slowest %s\n", what,
			float64(g.rows(b, refs[i].GetSessionId())-before)/stateSteps-2*bodyBytes, float64(g.wal(b)-wal)/stateSteps, quantile(times, 0.5), quantile(times, 1))
	}
}

// randomText returns a text that compresses badly.
func randomText(n, seed int) string {
	text := make([]byte, n)
	x := uint32(seed*2654435761 + 1)
	for i := range text {
		x = x*1664525 + 1013904223
		text[i] = 'a' + byte(x>>24)%26
	}
	return string(text)
}

// BenchmarkStateLists measures lists and starts among few and among very many sessions.
func BenchmarkStateLists(b *testing.B) {
	for b.Loop() {
		url := pgtest.URL(b)
		db := open(b, url)
		s := startState(b, "HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL="+url)
		s.template(b)
		public := harness.Start(b, harness.Options{Executors: harness.NoExecutors, PostgresURL: url, LogLevel: "warn"})
		fill(b, db, 1, fewSessions)
		few := slices.Concat(s.lists(b), publicLists(b, public.Client))
		begin := time.Now()
		fill(b, db, fewSessions+1, manySessions)
		fmt.Printf("\nLatency, p50, among %d and among %d sessions, Postgres (%s to fill them in):\n", fewSessions, manySessions, time.Since(begin).Round(time.Second))
		many := slices.Concat(s.lists(b), publicLists(b, public.Client))
		for i := range few {
			fmt.Printf("  %-46s %8.2f %8.2f ms %.2fx\n", few[i].what, ms(few[i].p50), ms(many[i].p50), float64(many[i].p50)/float64(few[i].p50))
		}
	}
}

// template creates the session copied by fill.
func (s *stateUnderTest) template(b *testing.B) {
	b.Helper()
	_, err := s.runs(0).StartRun(b.Context(), &statev1.StartRunRequest{
		Tenant: benchTenant, SessionId: "template", AgentType: benchAgent, UserId: "somebody", Tags: []string{"blue"},
		Metadata: map[string]string{"plan": "free"}, Messages: userMessage("u"),
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.claim.Send(&statev1.ClaimRunsRequest{Credits: 1}); err != nil {
		b.Fatal(err)
	}
	work, err := s.claim.Recv()
	if err != nil {
		b.Fatal(err)
	}
	ref := &statev1.RunRef{Tenant: benchTenant, SessionId: "template", RunId: work.GetExecute().GetRun().GetRunId(), Epoch: work.GetExecute().GetEpoch()}
	r := step(ref, 1)
	r.Outcome = &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_COMPLETED}
	if _, err := s.work(0).CommitStep(b.Context(), r); err != nil {
		b.Fatal(err)
	}
}

// fill copies the template's session, run, state and facets under the numbers from first to last, each older
// than the previous one, for ten users in turn.
func fill(b *testing.B, db *pgxpool.Pool, first, last int) {
	b.Helper()
	for _, table := range []string{"sessions", "states", "runs", "session_facets"} {
		rows, err := db.Query(b.Context(), `SELECT column_name::text FROM information_schema.columns
			WHERE table_schema = 'public' AND table_name = $1 ORDER BY ordinal_position`, table)
		if err != nil {
			b.Fatal(err)
		}
		columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			b.Fatal(err)
		}
		var values []string
		for _, c := range columns {
			switch c {
			case "session_id", "root_id":
				values = append(values, `'copy-' || n`)
			case "created_at":
				values = append(values, `created_at - n`)
			case "user_id":
				values = append(values, `'user-' || n % 10`)
			case "facet":
				values = append(values, `CASE facet WHEN 'user:somebody' THEN convert_to('user:user-' || n % 10, 'UTF8') ELSE facet END`)
			default:
				values = append(values, c)
			}
		}
		statement := fmt.Sprintf(`INSERT INTO %[1]s (%[2]s) SELECT %[3]s FROM %[1]s, generate_series(%[4]d, %[5]d) n WHERE session_id = 'template'`,
			table, strings.Join(columns, ", "), strings.Join(values, ", "), first, last)
		if _, err := db.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	for _, statement := range []string{`VACUUM ANALYZE`, `CHECKPOINT`} {
		if _, err := db.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
}

type timed struct {
	what string
	p50  time.Duration
}

func (s *stateUnderTest) lists(b *testing.B) (all []timed) {
	b.Helper()
	s.round++
	list := func(r *statev1.ListSessionsRequest) *statev1.ListSessionsResponse {
		r.Tenant = benchTenant
		answer, err := s.sessions(0).ListSessions(b.Context(), r)
		if err != nil {
			b.Fatal(err)
		}
		return answer
	}
	take := func(what string, do func(i int)) { all = append(all, timed{what, p50Of(do)}) }
	page := func(r *statev1.ListSessionsRequest) func(int) { return func(int) { list(r) } }
	take("first page", page(&statev1.ListSessionsRequest{}))
	take("first page of a user", page(&statev1.ListSessionsRequest{UserId: "user-7"}))
	take("first page, user, status, tag and metadata", page(&statev1.ListSessionsRequest{
		UserId: "user-7", Tags: []string{"blue"}, Metadata: map[string]string{"plan": "free"},
		Statuses: []statev1.SessionStatus{statev1.SessionStatus_SESSION_STATUS_COMPLETED, statev1.SessionStatus_SESSION_STATUS_FAILED},
	}))
	cursor := ""
	for range 10 {
		cursor = list(&statev1.ListSessionsRequest{Cursor: cursor}).GetNext()
	}
	take("ten pages deep, by cursor", page(&statev1.ListSessionsRequest{Cursor: cursor}))
	take("ten pages deep, by offset", page(&statev1.ListSessionsRequest{Offset: 500}))
	take("get a session", func(int) {
		if _, err := s.sessions(0).GetSession(b.Context(), &statev1.GetSessionRequest{Tenant: benchTenant, SessionId: "copy-500"}); err != nil {
			b.Fatal(err)
		}
	})
	take("start a run in a new session", func(i int) { s.startOne(b, fmt.Sprintf("started-%d-%d", s.round, i)) })
	take("start a run in an old session", func(i int) { s.startOne(b, fmt.Sprintf("copy-%d", i+2+s.round*400)) })
	return all
}

// p50Of returns the median time of calls.
func p50Of(do func(i int)) time.Duration {
	times := make([]time.Duration, samples)
	do(-1)
	for i := range times {
		begin := time.Now()
		do(i)
		times[i] = time.Since(begin)
	}
	slices.Sort(times)
	return quantile(times, 0.5)
}

// publicLists measures the first page of the conversations and an opened one, through the gateway.
func publicLists(b *testing.B, c harness.Client) (all []timed) {
	b.Helper()
	api := client.New(client.Config{URL: c.URL, Key: c.Key})
	page := func(r *agentv1.ListSessionsRequest) func(int) {
		return func(int) {
			left := publicPage
			for _, err := range api.Sessions(b.Context(), r) {
				if err != nil {
					b.Fatal(err)
				}
				if left--; left == 0 {
					return
				}
			}
			b.Fatalf("the page lacks %d sessions", left)
		}
	}
	all = append(all, timed{"first page, through the gateway", p50Of(page(&agentv1.ListSessionsRequest{}))})
	all = append(all, timed{"first page of a user, through the gateway", p50Of(page(&agentv1.ListSessionsRequest{UserId: "user-7"}))})
	return append(all, timed{"open a session with its messages, through the gateway", p50Of(func(int) {
		if _, err := api.Session(b.Context(), "copy-500"); err != nil {
			b.Fatal(err)
		}
		for _, err := range api.Messages(b.Context(), "copy-500") {
			if err != nil {
				b.Fatal(err)
			}
		}
	})})
}

func (s *stateUnderTest) startOne(b *testing.B, session string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), requestLimit)
	defer cancel()
	_, err := s.runs(0).StartRun(ctx, &statev1.StartRunRequest{
		Tenant: benchTenant, SessionId: session, AgentType: benchAgent, UserId: "somebody", Messages: userMessage("new"),
	})
	if err != nil {
		b.Fatal(err)
	}
}
