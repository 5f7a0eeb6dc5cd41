"""The conformance app in Python: an endpoint with the agents of goapp. Their tools, hooks and other functions do what
the suite says, in the arguments of a call or in the custom state.

    python3 app.py HOST PORT

OUTSIDE_URL is the world of the suite, SECRETS are those of the endpoint, EDITION is that of the app: edition 2 has
another prompt and one agent more. With TLS_CERT, TLS_KEY and TLS_CA it demands a certificate of its clients.
"""

import asyncio
import json
import os
import socketserver
import ssl
import sys
import urllib.request
import wsgiref.simple_server

from holdfast import (
    Call, Fail, Guard, Hooks, MethodCall, Replace, Revise, ToolError, agent, client_tool, run, serve, sub_agent, tool,
)

OUTSIDE = os.environ["OUTSIDE_URL"]
EDITION = os.environ.get("EDITION", "1")
MODEL = "suite/model"


def ask_now(path, **body):
    """ask_now has an effect in the ledger, or waits at a gate."""
    text = json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(OUTSIDE + path, text, method="POST")) as answer:
        answer.read()


async def ask(path, **body):
    await asyncio.to_thread(ask_now, path, **body)


PROGRAM = {
    "type": "object",
    "properties": {"do": {"type": "array", "items": {"type": "object"}}, "amount": {"type": "number"}},
    "required": ["do"],
    "additionalProperties": False,
}


async def act(program, call: Call):
    """act runs the program of a call."""
    for op in program["do"]:
        kind = op["op"]
        if kind == "return":
            return op["value"]
        if kind == "size":
            return "x" * op["count"]
        if kind == "nothing":
            return None
        if kind == "nojson":
            return object()
        if kind == "context":
            return describe_call(call)
        if kind == "state":
            return call.state
        if kind == "fail":
            raise ToolError(op["text"], public_message=op.get("public") or None, code=op.get("code"))
        if kind == "crash":
            raise SystemExit(op["text"])  # which is no Exception
        if kind == "aborted":  # waits for the cancellation, and reports it
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                ask_now("/post", key=call.idempotency_key, label=op["text"])
                raise
        elif kind == "emit":
            for _ in range(max(op.get("count", 1), 1)):
                call.emit(op["name"], op["value"], id=op.get("id"), transient=op.get("transient", False))
        elif kind == "emitsize":
            call.emit(op["name"], "x" * op["count"])
        elif kind == "metadata":
            call.set_metadata(op["value"])
        elif kind == "set":
            call.state[op["key"]] = op["value"]
        elif kind == "setsize":
            call.state[op["key"]] = "x" * op["count"]
        elif kind == "append":
            call.state[op["key"]] = call.state.get(op["key"], []) + op["value"]
        elif kind == "delete":
            call.state.pop(op["key"], None)
        elif kind == "put":
            call.store.put(op["key"], op["value"])
        elif kind == "addto":
            call.store.add(op["key"], op["count"])
        elif kind == "drop":
            call.store.delete(op["key"])
        elif kind == "stored":
            return call.store.list(op["key"])
        elif kind == "usage":
            call.record_usage(op["kind"], op["name"], op["amount"])
        elif kind == "post":
            await ask("/post", key=call.idempotency_key, label=op["text"])
        elif kind == "gate":
            await ask("/gate", name=op["text"])
        elif kind == "late":  # does not notice the end of the call
            await asyncio.to_thread(late, call, op, program["do"])
        else:
            raise ValueError(f"the puppet knows no op {kind!r}")
    return "done"


def late(call, op, ops):
    """late waits at a gate whatever happens to the call, has an effect then, and does the ops behind it."""
    ask_now("/gate", name=op["text"])
    ask_now("/post", key=call.idempotency_key, label=op["name"])
    asyncio.run(act({"do": ops[ops.index(op) + 1:]}, call))


def act_sync(program, call: Call):
    """act_sync is act as a function that is not async: it runs in a thread."""
    return asyncio.run(act(program, call))


def describe_call(call):
    """describe_call describes the trusted context of a call in the form that all languages use."""
    return {
        "tenant": call.tenant, "user": call.user and call.user.id, "session": call.session.id,
        "parent": call.session.parent_id, "tags": call.session.tags, "metadata": dict(call.session.metadata),
        "run": call.run.id, "turn": call.run.turn, "step": call.step, "call": call.id, "key": call.idempotency_key,
        "deadline": call.deadline.isoformat(), "agent": call.agent,
    }


def puppet(name, function=act, **options):
    return tool(name=name, description="Does what it is told.", input=PROGRAM, **options)(function)


def needs_approval(call: Call):
    """needs_approval asks for amounts above the limit in the state, and for all calls of the user mallory. The amount
    13 makes it fail."""
    amount = call.input.get("amount", 0)
    if amount == 13:
        raise ValueError("nobody approves thirteen")
    return amount > call.state.get("limit", 100) or (call.user is not None and call.user.id == "mallory")


