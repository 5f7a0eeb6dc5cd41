package server

import (
	"slices"
	"strconv"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

func TestAStatusIsSetOnlyWhenTheSessionIsAsExpected(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("s")
		ref := refTo(s.execute())
		set := func(r *statev1.SetStatusRequest) *statev1.SetStatusResponse {
			r.Tenant, r.SessionId = "acme", "s"
			got, err := b.sessions.SetStatus(t.Context(), r)
			b.must(err)
			return got
		}
		version := b.get("s").GetSession().GetVersion()
		for _, r := range []*statev1.SetStatusRequest{
			{Status: paused, Expected: []statev1.SessionStatus{waiting, sessionOK}},
			{Status: paused, ExpectedVersion: version + 1},
			{Status: paused, Expected: []statev1.SessionStatus{active}, ExpectedVersion: version + 1},
		} {
			if got := set(r); got.GetOk() || got.GetStatus() != active || got.GetVersion() != version {
				t.Errorf("%v: got %v, want it refused with what is", r, got)
			}
		}
		got := set(&statev1.SetStatusRequest{
			Status: statev1.SessionStatus_SESSION_STATUS_INTERRUPTED, Expected: []statev1.SessionStatus{paused, active}, ExpectedVersion: version, InterruptReason: "lunch",
		})
		if !got.GetOk() || got.GetVersion() != version+1 || got.GetStatus() != statev1.SessionStatus_SESSION_STATUS_INTERRUPTED {
			t.Errorf("got %v, want it set", got)
		}
		after := b.get("s")
		if i := after.GetSession().GetInterruption(); i.GetReason() != "lunch" || i.GetRunId() != ref.GetRunId() || i.GetInterruptedAt() == 0 {
			t.Errorf("got %v", i)
		}
		_, err := b.work.CommitStep(t.Context(), step(ref, 1))
		b.refuses(err, fault.Stale, "EPOCH_STALE")
		set(&statev1.SetStatusRequest{Status: sessionKO, Failure: &statev1.Failure{Error: "given up", Code: "host", FailureReason: "ignored"}})
		if f := b.get("s").GetSession().GetFailure(); f.GetError() != "given up" || f.GetCode() != "host" || f.GetFailureReason() != "" {
			t.Errorf("got %v", f)
		}
	})
}

func TestAnUpdateLeavesUnsetFieldsAlone(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.announce()
		b.create("s", func(r *statev1.CreateSessionRequest) {
			r.UserId, r.OrganizationId, r.Tags, r.Metadata, r.ExpiresAt = "ann", "org", []string{"x"}, map[string]string{"k": "v"}, 1<<50
		})
		update := func(r *statev1.UpdateSessionRequest) *statev1.Session {
			r.Tenant, r.SessionId = "acme", "s"
			got, err := b.sessions.UpdateSession(t.Context(), r)
			b.must(err)
			s := b.get("s").GetSession()
			if got.GetVersion() != s.GetVersion() {
				t.Errorf("got version %d, want %d", got.GetVersion(), s.GetVersion())
			}
			return s
		}
		nobody, bob, never := "", "bob", int64(0)
		s := update(&statev1.UpdateSessionRequest{UserId: &bob, ExpectedVersion: 1})
		if s.GetUserId() != "bob" || s.GetOrganizationId() != "org" || !slices.Equal(s.GetTags(), []string{"x"}) || s.GetMetadata()["k"] != "v" || s.GetExpiresAt() != 1<<50 || s.GetVersion() != 2 {
			t.Errorf("got %v", s)
		}
		s = update(&statev1.UpdateSessionRequest{OrganizationId: &nobody, Tags: &statev1.Tags{}, Metadata: &statev1.Metadata{Pairs: map[string]string{"a": "b"}}, ExpiresAt: &never})
		if s.GetUserId() != "bob" || s.GetOrganizationId() != "" || len(s.GetTags()) != 0 || len(s.GetMetadata()) != 1 || s.GetMetadata()["a"] != "b" || s.GetExpiresAt() != 0 {
			t.Errorf("got %v", s)
		}
		_, err := b.sessions.UpdateSession(t.Context(), &statev1.UpdateSessionRequest{Tenant: "acme", SessionId: "s", ExpectedVersion: 1})
		if f := b.refuses(err, fault.Stale, "VERSION_STALE"); f.Meta["currentVersion"] != "3" {
			t.Errorf("got metadata %v", f.Meta)
		}
	})
}

func TestTheCustomStateIsSavedAndMerged(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.announce()
		b.create("s", func(r *statev1.CreateSessionRequest) { r.CustomState = `{"a":1}` })
		saved, err := b.sessions.SaveState(t.Context(), &statev1.SaveStateRequest{Tenant: "acme", SessionId: "s", CustomState: `{"b":[1]}`, ExpectedVersion: 1})
		if err != nil || saved.GetVersion() != 2 {
			t.Errorf("got %v, %v", saved, err)
		}
		merged, err := b.sessions.MergeState(t.Context(), &statev1.MergeStateRequest{Tenant: "acme", SessionId: "s", Ops: []*statev1.StateOp{
			{Key: "b", Op: &statev1.StateOp_Append{Append: `[2]`}}, {Key: "c", Op: &statev1.StateOp_Replace{Replace: `null`}}, {Key: "c", Op: &statev1.StateOp_Append{Append: `[3]`}},
		}})
		if err != nil || merged.GetVersion() != 3 || len(merged.GetWarnings()) != 1 {
			t.Errorf("got %v, %v; want a warning", merged, err)
		}
		if got := b.get("s").GetSession().GetCustomState(); got != `{"b":[1,2],"c":[3]}` {
			t.Errorf("got %s", got)
		}
	})
}

