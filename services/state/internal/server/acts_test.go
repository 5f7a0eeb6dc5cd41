package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// byKey is a caller that acts for all users.
func byKey(name string) *statev1.Caller { return &statev1.Caller{Actor: "key:" + name} }

// acts returns who did what, in the order of the entries, without the ids of runs.
func (b *bench) acts() (list []string) {
	b.Helper()
	got, err := b.audit.ListEvents(b.Context(), &statev1.ListEventsRequest{Tenant: "acme", Limit: 200})
	b.must(err)
	for _, e := range got.GetEvents() {
		list = append(list, strings.TrimSpace(e.GetActor()+" "+e.GetAction()+" in "+e.GetSessionId()+" "+e.GetDetail()))
	}
	slices.Sort(list) // entries of one millisecond have no order
	return list
}

// completes executes the next run to its end with one step.
func (s *stream) completes() {
	s.Helper()
	claim := s.execute()
	s.commit(endingStep(refTo(claim), claim.GetSession().GetStepCount()+1, completed))
	s.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
}

func TestWhatRemovesOrWritesForOthersIsAudited(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 1)
		send := func(by *statev1.Caller, id string, change func(*statev1.StartRunRequest)) {
			t.Helper()
			r := &statev1.StartRunRequest{Tenant: "acme", SessionId: id, AgentType: "support", UserId: "mia", Caller: by}
			change(r)
			_, err := b.runs.StartRun(t.Context(), r)
			b.must(err)
			s.completes()
		}
		message := func(id string) func(*statev1.StartRunRequest) {
			return func(r *statev1.StartRunRequest) {
				r.Messages = []*eventv1.Message{said(eventv1.Role_ROLE_USER, id, "Go on.")}
			}
		}
		send(mia(), "own", message("m1"))
		send(mia(), "own", message("m2"))
		send(byKey("web"), "foreign", message("m1"))
		send(byKey("web"), "foreign", message("m2"))
		send(&statev1.Caller{}, "foreign", message("m3")) // of the service itself
		send(mia(), "own", func(r *statev1.StartRunRequest) {
			message("m3")(r)
			r.Intent = &statev1.StartRunRequest_Edit{Edit: &statev1.Edit{MessageId: "m2"}}
		})
		send(byKey("web"), "own", func(r *statev1.StartRunRequest) {
			r.Intent = &statev1.StartRunRequest_Regenerate{Regenerate: &statev1.Regenerate{MessageId: "m3"}}
		})
		_, err := b.sessions.AppendMessages(t.Context(), &statev1.AppendMessagesRequest{
			Tenant: "acme", SessionId: "own", Caller: byKey("web"), Messages: []*eventv1.Message{said(eventv1.Role_ROLE_SYSTEM, "more", "Be kind.")},
		})
		b.must(err)
		title := "A title"
		for _, by := range []*statev1.Caller{mia(), byKey("web"), byKey("web")} { // the last changes nothing
			_, err = b.sessions.UpdateSession(t.Context(), &statev1.UpdateSessionRequest{Tenant: "acme", SessionId: "own", Title: &title, Caller: by})
			b.must(err)
			title = "Another title"
		}
		for id, by := range map[string]*statev1.Caller{"c1": mia(), "c2": byKey("web")} {
			_, err = b.sessions.CreateSession(t.Context(), &statev1.CreateSessionRequest{Tenant: "acme", SessionId: id, AgentType: "support", UserId: "mia", Caller: by})
			b.must(err)
		}
		points, err := b.points.ListCheckpoints(t.Context(), &statev1.ListCheckpointsRequest{Tenant: "acme", SessionId: "foreign"})
		b.must(err)
		_, err = b.points.Branch(t.Context(), &statev1.BranchRequest{
			Tenant: "acme", SessionId: "foreign", CheckpointId: points.GetCheckpoints()[0].GetCheckpointId(), NewSessionId: "branch", Caller: mia(),
		})
		b.must(err)
		want := []string{
			`key:web run.started in foreign {"user":"mia"}`,
			`key:web run.started in foreign {"user":"mia"}`,
			`user:mia message.edited in own {"messages":2}`,
			`key:web message.regenerated in own {"messages":1,"user":"mia"}`,
			`key:web messages.appended in own {"messages":1}`,
			`key:web session.changed in own {"user":"mia"}`,
			`key:web session.created in c2 {"user":"mia"}`,
			`user:mia session.branched in branch {"from":"foreign","messages":6}`,
		}
		slices.Sort(want)
		if got := b.acts(); !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestAKeyThatStartsARunAnewMakesItsAuthorNoApprover(t *testing.T) {
	t.Parallel()
	for name, anew := range map[string]func(point string) *statev1.StartRunRequest{
		"regenerated": func(string) *statev1.StartRunRequest {
			return &statev1.StartRunRequest{SessionId: "s", Intent: &statev1.StartRunRequest_Regenerate{Regenerate: &statev1.Regenerate{MessageId: "m1"}}}
		},
		"resumed from a checkpoint": func(point string) *statev1.StartRunRequest {
			return &statev1.StartRunRequest{SessionId: "s", Intent: &statev1.StartRunRequest_Resume{Resume: &statev1.Resume{CheckpointId: point}}}
		},
		"in a branch": func(point string) *statev1.StartRunRequest {
			return &statev1.StartRunRequest{SessionId: "b", Intent: &statev1.StartRunRequest_Branch{Branch: &statev1.Branch{FromSessionId: "s", CheckpointId: point}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) { refusesTheAuthor(t, open(), anew) })
		})
	}
}

