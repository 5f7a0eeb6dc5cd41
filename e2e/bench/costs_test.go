package bench_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

const (
	costRounds     = 40  // of each thing that is done alone, one after the other
	costOfMany     = 64  // runs at the same time
	costDeltas     = 400 // of a reply that is typed
	costSettle     = 300 * time.Millisecond
	storedSessions = 200
)

// costAgents are as stepAgents, with a tool that is taken to have effects beside the one that has
// none, and with a reply that is typed word by word.
var costAgents = stepAgents + `
  - {name: effects, model: scripted/steps, tools: [{use: calculate, readOnly: false}]}
  - {name: text, model: scripted/text}
  - {name: typed, model: scripted/typed}
  - {name: careful, model: scripted/careful, tools: [{use: calculate, approval: always}]}
`

// costModels are more models for the script of stepAgents.
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

// BenchmarkCosts counts what the things cost that Holdfast does: statements and round trips to the
// database, bytes of its write-ahead log, messages and bytes of the live log, processor time. It
// is the source of docs/costs.md.
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

// costs is a system whose database is reached through a tap, and whose log is a NATS server of
// its own.
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

// tally is what was used up to a moment.
type tally struct {
	statements, trips, wal, messages, bytes int64
	spent                                   spending
}

func (c *costs) tally() tally {
	c.b.Helper()
	time.Sleep(costSettle) // what is done behind an answer
	t := tally{statements: c.tap.statements.Load(), trips: c.tap.trips.Load()}
	if err := c.db.QueryRow(c.b.Context(), `SELECT pg_current_wal_lsn() - '0/0'::pg_lsn`).Scan(&t.wal); err != nil {
		c.b.Fatal(err)
	}
	t.messages, t.bytes = c.nats.Stored()
	t.spent = append(spendings(c.b, c.System), share{"nats", c.nats.Node(0).CPU()})
	return t
}

// print gives what each of n things has used since before.
func (c *costs) print(what string, before tally, n float64) {
	c.b.Helper()
	after := c.tally()
	each := func(before, after int64) float64 { return float64(after-before) / n }
	used := after.spent.since(before.spent, n).without("clients")
	fmt.Printf("%-44s %9.2f %9.2f %9.0f %9.2f %9.0f %9.3f  %v\n", what, each(before.statements, after.statements), each(before.trips, after.trips),
		each(before.wal, after.wal), each(before.messages, after.messages), each(before.bytes, after.bytes), ms(used.sum()), used)
}

// alone does something again and again, one after the other. It is n things each time.
func (c *costs) alone(what string, n int, do func(session string) error) {
	c.b.Helper()
	before := c.tally()
	for range costRounds {
		c.made++
		if err := do(fmt.Sprint("cost-", c.made)); err != nil {
			c.b.Fatal(fmt.Errorf("%s: %w", what, err))
		}
	}
	c.print(what, before, float64(costRounds*n))
}

// many lets many runs take their steps at the same time.
func (c *costs) many(what, agent string) {
	c.b.Helper()
	c.made++
	before := c.tally()
	name := fmt.Sprint("many-", c.made)
	c.direct.runs(c.b, costOfMany, name, agent)
	c.long = name + "-0"
	c.print(what, before, costOfMany*stepsOfRun)
}

// turn gives a turn whose answer a client reads.
func (c *costs) turn(agent string) func(session string) error {
	client := newHTTPClient()
	c.b.Cleanup(client.CloseIdleConnections)
	return func(session string) error {
		_, err := turn(c.b.Context(), client, c.Client, session, agent)
		return err
	}
}

// run gives a run that nobody reads.
func (c *costs) run(agent string) func(session string) error {
	return func(session string) error {
		if err := c.direct.start(c.b.Context(), session, agent); err != nil {
			return err
		}
		return c.direct.ended(c.b.Context(), session)
	}
}

// attach reads a conversation of many steps that has ended.
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

// suspension gives a turn that asks for an approval, gets it and goes on.
func (c *costs) suspension() func(session string) error {
	w := &waiting{System: c.System}
	return func(session string) error {
		_, err := w.converse(c.b.Context(), session, true)
		return err
	}
}

// stored says what sessions of 20 steps take in the database.
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

// runs lets n runs of the agent begin at once, and waits for all of them.
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

// ended waits until the session is not active any more. It looks seldom, since to look is not
// what is measured.
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

// tap passes on what the state service and its database say to each other, and counts the
// statements that are executed and the round trips.
type tap struct {
	url               string
	target            string
	statements, trips atomic.Int64
}

// socketName is what PostgreSQL calls its socket in the folder that it listens in.
const socketName = ".s.PGSQL.5432"

func newTap(b *testing.B, databaseURL string) *tap {
	b.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		b.Fatal(err)
	}
	query := u.Query()
	dir := b.TempDir()
	t := &tap{target: filepath.Join(query.Get("host"), socketName)}
	listener, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = listener.Close() })
	query.Set("host", dir)
	u.RawQuery = query.Encode()
	t.url = u.String()
	go t.accept(listener) // ends with the listener
	return t
}

func (t *tap) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", t.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
		go func() { _, _ = io.Copy(server, io.TeeReader(client, &counter{tap: t})); _ = server.Close() }()
	}
}

// counter finds the messages in what a client sends to PostgreSQL:
// https://www.postgresql.org/docs/current/protocol-message-formats.html
type counter struct {
	tap     *tap
	started bool // behind the first message, which has no type
	head    []byte
	skip    int // bytes of the message that are still to come
}

func (c *counter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if c.skip > 0 {
			passed := min(c.skip, len(p))
			c.skip, p = c.skip-passed, p[passed:]
			continue
		}
		c.head, p = append(c.head, p[0]), p[1:]
		c.begin()
	}
	return n, nil
}

// begin looks at the head of a message when it is whole: its type and its length, which counts
// itself.
func (c *counter) begin() {
	const length = 4
	typed := 1
	if !c.started {
		typed = 0
	}
	if len(c.head) < typed+length {
		return
	}
	c.skip = int(binary.BigEndian.Uint32(c.head[typed:])) - length
	if c.started {
		switch c.head[0] {
		case 'E', 'Q':
			c.tap.statements.Add(1)
		}
		switch c.head[0] {
		case 'S', 'Q':
			c.tap.trips.Add(1)
		}
	}
	c.started, c.head = true, c.head[:0]
}