@tool(strict=True)
def book(city: str, days: int) -> str:
    """Books a trip."""
    return f"{days} days in {city}"


def question(name, **options):
    return client_tool(name=name, description="Asks the user.", input={
        "type": "object", "properties": {"question": {"type": "string", "description": "what the user is asked"}},
        "required": ["question"], "additionalProperties": False,
    }, **options)


def prompt(call):
    if "broken" in call.state:
        raise ValueError(call.state["broken"])
    user = call.user.id if call.user else ""
    return f"You serve {user} in mode {call.state.get('mode')}, step {call.step}."


def text_of(message):
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def stop_when(call):
    if "broken" in call.state:
        raise ValueError(call.state["broken"])
    if any(r["name"] == "act" and r["success"] and r["result"] == "stop" for r in call.results):
        return True
    return call.state.get("stop") is True or "stop here" in text_of(call.reply) or call.steps >= 3


def verdict(text):
    """verdict decides about a text: bad is revised, fatal fails, broken breaks the guard."""
    if text.startswith("bad"):
        return Revise(f"Say it better than {text}.")
    if text.startswith("fatal"):
        return Fail("We do not say that.")
    if text.startswith("broken"):
        raise ValueError("the guard is broken")
    if text.startswith("swap"):
        return Replace({"answer": "swapped"})
    return None


COUNTED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ANSWER = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


def compact(call):
    first = call.messages[0]
    return f"SUMMARY of {len(call.messages)} messages from {first['role']}, the first says {text_of(first)[:20]}"


async def tell(hook, text):
    """tell tells the ledger of the call of a hook."""
    await ask("/post", key="", label=f"{hook.session.id}/{text}")


