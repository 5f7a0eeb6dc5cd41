package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// addCompanions adds the agent demo, whose replies are given, with a blocking and a non-blocking companion. Their
// answers contain all messages of their users.
func (p *system) addCompanions(replies ...func(say func(model.Event) bool)) {
	demo := define("demo", stepReplies(replies...))
	demo.Companions = []agent.Companion{
		{Agent: "critic", Description: "Criticizes a draft."},
		{Agent: "scout", Mode: agent.CompanionNonBlocking, Timeout: time.Hour},
	}
	p.agents["demo"] = demo
	p.agents["critic"] = define("critic", modelFunc(repeatUsers))
	p.agents["scout"] = define("scout", modelFunc(repeatUsers))
}

// repeatUsers is a model that repeats what its users have sent.
func repeatUsers(_ context.Context, r model.Request, say func(model.Event) bool) error {
	var texts []string
	for _, m := range r.Messages {
		if m.Role == agent.RoleUser {
			texts = append(texts, m.Text())
		}
	}
	sendText(say, strings.Join(texts, "+"))
	return nil
}

// outcomes returns the results and the errors of the calls of the session s.
func (p *system) outcomes() []string {
	var list []string
	for _, r := range p.results() {
		list = append(list, r.GetResult()+r.GetError())
	}
	return list
}

// userTexts returns the texts of the users' messages of a session.
func (p *system) userTexts(id string) (texts []string) {
	for _, m := range p.messages(id) {
		if m.GetRole() == eventv1.Role_ROLE_USER && !m.GetHidden() {
			texts = append(texts, m.GetParts()[0].GetText().GetText())
		}
	}
	return texts
}

// companion returns the companion of a name.
func (p *system) companion(name string) *statev1.GetSessionResponse {
	p.t.Helper()
	for _, child := range p.session("s").GetSubSessions() {
		if child.GetName() == name {
			return p.session(child.GetSessionId())
		}
	}
	p.t.Fatalf("there is no companion %q", name)
	return nil
}

func TestCompanionsRememberWhereverAnExecutorDies(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		p.addCompanions(
			callsReply("companion__spawnAgent", `{"agent":"critic","name":"ann","initialMessage":"one"}`, "companion__spawnAgent", `{"agent":"scout","name":"bob","initialMessage":"go"}`),
			callsReply("companion__sendMessage", `{"name":"ann","message":"two"}`),
			callsReply("companion__waitForResult", `{"name":"ann"}`, "companion__waitForResult", `{"name":"bob"}`),
			callsReply("companion__spawnAgent", `{"agent":"critic","name":"ann","initialMessage":"three"}`),
			callsReply("companion__getChildStatus", `{"name":"ann"}`, "companion__listChildren", `{}`),
			textReply("Done."),
		)
		p.openMortal(c)
		p.startRun("s", "demo", "hi")
		found := p.settle()
		if found.GetSession().GetStatus() != statev1.SessionStatus_SESSION_STATUS_COMPLETED {
			t.Fatalf("session = %v, want it completed", found)
		}
		got := p.outcomes()
		if len(got) > 0 {
			slices.Sort(got[:2]) // the blocking one ends in a later step
		}
		equalLines(t, "results", got, []string{
			`{"name":"ann","status":"completed","output":"one"}`, `{"name":"bob","status":"delivered"}`,
			`{"name":"ann","status":"delivered"}`,
			`{"name":"ann","status":"completed","output":"one+two"}`, `{"name":"bob","status":"completed","output":"go"}`,
			`{"name":"ann","status":"completed","output":"one+two+three"}`,
			`{"name":"ann","agent":"critic","status":"completed","output":"one+two+three"}`,
			`[{"name":"ann","agent":"critic","status":"completed"},{"name":"bob","agent":"scout","status":"completed"}]`,
		})
		if ann := p.companion("ann").GetSession(); ann.GetTurn() != 3 || ann.GetDepth() != 1 || ann.GetRootSessionId() != "s" {
			t.Errorf("ann = %v, want three turns", ann)
		}
		if n := len(found.GetSubSessions()); n != 2 {
			t.Errorf("%d companions, want 2", n)
		}
		p.verifyOnce()
	}, failAfter, dieBefore, dieAfter)
}

