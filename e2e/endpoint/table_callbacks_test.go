package endpoint_test

import (
	"strings"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// systems returns the system prompts of the model calls, one a line.
func (p *talk) systems() string {
	var list []string
	for _, q := range p.model.Asked(p.session) {
		list = append(list, q.System)
	}
	return strings.Join(list, "\n")
}

var callbacks = []scenario{
	{
		name: "a prompt from the state and the user", agent: "prompter", start: &agentv1.StartRequest{State: `{"mode": "calm"}`, UserId: "ünal"},
		model: []turn{calls(act(set("mode", "brisk"))), say("ok")},
		want: `
			patch add /mode "brisk"
			act: "done"
			says "ok"
			completed "ok"
			state {"mode":"brisk"}`,
		check: func(p *talk) {
			if got, want := p.systems(), "You serve ünal in mode calm, step 1.\nYou serve ünal in mode brisk, step 2."; got != want {
				p.Errorf("the prompts are\n%s\nwant\n%s", got, want)
			}
		},
	},
	{
		name: "a prompt that fails", agent: "prompter", start: state(`{"broken": "there is no prompt today"}`),
		model: []turn{say("never")},
		want: `
			failed …
			state {"broken":"there is no prompt today"}`,
		check: func(p *talk) {
			if n := len(p.model.Asked(p.session)); n != 0 {
				p.Errorf("the model was called %d times without a prompt", n)
			}
		},
	},
	{
		name: "rows of context", agent: "advised", start: state(`{"mode": "calm"}`),
		model: []turn{calls(act(set("mode", "brisk"))), calls(raw("remember", `{"text":"Likes tea."}`)), calls(act(give(1))), say("ok")},
		want: `
			patch add /mode "brisk"
			act: "done"
			remember: "done"
			act 2 fails: tool_disabled: the tool is disabled at the moment, so this call was not made
			says "ok"
			completed "ok"
			state {"mode":"brisk"}`,
		check: func(p *talk) {
			var rows []string
			last := p.model.Asked(p.session)[3]
			for _, m := range last.Messages {
				if text, _ := m["content"].(string); strings.Contains(text, "<context") || strings.Contains(text, "Be ") {
					rows = append(rows, text)
				}
			}
			got := strings.Join(rows, "\n")
			for text, n := range map[string]int{"Be calm.": 1, "Be brisk.": 1, "Likes tea.": 1} {
				if strings.Count(got, text) != n {
					p.Errorf("the model has read %q, want %q %d times", got, text, n)
				}
			}
		},
	},
	{
		name: "a row that is none fails its call", agent: "advised", start: state(`{"mode": "calm"}`),
		model: []turn{calls(raw("remember", `{"text":""}`)), say("ok")},
		want: `
			remember fails: …
			says "ok"
			completed "ok"
			state {"mode":"calm"}`,
	},
	{
		name: "context that fails", agent: "advised", start: state(`{"broken": "no context today"}`),
		model: []turn{say("never")},
		want: `
			failed …
			state {"broken":"no context today"}`,
	},
	{
		name: "a result ends the run", agent: "stopper",
		model: []turn{calls(act(give("go on"))), calls(act(give("stop"))), say("never")},
		want: `
			act: "go on"
			act 2: "stop"
			completed "" (stop_when)`,
	},
	{
		name: "the state ends the run", agent: "stopper",
		model: []turn{calls(act(set("stop", true))), say("never")},
		want: `
			patch add /stop true
			act: "done"
			completed "" (stop_when)
			state {"stop":true}`,
	},
	{
		name: "the reply ends the run", agent: "stopper",
		model: []turn{{text: "I stop here", calls: []call{act(give(1))}}, say("never")},
		want: `
			says "I stop here"
			act: 1
			completed "I stop here" (stop_when)`,
	},
	{
		name: "the number of steps ends the run", agent: "stopper",
		model: []turn{calls(act(give(1))), calls(act(give(2))), calls(act(give(3))), say("never")},
		want: `
			act: 1
			act 2: 2
			act 3: 3
			completed "" (stop_when)`,
	},
	{
		name: "a condition that fails ends nothing", agent: "stopper", start: state(`{"broken": "no idea"}`),
		model: []turn{calls(act(give("stop"))), say("ok")},
		want: `
			act: "stop"
			says "ok"
			completed "ok"
			state {"broken":"no idea"}`,
	},
	{
		name: "the guard accepts a reply", agent: "guarded",
		model: []turn{say("good")},
		want: `
			says "good"
			completed "good"`,
	},
	{
		name: "the guard sends a reply back", agent: "guarded",
		model: []turn{say("bad one"), say("bad two"), say("good")},
		want: `
			says "bad one"
			says "bad two"
			says "good"
			completed "good"`,
		check: func(p *talk) {
			asked := p.model.Asked(p.session)
			last := asked[len(asked)-1].Messages
			if text, _ := last[len(last)-1]["content"].(string); len(asked) != 3 || !strings.Contains(text, "Say it better than bad two.") {
				p.Errorf("the model was called %d times, at last with %q; want what the guard says", len(asked), text)
			}
		},
	},
	{
		name: "the guard fails the run", agent: "guarded",
		model: []turn{say("fatal words")},
		want: `
			says "fatal words"
			failed …`,
	},
	{
		name: "a guard that fails", agent: "guarded",
		model: []turn{say("broken")},
		want: `
			says "broken"
			failed …`,
	},
	{
		name: "the guard accepts an output", agent: "guarded-output",
		model: []turn{calls(raw("__finish__", `{"answer":"good"}`))},
		want: `
			__finish__: {"answer":"good"}
			completed {"answer":"good"} (finish_tool)`,
	},
	{
		name: "the guard sends an output back", agent: "guarded-output",
		model: []turn{calls(raw("__finish__", `{"answer":"bad"}`)), calls(raw("__finish__", `{"answer":"good"}`))},
		want: `
			__finish__ fails: Say it better than bad.
			__finish__ 2: {"answer":"good"}
			completed {"answer":"good"} (finish_tool)`,
	},
	{
		name: "the guard replaces an output", agent: "guarded-output",
		model: []turn{calls(raw("__finish__", `{"answer":"swap"}`))},
		want: `
			__finish__: …
			completed {"answer":"swapped"} (finish_tool)`,
	},
	{
		name: "the guard fails a run for its output", agent: "guarded-output",
		model: []turn{calls(raw("__finish__", `{"answer":"fatal"}`))},
		want: `
			__finish__ fails: We do not say that.
			failed framework_guard_refused We do not say that.`,
	},
	{
		name: "a function writes the summary", agent: "compacting", shortened: true, message: strings.Repeat("long words ", 100),
		model:  []turn{say("one"), say("two"), say("three")},
		client: []deed{then(strings.Repeat("more words ", 30)), then("short")},
		want: `
			says "one"
			completed "one"
			says "two"
			completed "two"
			says "three"
			completed "three"`,
		check: func(p *talk) {
			asked := p.model.Asked(p.session)
			text, want := jsonOf(asked[len(asked)-1].Body), "the first says ["+p.session[:15]
			if !strings.Contains(text, "SUMMARY of ") || !strings.Contains(text, want) {
				p.Errorf("the model reads %s, want the summary of the function", text)
			}
		},
	},
}

var hooks = []scenario{
	{
		name: "the hooks of a run in their order", agent: "hooked", start: &agentv1.StartRequest{UserId: "u-1"},
		model:  []turn{{text: "Let me see.", calls: []call{act(set("n", 1), give("seen"))}}, say("ok")},
		client: []deed{awaitEffect("afterRun")},
		want: `
			says "Let me see."
			patch add /n 1
			act: "seen"
			says "ok"
			completed "ok"
			state {"n":1}
			effect beforeRun turn 1 of u-1
			effect onStart
			effect beforeModel suite/model attempt 1, 1 messages, tools act act_asked, You have hooks.
			effect afterModel suite/model says "Let me see." with 1 calls, failed false
			effect onMessage assistant "Let me see."
			effect beforeTool act
			effect onStateChange replace n 1
			effect onMessage tool ""
			effect afterTool act success true "seen"
			effect beforeModel suite/model attempt 1, 3 messages, tools act act_asked, You have hooks.
			effect afterModel suite/model says "ok" with 0 calls, failed false
			effect onMessage assistant "ok"
			effect afterRun completed "ok" steps 2`,
	},
	{
		name: "the hooks of a run that waits", agent: "hooked", start: &agentv1.StartRequest{UserId: "mo"},
		model:  []turn{calls(using("act_asked", give(1))), say("ok")},
		client: []deed{approve("act_asked"), awaitEffect("afterRun completed")},
		want: `
			asks for act_asked
			suspended client_tool
			approve act_asked
			act_asked: 1
			says "ok"
			completed "ok"
			effect beforeRun turn 1 of mo
			effect onStart
			effect beforeModel suite/model attempt 1, 1 messages, tools act act_asked, You have hooks.
			effect afterModel suite/model says "" with 1 calls, failed false
			effect onMessage assistant ""
			effect afterRun suspended_client_tool  steps 1
			effect beforeRun turn 2 of mo
			effect onResume
			effect beforeTool act_asked
			effect onMessage tool ""
			effect afterTool act_asked success true 1
			effect beforeModel suite/model attempt 1, 3 messages, tools act act_asked, You have hooks.
			effect afterModel suite/model says "ok" with 0 calls, failed false
			effect onMessage assistant "ok"
			effect afterRun completed "ok" steps 2`,
	},
	{
		name: "the hooks of a call that fails", agent: "hooked", start: &agentv1.StartRequest{UserId: "mo"},
		model:  []turn{calls(act(set("n", 1), fail("no", "sorry"))), say("ok")},
		client: []deed{awaitEffect("afterRun")},
		want: `
			act fails: sorry
			  model: no
			says "ok"
			completed "ok"
			effect beforeRun turn 1 of mo
			effect onStart
			effect beforeModel suite/model attempt 1, 1 messages, tools act act_asked, You have hooks.
			effect afterModel suite/model says "" with 1 calls, failed false
			effect onMessage assistant ""
			effect beforeTool act
			effect onMessage tool ""
			effect afterTool act success false no
			effect beforeModel suite/model attempt 1, 3 messages, tools act act_asked, You have hooks.
			effect afterModel suite/model says "ok" with 0 calls, failed false
			effect onMessage assistant "ok"
			effect afterRun completed "ok" steps 2`,
	},
	{
		name: "the hooks around a sub-agent", agent: "leading",
		model:  []turn{calls(raw("subagent__worker", `{"message":"[$SESSION>worker] do it"}`)), say("ok")},
		worker: []turn{say("It is done.")},
		client: []deed{awaitEffect("afterSubAgent")},
		want: `
			patch add /asked "worker"
			suspended awaiting_children
			subagent__worker: "It is done."
			says "ok"
			completed "ok"
			state {"asked":"worker"}
			effect beforeSubAgent subagent__worker by worker, another session true
			effect afterSubAgent subagent__worker by worker, success true "It is done."`,
	},
	{
		name: "hooks with effects", agent: "hooked", start: &agentv1.StartRequest{UserId: "mo", State: `{"busy": true}`},
		model:  []turn{say("ok")},
		client: []deed{awaitEffect("afterRun")},
		want: `
			event started {"turn":1}
			metadata {"mood":"busy"}
			says "ok"
			patch add /started true
			completed "ok"
			state {"busy":true,"started":true}
			usage hooks/started 2
			effect beforeRun turn 1 of mo
			effect onStart
			effect onStateChange replace started true
			effect beforeModel suite/model attempt 1, 1 messages, tools act act_asked, You have hooks.
			effect afterModel suite/model says "ok" with 0 calls, failed false
			effect onMessage assistant "ok"
			effect afterRun completed "ok" steps 1`,
	},
	{
		name: "a hook refuses the run", agent: "hooked", start: &agentv1.StartRequest{UserId: "mo", State: `{"refuse": "You have no credit."}`},
		model:  []turn{say("never")},
		client: []deed{awaitEffect("afterRun")},
		want: `
			failed framework_run_refused You have no credit.
			state {"refuse":"You have no credit."}
			effect beforeRun turn 1 of mo
			effect afterRun failed You have no credit. steps 0`,
	},
	{
		name: "a hook that breaks has no effect", agent: "hooked", start: &agentv1.StartRequest{
			UserId: "mo", State: `{"busy": true, "broken": true}`,
		},
		model:  []turn{say("ok")},
		client: []deed{awaitEffect("afterRun")},
		want: `
			event started {"turn":1}
			metadata {"mood":"busy"}
			says "ok"
			completed "ok"
			state {"broken":true,"busy":true}
			usage hooks/started 2
			effect beforeRun turn 1 of mo
			effect onStart
			effect beforeModel suite/model attempt 1, 1 messages, tools act act_asked, You have hooks.
			effect afterModel suite/model says "ok" with 0 calls, failed false
			effect onMessage assistant "ok"
			effect afterRun completed "ok" steps 1`,
		native: `
			event started {"turn":1}
			metadata {"mood":"busy"}
			says "ok"
			completed "ok"
			state {"broken":true,"busy":true}
			effect beforeRun turn 1 of mo
			effect onStart
			effect beforeModel suite/model attempt 1, 1 messages, tools act act_asked, You have hooks.
			effect afterModel suite/model says "ok" with 0 calls, failed false
			effect onMessage assistant "ok"
			effect afterRun completed "ok" steps 1`,
		because: "a hook in Go cannot fail but by a panic, which loses its usage; a failed hook at an endpoint keeps it, as a failed tool does",
	},
}
