package e2e

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// The AI SDK's chat against a gateway without failures.
func TestTheAISDK(t *testing.T) {
	t.Parallel()
	model := newTeller(t)
	s := harness.Start(t, harness.Options{Agents: model.agents(), StateEnv: []string{harness.PatientState}})
	options := func(session, agent string, texts ...string) chatOptions {
		return chatOptions{API: s.URL + "/chat?aiSdk=7", Gateway: s.URL, Key: s.Key, Agent: agent, Session: session, Texts: texts}
	}

	t.Run("gets the answer to a text", func(t *testing.T) {
		t.Parallel()
		r := runScenario(t, "turns", options("text", "talker", "hello"), nil)
		checkContent(t, "the answer", r.answer(t), textContent("You said: hello"))
		checkStored(t, s.Client, "text", r.Messages)
	})

	t.Run("is remembered in the second turn", func(t *testing.T) {
		t.Parallel()
		r := runScenario(t, "turns", options("memory", "talker", "my name is Ada", "recite"), nil)
		checkContent(t, "the second answer", r.answer(t), textContent("You said: my name is Ada, recite"))
		checkStored(t, s.Client, "memory", r.Messages)
	})

	t.Run("sees the output of a server tool", func(t *testing.T) {
		t.Parallel()
		r := runScenario(t, "turns", options("tool", "worker", "note it"), nil)
		checkContent(t, "the answer", r.answer(t), strings.Join([]string{
			textContent("Let me see. "),
			noteContent("note", `{"text":"it"}`, `{"written":true}`),
			textContent("It is noted."),
		}, ""))
		checkStored(t, s.Client, "tool", r.Messages)
	})

	t.Run("sees the outputs of parallel tools", func(t *testing.T) {
		t.Parallel()
		r := runScenario(t, "turns", options("parallel", "worker", "note both"), nil)
		checkContent(t, "the answer", r.answer(t), strings.Join([]string{
			noteContent("note", `{"beforeMs":100,"text":"left"}`, `{"written":true}`),
			noteContent("note", `{"text":"right"}`, `{"written":true}`),
			textContent("Both are noted."),
		}, ""))
		checkStored(t, s.Client, "parallel", r.Messages)
	})

	t.Run("resumes what a broken connection has cut", func(t *testing.T) {
		t.Parallel()
		proxy := harness.StartProxy(t, s.Gateway.Address)
		proxy.CutOnceBehind("word040")
		const text = "tell me a story, and I lose it"
		o := options("cut", "teller", text)
		o.API = proxy.URL + "/chat?aiSdk=7"
		r := runScenario(t, "resumeAfterCut", o, func(string) { model.release(text) })
		if got, want := proxy.Cuts(), 1; got != want {
			t.Errorf("the proxy has cut %d connections, want %d", got, want)
		}
		r.checkCut(t, story())
		checkContent(t, "the resumed answer", r.answer(t), textContent(story()))
		checkStored(t, s.Client, "cut", r.Messages)
		checkUncut(t, r, runScenario(t, "turns", options("uncut", "teller", text), nil))
	})

	t.Run("resumes after a network error", func(t *testing.T) {
		t.Parallel()
		const text = "tell me a story, and I go away"
		o := options("network", "teller", text)
		o.Half = len(story()) / 2
		r := runScenario(t, "resumeAfterNetworkError", o, func(string) { model.release(text) })
		r.checkCut(t, story())
		checkContent(t, "the resumed answer", r.answer(t), textContent(story()))
		if len(r.Finishes) != 2 || !r.Finishes[0].IsDisconnect || r.Finishes[1].FinishReason != "stop" {
			t.Errorf("the chat was told of the ends %+v, want a disconnect and a stop", r.Finishes)
		}
		checkStored(t, s.Client, "network", r.Messages)
	})

	t.Run("resumes on a reloaded page", func(t *testing.T) {
		t.Parallel()
		const text = "tell me a story, and I come back"
		o := options("reload", "teller", text)
		o.Half = len(story()) / 2
		r := runScenario(t, "reload", o, func(string) { model.release(text) })
		r.checkCut(t, story())
		checkContent(t, "the resumed answer", r.answer(t), textContent(story()))
		checkStored(t, s.Client, "reload", r.Messages)
	})

	t.Run("has nothing to resume in an unknown chat", func(t *testing.T) {
		t.Parallel()
		r := runScenario(t, "resume", options("nobody knows", "talker"), nil)
		if r.Status != "ready" || len(r.Errors) > 0 || len(r.Messages) > 0 {
			t.Errorf("got status %s, errors %q, messages\n%swant ready and nothing else", r.Status, r.Errors, harness.Transcript(r.Messages))
		}
	})

	t.Run("can read why an agent is unknown", func(t *testing.T) {
		t.Parallel()
		r := runScenario(t, "turns", options("unknown agent", "nobody", "hello"), nil)
		if r.Status != "error" || !strings.Contains(r.Error, "There is no such agent: ") {
			t.Errorf("got status %s and %q, want error and a sentence about the agent", r.Status, r.Error)
		}
	})
}

