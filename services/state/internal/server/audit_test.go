package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// mia is a caller.
func mia() *statev1.Caller { return &statev1.Caller{Actor: "user:mia"} }

// audited returns the tenant's events about sessions, the oldest first, as action target outcome detail.
func (b *bench) audited(tenant string) (list []string) {
	b.Helper()
	got, err := b.audit.ListEvents(b.Context(), &statev1.ListEventsRequest{Tenant: tenant, Limit: 200})
	b.must(err)
	for _, e := range got.GetEvents() {
		if e.GetActor() != "user:mia" || e.GetAt() == 0 {
			b.Errorf("got %v, want an entry of mia", e)
		}
		list = append(list, strings.TrimSpace(fmt.Sprint(e.GetAction(), " ", e.GetTargetKind(), ":", e.GetTargetId(), " ", e.GetOutcome(), " ", e.GetDetail())))
	}
	slices.Reverse(list)
	return list
}

func (b *bench) expectAudited(want ...string) {
	b.Helper()
	if got := b.audited("acme"); !slices.Equal(got, want) {
		b.Errorf("got entries\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// suspendApprovals is suspend for approvals.
func (s *stream) suspendApprovals(sessionID string, callIDs ...string) {
	s.Helper()
	s.start(sessionID)
	claim := s.execute()
	commit := suspendingStep(refTo(claim), claim.GetSession().GetStepCount()+1, callIDs...)
	for _, c := range commit.GetCalls() {
		c.Kind, c.ApprovalId, c.ToolName = statev1.CallKind_CALL_KIND_APPROVAL, "a-"+c.GetToolCallId(), "pay"
	}
	s.commit(commit)
}

func verdict(id string, approved bool) *statev1.CallAnswer {
	return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{ApprovalId: "a-" + id, Approved: approved, Reason: "a secret reason"}}}
}

func TestApprovalsAndDenialsAreAuditedOnce(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.suspendApprovals("s", "c1", "c2", "c3")
		one := submitOf("s", "c1", verdict("c1", true))
		one.Caller = mia()
		for range 2 {
			_, err := b.calls.SubmitCall(t.Context(), one)
			b.must(err)
		}
		_, err := b.calls.SubmitCalls(t.Context(), &statev1.SubmitCallsRequest{
			Tenant: "acme", SessionId: "s", Caller: mia(),
			Answers: []*statev1.SubmittedAnswer{{ToolCallId: "c1", Answer: verdict("c1", false)}, {ToolCallId: "c2", Answer: verdict("c2", false)}},
		})
		b.must(err)
		wrong := submitOf("s", "c3", verdict("other", true)) // another approval: refused
		wrong.Caller = mia()
		_, err = b.calls.SubmitCall(t.Context(), wrong)
		b.refuses(err, fault.Invalid, "KIND_MISMATCH")
		b.expectAudited(`call.approved call:c1 done {"tool":"pay"}`, `call.denied call:c2 done {"tool":"pay"}`)
	})
}

func TestStopsAreAuditedOnceAndMessagesAreNot(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.announce()
		runID := b.start("s").GetRun().GetRunId()
		message := startOf("s")
		message.OnBusy, message.Caller = statev1.BusyPolicy_BUSY_POLICY_INTERRUPT, mia()
		for _, kind := range []statev1.StopKind{interrupts, interrupts, aborts} {
			stop := stopOf("s", kind)
			stop.Caller = mia()
			_, err := b.runs.RequestStop(t.Context(), stop)
			b.must(err)
		}
		b.start("other")
		message.SessionId = "other"
		_, err := b.runs.StartRun(t.Context(), message)
		b.must(err)
		b.requestStop("other", aborts) // without a caller
		b.expectAudited("run.interrupted run:"+runID+" done", "run.aborted run:"+runID+" done")
	})
}