// refusesTheAuthor checks who may approve a call of a run that key:operator has started for a message of key:author.
func refusesTheAuthor(t *testing.T, b *bench, anew func(point string) *statev1.StartRunRequest) {
	t.Helper()
	s := b.open("e1", 1)
	first := startOf("s")
	first.Messages[0].Id, first.Caller = "m1", byKey("author")
	_, err := b.runs.StartRun(t.Context(), first)
	b.must(err)
	s.completes()
	points, err := b.points.ListCheckpoints(t.Context(), &statev1.ListCheckpointsRequest{Tenant: "acme", SessionId: "s"})
	b.must(err)
	second := anew(points.GetCheckpoints()[0].GetCheckpointId())
	second.Tenant, second.Caller = "acme", byKey("operator")
	_, err = b.runs.StartRun(t.Context(), second)
	b.must(err)
	claim := s.execute()
	commit := suspendingStep(refTo(claim), claim.GetSession().GetStepCount()+1, "c1")
	call := commit.GetCalls()[0]
	call.Kind, call.ApprovalId, call.Approvers = statev1.CallKind_CALL_KIND_APPROVAL, "a-c1", statev1.Approvers_APPROVERS_OTHERS
	s.commit(commit)

	listed := func(actor string, ownOnly bool) int {
		t.Helper()
		got, err := b.calls.ListOpenCalls(t.Context(), &statev1.ListOpenCallsRequest{
			Tenant: "acme", Caller: &statev1.Caller{Actor: actor, Owner: "somebody"}, OwnOnly: ownOnly,
		})
		b.must(err)
		return len(got.GetCalls())
	}
	for actor, want := range map[string]int{"key:author": 0, "key:operator": 0, "user:leo": 1} {
		if got := listed(actor, false); got != want {
			t.Errorf("%s: got %d calls of others to approve, want %d", actor, got, want)
		}
	}
	if got := listed("user:leo", true); got != 0 {
		t.Errorf("a caller that may not approve got %d calls of others", got)
	}
	for _, by := range []string{"author", "operator"} {
		r := submitOf(second.GetSessionId(), "c1", verdict("c1", true))
		r.Caller = byKey(by)
		_, err = b.calls.SubmitCall(t.Context(), r)
		b.refuses(err, fault.Denied, "APPROVER_REFUSED")
	}
	r := submitOf(second.GetSessionId(), "c1", verdict("c1", true))
	r.Caller = byKey("other")
	_, err = b.calls.SubmitCall(t.Context(), r)
	b.must(err)
}
