package state_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// formerly restores the dump of an earlier release into a database of the store, and returns
// its configuration.
var formerly = map[string]func(t *testing.T, dump string) []string{
	"sqlite": func(t *testing.T, dump string) []string {
		path := filepath.Join(t.TempDir(), "state.db")
		db, err := sql.Open("sqlite", path) // the driver of the service
		must(t, err)
		_, err = db.ExecContext(t.Context(), dump)
		must(t, err)
		must(t, db.Close())
		return []string{"HOLDFAST_STATE_STORE=sqlite", "HOLDFAST_STATE_SQLITE_PATH=" + path}
	},
	"postgres": func(t *testing.T, dump string) []string {
		url := pgtest.URL(t)
		conn, err := pgx.Connect(t.Context(), url)
		must(t, err)
		_, err = conn.Exec(t.Context(), dump, pgx.QueryExecModeSimpleProtocol)
		must(t, err)
		must(t, conn.Close(t.Context()))
		return []string{"HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL=" + url}
	},
}

func TestASessionSuspendedByAnEarlierReleaseContinuesItsTrace(t *testing.T) {
	t.Parallel()
	for name, open := range formerly {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dump, err := os.ReadFile(filepath.Join("testdata", "third."+name+".sql"))
			must(t, err)
			h := run(t, defaults(t, open(t, string(dump))...))
			before, err := statev1.NewSessionServiceClient(h.all).GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: "trip"})
			must(t, err)
			suspended, call := before.GetCurrentRun(), before.GetCalls()[0]
			if call.GetApprovalId() != "approval_1" || call.GetAnswer() != nil || before.GetSession().GetCustomState() != `{"city":"Rome","asked":true}` {
				t.Fatalf("got %v, want it to wait for the approval", before)
			}
			claims := h.executor(t.Context(), "e2")
			answer := &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{ApprovalId: "approval_1", Approved: true}}}
			got, err := statev1.NewCallServiceClient(h.all).SubmitCalls(t.Context(), &statev1.SubmitCallsRequest{
				Tenant: "acme", SessionId: "trip", Answers: []*statev1.SubmittedAnswer{{ToolCallId: "call_1", Answer: answer}},
			})
			must(t, err)
			claim := (<-claims).GetExecute()
			next := claim.GetRun()
			if got.GetCalls()[0].GetOutcome() != statev1.SubmittedCall_OUTCOME_ACCEPTED || got.GetRun().GetRunId() != next.GetRunId() {
				t.Errorf("got %v and the claim %v", got, claim)
			}
			if next.GetTraceparent() != "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" ||
				next.GetTracestate() != "holdfast=b7ad6b7169203331,vendor=1" || // the span that suspended, for a link
				next.GetMessageId() != suspended.GetMessageId() || next.GetEntry() != statev1.RunEntry_RUN_ENTRY_CONTINUATION {
				t.Errorf("got %v, want it to go on with %v", next, suspended)
			}
			if len(claim.GetMessages()) != 2 || !claim.GetCalls()[0].GetAnswer().GetApproval().GetApproved() {
				t.Errorf("got %v, want the conversation and the answer", claim)
			}
		})
	}
}