func TestChangesOfSessionsAreAudited(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.start("s")
		ref := refTo(s.execute())
		s.commit(step(ref, 1))
		s.commit(endingStep(ref, 2, completed)) // an executor's writes have no caller
		first, title, expiry := "first owner", "not audited", int64(1)
		for _, r := range []*statev1.UpdateSessionRequest{{Title: &title}, {UserId: &first}, {UserId: &first}, {ExpiresAt: &expiry}, {ExpiresAt: &expiry}} {
			r.Tenant, r.SessionId, r.Caller = "acme", "s", mia()
			_, err := b.sessions.UpdateSession(t.Context(), r)
			b.must(err)
		}
		_, err := b.sessions.SaveState(t.Context(), &statev1.SaveStateRequest{Tenant: "acme", SessionId: "s", CustomState: `{"secret":1}`, Caller: mia()})
		b.must(err)
		_, err = b.sessions.SaveState(t.Context(), &statev1.SaveStateRequest{Tenant: "acme", SessionId: "s", ExpectedVersion: 1, CustomState: `{}`, Caller: mia()})
		b.refuses(err, fault.Stale, "VERSION_STALE")
		version := b.get("s").GetSession().GetVersion()
		_, err = b.sessions.TruncateMessages(t.Context(), &statev1.TruncateMessagesRequest{Tenant: "acme", SessionId: "s", Count: 1, Caller: mia()})
		b.must(err)
		deletion := &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: "s", Caller: mia()}
		_, err = b.sessions.DeleteSession(t.Context(), deletion)
		b.must(err)
		_, err = b.sessions.DeleteSession(t.Context(), deletion)
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		b.expectAudited(
			`session.owner_changed session:s done {"from":"","to":"first owner"}`,
			`session.expiry_set session:s done {"from":0,"to":1}`,
			fmt.Sprintf(`state.changed session:s done {"version":%d}`, version),
			`session.rewound session:s done {"messages":2}`,
			`session.deleted session:s done {"messages":1,"runs":1,"sessions":1,"states":2}`)
	})
}

func TestTheWritesOfServersAreAudited(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.start("s")
		s.execute()
		failed := &statev1.SetStatusRequest{Tenant: "acme", SessionId: "s", Status: sessionKO, Failure: &statev1.Failure{Error: "secret"}, Caller: mia()}
		for range 2 {
			failed.Expected = []statev1.SessionStatus{active}
			_, err := b.sessions.SetStatus(t.Context(), failed) // the second one is refused
			b.must(err)
		}
		b.advance(time.Millisecond) // entries of one millisecond have no order
		_, err := b.sessions.SetStatus(t.Context(), &statev1.SetStatusRequest{Tenant: "acme", SessionId: "s", Status: paused, Caller: mia()})
		b.must(err)
		b.advance(time.Millisecond)
		sub := &statev1.PutSubSessionRequest{Tenant: "acme", SessionId: "s", Caller: mia(), SubSession: &statev1.SubSession{
			SessionId: "far", Status: active, Location: statev1.SubSessionLocation_SUB_SESSION_LOCATION_REMOTE,
		}}
		for range 2 { // the second one changes nothing
			_, err = b.sessions.PutSubSession(t.Context(), sub)
			b.must(err)
		}
		b.advance(time.Millisecond)
		_, err = b.usage.RecordUsage(t.Context(), &statev1.RecordUsageRequest{Tenant: "acme", SessionId: "s", Caller: mia(), Usage: []*eventv1.UsageEntry{
			{Entry: &eventv1.UsageEntry_Custom{Custom: &eventv1.CustomUsage{Type: "seats", Name: "secret", Value: 1}}},
		}})
		b.must(err)
		b.advance(time.Millisecond)
		version := b.get("s").GetSession().GetVersion()
		_, err = b.sessions.MergeState(t.Context(), &statev1.MergeStateRequest{Tenant: "acme", SessionId: "s", Caller: mia(), Ops: []*statev1.StateOp{
			{Key: "secret", Op: &statev1.StateOp_Replace{Replace: "1"}},
		}})
		b.must(err)
		b.expectAudited(
			`session.status_set session:s done {"from":"active","to":"failed"}`,
			`session.status_set session:s done {"from":"failed","to":"paused"}`,
			`session.sub_session_put session:s done {"subSession":"far"}`,
			`usage.recorded session:s done {"entries":1}`,
			fmt.Sprintf(`state.changed session:s done {"version":%d}`, version+1))
	})
}

func TestADeletionSaysWhatItRemoved(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.suspend("s", "c1", "c2")
		b.createChild("s", "below")
		got, err := b.sessions.DeleteSession(t.Context(), &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: "s"})
		b.must(err)
		if r := got.GetRemoved(); got.GetDeleted() != 2 || r.GetSessions() != 2 || r.GetMessages() != 2 || r.GetCalls() != 2 || r.GetRuns() != 1 || r.GetCheckpoints() != 1 {
			t.Errorf("got %v", got)
		}
	})
}

