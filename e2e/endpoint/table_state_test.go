package endpoint_test

import (
	"fmt"
	"strings"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// longKey is the longest key of the custom state, and the longest name and id of an event.
var longKey = strings.Repeat("k", 256)

// ownWords is why the text of an error differs between languages.
const ownWords = "a library may refuse at once, in its own words, what the executor would refuse"

var states = []scenario{
	{
		name: "writes to the state", agent: "puppet", start: state(`{"list": [1], "old": true, "kept": "yes"}`),
		model: []turn{
			calls(act(set("new", map[string]any{"a": []any{1, nil}}), add("list", 2, "three"), remove("old"), set("nothing", nil))),
			say("ok"),
		},
		want: `
			patch add /list/- 2
			patch add /list/- "three"
			patch add /new {"a":[1,null]}
			patch add /nothing null
			patch remove /old
			act: "done"
			says "ok"
			completed "ok"
			state {"kept":"yes","list":[1,2,"three"],"new":{"a":[1,null]},"nothing":null}`,
	},
	{
		name: "an append to a missing key", agent: "puppet",
		model: []turn{calls(act(add("list", "first"))), calls(act(add("list", "second"))), say("ok")},
		want: `
			patch add /list ["first"]
			act: "done"
			patch add /list/- "second"
			act 2: "done"
			says "ok"
			completed "ok"
			state {"list":["first","second"]}`,
	},
	{
		name: "writes to one key in a row", agent: "puppet", start: state(`{"gone": 1}`),
		model: []turn{
			calls(
				act(
					set("n", 1), set("n", 2), add("list", 1), add("list", 2), remove("gone"), set("gone", "back"), set("brief", 1),
					remove("brief"), giveState(),
				),
			),
			say("ok"),
		},
		want: `
			patch add /gone "back"
			patch add /list [1,2]
			patch add /n 2
			act: {"gone":"back","list":[1,2],"n":2}
			says "ok"
			completed "ok"
			state {"gone":"back","list":[1,2],"n":2}`,
	},
	{
		name: "the next step sees the state, a parallel call does not", agent: "puppet", start: state(`{"n": 1}`),
		model: []turn{
			calls(act(set("n", 2), wait("both"), giveState()), act(wait("both"), giveState())), calls(act(giveState())), say("ok"),
		},
		client: []deed{open("both", 2)},
		want: `
			patch add /n 2
			act: {"n":2}
			act 2: {"n":1}
			act 3: {"n":2}
			says "ok"
			completed "ok"
			state {"n":2}`,
	},
	{
		name: "parallel calls write different keys", agent: "puppet",
		model: []turn{
			calls(act(wait("all"), set("a", 1)), act(wait("all"), set("b", 2)), using("act_read", wait("all"), set("c", 3))),
			say("ok"),
		},
		client: []deed{open("all", 3)},
		want: `
			patch add /a 1
			act: "done"
			patch add /b 2
			act 2: "done"
			patch add /c 3
			act_read: "done"
			says "ok"
			completed "ok"
			state {"a":1,"b":2,"c":3}`,
	},
	{
		name: "writes of a call that fails are dropped", agent: "puppet", start: state(`{"n": 1}`),
		model: []turn{calls(act(set("n", 2), add("list", 1), remove("n"), fail("no", ""))), calls(act(giveState())), say("ok")},
		want: `
			act fails: no
			act 2: {"n":1}
			says "ok"
			completed "ok"
			state {"n":1}`,
	},
	{
		name: "the private store", agent: "puppet",
		model: []turn{
			calls(using("act_safe", keep("k/a", map[string]any{"n": 1}), count("k/n", 2), keep("other", nil), giveStored("k/"))),
			calls(using("act_safe", count("k/n", 40), forget("k/a"), keep("k/ü", "x"), giveStored("k/"))),
			calls(using("act_safe", keep("k/lost", 1), count("k/n", 1), fail("no", ""))),
			calls(using("act_safe", giveStored("k/"))),
			say("ok"),
		},
		want: `
			act_safe: {"k/a":{"n":1},"k/n":2}
			act_safe 2: {"k/n":42,"k/ü":"x"}
			act_safe 3 fails: no
			act_safe 4: {"k/n":42,"k/ü":"x"}
			says "ok"
			completed "ok"`,
	},
	{
		name: "the defaults of a schema", agent: "schemed",
		model: []turn{calls(act(add("items", "a"), giveState())), say("ok")},
		want: `
			patch add /items ["a"]
			act: {"count":7,"items":["a"]}
			says "ok"
			completed "ok"
			state {"count":7,"items":["a"]}`,
	},
	{
		name: "writes that break the schema", agent: "schemed",
		model: []turn{calls(act(set("count", "seven"))), calls(act(set("other", 1))), calls(act(add("items", 5))), say("ok")},
		want: `
			act fails: …
			act 2 fails: …
			act 3 fails: …
			says "ok"
			completed "ok"
			state {"count":7}`,
		check: func(p *talk) {
			for i := range 3 {
				if text := p.modelReads(callID(i+1, 1)); !strings.Contains(text, "does not fit the schema of the agent") {
					p.Errorf("call %d: the model reads %q, want that the state does not fit", i+1, text)
				}
			}
		},
	},
	{
		name: "unusual keys", agent: "puppet",
		model: []turn{
			calls(act(set("a/b~c", 1), set("ключ 🙂", 2), set("__proto__", 3), set("", 4), set(" ", 5))), calls(act(set(longKey, 1))),
			say("ok"),
		},
		want: `
			act fails: …
			patch …
			act 2: "done"
			says "ok"
			completed "ok"
			state …`,
		check: func(p *talk) {
			if text := p.modelReads(callID(1, 1)); !strings.Contains(text, "must have 1 to 256 bytes") {
				p.Errorf("the model reads %q, want what is wrong with the empty key", text)
			}
		},
	},
	{
		name: "unusual keys that are valid", agent: "puppet",
		model: []turn{
			calls(act(set("a/b~c", 1), set("ключ 🙂", 2), set("__proto__", 3), set("constructor", 4), set(" ", 5))),
			calls(act(giveState())), say("ok"),
		},
		want: `
			patch add /  5
			patch add /__proto__ 3
			patch add /a~1b~0c 1
			patch add /constructor 4
			patch add /ключ 🙂 2
			act: "done"
			act 2: {" ":5,"__proto__":3,"a/b~c":1,"constructor":4,"ключ 🙂":2}
			says "ok"
			completed "ok"
			state {" ":5,"__proto__":3,"a/b~c":1,"constructor":4,"ключ 🙂":2}`,
	},
	{
		name: "a key that is too long", agent: "puppet",
		model: []turn{calls(act(set(longKey+"k", 1))), calls(act(set("a\nb", 1))), say("ok")},
		want: `
			act fails: …
			act 2 fails: …
			says "ok"
			completed "ok"`,
	},
	{
		name: "a large state", agent: "puppet",
		model: []turn{calls(act(setSize("large", 1_800_000))), calls(act(setSize("large", 1_900_000))), say("ok")},
		want: `
			patch …
			act: "done"
			act 2 fails: STATE_SIZE_EXCEEDED: the changes of the custom state have 1900007 bytes; at most 1887436 are allowed; …
			says "ok"
			completed "ok"
			state …`,
	},
}

// tooManyWrites writes more keys than one call may.
func tooManyWrites() []op {
	var ops []op
	for i := range 1001 {
		ops = append(ops, set(fmt.Sprint("key", i), i))
	}
	return ops
}

var events = []scenario{
	{
		name: "events", agent: "puppet",
		model: []turn{
			calls(act(emit("progress", map[string]any{"done": 1}), emit("progress", nil), emit("Übung 漢字", []any{"🙂"}), give(1))),
			say("ok"),
		},
		want: `
			event progress {"done":1}
			event progress null
			event Übung 漢字 ["🙂"]
			act: 1
			says "ok"
			completed "ok"`,
	},
	{
		name: "events with ids", agent: "puppet",
		model: []turn{
			calls(act(emitID("bar", "upload", 10), emitID("bar", "download", 20), emitID("bar", "upload", 100), emitID("other", "upload", 1))),
			say("ok"),
		},
		want: `
			event bar 10 id upload
			event bar 20 id download
			event bar 100 id upload
			event other 1 id upload
			act: "done"
			says "ok"
			completed "ok"`,
	},
	{
		name: "a transient event", agent: "puppet",
		model:  []turn{calls(act(wait("watched"), emitTransient("typing", "now"), emit("kept", 1))), say("ok")},
		client: []deed{watchTransient("watched")},
		want: `
			event kept 1
			act: "done"
			says "ok"
			completed "ok"`,
	},
	{
		name: "events of a call that fails stay", agent: "puppet",
		model: []turn{calls(act(emit("progress", 1), fail("no", ""))), say("ok")},
		want: `
			event progress 1
			act fails: no
			says "ok"
			completed "ok"`,
	},
	{
		name: "events with names of the runtime", agent: "puppet",
		model: []turn{
			calls(act(emit("output", 1))), calls(act(emit("error", 1))), calls(act(emit("state-patch", 1))), calls(act(emit("subagent", 1))),
			say("ok"),
		},
		want: `
			act fails: …
			act 2 fails: …
			act 3 fails: …
			act 4 fails: …
			says "ok"
			completed "ok"`,
		native: `
			act fails: EVENT_INVALID: the event name "output" is reserved; choose another name
			act 2 fails: EVENT_INVALID: the event name "error" is reserved; choose another name
			act 3 fails: EVENT_INVALID: the event name "state-patch" is reserved; choose another name
			act 4 fails: EVENT_INVALID: the event name "subagent" is reserved; choose another name
			says "ok"
			completed "ok"`,
		because: ownWords,
	},
	{
		name: "events with invalid names and ids", agent: "puppet",
		model: []turn{
			calls(act(emit("", 1))), calls(act(emit(longKey+"k", 1))), calls(act(emit("a\nb", 1))), calls(act(emitID("a", "", 1))),
			calls(act(emitID("a", longKey+"k", 1))),
			calls(act(emitID(longKey, longKey, 1))), say("ok"),
		},
		want: `
			act fails: …
			act 2 fails: …
			act 3 fails: …
			act 4 fails: …
			act 5 fails: …
			event ` + longKey + ` 1 id ` + longKey + `
			act 6: "done"
			says "ok"
			completed "ok"`,
	},
	{
		name: "an event as large as possible", agent: "puppet",
		model: []turn{calls(act(emitSize("large", 256<<10-2))), calls(act(emitSize("large", 256<<10-1))), say("ok")},
		want: `
			event large "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… 262144 bytes
			act: "done"
			act 2 fails: …
			says "ok"
			completed "ok"`,
		native: `
			event large "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… 262144 bytes
			act: "done"
			act 2 fails: EVENT_TOO_LARGE: the data of the event "large" has 262145 bytes; the limit is 262144
			says "ok"
			completed "ok"`,
		because: ownWords,
	},
	{
		name: "as many events as possible", agent: "puppet",
		model: []turn{calls(act(emitMany("tick", 10_000), give("all"))), calls(act(emitMany("tick", 10_001), give("all"))), say("ok")},
		want: `
			10000 events tick 1
			act: "all"
			10000 events tick 1
			act 2 fails: …
			says "ok"
			completed "ok"`,
	},
	{
		name: "metadata of the message", agent: "puppet",
		model: []turn{
			calls(
				act(metadata(map[string]any{"mood": "good", "deep": map[string]any{"a": 1}}), metadata(map[string]any{"deep": map[string]any{"b": 2}})),
			),
			say("ok"),
		},
		want: `
			metadata …
			metadata …
			act: "done"
			says "ok"
			completed "ok"`,
		check: func(p *talk) {
			for _, want := range []string{`"mood":"good"`, `"deep":{"a":1,"b":2}`} {
				if got := p.served.Do(p, "GET", "/messages?sessionId="+p.session, nil).Body; !strings.Contains(got, want) {
					p.Errorf("the messages are %s, want %s in the metadata", got, want)
				}
			}
		},
	},
	{
		name: "metadata that is refused", agent: "puppet",
		model: []turn{
			calls(act(metadata(map[string]any{"runId": "r"}))), calls(act(metadata([]any{1}))),
			calls(act(metadata(map[string]any{"usage": 1}))), say("ok"),
		},
		want: `
			act fails: …
			act 2 fails: …
			act 3 fails: …
			says "ok"
			completed "ok"`,
		native: `
			act fails: EVENT_INVALID: the metadata key "runId" is reserved; choose another name
			act 2 fails: EVENT_INVALID: the metadata of a message must be a JSON object
			act 3 fails: EVENT_INVALID: the metadata key "usage" is reserved; choose another name
			says "ok"
			completed "ok"`,
		because: ownWords,
	},
	{
		name: "usage", agent: "puppet",
		model: []turn{
			calls(act(usage("cost", "cents", 2), usage("cost", "cents", 0.5), usage("cost", "Übung 漢字", 1), usage("refund", "cents", -3))),
			calls(act(usage("cost", "cents", 1), fail("no", ""))), say("ok"),
		},
		want: `
			act: "done"
			act 2 fails: no
			says "ok"
			completed "ok"
			usage cost/cents 3.5
			usage cost/Übung 漢字 1
			usage refund/cents -3`,
	},
	{
		name: "the largest usage", agent: "puppet",
		model: []turn{calls(act(usage("cost", "most", 1e15), usage(longKey, longKey, 1))), say("ok")},
		want: `
			act: "done"
			says "ok"
			completed "ok"
			usage cost/most 1e+15
			usage ` + longKey + `/` + longKey + ` 1`,
	},
	{
		name: "usage that is no usage", agent: "puppet",
		model: []turn{calls(act(usage("", "cents", 2))), calls(act(usage("cost", "", 1))), say("ok")},
		want: `
			act fails: …
			act 2 fails: …
			says "ok"
			completed "ok"`,
		native: `
			act: "done"
			act 2: "done"
			says "ok"
			completed "ok"`,
		because: "RecordUsage in Go returns no error, and drops what is no usage; a library refuses it",
	},
	{
		name: "too many writes to the state", agent: "puppet",
		model: []turn{calls(act(tooManyWrites()...)), say("ok")},
		want: `
			act fails: …
			says "ok"
			completed "ok"`,
	},
}

// watchTransient opens the gate once a reader is there, and checks that the reader sees the transient event typing.
func watchTransient(gate string) deed {
	return func(p *talk) {
		p.AwaitGate(p, p.session+"/"+gate, 1)
		seen, opened := false, false
		for f, err := range p.client.Follow(p.ctx, &agentv1.StreamRequest{SessionId: p.session}) {
			if err != nil {
				p.Fatalf("follow: %v", err)
			}
			if f.GetCaughtUp() != nil && !opened {
				opened = true
				p.Open(p.session + "/" + gate)
			}
			if c := f.GetChunk().GetChunk().GetCustom(); c.GetEventName() == "typing" {
				seen = c.GetTransient() && c.GetData() == `"now"`
			}
		}
		if !seen {
			p.Error("a live reader has not seen the transient event")
		}
	}
}