func TestMessagesAreAppendedAndTakenBack(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.announce()
		b.create("s")
		added, err := b.sessions.AppendMessages(t.Context(), &statev1.AppendMessagesRequest{Tenant: "acme", SessionId: "s", Messages: []*eventv1.Message{
			said(eventv1.Role_ROLE_SYSTEM, "m1", "be kind"), said(eventv1.Role_ROLE_ASSISTANT, "", "hello"),
		}})
		if err != nil || added.GetMessageCount() != 2 || added.GetVersion() != 2 {
			t.Errorf("got %v, %v", added, err)
		}
		page, err := b.sessions.ListMessages(t.Context(), &statev1.ListMessagesRequest{Tenant: "acme", SessionId: "s"})
		if err != nil || page.GetTotal() != 2 || page.GetMessages()[1].GetMessage().GetId() == "" || page.GetMessages()[1].GetMessage().GetCreatedAt() == 0 {
			t.Errorf("got %v, %v", page, err)
		}
		for _, count := range []int64{1, 1, 0} {
			cut, err := b.sessions.TruncateMessages(t.Context(), &statev1.TruncateMessagesRequest{Tenant: "acme", SessionId: "s", Count: count})
			if err != nil || cut.GetMessageCount() != count || cut.GetVersion() != b.get("s").GetSession().GetVersion() {
				t.Errorf("got %v, %v; want %d messages", cut, err, count)
			}
		}
	})
}

func TestASessionGoesBackToACheckpointAndBranchesFromIt(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		start := startOf("s")
		start.CustomState, start.Tags = `{"n":0}`, []string{"x"}
		_, err := b.runs.StartRun(t.Context(), start)
		b.must(err)
		ref := refTo(s.execute())
		var points []string
		for n := int32(1); n <= 3; n++ {
			commit := step(ref, n)
			commit.Ops = []*statev1.StateOp{{Key: "n", Op: &statev1.StateOp_Replace{Replace: strconv.Itoa(int(n))}}}
			points = append(points, b.commit(commit).GetCheckpointId())
		}
		var listed []string
		for offset, more := int32(0), true; more; offset += 2 {
			page, err := b.points.ListCheckpoints(t.Context(), &statev1.ListCheckpointsRequest{Tenant: "acme", SessionId: "s", Offset: offset, Limit: 2})
			b.must(err)
			for _, c := range page.GetCheckpoints() {
				listed = append(listed, c.GetCheckpointId())
				if c.GetCustomState() != "" || page.GetTotal() != 3 {
					t.Errorf("got %v of %d, want three without states", c, page.GetTotal())
				}
			}
			more = page.GetHasMore()
		}
		if want := []string{points[2], points[1], points[0]}; !slices.Equal(listed, want) {
			t.Errorf("got %v, want %v", listed, want)
		}
		newest, err := b.points.GetCheckpoint(t.Context(), &statev1.GetCheckpointRequest{Tenant: "acme", SessionId: "s"})
		if err != nil || newest.GetCheckpoint().GetCheckpointId() != points[2] || newest.GetCheckpoint().GetCustomState() != `{"n":3}` || newest.GetCheckpoint().GetMessageCount() != 4 {
			t.Errorf("got %v, %v; want the third", newest, err)
		}
		branch, err := b.points.Branch(t.Context(), &statev1.BranchRequest{Tenant: "acme", SessionId: "s", CheckpointId: points[0]})
		if err != nil || branch.GetSession().GetCustomState() != `{"n":1}` || branch.GetSession().GetMessageCount() != 2 ||
			branch.GetSession().GetStatus() != paused || branch.GetSession().GetAgentType() != "support" || branch.GetSession().GetTags()[0] != "x" {
			t.Errorf("got %v, %v; want it as of the first step", branch, err)
		}
		page, err := b.sessions.ListMessages(t.Context(), &statev1.ListMessagesRequest{Tenant: "acme", SessionId: branch.GetSession().GetSessionId()})
		if err != nil || page.GetTotal() != 2 || page.GetMessages()[1].GetMessage().GetId() != "m-s-1" {
			t.Errorf("got %v, %v", page, err)
		}
		b.commit(endingStep(ref, 4, completed))
		rewound, err := b.points.Rewind(t.Context(), &statev1.RewindRequest{Tenant: "acme", SessionId: "s", CheckpointId: points[1]})
		if err != nil || rewound.GetSession().GetStatus() != paused || rewound.GetSession().GetCustomState() != `{"n":2}` ||
			rewound.GetSession().GetMessageCount() != 3 || rewound.GetSession().GetStepCount() != 4 || rewound.GetSession().GetCheckpointId() != points[1] {
			t.Errorf("got %v, %v; want it as of the second step", rewound, err)
		}
		if got := b.get("s").GetSession(); !proto.Equal(got, rewound.GetSession()) {
			t.Errorf("got %v, want %v", got, rewound.GetSession())
		}
	})
}

func TestACheckpointOfTheLongestSessionIdIsFound(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		id := xs(256)
		b.start(id)
		commit := step(refTo(s.execute()), 1)
		commit.Messages[0].Id = "m"
		point := b.commit(commit).GetCheckpointId()
		got, err := b.points.GetCheckpoint(t.Context(), &statev1.GetCheckpointRequest{Tenant: "acme", SessionId: id, CheckpointId: point})
		if err != nil || got.GetCheckpoint().GetStep() != 1 {
			t.Errorf("got %v, %v", got, err)
		}
	})
}
