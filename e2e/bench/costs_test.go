package bench_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

const (
	costRounds     = 40  // repetitions of each operation that runs alone
	costOfMany     = 64  // concurrent runs
	costDeltas     = 400 // in a streamed reply
	costSettle     = 300 * time.Millisecond
	storedSessions = 200
)

// costAgents extends stepAgents with a tool that has effects and with a reply streamed word by word.
var costAgents = stepAgents + `
  - {name: effects, model: scripted/steps, tools: [{use: calculate, readOnly: false}]}
  - {name: text, model: scripted/text}
  - {name: typed, model: scripted/typed}
  - {name: careful, model: scripted/careful, tools: [{use: calculate, approval: always}]}
`

// costModels extends the script of stepAgents.
var costModels = strings.ReplaceAll(`
        text:
          chunk: whole
          delay: 0s
          rules:
            - reply: 'Five words are enough here.'
        typed:
          chunk: 1 word
          delay: 5ms
          rules:
            - reply: 'WORDS'
        careful:
          chunk: whole
          delay: 0s
          rules:
            - when: {toolResult: calculate}
              reply: 'It is {{.LastResult}}.'
            - reply: [{text: 'May I? '}, {call: {name: calculate, arguments: {expression: '6 * 7'}}}]
agents:`, "WORDS", strings.TrimSpace(strings.Repeat("word ", costDeltas)))

var listStatements = flag.Bool("statements", false, "BenchmarkCosts: list the SQL statements of each operation, by transaction")

// BenchmarkCosts counts the cost of Holdfast's operations: SQL statements and round trips, bytes of the
// write-ahead log, messages and bytes of the live log, processor time. It is the source of docs/costs.md.
func BenchmarkCosts(b *testing.B) {
	for b.Loop() {
		c := newCosts(b)
		fmt.Printf("\n%-44s %9s %9s %9s %9s %9s %9s  %s\n", "", "statements", "trips", "WAL bytes", "messages", "log bytes", "CPU ms", "of which")
		c.alone("turn of one step, by /chat", 1, c.turn("text"))
		c.alone("turn of one step, nobody reads", 1, c.run("text"))
		c.alone("step, read-only tool, 1 run", stepsOfRun, c.run("steps"))
		c.alone("step, tool with an effect, 1 run", stepsOfRun, c.run("effects"))
		c.many("step, read-only tool, 64 runs", "steps")
		c.many("step, tool with an effect, 64 runs", "effects")
		c.alone("delta of a typed reply, one reader", costDeltas, c.turn("typed"))
		c.attach()
		c.alone("suspension and answer, by /chat", 1, c.suspension())
		c.stored()
	}
}

// costs is a system with a tapped database connection and a NATS server of its own.
type costs struct {
	*harness.System
	b      *testing.B
	tap    *tap
	db     *pgxpool.Pool
	nats   *harness.NATS
	direct *direct
	made   int
	long   string // a session of many steps
}

func newCosts(b *testing.B) *costs {
	direct := pgtest.URL(b)
	c := &costs{b: b, tap: newTap(b, direct), db: open(b, direct), nats: harness.StartNATS(b, 1)}
	agents := strings.Replace(costAgents, "\nagents:", costModels, 1)
	c.System = harness.Start(b, harness.Options{
		Agents: agents, LogLevel: "warn", NATS: c.nats, StateEnv: []string{"HOLDFAST_STATE_POSTGRES_URL=" + c.tap.url},
	})
	c.direct = newDirect(b, c.State)
	for _, agent := range []string{"text", "steps", "effects"} {
		c.direct.runs(b, costOfMany, "warm-"+agent, agent)
	}
	return c
}

// tally holds the totals at a moment.
type tally struct {
	statements, trips, wal, messages, bytes int64
	spent                                   spending
}

func (c *costs) tally() tally {
	c.b.Helper()
	time.Sleep(costSettle) // for work behind an answer
	var t tally
	t.statements, t.trips = c.tap.counts()
	if err := c.db.QueryRow(c.b.Context(), `SELECT pg_current_wal_lsn() - '0/0'::pg_lsn`).Scan(&t.wal); err != nil {
		c.b.Fatal(err)
	}
	t.messages, t.bytes = c.nats.Stored()
	t.spent = append(spendings(c.b, c.System), share{"nats", c.nats.Node(0).CPU()})
	return t
}