func TestTheAISDKHoldsTheWholeTextWhenTheExecutorIsKilledUnderIt(t *testing.T) {
	t.Parallel()
	model := newTeller(t)
	s := harness.Start(t, harness.Options{Agents: model.agents(), Executors: 2})
	o := chatOptions{
		API: s.URL + "/chat?aiSdk=7", Gateway: s.URL, Key: s.Key, Agent: "teller", Session: "killed",
		Texts: []string{"tell me a story"}, Half: len(story()) / 2,
	}
	killed := 0
	r := runScenario(t, "watch", o, func(told string) {
		s.Busy().Kill()
		killed++
		model.release("tell me a story")
	})
	if killed != 1 {
		t.Fatalf("%d executors were killed, want 1", killed)
	}
	checkContent(t, "the answer", r.answer(t), textContent(story()))
	checkStored(t, s.Client, "killed", r.Messages)
	if len(r.Errors) > 0 || len(r.Finishes) != 1 || r.Finishes[0].FinishReason != "stop" {
		t.Errorf("the chat was told of errors %q and ends %+v, want one end with stop", r.Errors, r.Finishes)
	}
}

// Without aiSdk the gateway cannot void a part of the message, so it breaks the connection, and the client resumes.
func TestAClientWithoutAVersionResumesWhenTheExecutorIsKilled(t *testing.T) {
	t.Parallel()
	model := newTeller(t)
	s := harness.Start(t, harness.Options{Agents: model.agents(), Executors: 2})
	o := chatOptions{
		API: s.URL + "/chat", Gateway: s.URL, Key: s.Key, Agent: "teller", Session: "resumed",
		Texts: []string{"tell me a story"}, Half: len(story()) / 2,
	}
	r := runScenario(t, "watchAndResume", o, func(string) {
		s.Busy().Kill()
		model.release("tell me a story")
	})
	r.checkCut(t, story())
	checkContent(t, "the answer", r.answer(t), textContent(story()))
	checkStored(t, s.Client, "resumed", r.Messages)
}

// checkStored compares the client's messages with GET /messages.
func checkStored(t *testing.T, c harness.Client, session string, held []harness.UIMessage) {
	t.Helper()
	stored := c.Messages(t, session)
	if got, want := harness.Transcript(held), harness.Transcript(stored); got != want {
		t.Errorf("the client holds\n%sbut the conversation is\n%s", got, want)
	}
	for i := range min(len(held), len(stored)) {
		if held[i].ID != stored[i].ID {
			t.Errorf("message %d has the id %q at the client and %q in the conversation", i, held[i].ID, stored[i].ID)
		}
	}
}

// checkUncut compares a resumed answer with an uninterrupted one, part by part.
func checkUncut(t *testing.T, resumed, uncut chatResult) {
	t.Helper()
	got, want := resumed.Messages[len(resumed.Messages)-1], uncut.answer(t)
	if len(got.Parts) != len(want.Parts) {
		t.Fatalf("the resumed answer has %d parts, the uncut one %d:\n%+v\n%+v", len(got.Parts), len(want.Parts), got.Parts, want.Parts)
	}
	for i := range got.Parts {
		if got.Parts[i].Type != want.Parts[i].Type || got.Parts[i].Text != want.Parts[i].Text || got.Parts[i].State != want.Parts[i].State {
			t.Errorf("part %d is %+v, want %+v", i, got.Parts[i], want.Parts[i])
		}
	}
}
