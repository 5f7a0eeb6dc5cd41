package server

import (
	"fmt"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

func TestARunThatIsTooLargeToBeClaimedFailsAndBreaksNoStream(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Limits.StepBytes = 8 << 20 })
	s := b.open("e1", 10)
	b.start("large")
	claim := s.execute()
	commit := suspendingStep(refTo(claim), 1)
	commit.Messages[0] = said(eventv1.Role_ROLE_ASSISTANT, "m1", xs(7<<20))
	for i := range 7 {
		commit.Calls = append(commit.Calls, &statev1.Call{
			ToolCallId: fmt.Sprint("c", i), ToolName: "ask", Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL, Input: text(1 << 20), StepId: "s",
		})
	}
	b.commit(commit)
	var run string
	for i := range 7 {
		run = b.submit("large", fmt.Sprint("c", i), result(text(900_000))).GetRunId()
	}
	b.eventually("the run that is too large has ended", func() bool { return b.get("large").GetCurrentRun().GetStatus() == failed })
	if end := b.get("large").GetCurrentRun(); end.GetRunId() != run || end.GetFailure().GetCode() != "framework_internal_error" {
		t.Fatalf("got %v, want the end of the run that is too large", end)
	}
	b.start("other")
	if got := s.execute().GetSession().GetSessionId(); got != "other" {
		t.Errorf("got %q, want the stream to go on", got)
	}
}

func TestARepeatedKeyWithoutASessionMeetsTheFirstRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.announce()
	start := func(tenant, key string) *statev1.StartRunResponse {
		got, err := b.runs.StartRun(b.Context(), &statev1.StartRunRequest{
			Tenant: tenant, AgentType: "support", RequestKey: key, Messages: []*eventv1.Message{said(eventv1.Role_ROLE_USER, "", "hello")},
		})
		b.must(err)
		return got
	}
	first, again := start("acme", "k"), start("acme", "k")
	if !again.GetRepeated() || again.GetRun().GetRunId() != first.GetRun().GetRunId() {
		t.Errorf("got %v, want the run of %v again", again, first)
	}
	for _, other := range []*statev1.StartRunResponse{start("acme", "k2"), start("umbrella", "k"), start("acme", "")} {
		if other.GetRepeated() || other.GetSession().GetSessionId() == first.GetSession().GetSessionId() && other.GetSession().GetTenant() == "acme" {
			t.Errorf("got %v, want a session of its own", other)
		}
	}
}

func TestWritesToTheStateAreCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Limits.Ops = 3 })
	b.announce()
	b.create("s")
	merge := func(n int) error {
		r := &statev1.MergeStateRequest{Tenant: "acme", SessionId: "s"}
		for i := range n {
			r.Ops = append(r.Ops, &statev1.StateOp{Key: fmt.Sprint(i), Op: &statev1.StateOp_Replace{Replace: "1"}})
		}
		_, err := b.sessions.MergeState(b.Context(), r)
		return err
	}
	b.must(merge(3))
	b.refuses(merge(4), fault.Invalid, "STATE_INVALID")
}

func TestAValueThatWouldOverflowItsSumIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.announce()
	b.create("s")
	record := func(value float64) error {
		_, err := b.usage.RecordUsage(b.Context(), &statev1.RecordUsageRequest{Tenant: "acme", SessionId: "s", Usage: []*eventv1.UsageEntry{
			{Entry: &eventv1.UsageEntry_Custom{Custom: &eventv1.CustomUsage{Type: "t", Name: "n", Value: value}}},
		}})
		return err
	}
	b.must(record(-maxUsageValue))
	b.refuses(record(1.7e308), fault.Invalid, "USAGE_INVALID")
}

func TestAMessageNamesItsRunByAnId(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.announce()
	b.create("s")
	for _, id := range []string{"\x00", xs(257)} {
		m := said(eventv1.Role_ROLE_USER, "m", "hello")
		m.RunId = id
		_, err := b.sessions.AppendMessages(b.Context(), &statev1.AppendMessagesRequest{Tenant: "acme", SessionId: "s", Messages: []*eventv1.Message{m}})
		b.refuses(err, fault.Invalid, "ID_INVALID")
	}
}
