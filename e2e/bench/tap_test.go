package bench_test

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// tap forwards the traffic between the state service and its database, and records the executed statements by
// transaction.
type tap struct {
	url    string
	target string
	ended  chan struct{} // receives if a run has ended or suspended since the last receive

	mu                sync.Mutex
	statements, trips int64
	transactions      []*transaction // of all connections, in the order of their first statements
	errors            []string       // answers of the server; PostgreSQL logs each of them
}

// transaction is a sequence of statements that commit together.
type transaction struct {
	statements []string // described by describe
	trips      int
}

// socketName is the name of PostgreSQL's socket in its folder.
const socketName = ".s.PGSQL.5432"

func newTap(tb testing.TB, databaseURL string) *tap {
	tb.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		tb.Fatal(err)
	}
	query := u.Query()
	dir := tb.TempDir()
	t := &tap{target: filepath.Join(query.Get("host"), socketName), ended: make(chan struct{}, 1)}
	listener, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = listener.Close() })
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
		go func() { t.back(server, client); _ = client.Close() }()
		go func() { t.forward(client, server); _ = server.Close() }()
	}
}

// forward passes the messages of one connection on, and records what they execute.
func (t *tap) forward(client io.Reader, server io.Writer) {
	messages := pgproto3.NewBackend(io.TeeReader(client, server), nil)
	if _, err := messages.ReceiveStartupMessage(); err != nil {
		return
	}
	texts := map[string]string{} // of prepared statements
	var bound string
	var open *transaction
	explicit := false // open began with BEGIN
	execute := func(text string) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.statements++
		if open == nil {
			open = &transaction{}
			t.transactions = append(t.transactions, open)
		}
		what := describe(text)
		open.statements = append(open.statements, what)
		if strings.Contains(what, "update runs") && strings.Contains(what, "insert session_facets") { // the last commit of a run
			select {
			case t.ended <- struct{}{}:
			default:
			}
		}
		switch verb, _, _ := strings.Cut(text, " "); verb {
		case "BEGIN":
			explicit = true
		case "COMMIT", "ROLLBACK":
			explicit = false
		}
	}
	sync := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.trips++
		if open != nil {
			open.trips++
		}
		if !explicit {
			open = nil
		}
	}
	for {
		message, err := messages.Receive()
		if err != nil {
			return
		}
		switch m := message.(type) {
		case *pgproto3.Parse:
			texts[m.Name] = m.Query
		case *pgproto3.Bind:
			bound = texts[m.PreparedStatement]
		case *pgproto3.Execute:
			execute(bound)
		case *pgproto3.Query:
			execute(m.String)
			sync()
		case *pgproto3.Sync:
			sync()
		}
	}
}

// back passes the answers of the server on, and records errors.
func (t *tap) back(server io.Reader, client io.Writer) {
	messages := pgproto3.NewFrontend(io.TeeReader(server, client), nil)
	for {
		message, err := messages.Receive()
		if err != nil {
			return
		}
		if e, ok := message.(*pgproto3.ErrorResponse); ok {
			t.mu.Lock()
			t.errors = append(t.errors, fmt.Sprintf("%s %s: %s", e.Severity, e.Code, e.Message))
			t.mu.Unlock()
		}
	}
}

// failed returns the errors so far.
func (t *tap) failed() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.errors)
}

// counts returns the numbers of statements and round trips so far.
func (t *tap) counts() (statements, trips int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.statements, t.trips
}

// take returns the transactions since the last call, without those of background work.
func (t *tap) take() []*transaction {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := slices.DeleteFunc(t.transactions, (*transaction).isBackground)
	t.transactions = nil
	return taken
}

// isBackground reports heartbeats, and looks for work that is due, which find nothing.
func (t *transaction) isBackground() bool {
	return !slices.ContainsFunc(t.statements, func(s string) bool {
		verb, tables, _ := strings.Cut(s, " ")
		return !slices.Contains([]string{"BEGIN", "ROLLBACK", "DISCARD", "--", "SELECT"}, verb) && tables != "executors" && verb != "find"
	})
}

var (
	space  = regexp.MustCompile(`\s+`)
	writes = regexp.MustCompile(`\b(INSERT INTO|UPDATE|DELETE FROM) ([a-z_]+)\b`)
	reads  = regexp.MustCompile(`\b(?:FROM|JOIN) ([a-z]+_?[a-z_]*)\b`)
)

// describe names a statement by what it does and its tables: "insert messages", "lock sessions".
func describe(text string) string {
	text = space.ReplaceAllString(text, " ")
	var parts []string
	add := func(part string) {
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	for _, m := range writes.FindAllStringSubmatch(text, -1) {
		if m[2] == "SKIP" || m[2] == "SET" {
			continue
		}
		add(strings.ToLower(strings.Fields(m[1])[0]) + " " + m[2])
	}
	if len(parts) > 0 {
		return strings.Join(parts, ", ")
	}
	verb := "read"
	switch {
	case strings.Contains(text, "SKIP LOCKED"):
		verb = "find"
	case strings.Contains(text, "FOR UPDATE"):
		verb = "lock"
	}
	var tables []string
	for _, m := range reads.FindAllStringSubmatch(text, -1) {
		if name := m[1]; known[name] && !slices.Contains(tables, name) {
			tables = append(tables, name)
		}
	}
	if len(tables) == 0 {
		return text[:min(len(text), 60)]
	}
	return verb + " " + strings.Join(tables, ", ")
}

// known are the tables of the state service.
var known = func() map[string]bool {
	all := map[string]bool{}
	for _, name := range []string{
		"agents", "audit", "calls", "checkpoints", "executors", "governor_leases", "governors", "held_runs", "messages",
		"plans", "results", "runs", "session_facets", "sessions", "states", "sub_sessions", "usage_entries", "files", "file_links", "log_erasures", "quotas",
	} {
		all[name] = true
	}
	return all
}()

// listing prints transactions for people: each with its statements, equal ones together.
func listing(transactions []*transaction, n float64) string {
	counts := map[string]int{}
	for _, t := range transactions {
		counts[fmt.Sprintf("%d trips, %2d statements: %s", t.trips, len(t.statements), strings.Join(t.statements, " | "))]++
	}
	var lines []string
	for text := range counts {
		lines = append(lines, text)
	}
	slices.SortFunc(lines, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	var out strings.Builder
	for _, text := range lines {
		fmt.Fprintf(&out, "    %6.2fx %s\n", float64(counts[text])/n, text)
	}
	return out.String()
}
