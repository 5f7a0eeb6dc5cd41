package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// writers are servers that write to sessions, each through a gateway of its own.
type writers struct {
	harness.Client // of the first one
	model          *teller
	hosts          []*client.Client
}

func TestServersWriteStatesAndStatusesThroughTwoReplicasOnPostgres(t *testing.T) {
	t.Parallel()
	model := newTeller(t)
	s := harness.Start(t, harness.Options{Agents: model.agents(), States: 2, Gateways: 2})
	w := writers{Client: s.Client, model: model}
	for i := range 2 {
		w.hosts = append(w.hosts, client.New(client.Config{URL: s.At(i).URL, Key: harness.Key}))
	}
	w.check(t)
}

func TestServersWriteStatesAndStatusesOnSQLite(t *testing.T) {
	t.Parallel()
	model := newTeller(t)
	d := harness.StartDev(t, model.agents())
	h := client.New(client.Config{URL: d.URL})
	writers{Client: d.Client, model: model, hosts: []*client.Client{h, h}}.check(t)
}

func (w writers) check(t *testing.T) {
	t.Run("concurrent writes lose nothing", func(t *testing.T) {
		t.Parallel()
		w.checkAppends(t)
	})
	t.Run("a state change during a run stays beside the run", func(t *testing.T) {
		t.Parallel()
		w.checkDuringARun(t)
	})
	t.Run("a status that is set ends the run for its readers", func(t *testing.T) {
		t.Parallel()
		w.checkStatus(t)
	})
	t.Run("a host's sub-sessions and usage are listed", func(t *testing.T) {
		t.Parallel()
		w.checkHost(t)
	})
}

// converse begins a session with one answer.
func (w writers) converse(t *testing.T, session string) {
	t.Helper()
	if _, err := w.hosts[0].Start(t.Context(), &agentv1.StartRequest{SessionId: session, AgentType: "teller", Message: "hello"}); err != nil {
		t.Fatal(err)
	}
	w.WaitStatus(t, session, "completed")
}

// state returns the custom state and the version of a session, as the second server reads them.
func (w writers) state(t *testing.T, session string) (state map[string]any, version int64) {
	t.Helper()
	found, err := w.hosts[1].Session(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(found.GetSession().GetCustomState()), &state); err != nil {
		t.Fatal(err)
	}
	return state, found.GetSession().GetVersion()
}

func put(key, value string) *agentv1.StateOp {
	return &agentv1.StateOp{Key: key, Op: &agentv1.StateOp_Replace{Replace: value}}
}

