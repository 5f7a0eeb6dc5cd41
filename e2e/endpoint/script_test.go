package endpoint_test

import (
	"encoding/json"
	"fmt"
	"strings"
)

// sessionMark stands for the id of the session in arguments of calls and in texts of the table.
const sessionMark = "$SESSION"

// turn is one reply of the scripted model.
type turn struct {
	text  string
	calls []call
}

// call is a tool call of the scripted model.
type call struct{ tool, arguments string }

// callID is the id of the nth call in a turn.
func callID(turn, n int) string { return fmt.Sprintf("call_%d_%d", turn, n) }

// say replies with a text.
func say(text string) turn { return turn{text: text} }

// calls replies with tool calls.
func calls(list ...call) turn { return turn{calls: list} }

// raw calls a tool with these arguments.
func raw(tool, arguments string) call { return call{tool, arguments} }

// op is one thing that a puppet does.
type op map[string]any

// act calls the tool act, which does the ops.
func act(ops ...op) call { return using("act", ops...) }

// using calls a tool that is a puppet.
func using(tool string, ops ...op) call {
	if ops == nil {
		ops = []op{}
	}
	return call{tool, jsonOf(map[string]any{"do": ops})}
}

// amounting adds an amount to the arguments of a call.
func (c call) amounting(amount float64) call {
	var arguments map[string]any
	if err := json.Unmarshal([]byte(c.arguments), &arguments); err != nil {
		panic(err) // using has written it
	}
	arguments["amount"] = amount
	return call{c.tool, jsonOf(arguments)}
}

// The ops that end a call.

// give returns a value.
func give(value any) op { return op{"op": "return", "value": value} }

// giveJSON returns a JSON value as it is written here.
func giveJSON(text string) op { return op{"op": "return", "value": json.RawMessage(text)} }

// giveSize returns a string of count letters.
func giveSize(count int) op { return op{"op": "size", "count": count} }

// giveNoJSON returns something that has no JSON.
func giveNoJSON() op { return op{"op": "nojson"} }

// giveNothing returns nothing: nil, undefined, None.
func giveNothing() op { return op{"op": "nothing"} }

// giveContext returns the trusted context, giveState the custom state.
func giveContext() op { return op{"op": "context"} }
func giveState() op   { return op{"op": "state"} }

// fail fails with a text. public is for users; empty means that they see the text.
func fail(text, public string) op { return op{"op": "fail", "text": text, "public": public} }

// crash throws what is no error.
func crash(text string) op { return op{"op": "crash", "text": text} }

// late waits at a gate of the session whatever happens to the call, and has an effect then.
func late(gate, label string) op {
	return op{"op": "late", "text": sessionMark + "/" + gate, "name": sessionMark + "/" + label}
}

// untilAborted waits for the cancellation of the call, reports it in the ledger, and fails.
func untilAborted(label string) op { return op{"op": "aborted", "text": sessionMark + "/" + label} }

// The ops after which a call goes on.

func emit(name string, value any) op { return op{"op": "emit", "name": name, "value": value} }

// emitID emits an event with an id, emitTransient one that is not stored.
func emitID(name, id string, value any) op {
	return op{"op": "emit", "name": name, "id": id, "value": value}
}

func emitTransient(name string, value any) op {
	return op{"op": "emit", "name": name, "transient": true, "value": value}
}

// emitMany emits an event count times, emitSize one with a string of count letters.
func emitMany(name string, count int) op {
	return op{"op": "emit", "name": name, "value": 1, "count": count}
}
func emitSize(name string, count int) op { return op{"op": "emitsize", "name": name, "count": count} }

func metadata(values any) op          { return op{"op": "metadata", "value": values} }
func set(key string, value any) op    { return op{"op": "set", "key": key, "value": value} }
func setSize(key string, n int) op    { return op{"op": "setsize", "key": key, "count": n} }
func add(key string, items ...any) op { return op{"op": "append", "key": key, "value": items} }
func remove(key string) op            { return op{"op": "delete", "key": key} }

// keep, count and forget write to the private store; giveStored returns the entries whose keys begin with a prefix.
func keep(key string, value any) op  { return op{"op": "put", "key": key, "value": value} }
func count(key string, delta int) op { return op{"op": "addto", "key": key, "count": delta} }
func forget(key string) op           { return op{"op": "drop", "key": key} }
func giveStored(prefix string) op    { return op{"op": "stored", "key": prefix} }

func usage(kind, name string, amount float64) op {
	return op{"op": "usage", "kind": kind, "name": name, "amount": amount}
}

// pay has an effect in the ledger, wait waits at a gate of the session.
func pay(label string) op { return op{"op": "post", "text": sessionMark + "/" + label} }
func wait(gate string) op { return op{"op": "gate", "text": sessionMark + "/" + gate} }

// scriptSession is the session of a script: a sub-agent has a script of its own.
func scriptSession(script string) string {
	session, _, _ := strings.Cut(script, ">")
	return session
}

func jsonOf(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("the table has a value without JSON: %v", err))
	}
	return string(text)
}
