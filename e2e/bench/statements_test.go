package bench_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// statementRepetitions bounds how often an operation runs until its statements are those of the page. On a slow machine a
// reader may ask state again.
const statementRepetitions = 20

// TestThePageListsEveryStatement compares the tables of docs/costs.md with the statements of a turn, a suspension and an attach
// that are alone. Each row of a table is a transaction: how often, its statements, and what it is for.
func TestThePageListsEveryStatement(t *testing.T) {
	page, err := os.ReadFile("../../docs/costs.md")
	if err != nil {
		t.Fatal(err)
	}
	tap := newTap(t, pgtest.URL(t))
	s := harness.Start(t, harness.Options{
		Agents: strings.Replace(costAgents, "\nagents:", costModels, 1), LogLevel: "warn",
		StateEnv: []string{ // no background work
			"HOLDFAST_STATE_POSTGRES_URL=" + tap.url, "HOLDFAST_STATE_CLAIM_POLL=1h", "HOLDFAST_STATE_STOP_POLL=1h",
			"HOLDFAST_STATE_SWEEP_EVERY=1h", "HOLDFAST_STATE_EXPIRE_EVERY=1h", "HOLDFAST_STATE_SILENT_AFTER=3h",
		},
	})
	client := newHTTPClient()
	t.Cleanup(client.CloseIdleConnections)
	waiting := &waiting{System: s}
	for _, operation := range []struct {
		heading string
		do      func(session string) error
	}{
		{"### A turn of one step, by `/chat`", func(session string) error {
			_, err := turn(t.Context(), client, s.Client, session, "text")
			return err
		}},
		{"### A suspension for an approval and its answer, by `/chat`", func(session string) error {
			_, err := waiting.converse(t.Context(), session, true)
			return err
		}},
		{"### An attach to a conversation", func(string) error {
			events, err := s.Listen(t.Context(), "statements-0-0", harness.SSE, 0) // the first turn
			if err != nil {
				return err
			}
			defer events.Close()
			for err == nil {
				_, err = events.Next()
			}
			return nil
		}},
	} {
		want := documented(string(page), operation.heading)
		var got []string
		for n := range statementRepetitions {
			tap.take()
			session := fmt.Sprintf("statements-%d-%d", len(operation.heading), n)
			if strings.Contains(operation.heading, "turn") {
				session = fmt.Sprintf("statements-0-%d", n)
			}
			if err := operation.do(session); err != nil {
				t.Fatal(operation.heading, err)
			}
			if got = rowsOf(tap.take()); slices.Equal(got, want) {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("docs/costs.md, %s\n got %s\nwant %s", operation.heading, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		}
	}
}

// documented returns the first two columns of the table below a heading, sorted.
func documented(page, heading string) (rows []string) {
	_, section, _ := strings.Cut(page, heading+"\n")
	section, _, _ = strings.Cut(section, "\n#")
	for line := range strings.SplitSeq(section, "\n") {
		if cells := strings.Split(line, "|"); len(cells) == 5 && strings.Contains(cells[2], "`") {
			rows = append(rows, strings.TrimSpace(cells[1])+" | "+strings.TrimSpace(cells[2]))
		}
	}
	slices.Sort(rows)
	return rows
}

// rowsOf returns the transactions as rows of the page, sorted.
func rowsOf(transactions []*transaction) (rows []string) {
	counts := map[string]int{}
	for _, t := range transactions {
		counts["`"+strings.Join(t.statements, "`, `")+"`"]++
	}
	for text, n := range counts {
		rows = append(rows, fmt.Sprintf("%d | %s", n, text))
	}
	slices.Sort(rows)
	return rows
}

// TestNormalWorkIsNoErrorOfTheDatabase lets one replica of state commit the steps of runs that are stopped through another, so that
// its cached sessions are stale. PostgreSQL answers, and so logs, no error.
func TestNormalWorkIsNoErrorOfTheDatabase(t *testing.T) {
	const sessions = 40
	tap := newTap(t, pgtest.URL(t))
	s := harness.Start(t, harness.Options{
		Agents: strings.Replace(costAgents, "\nagents:", costModels, 1), LogLevel: "warn", States: 2,
		StateEnv: []string{"HOLDFAST_STATE_POSTGRES_URL=" + tap.url},
	})
	first := newDirect(t, s.States[0])
	other := statev1.NewRunServiceClient(harness.DialInternal(t, s.States[1].Address))
	waiting := &waiting{System: s}
	err := each(sessions, func(i int) error {
		session := fmt.Sprint("stopped-", i)
		if i%4 == 0 {
			_, err := waiting.converse(t.Context(), session, true)
			return err
		}
		if err := first.start(t.Context(), session, "steps"); err != nil {
			return err
		}
		_, err := other.RequestStop(t.Context(), &statev1.RequestStopRequest{Tenant: firstTenant, SessionId: session, Kind: statev1.StopKind_STOP_KIND_INTERRUPT})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range sessions {
		if i%4 != 0 {
			harness.WaitFor(t, fillLimit, "a stopped run to end", func() (bool, string) {
				got, err := statev1.NewSessionServiceClient(first.conns[0]).GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: firstTenant, SessionId: fmt.Sprint("stopped-", i)})
				return err == nil && got.GetSession().GetStatus() != statev1.SessionStatus_SESSION_STATUS_ACTIVE, fmt.Sprint(got.GetSession().GetStatus(), err)
			})
		}
	}
	if failed := tap.failed(); len(failed) > 0 {
		t.Errorf("the database has answered %d errors: %v", len(failed), failed)
	}
}