func event(id string) *statev1.TenantEvent {
	return &statev1.TenantEvent{Tenant: "acme", Event: &eventv1.AuditEvent{Id: id, Actor: "user:mia", Action: "key.added", Outcome: "done"}}
}

func TestTheAuditLogIsReadInPages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var want []string
	for i := range 7 {
		id := fmt.Sprint("e", i)
		want = append(want, id)
		_, err := b.audit.RecordEvents(t.Context(), &statev1.RecordEventsRequest{Events: []*statev1.TenantEvent{event(id)}})
		b.must(err)
		b.advance(time.Millisecond)
	}
	read := func(r *statev1.ListEventsRequest) (ids []string) {
		r.Tenant, r.Limit = "acme", 3
		for {
			page, err := b.audit.ListEvents(t.Context(), r)
			b.must(err)
			for _, e := range page.GetEvents() {
				ids = append(ids, e.GetId())
				r.Cursor = e.GetCursor()
			}
			if !page.GetHasMore() {
				return ids
			}
		}
	}
	if got := read(&statev1.ListEventsRequest{OldestFirst: true}); len(got) != 0 {
		t.Errorf("got %v, want no fresh entries in the order of time", got)
	}
	b.advance(time.Minute)
	if got := read(&statev1.ListEventsRequest{OldestFirst: true}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	slices.Reverse(want)
	if got := read(&statev1.ListEventsRequest{}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAnAuditEventIsChecked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for reason, changes := range map[string][]func(*statev1.TenantEvent){
		"ID_INVALID": {
			func(e *statev1.TenantEvent) { e.Tenant = "\x00" }, func(e *statev1.TenantEvent) { e.Event.Id = "" }, func(e *statev1.TenantEvent) { e.Event.Action = strings.Repeat("x", 257) },
			func(e *statev1.TenantEvent) { e.Event.Actor = strings.Repeat("x", maxActorBytes+1) }, func(e *statev1.TenantEvent) { e.Event.Outcome = "" },
			func(e *statev1.TenantEvent) { e.Event.Actor = strings.Repeat("x", 256) + "\n" },
		},
		"AUDIT_EVENT_INVALID": {
			func(e *statev1.TenantEvent) { e.Event.Actor = "" }, func(e *statev1.TenantEvent) { e.Event.Detail = "[]" },
			func(e *statev1.TenantEvent) { e.Event.Detail = `{"a":"` + strings.Repeat("x", maxAuditDetail) + `"}` },
		},
	} {
		for _, change := range changes {
			e := event("e")
			change(e)
			_, err := b.audit.RecordEvents(t.Context(), &statev1.RecordEventsRequest{Events: []*statev1.TenantEvent{event("other"), e}})
			b.refuses(err, fault.Invalid, reason)
		}
	}
	_, err := b.audit.RecordEvents(t.Context(), &statev1.RecordEventsRequest{Events: slices.Repeat([]*statev1.TenantEvent{event("e")}, maxAuditEvents+1)})
	b.refuses(err, fault.Invalid, "AUDIT_EVENT_INVALID")
	largest := event("largest")
	largest.Event.Detail = `{"a":"` + strings.Repeat("x", maxAuditDetail-8) + `"}`
	_, err = b.audit.RecordEvents(t.Context(), &statev1.RecordEventsRequest{Events: slices.Repeat([]*statev1.TenantEvent{largest}, maxAuditEvents)})
	b.must(err)
	if got := b.audited("acme"); len(got) != 1 {
		t.Errorf("got %d entries, want the valid one once", len(got))
	}
}

func TestAuditEventsAreDeletedAfterTheRetention(t *testing.T) {
	t.Parallel()
	for _, retention := range []time.Duration{time.Hour, 0} {
		b := newBench(t, func(c *Config) { c.AuditRetention = retention })
		_, err := b.audit.RecordEvents(t.Context(), &statev1.RecordEventsRequest{Events: []*statev1.TenantEvent{event("old")}})
		b.must(err)
		b.advance(time.Hour + time.Second)
		_, err = b.audit.RecordEvents(t.Context(), &statev1.RecordEventsRequest{Events: []*statev1.TenantEvent{event("new")}})
		b.must(err)
		b.must(b.server.ExpireAudit(t.Context()))
		want := 1
		if retention == 0 {
			want = 2
		}
		if got := b.audited("acme"); len(got) != want {
			t.Errorf("retention %v: got %d entries, want %d", retention, len(got), want)
		}
	}
}
