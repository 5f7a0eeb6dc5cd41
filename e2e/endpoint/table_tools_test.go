package endpoint_test

import (
	"slices"
	"strings"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// state returns the request for a session with a custom state.
func state(text string) *agentv1.StartRequest { return &agentv1.StartRequest{State: text} }

var results = []scenario{
	{
		name: "a string result", agent: "puppet",
		model: []turn{calls(act(give("hello"))), say("ok")},
		want: `
			act: "hello"
			says "ok"
			completed "ok"`,
		check: func(p *talk) {
			if got := p.modelReads(callID(1, 1)); got != "hello" {
				p.Errorf("the model reads %q, want the string as it is", got)
			}
		},
	},
	{
		name: "results of every kind of JSON", agent: "puppet",
		model: []turn{calls(
			act(giveJSON(`null`)), act(giveJSON(`true`)), act(giveJSON(`0`)), act(giveJSON(`-1.5`)), act(giveJSON(`9007199254740991`)),
			act(giveJSON(`""`)), act(giveJSON(`[]`)), act(giveJSON(`{}`)), act(giveJSON(`[1,"two",[3,{"four":null}],false]`)),
			act(giveJSON(`{"a":{"b":{"c":[{"d":"e"}]}},"z":1}`)), act(giveJSON(`{"__proto__":{"x":1},"constructor":2}`)),
		), say("ok")},
		want: `
			act: null
			act 2: true
			act 3: 0
			act 4: -1.5
			act 5: 9007199254740991
			act 6: ""
			act 7: []
			act 8: {}
			act 9: [1,"two",[3,{"four":null}],false]
			act 10: {"a":{"b":{"c":[{"d":"e"}]}},"z":1}
			act 11: {"__proto__":{"x":1},"constructor":2}
			says "ok"
			completed "ok"`,
	},
	{
		name: "nothing as a result", agent: "puppet",
		model: []turn{calls(act(giveNothing())), say("ok")},
		want: `
			act: null
			says "ok"
			completed "ok"`,
	},
	{
		name: "a result with all kinds of characters", agent: "puppet",
		model: []turn{calls(act(give("Grüße 漢字 🙂 \u2028\u2029 \"quoted\" \\ </script> \t\r\n \u0001 end"))), say("ok")},
		want: `
			act: "Grüße 漢字 🙂 \u2028\u2029 \"quoted\" \\ </script> \t\r\n \u0001 end"
			says "ok"
			completed "ok"`,
	},
	{
		name: "a large result", agent: "puppet",
		model: []turn{calls(act(giveSize(900_000))), say("ok")},
		want: `
			act: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… 900002 bytes
			says "ok"
			completed "ok"`,
	},
	{
		name: "a result above the limit", agent: "puppet",
		model: []turn{calls(act(set("kept", false), giveSize(1<<20))), say("ok")},
		want: `
			act fails: result_too_large: the tool's result has 1048578 bytes, and at most 1048576 can be kept; ask for less
			says "ok"
			completed "ok"`,
	},
	{
		name: "a result above the limit of a line", agent: "puppet",
		model: []turn{calls(act(pay("before"), giveSize(3<<20))), say("ok")},
		want: `
			act fails: …
			says "ok"
			completed "ok"
			effect before`,
		check: func(p *talk) { // the outcome is known: the tool has run, and its result is too large
			if text := p.modelReads(callID(1, 1)); strings.Contains(text, "not known") {
				p.Errorf("the model reads %q, want that the result is too large", text)
			}
		},
	},
	{
		name: "a result that has no JSON", agent: "puppet",
		model: []turn{calls(act(giveNoJSON())), say("ok")},
		want: `
			act fails: …
			says "ok"
			completed "ok"`,
	},
	{
		name: "a result that fits its output schema", agent: "puppet",
		model: []turn{calls(using("act_out", giveJSON(`{"n":1,"more":true}`))), say("ok")},
		want: `
			act_out: {"more":true,"n":1}
			says "ok"
			completed "ok"`,
	},
	{
		name: "a result that does not fit its output schema", agent: "puppet",
		model: []turn{calls(using("act_out", set("kept", false), giveJSON(`{"n":"one"}`))), say("ok")},
		want: `
			act_out fails: the tool's result does not fit its output schema: …
			says "ok"
			completed "ok"`,
	},
	{
		name: "a tool that ends the run", agent: "finisher",
		model: []turn{calls(using("finish", giveJSON(`{"answer":"42"}`)))},
		want: `
			finish: {"answer":"42"}
			completed {"answer":"42"} (finish_with)`,
	},
	{
		name: "a tool that ends the run after the other calls of its step", agent: "finisher",
		model:  []turn{calls(using("finish", pay("second"), giveJSON(`{"answer":"42"}`)), act(wait("slow"), pay("first")))},
		client: []deed{open("slow", 1)},
		want: `
			finish: {"answer":"42"}
			act: "done"
			completed {"answer":"42"} (finish_with)
			effect first
			effect second`,
	},
	{
		name: "a tool that fails to end the run", agent: "finisher",
		model: []turn{
			calls(using("finish", fail("not yet", ""))), calls(
				using("finish", giveJSON(`{"answer":7}`)),
			), calls(raw("__finish__", `{"answer":"at last"}`)),
		},
		want: `
			finish fails: not yet
			finish 2: {"answer":7}
			__finish__: {"answer":"at last"}
			completed {"answer":"at last"} (finish_tool)`,
	},
	{
		name: "a call of the sub-agent", agent: "puppet",
		model:  []turn{calls(raw("subagent__worker", `{"message":"[$SESSION>worker] do it"}`)), say("ok")},
		worker: []turn{calls(act(pay("by the worker"), give("done by the worker"))), say("It is done.")},
		want: `
			suspended awaiting_children
			subagent__worker: "It is done."
			says "ok"
			completed "ok"
			effect by the worker`,
	},
	{
		name: "an approval below a sub-agent", agent: "puppet",
		model:  []turn{calls(raw("subagent__worker", `{"message":"[$SESSION>worker] do it"}`)), say("ok")},
		worker: []turn{calls(using("act_asked", pay("by the worker"))), say("It is done.")},
		client: []deed{approve("act_asked")},
		want: `
			suspended awaiting_children
			subagent__worker: "It is done."
			says "ok"
			completed "ok"
			effect by the worker`,
	},
}

// onlyDescribed are for the descriptions of endpoints, which have the grammar of agents files. Agents in Go are values, and have no
// tools by name.
var onlyDescribed = []scenario{
	{
		name: "a built-in tool by its name", agent: "equipped",
		model: []turn{calls(raw("calculate", `{"expression": "6 * 7"}`)), say("ok")},
		want: `
			calculate: {"value":42}
			says "ok"
			completed "ok"`,
	},
	{
		name: "a built-in tool with other settings", agent: "careful",
		model:  []turn{calls(raw("calculate", `{"expression": "6 * 7"}`)), say("ok")},
		client: []deed{approve("calculate")},
		want: `
			asks for calculate
			suspended client_tool
			approve calculate
			calculate: {"value":42}
			says "ok"
			completed "ok"`,
	},
	{
		name: "rules that are data", agent: "ruled", start: state(`{"name": "Ünal"}`),
		model: []turn{calls(act(set("stop", true))), say("never")},
		want: `
			patch add /stop true
			act: "done"
			completed "" (stop_when)
			state {"name":"Ünal","stop":true}`,
		check: func(p *talk) {
			if got := p.systems(); got != "You help Ünal." {
				p.Errorf("the prompt is %q", got)
			}
		},
	},
}

var failures = []scenario{
	{
		name: "an error", agent: "puppet",
		model: []turn{calls(act(pay("before"), fail("The shop is closed.", ""))), say("ok")},
		want: `
			act fails: The shop is closed.
			says "ok"
			completed "ok"
			effect before`,
	},
	{
		name: "an error with a text for users", agent: "puppet",
		model: []turn{calls(act(fail("pq: no route to 10.0.0.7", "Please try again later."))), say("ok")},
		want: `
			act fails: Please try again later.
			  model: pq: no route to 10.0.0.7
			says "ok"
			completed "ok"`,
	},
	{
		name: "an error without a text", agent: "puppet",
		model: []turn{calls(act(fail("", ""))), say("ok")},
		want: `
			act fails: …
			says "ok"
			completed "ok"`,
		native: `
			act fails: the tool failed without a reason
			says "ok"
			completed "ok"`,
		because: "a library names the class of the error",
	},
	{
		name: "an error with all kinds of characters", agent: "puppet",
		model: []turn{calls(act(fail("Grüße 漢字 🙂 \"quoted\" \\ <b>", ""))), say("ok")},
		want: `
			act fails: Grüße 漢字 🙂 "quoted" \ <b>
			says "ok"
			completed "ok"`,
	},
	{
		name: "a very long error", agent: "puppet",
		model: []turn{calls(act(fail(strings.Repeat("long ", 10_000), ""))), say("ok")},
		want: `
			act fails: long long long long long long long long … 8195 bytes
			says "ok"
			completed "ok"`,
	},
	{
		name: "what is thrown is no error", agent: "puppet",
		model: []turn{calls(act(crash("a text"))), say("ok")},
		want: `
			act fails: …
			says "ok"
			completed "ok"`,
		native: `
			act fails: the tool has crashed
			says "ok"
			completed "ok"`,
		because: "a panic ends a goroutine, and the executor keeps its text to itself; other languages throw any value like an error",
	},
	{
		name: "one of several calls fails", agent: "puppet",
		model: []turn{calls(act(give(1)), act(fail("no", "")), act(give(3))), say("ok")},
		want: `
			act: 1
			act 2 fails: no
			act 3: 3
			says "ok"
			completed "ok"`,
	},
	{
		name: "a tool that does not exist", agent: "puppet",
		model: []turn{calls(raw("no_such_tool", `{}`)), say("ok")},
		want: `
			no_such_tool fails: …
			says "ok"
			completed "ok"`,
	},
}

var inputs = []scenario{
	{
		name: "a typed input", agent: "puppet",
		model: []turn{calls(raw("book", `{"city": "Århus", "days": 3}`)), say("ok")},
		want: `
			book: "3 days in Århus"
			says "ok"
			completed "ok"`,
	},
	{
		name: "inputs that do not fit", agent: "puppet",
		model: []turn{calls(
			raw("book", `{"city": 5, "days": 3}`), raw("book", `{"city": "Oslo"}`), raw("book", `{"city": "Oslo", "days": 2.5}`),
			raw("book", `{"city": `),
			raw("book", `[]`), raw("act", `{"do": [], "context": {"tenant": "other"}}`), raw("act", `{"do": "nothing"}`),
		), say("ok")},
		want: `
			book fails: the arguments do not fit: /city must be a string, not an integer
			book 2 fails: the arguments do not fit: /days is missing
			book 3 fails: the arguments do not fit: /days must be an integer, not a number
			book 4 fails: the arguments are not a JSON object, or not JSON at all; send one JSON object
			book 5 fails: the arguments are not a JSON object
			act fails: the arguments do not fit: /context is not known; known are amount, do
			act 2 fails: the arguments do not fit: /do must be an array, not a string
			says "ok"
			completed "ok"`,
	},
	{
		name: "a large input", agent: "puppet",
		model: []turn{calls(act(pay("begun"), give(strings.Repeat("ü", 200_000)))), say("ok")},
		want: `
			act: "üüüüüüüüüüüüüüüüüüü… 400002 bytes
			says "ok"
			completed "ok"
			effect begun`,
	},
	{
		name: "the model sees the tools as they are declared", agent: "puppet",
		model: []turn{say("ok")},
		want: `
			says "ok"
			completed "ok"`,
		check: func(p *talk) {
			q := p.model.Asked(p.session)[0]
			if q.System != "You are a puppet." {
				p.Errorf("the system prompt is %q", q.System)
			}
			var names []string
			for _, t := range q.Tools {
				names = append(names, t.Name)
				if strict := t.Name == "book"; t.Strict != strict {
					p.Errorf("%s is strict: %v, want %v", t.Name, t.Strict, strict)
				}
			}
			want := []string{"act", "act_safe", "act_read", "act_quick", "act_out", "act_asked", "act_ruled",
				"act_others", "act_within", "book", "ask", "ask_within", "subagent__worker"}
			if !slices.Equal(names, want) {
				p.Errorf("the tools are %q, want %q", names, want)
			}
			p.checkSchema(q, "act", "Does what it is told.", `{"do":"array","amount":"number"}`, "do")
			p.checkSchema(q, "book", "Books a trip.", `{"city":"string","days":"integer"}`, "city", "days")
			p.checkSchema(q, "ask", "Asks the user.", `{"question":"string"}`, "question")
			p.checkSchema(q, "subagent__worker", "Does a part.", `{"message":"string"}`, "message")
		},
	},
}

var options = []scenario{
	{
		name: "calls of every rule for repetitions", agent: "puppet",
		model: []turn{calls(act(pay("never")), using("act_safe", pay("safe")), using("act_read", give("read"))), say("ok")},
		check: func(p *talk) {
			keys := map[string]bool{}
			for _, label := range []string{"never", "safe"} {
				for _, post := range p.Posts(p.session + "/" + label) {
					keys[post.Key] = true
				}
			}
			if len(keys) != 2 || keys[""] {
				p.Errorf("the idempotency keys are %v, want one for each call", keys)
			}
		},
		client: []deed{func(p *talk) { p.wait() }},
		want: `
			act: "done"
			act_safe: "done"
			act_read: "read"
			says "ok"
			completed "ok"
			effect …
			effect …`,
	},
	{
		name: "a step with read-only calls alone", agent: "puppet",
		model: []turn{calls(using("act_read", give(1)), using("act_read", set("seen", true), give(2))), say("ok")},
		want: `
			act_read: 1
			patch add /seen true
			act_read 2: 2
			says "ok"
			completed "ok"
			state {"seen":true}`,
	},
	{
		name: "calls of one step run at once", agent: "puppet",
		model: []turn{
			calls(
				act(wait("all"), give(1)), act(wait("all"), give(2)), using("act_safe", wait("all"), give(3)),
				using("act_read", wait("all"), give(4)),
			),
			say("ok"),
		},
		client: []deed{open("all", 4)},
		want: `
			act: 1
			act 2: 2
			act_safe: 3
			act_read: 4
			says "ok"
			completed "ok"`,
	},
	{
		name: "a call that takes too long", agent: "puppet",
		model:  []turn{calls(using("act_quick", set("kept", false), untilAborted("noticed"))), say("ok")},
		client: []deed{awaitEffect("noticed")},
		want: `
			act_quick fails: the tool did not end within 3s; it is not known whether it took effect
			says "ok"
			completed "ok"
			effect noticed`,
	},
	{
		name: "what a call does after its time does not count", agent: "puppet",
		model: []turn{
			calls(using("act_quick", late("long", "too late"), set("kept", false), emit("late", 1), usage("late", "late", 1))),
			say("ok"),
		},
		client: []deed{
			func(p *talk) { p.wait() }, open("long", 1), awaitEffect("too late"),
		},
		want: `
			act_quick fails: the tool did not end within 3s; it is not known whether it took effect
			says "ok"
			completed "ok"
			effect too late`,
	},
	{
		name: "options that are data", agent: "limited",
		model: []turn{calls(act(give(1))), calls(act(give(2))), say("never")},
		want: `
			act: 1
			act 2: 2
			failed framework_max_steps The agent did not come to an end within its limit of steps.`,
		check: func(p *talk) {
			q := p.model.Asked(p.session)[0].Body
			if q["temperature"] != 0.5 || q["seed"] != 7.0 || q["max_completion_tokens"] != 99.0 && q["max_tokens"] != 99.0 {
				p.Errorf("the request has temperature %v, seed %v, limits %v %v; want 0.5, 7 and 99",
					q["temperature"], q["seed"], q["max_completion_tokens"], q["max_tokens"])
			}
		},
	},
	{
		name: "a client tool", agent: "puppet",
		model:  []turn{calls(raw("ask", `{"question": "Which colour?"}`), act(give(1))), say("ok")},
		client: []deed{answer("ask", map[string]any{"colour": "grün"})},
		want: `
			asks the client ask {"question":"Which colour?"}
			act: 1
			suspended step_partial
			ask: {"colour":"grün"}
			says "ok"
			completed "ok"`,
	},
	{
		name: "a client tool that is not run", agent: "puppet",
		model:  []turn{calls(raw("ask", `{"question": "Which colour?"}`)), say("ok")},
		client: []deed{answerError("ask", "The user has left.")},
		want: `
			asks the client ask {"question":"Which colour?"}
			suspended client_tool
			ask fails: The user has left.
			says "ok"
			completed "ok"`,
	},
	{
		name: "a client tool without an answer in time", agent: "puppet",
		model:  []turn{calls(raw("ask_within", `{"question": "Which colour?"}`)), say("ok")},
		client: []deed{letExpire("ask_within")},
		want: `
			asks the client ask_within {"question":"Which colour?"}
			suspended client_tool
			ask_within fails: no answer to this call arrived in time
			says "ok"
			completed "ok"`,
	},
}

var approvals = []scenario{
	{
		name: "an approved call", agent: "puppet",
		model:  []turn{calls(using("act_asked", pay("paid"), give("paid"))), say("ok")},
		client: []deed{approve("act_asked")},
		want: `
			asks for act_asked
			suspended client_tool
			approve act_asked
			act_asked: "paid"
			says "ok"
			completed "ok"
			effect paid`,
	},
	{
		name: "a denied call", agent: "puppet",
		model:  []turn{calls(using("act_asked", pay("paid"))), say("ok")},
		client: []deed{deny("act_asked", "too much")},
		want: `
			asks for act_asked
			suspended client_tool
			reject act_asked too much
			act_asked fails: …
			says "ok"
			completed "ok"`,
	},
	{
		name: "an approval that others have to give", agent: "puppet",
		model:  []turn{calls(using("act_others", pay("paid"))), say("ok")},
		client: []deed{approveAsOther("act_others")},
		want: `
			asks for act_others
			suspended client_tool
			approve act_others
			act_others: "done"
			says "ok"
			completed "ok"
			effect paid`,
	},
	{
		name: "an approval without an answer in time", agent: "puppet",
		model:  []turn{calls(using("act_within", pay("paid"))), say("ok")},
		client: []deed{letExpire("act_within")},
		want: `
			asks for act_within
			suspended client_tool
			act_within fails: no answer to this call arrived in time
			says "ok"
			completed "ok"`,
	},
	{
		name: "a rule asks for some calls", agent: "puppet",
		model:  []turn{calls(using("act_ruled", pay("small")).amounting(100), using("act_ruled", pay("large")).amounting(100.5)), say("ok")},
		client: []deed{awaitEffect("small"), approve("act_ruled")},
		want: `
			act_ruled: "done"
			asks for act_ruled 2
			suspended step_partial
			approve act_ruled 2
			act_ruled 2: "done"
			says "ok"
			completed "ok"
			effect small
			effect large`,
	},
	{
		name: "a rule reads the state", agent: "puppet", start: state(`{"limit": 5}`),
		model: []turn{
			calls(using("act_ruled", pay("small")).amounting(5), act(set("limit", 0))),
			calls(using("act_ruled", pay("second")).amounting(5)), say("ok"),
		},
		client: []deed{approve("act_ruled")},
		want: `
			act_ruled: "done"
			patch add /limit 0
			act: "done"
			asks for act_ruled 2
			suspended client_tool
			approve act_ruled 2
			act_ruled 2: "done"
			says "ok"
			completed "ok"
			state {"limit":0}
			effect small
			effect second`,
	},
	{
		name: "a rule knows the user", agent: "puppet", start: &agentv1.StartRequest{UserId: "mallory"},
		model:  []turn{calls(using("act_ruled", pay("one")).amounting(1)), say("ok")},
		client: []deed{deny("act_ruled", "")},
		want: `
			asks for act_ruled
			suspended client_tool
			reject act_ruled
			act_ruled fails: …
			says "ok"
			completed "ok"`,
	},
	{
		name: "a call waits if its rule fails", agent: "puppet",
		model:  []turn{calls(using("act_ruled", pay("thirteen")).amounting(13)), say("ok")},
		client: []deed{approve("act_ruled")},
		want: `
			asks for act_ruled
			suspended client_tool
			approve act_ruled
			act_ruled: "done"
			says "ok"
			completed "ok"
			effect thirteen`,
	},
}