def quoted(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def word(truth):
    return "true" if truth else "false"


async def before_run(hook):
    await tell(hook, f"beforeRun turn {hook.run.turn} of {hook.user.id if hook.user else ''}")
    if "refuse" in hook.state:
        raise ToolError(hook.state["refuse"])


async def on_start(hook):
    await tell(hook, "onStart")
    if hook.state.get("busy"):
        hook.emit("started", {"turn": hook.run.turn})
        hook.set_metadata({"mood": "busy"})
        hook.state["started"] = True
        hook.record_usage("hooks", "started", 2)
    if hook.state.get("broken"):
        raise ValueError("the hook is broken")


async def on_resume(hook):
    await tell(hook, "onResume")


def before_model(hook):  # not async, as a test of both
    sent = f"{len(hook.messages)} messages, tools {' '.join(hook.tools)}, {hook.system}"
    asyncio.run(tell(hook, f"beforeModel {hook.model} attempt {hook.attempt}, {sent}"))


async def after_model(hook):
    calls = sum(part["type"] == "tool-call" for part in hook.reply["parts"])
    said = f"{quoted(text_of(hook.reply))} with {calls} calls"
    await tell(hook, f"afterModel {hook.model} says {said}, failed {word(hook.error is not None)}")


async def before_tool(hook):
    await tell(hook, f"beforeTool {hook.tool_call['name']}")


async def after_tool(hook):
    result = hook.tool_result
    outcome = quoted(result["result"]) if result["success"] else result["error"]
    await tell(hook, f"afterTool {hook.tool_call['name']} success {word(result['success'])} {outcome}")


async def before_sub_agent(hook):
    other = word(hook.session_id != hook.session.id)
    await tell(hook, f"beforeSubAgent {hook.tool_call['name']} by {hook.agent_type}, another session {other}")
    hook.state["asked"] = hook.agent_type


async def after_sub_agent(hook):
    result = hook.tool_result
    outcome = f"success {word(result['success'])} {quoted(result['result'])}"
    await tell(hook, f"afterSubAgent {hook.tool_call['name']} by {hook.agent_type}, {outcome}")


async def on_state_change(hook):
    ops = (f"{op['op']} {op['key']} {quoted(op['value']) if 'value' in op else ''}" for op in hook.ops)
    await tell(hook, f"onStateChange {', '.join(ops)}")


async def on_message(hook):
    await tell(hook, f"onMessage {hook.message['role']} {quoted(text_of(hook.message))}")


async def after_run(hook):
    output = "" if hook.output is None else quoted(hook.output)
    await tell(hook, f"afterRun {hook.status} {output}{hook.error or ''} steps {hook.steps}")


def add(a: float, b: float) -> float:
    return a + b


def arguments(*args):
    return list(args)


def increment(call: MethodCall):
    call.state["count"] = call.state.get("count", 0) + 1
    return call.state["count"]


def countdown(call: MethodCall, start: int):
    for n in range(start, 0, -1):
        call.send(n)
    return "go"


def nothing():
    return None


def fail():
    raise ValueError("the secret is 42")


@tool
def remember(call: Call, text: str) -> str:
    """Remembers."""
    call.add_context({"kind": "memory", "text": text})
    return "done"


def advise(view):
    if "broken" in view.state:
        raise ValueError(view.state["broken"])
    rows = [{"kind": "instruction", "key": "mode", "text": f"Be {view.state['mode']}."}]
    return rows + [{"kind": "tools", "key": "hours", "disable": ["act"]}] if view.steps > 0 else rows


def agents():
    """agents returns the agents of the edition."""
    hooks = Hooks(
        before_run=before_run, on_start=on_start, on_resume=on_resume, before_model=before_model,
        after_model=after_model, before_tool=before_tool, after_tool=after_tool, on_state_change=on_state_change,
        on_message=on_message, after_run=after_run,
    )
    worker = agent("worker", model=MODEL, description="Does a part.", system_prompt="You are a worker.",
                   tools=[puppet("act"), puppet("act_asked", approval=True)])
    found = [
        agent("puppet", model=MODEL, description="Does what it is told.",
              system_prompt="You are the second puppet." if EDITION == "2" else "You are a puppet.", tools=[
                  puppet("act"),
                  puppet("act_safe", act_sync, safe=True, store_reads=["k/"]),
                  puppet("act_read", act_sync, read_only=True),
                  puppet("act_quick", timeout="3s"),
                  puppet("act_out", output=COUNTED),
                  puppet("act_asked", act_sync, approval=True),
                  puppet("act_ruled", approval=needs_approval),
                  puppet("act_others", approval="always", approvers="others"),
                  puppet("act_within", approval=True, answer_within=1),
                  book,
                  question("ask"),
                  question("ask_within", answer_within="1s"),
                  sub_agent(worker, "Does a part."),
              ]),
        worker,
        agent("schemed", model=MODEL, tools=[puppet("act")], state={
            "type": "object",
            "properties": {
                "count": {"type": "integer", "default": 7}, "items": {"type": "array", "items": {"type": "string"}},
            },
            "additionalProperties": False,
        }),
        agent("prompter", model=MODEL, tools=[puppet("act")], prompt=prompt),
        agent("stopper", model=MODEL, tools=[puppet("act")], stop_when=stop_when),
        agent("finisher", model=MODEL, output=ANSWER, tools=[puppet("act"), puppet("finish", finish_with=True)]),
        agent("guarded", model=MODEL, guard=Guard(on_reply=lambda end: verdict(text_of(end.reply)))),
        agent("guarded-output", model=MODEL, output=ANSWER,
              guard=Guard(on_output=lambda end: verdict(end.output["answer"]))),
        agent("leading", model=MODEL, system_prompt="You lead.", tools=[sub_agent(worker, "Does a part.")],
              hooks=Hooks(before_sub_agent=before_sub_agent, after_sub_agent=after_sub_agent)),
        agent("hooked", model=MODEL, system_prompt="You have hooks.", hooks=hooks,
              tools=[puppet("act"), puppet("act_asked", approval=True)]),
        agent("compacting", model=MODEL, compact=compact,
              context={"max_tokens": 300, "keep_tokens": 100, "compaction": "summary"}),
        agent("advised", model=MODEL, tools=[puppet("act"), remember], step_context=advise),
        agent("limited", model=MODEL, description="Has limits.", max_steps=2, max_output_tokens=99, temperature=0.5,
              on_busy="enqueue", tools=[puppet("act")], provider_options={"suite": {"seed": 7}}),
        agent("equipped", model=MODEL, tools=["calculate"]),
        agent("careful", model=MODEL, tools=[{"use": "calculate", "approval": "always"}]),
        agent("ruled", model=MODEL, prompt="You help {{state.name}}.", stop_when={"stateEquals": {"stop": True}},
              tools=[puppet("act")]),
        agent("methodical", model=MODEL, methods=[add, arguments, increment, countdown, nothing, fail]),
        agent("Ünïcode агент/漢字 🙂?#%&\"'\\<x>", model=MODEL, description="Übung 漢字 🙂",
              system_prompt="Grüße, 漢字 🙂\u2028\"'\\",
              tools=[puppet("a"), puppet(("long_Name-1" * 6)[:64])]),
    ]
    if EDITION == "2":
        found.append(agent("newcomer", model=MODEL, system_prompt="You are new."))
    return found


def main():
    host, port = sys.argv[1:]
    endpoint = serve(agents(), secrets=os.environ.get("SECRETS"), build=f"edition-{EDITION}")
    if "TLS_CERT" in os.environ:
        serve_tls(endpoint, host, int(port))
    else:
        run(endpoint, host=host, port=int(port))


class Threaded(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True


def serve_tls(endpoint, host, port):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.environ["TLS_CERT"], os.environ["TLS_KEY"])
    context.load_verify_locations(os.environ["TLS_CA"])
    context.verify_mode = ssl.CERT_REQUIRED
    with wsgiref.simple_server.make_server(host, port, endpoint.wsgi, server_class=Threaded) as server:
        # Each connection shakes hands in its own thread.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.serve_forever()


if __name__ == "__main__":
    main()