func TestACompanionThatWaitsForAClientIsReportedAsSuspended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.addCompanions(
			callsReply("companion__spawnAgent", `{"agent":"critic","name":"ann","initialMessage":"one"}`),
			callsReply("companion__spawnAgent", `{"agent":"critic","name":"ann","initialMessage":"two"}`),
			callsReply("companion__getChildStatus", `{"name":"ann"}`, "companion__waitForResult", `{"name":"ann"}`),
			textReply("Done."),
		)
		p.agents["critic"] = define("critic", stepReplies(callsReply("ask", `{}`), textReply("Good.")), agent.Tool{Name: "ask", InputSchema: anyObject, Client: true})
		p.open()
		p.startRun("s", "demo", "hi")
		found := p.settle()
		suspended := `{"name":"ann","status":"suspended"}`
		equalLines(t, "results", p.outcomes(), []string{suspended, suspended, `{"name":"ann","agent":"critic","status":"suspended"}`, suspended})
		open := found.GetCalls()
		if len(open) != 1 || open[0].GetToolName() != "ask" {
			t.Fatalf("open calls of the tree = %v, want that of the companion", open)
		}
		p.answer(open[0].GetToolCallId(), result(`"Is it good?"`))
		p.until("the companion has ended", func() bool {
			return p.companion("ann").GetSession().GetStatus() == statev1.SessionStatus_SESSION_STATUS_COMPLETED
		})
	})
}

func TestATerminatedCompanionCanBeConsultedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.addCompanions(
			callsReply("companion__spawnAgent", `{"agent":"scout","name":"bob","initialMessage":"go"}`),
			callsReply("companion__terminateChild", `{"name":"bob"}`),
			callsReply("companion__waitForResult", `{"name":"bob"}`),
			callsReply("companion__sendMessage", `{"name":"bob","message":"again"}`),
			callsReply("companion__waitForResult", `{"name":"bob"}`),
			textReply("Done."),
		)
		p.agents["scout"] = define("scout", modelFunc(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
			if len(r.Messages) == 1 {
				pause(ctx, time.Hour)
			}
			return repeatUsers(ctx, r, say)
		}))
		p.open()
		p.startRun("s", "demo", "hi")
		p.settle()
		got := p.outcomes()
		if len(got) != 5 {
			t.Fatalf("results = %q, want 5", got)
		}
		if !strings.Contains(got[2], "cancelled") {
			t.Errorf("the wait for a terminated companion returned %q", got[2])
		}
		equalLines(t, "results", slices.Concat(got[:2], got[3:]), []string{
			`{"name":"bob","status":"delivered"}`, `{"name":"bob","status":"terminated"}`, `{"name":"bob","status":"delivered"}`,
			`{"name":"bob","status":"completed","output":"go+again"}`,
		})
	})
}

func TestATerminatedCompanionReadsNoMessageThatWaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.addCompanions(
			callsReply("companion__spawnAgent", `{"agent":"scout","name":"bob","initialMessage":"one"}`,
				"companion__sendMessage", `{"name":"bob","message":"two"}`, "companion__sendMessage", `{"name":"bob","message":"three"}`),
			callsReply("companion__terminateChild", `{"name":"bob"}`),
			callsReply("companion__waitForResult", `{"name":"bob"}`), // until it has stopped
			callsReply("companion__sendMessage", `{"name":"bob","message":"four"}`, "companion__waitForResult", `{"name":"bob"}`),
			textReply("Done."),
		)
		p.agents["scout"] = define("scout", modelFunc(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
			if len(r.Messages) == 1 {
				pause(ctx, time.Hour)
			}
			return repeatUsers(ctx, r, say)
		}))
		p.open()
		p.startRun("s", "demo", "hi")
		p.settle()
		got := p.outcomesInOrder()
		if len(got) != 7 || !strings.Contains(got[4], "cancelled") {
			t.Fatalf("results = %q, want 7, and a failure of the wait for a terminated companion", got)
		}
		equalLines(t, "results", slices.Delete(got, 4, 5), []string{
			`{"name":"bob","status":"delivered"}`, `{"name":"bob","status":"queued"}`, `{"name":"bob","status":"queued"}`,
			`{"name":"bob","status":"terminated","droppedMessages":2}`, `{"name":"bob","status":"delivered"}`, `{"name":"bob","status":"completed","output":"one+four"}`,
		})
	})
}

func TestImpossibleConsultationsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.addCompanions(
			callsReply("companion__spawnAgent", `{"agent":"critic","name":"ann","initialMessage":"one"}`),
			callsReply(
				"companion__spawnAgent", `{"agent":"demo","name":"x","initialMessage":"one"}`,
				"companion__spawnAgent", `{"agent":"scout","name":"ann","initialMessage":"one"}`,
				"companion__spawnAgent", `{"agent":"critic","name":"","initialMessage":"one"}`,
				"companion__spawnAgent", `{"agent":"critic","name":"`+strings.Repeat("x", 65)+`","initialMessage":"one"}`,
				"companion__spawnAgent", `{"agent":"critic","name":"cat","initialMessage":"one"}`,
				"companion__sendMessage", `{"name":"dan","message":"two"}`,
				"companion__waitForResult", `{"name":"dan"}`,
				"companion__spawnAgent", `{"agent":"critic","name":"ann","initialMessage":""}`,
			),
			textReply("Done."),
		)
		demo := p.agents["demo"]
		demo.MaxCompanions = 1
		p.agents["demo"] = demo
		p.open()
		p.startRun("s", "demo", "hi")
		p.settle()
		got := p.outcomes()
		for i, want := range []string{
			`"output":"one"`, `there is no agent "demo"; there are: critic, scout`, `the companion "ann" is a critic`, "1 to 64 bytes", "1 to 64 bytes",
			"1 companions, and no more", `there is no companion "dan"; there are: ["ann"]`, `there is no companion "dan"`, "no content",
		} {
			if i >= len(got) || !strings.Contains(got[i], want) {
				t.Errorf("result %d of %q, want %q", i, got, want)
			}
		}
	})
}

func TestCompanionsHaveADepth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.config.MaxDepth = 2
		demo := define("demo", stepReplies(callsReply("companion__spawnAgent", `{"agent":"demo","name":"ann","initialMessage":"one"}`), textReply("Done.")))
		demo.Companions = []agent.Companion{{Agent: "demo"}}
		p.agents["demo"] = demo
		p.open()
		p.startRun("s", "demo", "hi")
		p.settle()
		depth, id := 0, "s"
		for children := p.session(id).GetSubSessions(); len(children) > 0; children = p.session(id).GetSubSessions() {
			depth, id = depth+1, children[0].GetSessionId()
		}
		if depth != 2 {
			t.Errorf("the tree has the depth %d, want 2", depth)
		}
	})
}

func TestOnlyAnAgentWithABlockingCompanionCanWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tools []string
		p := newSystem(t)
		demo := define("demo", modelFunc(func(_ context.Context, r model.Request, say func(model.Event) bool) error {
			tools = nil
			for _, one := range r.Tools {
				tools = append(tools, one.Name)
			}
			sendText(say, "Done.")
			return nil
		}))
		for want, companions := range map[int][]agent.Companion{
			0: nil, 5: {{Agent: "scout", Mode: agent.CompanionNonBlocking}}, 6: {{Agent: "critic", Mode: agent.CompanionBlocking}},
		} {
			demo.Companions = companions
			p.agents["demo"] = demo
			e := p.open()
			p.end(p.startRun("s", "demo", "hi"))
			e.stop()
			<-e.ended
			if len(tools) != want {
				t.Errorf("tools = %q, want %d", tools, want)
			}
		}
	})
}
