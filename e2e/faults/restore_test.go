package faults_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
)

const (
	restoreLimit = 5 * time.Minute
	// atWork is the number of sessions with a run in flight when the database goes back, and atRest of others.
	atWork = 6
	atRest = 4
	// laterTurns is the number of turns of each session afterwards.
	laterTurns = 3
)

// restoreScript is the script of tales during which the database goes back.
var restoreScript = script{steps: 4, chunks: 4}

// goneBack has the sessions of a database that loses commits while its live log stays.
type goneBack struct {
	t      *testing.T
	client harness.Client
	work   []*session
	rest   []*session
}

func newGoneBack(ctx context.Context, t *testing.T, c harness.Client) *goneBack {
	t.Helper()
	g := &goneBack{t: t, client: c}
	for i := range atWork {
		name := fmt.Sprintf("work-%d", i)
		g.work = append(g.work, &session{id: name, turns: []turn{greeting(name), restoreScript.tale(name + "-tale")}})
	}
	for i := range atRest {
		name := fmt.Sprintf("rest-%d", i)
		g.rest = append(g.rest, &session{id: name, turns: []turn{greeting(name)}})
	}
	begin(ctx, t, c, g.rest)
	for _, s := range g.rest {
		c.WaitStatus(t, s.id, "completed")
	}
	begin(ctx, t, c, g.work)
	return g
}

// loseTurns makes turns that the database will not have.
func (g *goneBack) loseTurns(ctx context.Context) {
	g.t.Helper()
	for _, name := range []string{"lost", "lost-too"} {
		talk(ctx, g.t, g.client, g.rest, greeting(name))
	}
	for _, s := range g.rest {
		s.turns = s.turns[:1]
	}
	g.client.WaitStatus(g.t, g.work[0].id, "completed")
}

// check checks that the runs of the copy end, and that every later turn is told live as it is stored.
func (g *goneBack) check(ctx context.Context) {
	g.t.Helper()
	all := append(g.work, g.rest...)
	for _, s := range all {
		checkStored(g.t, g.client, s)
	}
	for i := range laterTurns {
		g.laterTurn(ctx, all, greeting(fmt.Sprint("later-", i)))
	}
	for _, s := range all {
		checkStored(g.t, g.client, s)
	}
}

// laterTurn makes the turn in all sessions, and compares each live answer with the stored one.
func (g *goneBack) laterTurn(ctx context.Context, all []*session, next turn) {
	g.t.Helper()
	var mu sync.Mutex
	live := map[string]string{} // by session
	atOnce(g.t, all, func(s *session) error {
		s.turns = append(s.turns, next)
		m, err := g.client.Converse(ctx, s.id, agentType, next.ask)
		mu.Lock()
		defer mu.Unlock()
		live[s.id] = m.Content()
		return err
	})
	for _, s := range all {
		messages := g.client.Messages(g.t, s.id)
		if stored := messages[len(messages)-1].Content(); stored != live[s.id] {
			g.t.Errorf("the answer to %q in %s is stored as\n%s\nand was live\n%s", next.ask, s.id, stored, live[s.id])
		}
	}
}

// checkLog checks that claims met the log above the database, and that no step was repeated because of records that it
// seemed to lack.
func checkLog(t *testing.T, log string) {
	t.Helper()
	if strings.Contains(log, "the log has lost records") {
		t.Error("a step was shown again, because the log seemed to have lost records")
	}
	if !strings.Contains(log, "the database has lost commits") {
		t.Error("no claim has met what the database has lost")
	}
}

func TestADatabaseThatGoesBackUnderLoadCostsOneRepetition(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(*harness.System) []*harness.Process{
		"a failover":        func(*harness.System) []*harness.Process { return nil },
		"a restored backup": func(s *harness.System) []*harness.Process { return append(s.Executors, s.Gateway, s.Stream) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), restoreLimit)
			defer cancel()
			database := pgtest.URL(t)
			s := harness.Start(t, harness.Options{Agents: restoreScript.agents(), Executors: 2, PostgresURL: database, LogLevel: "info"})
			g := newGoneBack(ctx, t, s.Client)
			s.Busy()
			s.State.Kill()
			copied := pgtest.Clone(t, database)
			s.State.Start()
			g.loseTurns(ctx)

			others := restart(s)
			for _, p := range append(others, s.State) {
				p.Kill()
			}
			pgtest.Overwrite(t, database, copied)
			for _, p := range append(others, s.State) {
				p.StartOnly()
			}
			for _, p := range append(others, s.State) {
				p.WaitReady()
			}
			g.check(ctx)
			var log string
			for _, p := range s.Executors {
				log += p.Log()
			}
			checkLog(t, log)
		})
	}
}

func TestARestoredBackupOfSQLiteUnderLoadCostsOneRepetition(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), restoreLimit)
	defer cancel()
	d := harness.StartDev(t, restoreScript.agents(), "HOLDFAST_LOG_LEVEL=info")
	database, backup := filepath.Join(d.Data, "state.db"), filepath.Join(t.TempDir(), "backup.db")
	holdfast := func(command string) {
		t.Helper()
		c := exec.CommandContext(ctx, harness.Binary(t, "holdfast"), command, backup)
		c.Env = append(os.Environ(), "HOLDFAST_STATE_SQLITE_PATH="+database)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("holdfast %s: %v\n%s", command, err, out)
		}
	}
	g := newGoneBack(ctx, t, d.Client)
	holdfast("backup")
	g.loseTurns(ctx)
	d.Kill()
	for _, name := range []string{database, database + "-wal", database + "-shm"} {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	holdfast("restore")
	d.Start()
	g.check(ctx)
	checkLog(t, d.Log())
}
