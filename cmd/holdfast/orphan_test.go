package main

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor"
)

// stranger is an executor with an agent that no session uses.
func stranger(t *testing.T) executor.Peers {
	t.Helper()
	model, err := executor.OpenModel(executor.ModelConfig{Provider: "scripted", Script: bubbleScript})
	if err != nil {
		t.Fatal(err)
	}
	registry := executor.NewRegistry()
	err = errors.Join(registry.Model("scripted", model), registry.Register(agent.Agent{Name: "stranger", Model: "scripted/patient"}))
	if err != nil {
		t.Fatal(err)
	}
	return executor.Peers{Registry: registry}
}

func TestARunWhoseAgentIsGoneEndsAllTheSameWhenItIsStoppedOrOutOfTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		stop    statev1.StopKind
		timeout time.Duration
		run     statev1.RunStatus
		session statev1.SessionStatus
		code    string
	}{
		{"interrupt", statev1.StopKind_STOP_KIND_INTERRUPT, 0, statev1.RunStatus_RUN_STATUS_INTERRUPTED, statev1.SessionStatus_SESSION_STATUS_INTERRUPTED, ""},
		{"abort", statev1.StopKind_STOP_KIND_ABORT, 0, statev1.RunStatus_RUN_STATUS_FAILED, statev1.SessionStatus_SESSION_STATUS_FAILED, "framework_cancelled"},
		{"deadline", 0, time.Hour, statev1.RunStatus_RUN_STATUS_FAILED, statev1.SessionStatus_SESSION_STATUS_FAILED, "framework_deadline_exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := openBubble(t, "HOLDFAST_STATE_CLAIM_POLL=1s") // the run waits for its end
				defer b.close()
				served := b.join(patient(t))
				time.Sleep(time.Second)
				served.vanish()
				b.join(stranger(t))
				time.Sleep(5 * time.Minute)
				begun := time.Now()
				_, err := b.runs.StartRun(t.Context(), &statev1.StartRunRequest{
					Tenant: tenant, SessionId: "s", AgentType: "patient", Messages: []*eventv1.Message{says("hello")}, TimeoutMs: c.timeout.Milliseconds(),
				})
				b.must(err)
				time.Sleep(5 * time.Minute)
				waits, err := b.sessions.GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: tenant, SessionId: "s"})
				b.must(err)
				if run := waits.GetCurrentRun(); run.GetStatus() != statev1.RunStatus_RUN_STATUS_QUEUED || run.GetAttempt() != 0 {
					t.Errorf("the run is %v after %d claims; want it to wait for its agent", run.GetStatus(), run.GetAttempt())
				}
				ends := begun.Add(c.timeout)
				if c.timeout == 0 {
					ends = time.Now()
					_, err = b.runs.RequestStop(t.Context(), &statev1.RequestStopRequest{Tenant: tenant, SessionId: "s", Kind: c.stop, Reason: "enough"})
					b.must(err)
				}
				time.Sleep(time.Until(ends))
				over := b.await("s", c.run)
				if late := time.Since(ends); late < 10*time.Second || late > 15*time.Second {
					t.Errorf("the run has ended %v later, want it with the next poll behind the time that its agent has to come back", late)
				}
				run, s := over.GetCurrentRun(), over.GetSession()
				if s.GetStatus() != c.session || run.GetFailure().GetCode() != c.code || s.GetPosition() <= run.GetStartPosition() || run.GetEndPosition() != s.GetPosition() {
					t.Errorf("got session %v and run %v; want the end at the position of the session", s, run)
				}
				if got, want := b.conversation("s"), []string{"user: hello"}; !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

func TestARunWaitsForItsAgentUnlessSomebodyHasSetALimit(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		served := b.join(patient(t))
		time.Sleep(time.Second)
		served.vanish()
		b.join(stranger(t))
		b.start("s", "patient", "hello")
		time.Sleep(24 * time.Hour)
		if run := b.await("s", statev1.RunStatus_RUN_STATUS_QUEUED).GetCurrentRun(); run.GetQueuedReason().GetReason() != statev1.QueuedReason_REASON_NO_EXECUTOR {
			t.Errorf("got the run %v", run)
		}
		b.join(patient(t))
		b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED)
	}, "HOLDFAST_STATE_CLAIM_POLL=1s")
}

func TestARunWhoseAgentIsGoneFailsAfterTheLimitButNotInAnOutage(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		served := b.join(patient(t))
		time.Sleep(time.Second)
		served.vanish()
		b.start("s", "patient", "hello")
		time.Sleep(time.Hour) // no executor lives
		if run := b.await("s", statev1.RunStatus_RUN_STATUS_QUEUED).GetCurrentRun(); run.GetQueuedReason().GetReason() != statev1.QueuedReason_REASON_NO_EXECUTOR {
			t.Errorf("got the run %v", run)
		}
		b.join(stranger(t))
		began := time.Now()
		time.Sleep(9 * time.Minute)
		b.await("s", statev1.RunStatus_RUN_STATUS_QUEUED)
		over := b.await("s", statev1.RunStatus_RUN_STATUS_FAILED)
		if took := time.Since(began); took < 10*time.Minute || took > 11*time.Minute+30*time.Second {
			t.Errorf("the run has failed after %v", took)
		}
		if failure := over.GetCurrentRun().GetFailure(); failure.GetCode() != "framework_agent_gone" || failure.GetError() == "" {
			t.Errorf("got %v", failure)
		}
	}, "HOLDFAST_STATE_CLAIM_POLL=1s", "HOLDFAST_STATE_AGENT_GONE_AFTER=10m")
}