func (w writers) checkAppends(t *testing.T) {
	t.Helper()
	const each = 20
	w.converse(t, "appends")
	var writing sync.WaitGroup
	for i, host := range w.hosts {
		writing.Go(func() {
			for n := range each {
				_, err := host.MergeState(t.Context(), &agentv1.MergeStateRequest{SessionId: "appends", Ops: []*agentv1.StateOp{
					{Key: "seen", Op: &agentv1.StateOp_Append{Append: fmt.Sprintf("[%d]", n)}}, put(fmt.Sprintf("last %d", i), fmt.Sprint(n)),
				}})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	state, version := w.state(t, "appends")
	if seen, _ := state["seen"].([]any); len(seen) != 2*each || state["last 0"] != float64(each-1) || state["last 1"] != float64(each-1) {
		t.Errorf("got %v, want %d items and each last write", state, 2*each)
	}
	var stale atomic.Int32
	for i, host := range w.hosts {
		writing.Go(func() {
			_, err := host.MergeState(t.Context(), &agentv1.MergeStateRequest{
				SessionId: "appends", ExpectedVersion: version, Ops: []*agentv1.StateOp{put("winner", fmt.Sprint(i))},
			})
			switch {
			case fault.ReasonOf(err) == "VERSION_STALE":
				stale.Add(1)
			case err != nil:
				t.Error(err)
			}
		})
	}
	writing.Wait()
	if stale.Load() != 1 {
		t.Errorf("%d of two writes of one version were refused, want 1", stale.Load())
	}
}

func (w writers) checkDuringARun(t *testing.T) {
	t.Helper()
	asking := w.Chat(t, "during", "teller", "tell me a story one")
	asking.UntilText(len(story()) / 2)
	merge := &agentv1.MergeStateRequest{SessionId: "during", Ops: []*agentv1.StateOp{put("plan", `"free"`)}}
	if _, err := w.hosts[1].MergeState(t.Context(), merge); err != nil {
		t.Fatal(err)
	}
	if state, _ := w.state(t, "during"); state["plan"] != "free" {
		t.Errorf("got %v while the run executes", state)
	}
	w.model.release("tell me a story one")
	checkContent(t, "who had asked", asking.ReadAll(), textContent(story()))
	if state, _ := w.state(t, "during"); state["plan"] != "free" {
		t.Errorf("got %v after the run", state)
	}
}

func (w writers) checkStatus(t *testing.T) {
	t.Helper()
	w.Chat(t, "status", "teller", "tell me a story two").UntilText(len(story()) / 2)
	native := w.Native(t, "status", 0)
	failure := &agentv1.Failure{Error: "It was refused.", Code: "policy"}
	set := &agentv1.SetStatusRequest{SessionId: "status", Status: "failed", Failure: failure, Expected: []string{"active"}}
	var won atomic.Int32
	var setting sync.WaitGroup
	for _, host := range w.hosts {
		setting.Go(func() {
			got, err := host.SetStatus(t.Context(), set)
			switch {
			case err != nil:
				t.Error(err)
			case got.GetOk():
				won.Add(1)
			case got.GetCurrentStatus() != "failed" || got.GetCurrentVersion() == 0:
				t.Errorf("the loser got %v, want the status and the version of the winner", got)
			}
		})
	}
	setting.Wait()
	if won.Load() != 1 {
		t.Errorf("%d of two servers have set the status, want 1", won.Load())
	}
	native.ReadAll()
	if native.End != "fail" || !strings.Contains(native.EndData, "It was refused.") {
		t.Errorf("a reader got %s %s, want the failure", native.End, native.EndData)
	}
	w.model.release("tell me a story two")
	if got := w.Status(t, "status"); got.Status != "failed" || got.Error != "It was refused." {
		t.Errorf("got %+v", got)
	}
	if _, err := w.hosts[0].Start(t.Context(), &agentv1.StartRequest{SessionId: "status", Message: "hello again"}); err != nil {
		t.Errorf("the session cannot be continued: %v", err)
	}
}

func (w writers) checkHost(t *testing.T) {
	t.Helper()
	w.converse(t, "host")
	for _, status := range []string{"active", "completed", "completed"} {
		sub := &agentv1.SubSession{SessionId: "elsewhere", AgentType: "critic", Status: status, Remote: true}
		if err := w.hosts[0].PutSubSession(t.Context(), "host", sub); err != nil {
			t.Fatal(err)
		}
	}
	pages := &eventv1.UsageEntry{Entry: &eventv1.UsageEntry_Custom{Custom: &eventv1.CustomUsage{Type: "host", Name: "pages", Value: 3}}}
	for _, host := range w.hosts {
		if err := host.RecordUsage(t.Context(), "host", "", pages); err != nil {
			t.Fatal(err)
		}
	}
	found, err := w.hosts[1].Session(t.Context(), "host")
	if subs := found.GetSubSessions(); err != nil || len(subs) != 1 || subs[0].GetStatus() != "completed" || !subs[0].GetRemote() {
		t.Errorf("got %v, %v", found, err)
	}
	sums, err := w.hosts[1].Usage(t.Context(), "host", "")
	if custom := sums.GetCustom(); err != nil || len(custom) != 1 || custom[0].GetValue() != 6 {
		t.Errorf("got %v, %v, want 6 pages", sums, err)
	}
}