// print prints the cost of each of n operations since before.
func (c *costs) print(what string, before tally, n float64) {
	c.b.Helper()
	after := c.tally()
	each := func(before, after int64) float64 { return float64(after-before) / n }
	used := after.spent.since(before.spent, n).without("clients")
	transactions := c.tap.take()
	fmt.Printf("%-44s %9.2f %9.2f %9.0f %9.2f %9.0f %9.3f  %v\n", what, each(before.statements, after.statements), each(before.trips, after.trips),
		each(before.wal, after.wal), each(before.messages, after.messages), each(before.bytes, after.bytes), ms(used.sum()), used)
	if *listStatements {
		fmt.Print(listing(transactions, n))
	}
}

// alone repeats an operation in sequence. Each repetition counts as n.
func (c *costs) alone(what string, n int, do func(session string) error) {
	c.b.Helper()
	before := c.tally()
	c.tap.take()
	for range costRounds {
		c.made++
		if err := do(fmt.Sprint("cost-", c.made)); err != nil {
			c.b.Fatal(fmt.Errorf("%s: %w", what, err))
		}
	}
	c.print(what, before, float64(costRounds*n))
}

// many measures the steps of concurrent runs.
func (c *costs) many(what, agent string) {
	c.b.Helper()
	c.made++
	before := c.tally()
	name := fmt.Sprint("many-", c.made)
	c.direct.runs(c.b, costOfMany, name, agent)
	c.long = name + "-0"
	c.print(what, before, costOfMany*stepsOfRun)
}

// turn returns a turn with a reading client.
func (c *costs) turn(agent string) func(session string) error {
	client := newHTTPClient()
	c.b.Cleanup(client.CloseIdleConnections)
	return func(session string) error {
		_, err := turn(c.b.Context(), client, c.Client, session, agent)
		return err
	}
}

// run returns a run without a reader. The tap sees its end, because a poll of the session would add to the measured cost.
func (c *costs) run(agent string) func(session string) error {
	return func(session string) error {
		select {
		case <-c.tap.ended: // of an earlier run
		default:
		}
		if err := c.direct.start(c.b.Context(), session, agent); err != nil {
			return err
		}
		select {
		case <-c.tap.ended:
			return nil
		case <-c.b.Context().Done():
			return c.b.Context().Err()
		}
	}
}

// attach reads an ended conversation of many steps.
func (c *costs) attach() {
	c.b.Helper()
	c.alone("attach to a conversation of 20 steps", 1, func(string) error {
		events, err := c.Listen(c.b.Context(), c.long, harness.SSE, 0)
		if err != nil {
			return err
		}
		defer events.Close()
		for {
			if _, err := events.Next(); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	})
}

// suspension returns a turn that requests an approval, receives it and continues.
func (c *costs) suspension() func(session string) error {
	w := &waiting{System: c.System}
	return func(session string) error {
		_, err := w.converse(c.b.Context(), session, true)
		return err
	}
}

// stored measures the database size of sessions with 20 steps.
func (c *costs) stored() {
	c.b.Helper()
	size := func() (bytes int64) {
		if err := c.db.QueryRow(c.b.Context(), `SELECT pg_database_size(current_database())`).Scan(&bytes); err != nil {
			c.b.Fatal(err)
		}
		return bytes
	}
	before := size()
	c.direct.runs(c.b, storedSessions, "stored", "steps")
	fmt.Printf("%-44s %9.1f KiB in the database, its indexes and old versions of rows included\n", "stored session of 20 steps", float64(size()-before)/storedSessions/1024)
}

// runs starts n runs of the agent at once and waits for all of them.
func (d *direct) runs(b *testing.B, n int, name, agent string) {
	b.Helper()
	session := func(i int) string { return fmt.Sprintf("%s-%d", name, i) }
	err := each(n, func(i int) error { return d.start(b.Context(), session(i), agent) })
	for i := 0; i < n && err == nil; i++ {
		err = d.ended(b.Context(), session(i))
	}
	if err != nil {
		b.Fatal(err)
	}
}

// ended waits until the session is no longer active. It polls rarely, because polling adds to the measured cost.
func (d *direct) ended(ctx context.Context, session string) error {
	const pause = 25 * time.Millisecond
	sessions := statev1.NewSessionServiceClient(d.conns[0])
	for {
		got, err := sessions.GetSession(ctx, &statev1.GetSessionRequest{Tenant: firstTenant, SessionId: session})
		switch status := got.GetSession().GetStatus(); {
		case err != nil:
			return err
		case status == statev1.SessionStatus_SESSION_STATUS_COMPLETED:
			return nil
		case status != statev1.SessionStatus_SESSION_STATUS_ACTIVE:
			return fmt.Errorf("session %s is %v: %v", session, status, got.GetSession().GetFailure())
		}
		time.Sleep(pause)
	}
}
