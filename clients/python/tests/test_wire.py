"""Each row of docs/endpoint.md, over a real server."""

from __future__ import annotations

import asyncio
import collections
import contextvars
import dataclasses
import datetime
import http.client
import json
import logging
import math
import threading
import time
import unittest
from typing import Annotated, Any, Literal, TypedDict

import holdfast
from holdfast import (
    Call,
    CallEnded,
    Cancelled,
    CompactCall,
    EndHookCall,
    Fail,
    Field,
    Guard,
    GuardCall,
    HookCall,
    Hooks,
    MessageHookCall,
    MethodCall,
    ModelHookCall,
    PromptCall,
    Replace,
    Revise,
    StateHookCall,
    StopCall,
    SubAgentHookCall,
    ToolError,
    ToolHookCall,
    agent,
    client_tool,
    serve,
    sub_agent,
    tool,
)

from holdfast.endpoint import Reply
from tests.executor import SECRET, Executor, Serving, context, request
from tests.test_schema import Types

logging.getLogger("holdfast").setLevel(logging.CRITICAL)


@dataclasses.dataclass
class State:
    refunds: int = 0
    orders: list[str] = dataclasses.field(default_factory=list)
    note: str | None = None


class Draft(TypedDict, total=False):
    refunds: int
    note: str


@dataclasses.dataclass
class Receipt:
    id: str
    amount: float


def endpoint(*tools: Any, name: str = "support", **fields: Any) -> holdfast.Endpoint:
    options = {
        key: fields.pop(key)
        for key in ("secrets", "build", "ping", "max_body_bytes", "threads", "allow_unsigned")
        if key in fields
    }
    made = agent(name, model="scripted/m", tools=tools, **fields)
    return serve([made], **{"secrets": SECRET, **options})


def until(condition: Any) -> Any:
    """until returns the value of a condition as soon as it is true."""
    while not (found := condition()):
        time.sleep(0.01)  # a poll; nothing depends on it
    return found


class TestTheDescription(unittest.TestCase):
    def test_it_has_the_fields_of_an_agents_file(self) -> None:
        @tool(
            safe=True,
            approval=lambda call: True,
            approvers="others",
            answer_within=datetime.timedelta(hours=48),
            timeout=20,
            strict=True,
            finish_with=True,
        )
        def refund(
            order: Annotated[str, "The order."], amount: Annotated[float, Field(gt=0)], reason: str = "none"
        ) -> Receipt:
            """Refunds an order."""
            raise NotImplementedError

        @tool(read_only=True, approval={"when": [{"field": "order", "equals": "o-1"}]})
        async def look(order: str) -> str:
            raise NotImplementedError

        @client_tool(answer_within="24h")
        def ask_user(question: str) -> Literal["yes", "no"]:
            """Asks the user."""
            raise NotImplementedError

        made = agent(
            "support",
            model="anthropic/claude",
            description="Helps.",
            fallbacks=["openai/gpt"],
            system_prompt="You help.",
            tools=[
                refund,
                look,
                ask_user,
                "calculate",
                {"use": "note", "approval": "always"},
                client_tool(name="pick", input={"type": "object"}),
                sub_agent("reader", "Reads.", timeout="1h"),
            ],
            state=State,
            output=Receipt,
            completion="tool",
            strict_output=True,
            max_steps=math.inf,
            max_companions=2,
            companions=[{"agent": "critic", "mode": "blocking", "timeout": 600}],
            max_sub_agents=3,
            max_depth=4,
            max_output_tokens=1000,
            temperature=0.5,
            max_retries=0,
            run_timeout="10m",
            cache="auto",
            provider_options={"openai": {"reasoning_effort": "low"}},
            context={"max_tokens": 1000, "keep_tokens": 500, "compaction": "summary"},
            compact=lambda call: "",
            stop_when=lambda call: False,
            on_busy="enqueue",
            caller_tools={"allow": ["page_*"], "max": 4},
            caller_instructions=True,
            guard=Guard(on_reply=lambda call: None),
            hooks=Hooks(before_run=lambda call: None, on_state_change=lambda call: None),
            methods=[reset],
            extra={"later": {"max": 1}},
        )
        with Serving(serve([made], secrets=SECRET, build="git:1")) as executor:
            answer = executor.send("GET")
            self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, "application/json"))
            description = answer.body()
        self.assertEqual(description["endpoint"], 1)
        self.assertEqual(description["build"], "git:1")
        self.assertRegex(description["sdk"], r"^python/\d")
        sources = description["sources"]
        self.assertEqual(
            set(sources),
            {
                "support",
                "support/refund",
                "support/look",
                "support/ask_user",
                "support/pick",
                "support/subagent__reader",
            },
        )
        for source in sources.values():
            self.assertRegex(source, r"^[^/].*test_wire\.py:\d+$")
        [found] = description["agents"]
        tools = found.pop("tools")
        state, output = found.pop("stateSchema"), found.pop("outputSchema")
        self.assertEqual(state["properties"]["orders"], {"type": "array", "items": {"type": "string"}, "default": []})
        self.assertEqual(output["required"], ["id", "amount"])
        self.assertEqual(
            found,
            {
                "name": "support",
                "model": "anthropic/claude",
                "description": "Helps.",
                "fallbacks": ["openai/gpt"],
                "systemPrompt": "You help.",
                "completion": "tool",
                "strictOutput": True,
                "maxSteps": "Infinity",
                "maxCompanions": 2,
                "companions": [{"agent": "critic", "mode": "blocking", "timeout": "600s"}],
                "maxSubAgents": 3,
                "maxDepth": 4,
                "maxOutputTokens": 1000,
                "temperature": 0.5,
                "maxRetries": 0,
                "runTimeout": "10m",
                "cache": "auto",
                "providerOptions": {"openai": {"reasoning_effort": "low"}},
                "context": {"maxTokens": 1000, "keepTokens": 500, "compaction": "summary"},
                "onBusy": "enqueue",
                "callbacks": ["compact", "guard.onReply", "hooks.beforeRun", "hooks.onStateChange", "stopWhen"],
                "methods": ["reset"],
                "callerTools": {"allow": ["page_*"], "max": 4},
                "callerInstructions": True,
                "later": {"max": 1},
            },
        )
        refund_json, look_json, ask, calculate, note, pick, reader = tools
        self.assertEqual(
            refund_json,
            {
                "name": "refund",
                "description": "Refunds an order.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "order": {"type": "string", "description": "The order."},
                        "amount": {"type": "number", "exclusiveMinimum": 0},
                        "reason": {"type": "string", "default": "none"},
                    },
                    "required": ["order", "amount"],
                    "additionalProperties": False,
                },
                "outputSchema": {
                    "type": "object",
                    "properties": {"id": {"type": "string"}, "amount": {"type": "number"}},
                    "required": ["id", "amount"],
                    "additionalProperties": False,
                },
                "retry": "safe",
                "approvers": "others",
                "answerWithin": "172800s",
                "timeout": "20s",
                "strict": True,
                "finishWith": True,
                "callbacks": ["execute", "approval"],
            },
        )
        self.assertEqual(
            (look_json["readOnly"], look_json["approval"], look_json["outputSchema"], look_json["callbacks"]),
            (True, {"when": [{"field": "order", "equals": "o-1"}]}, {"type": "string"}, ["execute"]),
        )
        self.assertEqual(
            ask,
            {
                "name": "ask_user",
                "description": "Asks the user.",
                "client": True,
                "answerWithin": "24h",
                "inputSchema": {
                    "type": "object",
                    "properties": {"question": {"type": "string"}},
                    "required": ["question"],
                    "additionalProperties": False,
                },
                "outputSchema": {"type": "string", "enum": ["yes", "no"]},
            },
        )
        self.assertEqual((calculate, note), ("calculate", {"use": "note", "approval": "always"}))
        self.assertEqual(pick, {"name": "pick", "client": True, "inputSchema": {"type": "object"}})
        self.assertEqual(reader, {"subAgent": "reader", "description": "Reads.", "timeout": "1h"})

    def test_an_unchanged_description_is_not_sent_again(self) -> None:
        with Serving(endpoint()) as executor:
            first = executor.send("GET")
            first.body()
            again = executor.send("GET", headers={"If-None-Match": first.headers["ETag"]})
            self.assertEqual((again.status, again.body()), (304, None))
            self.assertEqual(executor.send("GET", headers={"If-None-Match": '"other"'}).status, 200)

    def test_the_build_comes_from_the_environment_and_has_a_limit(self) -> None:
        self.assertEqual(serve([], build="x" * 128).description["build"], "x" * 128)
        with self.assertRaisesRegex(ValueError, "at most 128"):
            serve([], build="x" * 129)

    def test_mistakes_of_the_author_are_errors_that_say_what_to_change(self) -> None:
        def untyped(order) -> str:  # type: ignore[no-untyped-def]
            return ""

        def variable(*orders: str) -> str:
            return ""

        def number(value: complex) -> str:
            return ""

        def print_nothing() -> None:
            ...

        fine = tool(name="fine")(lambda: "")
        for make, text in [
            (lambda: tool(untyped), "the tool 'untyped': the parameter order has no type hint"),
            (lambda: tool(variable), "the tool 'variable': the parameter .* stands for any number"),
            (lambda: tool(number), "the tool 'number': value: the type complex has no JSON Schema"),
            (lambda: tool(lambda: ""), "needs a name"),
            (lambda: tool(timeout="soon")(print_nothing), "timeout: 'soon' is no duration"),
            (lambda: tool(timeout=0)(print_nothing), "timeout: 0 seconds must be above 0"),
            (lambda: agent("a", model="m/m", tools=[reset]), "decorate the function with @tool"),
            (lambda: agent("a", model="m/m", tools=[fine, fine]), "the tool 'fine' is listed twice"),
            (lambda: agent("a", system_prompt="a", prompt="b"), "either system_prompt or prompt"),
            (lambda: serve([agent("a"), agent("a")]), "two agents have the name 'a'"),
            (lambda: serve([agent("a", system_prompt="x" * (1 << 20))]), "description of the agents has"),
        ]:
            with self.subTest(text=text), self.assertRaisesRegex((ValueError, TypeError), text):
                make()


def reset(call: MethodCall[State], keep: int = 0, *rest: str) -> dict[str, Any]:
    call.send({"kept": keep})
    call.state.refunds = keep
    call.save_state()
    call.state.note = "reset"
    return {"rest": list(rest), "user": call.user.id if call.user else None, "method": call.method}


class TestTools(unittest.TestCase):
    def test_a_tool_gets_trusted_context_and_typed_arguments(self) -> None:
        seen: list[Call[State]] = []

        @tool
        def refund(amount: float, items: list[Receipt], call: Call[State], day: datetime.date | None = None) -> Receipt:
            seen.append(call)
            self.assertEqual((items, day), ([Receipt("a", 1.0)], datetime.date(2026, 1, 31)))
            return Receipt("r", amount)

        with Serving(endpoint(refund, state=State)) as executor:
            lines = executor.lines(
                "tool",
                "refund",
                state={"refunds": 1},
                input={"amount": 2, "items": [{"id": "a", "amount": 1}], "day": "2026-01-31"},
            )
        self.assertEqual(lines, [{"result": {"id": "r", "amount": 2}}])
        [call] = seen
        assert call.user and call.deadline
        self.assertEqual(
            (
                call.agent,
                call.build,
                call.tenant,
                call.user.id,
                call.session.id,
                call.session.parent_id,
                call.session.tags,
                call.session.metadata,
                call.run.id,
                call.run.turn,
                call.step,
                call.id,
                call.idempotency_key,
                call.attempt,
                call.tool,
            ),
            (
                "support",
                "git:1",
                "acme",
                "u-17",
                "s-1",
                None,
                ("vip",),
                {"plan": "gold"},
                "r-1",
                3,
                7,
                "call_1",
                "key-1",
                1,
                "refund",
            ),
        )
        self.assertEqual(call.deadline, datetime.datetime(2099, 11, 28, 10, 0, 30, 123456, datetime.timezone.utc))
        self.assertTrue((call.traceparent or "").startswith("00-0af7"))
        self.assertTrue(call.cancelled)  # a call that has ended is over for whoever still works for it

    def test_a_call_without_a_user_and_without_a_run_is_valid(self) -> None:
        @tool
        def who(call: Call) -> list[Any]:
            return [call.user, call.run.id, call.run.turn, call.step, call.deadline]

        with Serving(endpoint(who)) as executor:
            bare = context(user=None)
            for member in ("run", "step", "deadline", "call", "traceparent"):
                del bare[member]
            self.assertEqual(executor.result("tool", "who", context=bare, input={}), [None, "", 0, 0, None])

    def test_lines_arrive_as_they_happen(self) -> None:
        go = threading.Event()

        @tool
        def sync(call: Call) -> str:
            call.emit("progress", {"percent": 10}, id="p")
            self.assertTrue(go.wait(60))
            call.emit("progress", {"percent": 20}, id="p", transient=True)
            call.set_metadata({"color": "red"})
            call.record_usage("api", "bank", 1.5)
            return "done"

        @tool
        async def coroutine(call: Call) -> str:
            call.emit("progress", {"percent": 10}, id="p")
            while not go.is_set():
                await asyncio.sleep(0.01)
            call.emit("progress", {"percent": 20}, id="p", transient=True)
            call.set_metadata({"color": "red"})
            call.record_usage("api", "bank", 1.5)
            return "done"

        with Serving(endpoint(sync, coroutine)) as executor:
            for name in ("sync", "coroutine"):
                with self.subTest(name):
                    go.clear()
                    answer = executor.call("tool", name, input={})
                    self.assertEqual(answer.headers["Content-Type"], "application/x-ndjson")
                    self.assertEqual(answer.line(), {"event": {"name": "progress", "data": {"percent": 10}, "id": "p"}})
                    go.set()
                    self.assertEqual(
                        answer.lines(),
                        [
                            {"event": {"name": "progress", "data": {"percent": 20}, "id": "p", "transient": True}},
                            {"metadata": {"color": "red"}},
                            {"usage": {"kind": "api", "name": "bank", "value": 1.5}},
                            {"result": "done"},
                        ],
                    )

    def test_changes_of_the_state_become_writes_of_its_keys(self) -> None:
        @tool
        def change(how: str, call: Call[State]) -> None:
            if how == "whole":
                call.state = State(refunds=9)
                return
            state = call.state
            if how == "append":
                state.orders += ["b", "c"]
            elif how == "replace":
                state.orders[0] = "z"
                state.note = "new"
            elif how == "fail":
                state.refunds = 5
                raise ToolError("no")

        @tool
        def change_dict(how: str, call: Call[Draft]) -> None:
            if how == "delete":
                del call.state["refunds"]
            elif how == "nested":
                call.state["deep"]["x"].append(1)  # type: ignore[typeddict-item]

        @tool
        def untyped(call: Call) -> None:
            call.state.refunds += 1  # the type of the agent's state

        with Serving(endpoint(change, change_dict, untyped, state=State)) as executor:
            for name, how, state, want in [
                ("change", "nothing", {"orders": ["a"]}, []),
                ("change", "append", {"orders": ["a"]}, [{"op": "append", "key": "orders", "value": ["b", "c"]}]),
                ("change", "append", {}, [{"op": "replace", "key": "orders", "value": ["b", "c"]}]),
                (
                    "change",
                    "replace",
                    {"orders": ["a"], "other": 1},
                    [
                        {"op": "replace", "key": "note", "value": "new"},
                        {"op": "replace", "key": "orders", "value": ["z"]},
                    ],
                ),
                (
                    "change",
                    "whole",
                    {"refunds": 1, "orders": ["a"]},
                    [{"op": "replace", "key": "orders", "value": []}, {"op": "replace", "key": "refunds", "value": 9}],
                ),
                (
                    "change",
                    "whole",
                    {"refunds": "wrong"},
                    [
                        {"op": "replace", "key": "note", "value": None},
                        {"op": "replace", "key": "orders", "value": []},
                        {"op": "replace", "key": "refunds", "value": 9},
                    ],
                ),
                ("change_dict", "delete", {"refunds": 1, "deep": {}}, [{"op": "delete", "key": "refunds"}]),
                (
                    "change_dict",
                    "nested",
                    {"deep": {"x": [], "y": 1}},
                    [{"op": "replace", "key": "deep", "value": {"x": [1], "y": 1}}],
                ),
            ]:
                with self.subTest(name=name, how=how, state=state):
                    lines = executor.lines("tool", name, state=state, input={"how": how})
                    self.assertEqual(lines, ([{"state": want}] if want else []) + [{"result": None}])
            self.assertEqual(
                executor.lines("tool", "untyped", state={}, input={})[0],
                {"state": [{"op": "replace", "key": "refunds", "value": 1}]},
            )
            self.assertEqual(
                executor.error("tool", "change", state={"refunds": "x"}, input={"how": "append"})["message"],
                "ValueError: the custom state does not fit its type: "
                "/refunds: it is the string 'x', and must be an integer",
            )
            self.assertEqual(
                executor.lines("tool", "change", state={}, input={"how": "fail"}), [{"error": {"message": "no"}}]
            )

    def test_failures_have_a_text_for_the_model_and_one_for_users(self) -> None:
        @tool
        def fail(how: str) -> Any:
            if how == "tool error":
                raise ToolError("The bank refused: 17", public_message="The bank refused.", code="BANK")
            if how == "exit":
                raise SystemExit(3)
            if how == "stop":
                raise StopIteration
            if how == "long":
                raise ValueError("x" * 100_000)
            if how == "nan":
                return float("nan")
            if how == "object":
                return object()
            raise ValueError("boom")

        @tool
        async def cancel() -> None:
            raise asyncio.CancelledError

        with Serving(endpoint(fail, cancel)) as executor:
            self.assertEqual(
                executor.error("tool", "fail", input={"how": "tool error"}),
                {"message": "The bank refused: 17", "publicMessage": "The bank refused.", "code": "BANK"},
            )
            for how, message in [
                ("other", "ValueError: boom"),
                ("exit", "SystemExit: 3"),
                ("stop", "RuntimeError: coroutine raised StopIteration"),
                ("nan", "TypeError: nan has no JSON"),
                ("object", "TypeError: a value of type object has no JSON"),
            ]:
                with self.subTest(how):
                    self.assertEqual(
                        executor.error("tool", "fail", input={"how": how}),
                        {"message": message, "publicMessage": "Something went wrong."},
                    )
            self.assertEqual(len(executor.error("tool", "fail", input={"how": "long"})["message"]), 16_000)
            self.assertEqual(
                executor.error("tool", "fail", input={"how": 3, "more": 1}),
                {
                    "message": "The arguments do not fit: /more: there is no such member; the members are how; "
                    "/how: it is the number 3, and must be a string",
                    "code": "INPUT_INVALID",
                },
            )
            if hasattr(asyncio.Task, "cancelling"):
                self.assertEqual(executor.error("tool", "cancel", input={})["code"], "CANCELLED")

    def test_limits_are_kept_before_the_executor_has_to(self) -> None:
        problems: list[str] = []

        def refused(f: Any, *args: Any, **named: Any) -> None:
            try:
                f(*args, **named)
                problems.append(f"{args} was accepted")
            except ValueError:
                pass

        @tool
        def limits(call: Call) -> str:
            refused(call.emit, "", 1)
            refused(call.emit, "x" * 257, 1)
            refused(call.emit, "a\n", 1)
            refused(call.emit, "error", 1)
            refused(call.emit, "message-metadata", {})
            refused(call.emit, "big", "x" * (256 << 10))
            refused(call.emit, "id", 1, id="")
            refused(call.set_metadata, {"runId": 1})
            refused(call.set_metadata, {"big": "x" * (2 << 20)})
            refused(call.record_usage, "k", "n", math.nan)
            refused(call.record_usage, "k", "n", 1e16)
            refused(call.record_usage, "", "n", 1)
            call.emit("x" * 256, "x" * ((256 << 10) - 2), id="i" * 256)
            return "ok"

        @tool
        def much(size: int) -> str:
            return "x" * size

        @tool
        def many(call: Call) -> int:
            sent = 0
            try:
                while True:
                    call.emit("n", "x" * 200_000, transient=True)
                    sent += 1
            except ValueError:
                return sent

        @tool
        def events(call: Call) -> int:
            for _ in range(10_000):
                call.emit("n", 1)
            refused(call.emit, "n", 1)
            return 1

        @tool
        def key(call: Call[dict[str, Any]]) -> None:
            call.state["x" * 257] = 1

        with Serving(endpoint(limits, much, many, events, key)) as executor:
            self.assertEqual(executor.result("tool", "limits", input={}), "ok")
            self.assertEqual(executor.result("tool", "events", input={}), 1)
            self.assertEqual(problems, [])
            size = (2 << 20) - len('{"result":""}\n')
            self.assertEqual(len(executor.result("tool", "much", input={"size": size})), size)
            self.assertEqual(executor.error("tool", "much", input={"size": size + 1})["code"], "RESULT_TOO_LARGE")
            sent = executor.result("tool", "many", input={})
            self.assertEqual(
                sent, ((14 << 20)) // (200_000 + len('{"event":{"name":"n","data":"","transient":true}}\n'))
            )
            self.assertIn("key of the custom state", executor.error("tool", "key", input={})["message"])

    def test_an_approval_rule_decides_by_arguments_state_and_user(self) -> None:
        @tool(approval=lambda call: call.input["amount"] > 100 or call.state.refunds > 2)
        def refund(amount: float) -> None:
            ...

        async def rule(call: Call[State]) -> bool:
            await asyncio.sleep(0)
            return call.user is not None and call.user.id == "u-17"

        @tool(approval=rule)
        def other() -> None:
            ...

        def writes(call: Call[State]) -> bool:
            call.emit("x", 1)
            return False

        @tool(approval=writes)
        def writing() -> None:
            ...

        @tool(approval=True)
        def always() -> None:
            ...

        with Serving(endpoint(refund, other, writing, always, state=State)) as executor:
            for amount, refunds, want in [(1, 0, False), (101, 0, True), (1, 3, True)]:
                self.assertEqual(
                    executor.result("approval", "refund", input={"amount": amount}, state={"refunds": refunds}), want
                )
            self.assertIs(executor.result("approval", "other", input={}), True)
            self.assertIs(executor.result("approval", "other", input={}, context=context(user=None)), False)
            self.assertIn("only read", executor.error("approval", "writing", input={})["message"])
            self.assertEqual(executor.error("approval", "refund", input={"amount": "x"})["code"], "INPUT_INVALID")
            refused = executor.call("approval", "always", input={})
            self.assertEqual((refused.status, refused.body()["error"]["code"]), (404, "CALLBACK_UNKNOWN"))

    def test_one_argument_may_have_a_type_or_a_schema_of_its_own(self) -> None:
        @tool(input=Receipt)
        def typed(receipt: Receipt, call: Call) -> str:
            return f"{receipt.id} {call.input.amount:g}"

        @tool(input={"type": "object", "properties": {"a": {"type": "integer"}}}, output={"type": "integer"})
        def raw(arguments: dict[str, Any]) -> int:
            return int(arguments["a"])

        @tool
        def positional(a: int, b: int = 2, /, *, c: int = 3) -> list[int]:
            return [a, b, c]

        with Serving(endpoint(typed, raw, positional)) as executor:
            self.assertEqual(executor.result("tool", "typed", input={"id": "r", "amount": 2}), "r 2")
            self.assertEqual(executor.result("tool", "raw", input={"a": 5}), 5)
            self.assertEqual(executor.result("tool", "positional", input={"a": 1, "c": 5}), [1, 2, 5])

    def test_a_tool_is_still_a_function(self) -> None:
        @tool
        def add(a: int, b: int) -> int:
            return a + b

        self.assertEqual(add(1, b=2), 3)

    def test_tools_that_are_not_async_run_at_once_up_to_the_limit_and_callbacks_pass_them(self) -> None:
        barrier = threading.Barrier(5)
        running: list[int] = []
        most = 0
        lock = threading.Lock()
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

        @tool
        def slow() -> str:
            nonlocal most
            with lock:
                running.append(1)
                most = max(most, len(running))
            barrier.wait(60)  # 4 calls and the test
            with lock:
                running.pop()
            return variable.get()

        with Serving(endpoint(slow, threads=4, prompt=lambda call: "the prompt")) as executor:
            answers = [executor.call("tool", "slow", input={}) for _ in range(8)]
            self.assertEqual(executor.result("prompt"), "the prompt")
            for _ in range(2):
                barrier.wait(60)
            self.assertEqual([answer.lines()[-1] for answer in answers], [{"result": "none"}] * 8)
        self.assertEqual(most, 4)


class TestCallbacks(unittest.TestCase):
    def setUp(self) -> None:
        self.seen: list[Any] = []

    def note(self, call: Any) -> None:
        self.seen.append(call)

    def test_prompt_stop_guard_and_compact_return_their_results(self) -> None:
        async def stop(call: StopCall[State]) -> bool:
            return call.steps > 2 and call.reply["role"] == "assistant" and call.results[0]["success"]

        def on_reply(call: GuardCall[State]) -> holdfast.Verdict:
            verdicts: dict[str, Any] = {"revise": Revise("again"), "fail": Fail("bad"), "replace": Replace({"a": 1})}
            return verdicts.get(call.output, 5 if call.output == "wrong" else None)

        def compact(call: CompactCall[State]) -> str:
            return f"{len(call.messages)} messages"

        made = endpoint(
            state=State,
            prompt=lambda call: f"refunds: {call.state.refunds}",
            stop_when=stop,
            guard=Guard(on_output=on_reply, on_reply=on_reply),
            compact=compact,
        )
        message = {"id": "m", "role": "assistant", "parts": [{"type": "text", "text": "hi"}]}
        result = {"callId": "c", "name": "t", "success": True, "result": 1}
        with Serving(made) as executor:
            self.assertEqual(executor.lines("prompt", state={"refunds": 2}), [{"result": "refunds: 2"}])
            self.assertIs(executor.result("stopWhen", steps=3, reply=message, results=[result]), True)
            self.assertIs(executor.result("stopWhen", steps=2, reply=message, results=[result]), False)
            for name in ("onOutput", "onReply"):
                for output, want in [
                    ("fine", None),
                    ("revise", {"revise": "again"}),
                    ("fail", {"fail": "bad"}),
                    ("replace", {"replace": {"a": 1}}),
                ]:
                    self.assertEqual(executor.result("guard", name, steps=1, output=output, reply=message), want)
                self.assertIn(
                    "must return Revise",
                    executor.error("guard", name, steps=1, output="wrong", reply=message)["message"],
                )
            self.assertEqual(executor.result("compact", messages=[message, message]), "2 messages")

    def test_a_prompt_must_be_a_text(self) -> None:
        with Serving(endpoint(prompt=lambda call: 5)) as executor:
            self.assertEqual(
                executor.error("prompt")["message"], "TypeError: the function returned a int, and must return a str"
            )

    def test_hooks_get_what_they_are_about(self) -> None:
        made = endpoint(hooks=Hooks(**{field.name: self.note for field in dataclasses.fields(Hooks)}))
        message = {"id": "m", "role": "user", "parts": []}
        call, result = {"callId": "c", "name": "t", "arguments": {"a": 1}}, {
            "callId": "c",
            "name": "t",
            "success": False,
            "error": "e",
        }
        below = {"agentType": "worker", "sessionId": "s-2"}
        with Serving(made) as executor:
            for name, members, want in [
                ("beforeRun", {}, HookCall),
                ("onStart", {}, HookCall),
                ("onResume", {}, HookCall),
                (
                    "beforeModel",
                    {"model": "m/m", "attempt": 2, "system": "s", "messages": [message], "tools": ["t"]},
                    ModelHookCall,
                ),
                ("afterModel", {"model": "m/m", "attempt": 2, "reply": message, "error": "late"}, ModelHookCall),
                ("beforeTool", {"toolCall": call}, ToolHookCall),
                ("afterTool", {"toolCall": call, "toolResult": result}, ToolHookCall),
                ("beforeSubAgent", {"toolCall": call, "subAgent": below}, SubAgentHookCall),
                ("afterSubAgent", {"toolCall": call, "subAgent": below, "toolResult": result}, SubAgentHookCall),
                ("onStateChange", {"ops": [{"op": "delete", "key": "k"}]}, StateHookCall),
                ("onMessage", {"message": message}, MessageHookCall),
                (
                    "afterRun",
                    {"status": "failed", "output": 1, "error": "e", "code": "c", "steps": 4, "durationMs": 1500},
                    EndHookCall,
                ),
            ]:
                with self.subTest(name):
                    self.assertEqual(executor.lines("hook", name, **members), [{"result": None}])
                    self.assertIs(type(self.seen[-1]), want)
                    self.assertEqual(self.seen[-1].hook, name)
        before_model, after_model, before_tool, after_tool, asked, answered, state, told, end = self.seen[3:]
        self.assertEqual(
            (before_model.model, before_model.attempt, before_model.system, before_model.messages, before_model.tools),
            ("m/m", 2, "s", [message], ["t"]),
        )
        self.assertEqual((after_model.reply, after_model.error), (message, "late"))
        self.assertEqual((before_tool.tool_call, before_tool.tool_result, after_tool.tool_result), (call, None, result))
        self.assertEqual((asked.agent_type, asked.session_id, asked.tool_result), ("worker", "s-2", None))
        self.assertEqual((answered.tool_call, answered.tool_result), (call, result))
        self.assertEqual((state.ops, told.message), ([{"op": "delete", "key": "k"}], message))
        self.assertEqual(
            (end.status, end.output, end.error, end.code, end.steps, end.duration),
            ("failed", 1, "e", "c", 4, datetime.timedelta(seconds=1.5)),
        )

    def test_a_hook_writes_and_fails(self) -> None:
        def on_start(call: HookCall[State]) -> None:
            call.emit("hello", 1)
            call.state.note = "begun"

        def before_run(call: HookCall[State]) -> None:
            raise ToolError("Closed.", code="CLOSED")

        with Serving(endpoint(state=State, hooks=Hooks(on_start=on_start, before_run=before_run))) as executor:
            self.assertEqual(
                executor.lines("hook", "onStart"),
                [
                    {"event": {"name": "hello", "data": 1}},
                    {"state": [{"op": "replace", "key": "note", "value": "begun"}]},
                    {"result": None},
                ],
            )
            self.assertEqual(executor.lines("hook", "beforeRun"), [{"error": {"message": "Closed.", "code": "CLOSED"}}])

    def test_a_method_sends_writes_and_returns(self) -> None:
        async def later(call: MethodCall) -> list[Any]:
            return call.args

        def last(a: int, call: MethodCall, b: str = "x") -> list[Any]:
            return [a, b, call.method]

        made = endpoint(state=State, methods={"reset": reset, "later": later, "last": last})
        with Serving(made) as executor:
            self.assertEqual(
                executor.lines("method", "reset", args=[2, "a", "b"], state={"refunds": 1}),
                [
                    {"send": {"kept": 2}},
                    {"state": [{"op": "replace", "key": "refunds", "value": 2}]},
                    {"state": [{"op": "replace", "key": "note", "value": "reset"}]},
                    {"result": {"rest": ["a", "b"], "user": "u-17", "method": "reset"}},
                ],
            )
            self.assertEqual(executor.result("method", "later", args=[]), [])
            self.assertEqual(executor.result("method", "last", args=[1, "y"]), [1, "y", "last"])
            self.assertEqual(executor.result("method", "last", args=[1]), [1, "x", "last"])
            for args, text in [
                (["x"], "Argument 1 of the method last does not fit"),
                ([], "takes 2 arguments"),
                ([1, "x", 3], "was called with 3"),
            ]:
                error = executor.error("method", "last", args=args)
                self.assertEqual(error["code"], "ARGUMENT_INVALID")
                self.assertIn(text, error["message"])


class TestRefusals(unittest.TestCase):
    def test_each_refusal_has_its_status_and_code(self) -> None:
        @tool
        def fine() -> str:
            return "ok"

        asked = client_tool(name="asked", input={"type": "object"})
        with Serving(endpoint(fine, asked, max_body_bytes=10_000)) as executor:

            def send(method: str, body: Any, **headers: str) -> tuple[int, str]:
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                answer = executor.send(method, raw, headers)
                error = answer.body()["error"]
                self.assertTrue(error["message"])
                return answer.status, error["code"]

            whole = {"type": "tool", "agent": "support", "name": "fine", "context": context(), "state": {}, "input": {}}
            for want, body in [
                ((400, "REQUEST_INVALID"), b"{"),
                ((400, "REQUEST_INVALID"), b""),
                ((400, "REQUEST_INVALID"), b"[]"),
                ((400, "REQUEST_INVALID"), b"[" * 5000),
                ((400, "REQUEST_INVALID"), b'{"type":NaN}'),
                ((400, "REQUEST_INVALID"), b"\xff"),
                ((400, "REQUEST_INVALID"), {**whole, "type": 1}),
                ((400, "REQUEST_INVALID"), {**whole, "agent": None}),
                ((400, "REQUEST_INVALID"), {**whole, "context": []}),
                ((400, "REQUEST_INVALID"), {**whole, "state": []}),
                ((400, "REQUEST_INVALID"), {**whole, "name": None}),
                ((400, "REQUEST_INVALID"), {**whole, "context": context(user=1)}),
                ((400, "REQUEST_INVALID"), {**whole, "context": context(deadline="now")}),
                ((404, "AGENT_UNKNOWN"), {**whole, "agent": "nobody"}),
                ((404, "TOOL_UNKNOWN"), {**whole, "name": "nothing"}),
                ((404, "TOOL_UNKNOWN"), {**whole, "name": "asked"}),
                ((404, "CALLBACK_UNKNOWN"), {**whole, "type": "approval"}),
                ((404, "CALLBACK_UNKNOWN"), {**whole, "type": "prompt"}),
                ((404, "CALLBACK_UNKNOWN"), {**whole, "type": "new"}),
                ((404, "CALLBACK_UNKNOWN"), {**whole, "type": "hook", "name": "onStart"}),
                ((404, "CALLBACK_UNKNOWN"), {**whole, "type": "guard", "name": "onReply"}),
                ((404, "CALLBACK_UNKNOWN"), {**whole, "type": "method", "name": "reset"}),
                ((413, "REQUEST_TOO_LARGE"), {**whole, "more": "x" * 10_000}),
            ]:
                with self.subTest(want=want, body=str(body)[:80]):
                    self.assertEqual(send("POST", body), want)
            self.assertEqual(send("PUT", whole), (405, "METHOD_UNKNOWN"))
            self.assertEqual(send("DELETE", b""), (405, "METHOD_UNKNOWN"))
            for version in ("2", "0", "x"):
                answer = executor.send("POST", json.dumps(whole).encode(), {"Holdfast-Endpoint": version})
                self.assertEqual(answer.status, 400)
                body = answer.body()["error"]
                self.assertEqual((body["code"], body["versions"]), ("VERSION_UNSUPPORTED", [1]))
            self.assertEqual(executor.result("tool", "fine", input={}), "ok")  # it still serves

    def test_a_request_of_16_mib_is_accepted_and_a_larger_one_refused(self) -> None:
        @tool
        def size(text: str) -> int:
            return len(text)

        with Serving(endpoint(size)) as executor:
            overhead = len(
                json.dumps(
                    {"type": "tool", "agent": "support", "name": "size", "context": context(), "input": {"text": ""}}
                )
            )
            body = {"type": "tool", "agent": "support", "name": "size", "context": context(), "input": {"text": ""}}
            body["input"]["text"] = "x" * ((16 << 20) - overhead)  # type: ignore[index]
            raw = json.dumps(body).encode()
            self.assertEqual(len(raw), 16 << 20)
            self.assertEqual(executor.send("POST", raw).lines()[-1], {"result": (16 << 20) - overhead})
            self.assertEqual(executor.send("POST", raw + b" ").status, 413)
            self.assertEqual(executor.send("POST", raw + raw).status, 413)

    def test_unsigned_requests_are_refused_over_http_too(self) -> None:
        with Serving(endpoint()) as signed:
            unsigned = Executor(f"http://{signed.url.netloc}/", secret=None)
            for method in ("GET", "POST"):
                answer = unsigned.send(method)
                self.assertEqual((answer.status, answer.body()["error"]["code"]), (401, "SIGNATURE_MISSING"))
        with Serving(endpoint(secrets="", allow_unsigned=False)) as executor:
            answer = executor.send("GET")
            self.assertEqual((answer.status, answer.body()["error"]["code"]), (401, "SECRET_MISSING"))
        with Serving(endpoint(secrets="", allow_unsigned=True)) as executor:
            executor.secret = None
            self.assertEqual(executor.send("GET").status, 200)

    def test_a_stopping_application_refuses_calls_so_that_they_are_repeated(self) -> None:
        made = endpoint(tool(name="t")(lambda: "ok"))
        with Serving(made) as executor:
            made.close()
            answer = executor.call("tool", "t", input={})
            self.assertEqual(
                (answer.status, answer.headers["Retry-After"], answer.body()["error"]["code"]), (503, "1", "STOPPING")
            )
            self.assertEqual(executor.send("GET").status, 200)


class TestHostileRequests(unittest.TestCase):
    def test_random_requests_are_refused_or_end_with_one_last_line(self) -> None:
        @tool(approval=lambda call: call.state.refunds > 0)
        def refund(amount: float, items: list[Receipt], call: Call[State]) -> Receipt:
            call.emit("amount", amount)
            call.state.refunds += 1
            return Receipt(call.id, amount)

        everything = {field.name: lambda call: None for field in dataclasses.fields(Hooks)}
        made = endpoint(
            refund, state=State, secrets="", allow_unsigned=True, methods=[reset], prompt=lambda call: "p",
            stop_when=lambda call: True, compact=lambda call: "c", hooks=Hooks(**everything),
            guard=Guard(on_reply=lambda call: None),
        )  # fmt: skip
        requests = [
            request("tool", "refund", input={"amount": 1, "items": [{"id": "a", "amount": 1}]}, state={"refunds": 1}),
            request("approval", "refund", input={"amount": 1, "items": []}),
            request("prompt"),
            request("stopWhen", steps=1, reply={"id": "m", "role": "assistant", "parts": []}, results=[]),
            request("guard", "onReply", steps=1, output="x", reply={}),
            request("compact", messages=[]),
            request("method", "reset", args=[1]),
            request("hook", "beforeTool", toolCall={"callId": "c", "name": "t", "arguments": {}}),
            request("hook", "afterRun", status="failed", durationMs=5),
        ]
        types = Types(7)
        statuses: collections.Counter[int] = collections.Counter()

        async def send(body: Any) -> None:
            answer = made.open("POST", {}, json.dumps(body).encode())
            if isinstance(answer, Reply):
                statuses[answer.status] += 1
                self.assertIn("error", json.loads(answer.body))
                return
            lines: list[bytes] = []
            await answer.run(lines.append)
            kinds = [next(iter(json.loads(line))) for line in lines]
            self.assertIn(kinds[-1], ("result", "error"))
            self.assertFalse({"result", "error"} & set(kinds[:-1]))
            statuses[200] += 1

        async def send_all() -> None:
            for body in requests:
                await send(body)
            self.assertEqual(statuses, {200: len(requests)})
            for _ in range(400):
                for body in requests:
                    spoiled = types.spoil(types.spoil(body))
                    with self.subTest(body=str(spoiled)):
                        await send(spoiled)

        asyncio.run(send_all())
        self.assertEqual(set(statuses), {200, 400, 404})
        self.assertGreater(min(statuses.values()), 50)


class TestAborts(unittest.TestCase):
    def test_a_closed_connection_cancels_the_call(self) -> None:
        ended: dict[str, threading.Event] = {"sync": threading.Event(), "coroutine": threading.Event()}
        late: list[BaseException] = []

        @tool
        def sync(call: Call) -> str:
            call.emit("begun", 1)
            try:
                if call.wait_cancelled(60):
                    call.raise_if_cancelled()
            except Cancelled:
                time.sleep(0)  # what follows is dropped
                try:
                    call.emit("late", 1)
                except CallEnded as error:
                    late.append(error)
                ended["sync"].set()
                raise
            return "never"

        @tool
        async def coroutine(call: Call) -> str:
            call.emit("begun", 1)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.assertTrue(call.cancelled)
                ended["coroutine"].set()
                raise
            return "never"

        with Serving(endpoint(sync, coroutine)) as executor:
            for name in ("sync", "coroutine"):
                with self.subTest(name):
                    answer = executor.call("tool", name, input={})
                    self.assertIn("event", answer.line())
                    answer.cut()
                    self.assertTrue(ended[name].wait(60))
        self.assertEqual(len(late), 1)

    def test_a_call_that_waits_for_a_thread_never_begins_when_it_is_cancelled(self) -> None:
        go, begun = threading.Event(), []

        @tool
        def work(number: int, call: Call) -> str:
            begun.append(number)
            go.wait(60)
            return "done"

        made = endpoint(work, threads=1)
        with Serving(made) as executor:
            first = executor.call("tool", "work", input={"number": 1})
            until(lambda: begun)
            second = executor.call("tool", "work", input={"number": 2})
            queue = made._pools._tools._work_queue
            until(queue.qsize)
            waiting = queue.get()
            queue.put(waiting)
            second.cut()
            until(waiting.future.cancelled)
            go.set()
            self.assertEqual(first.lines()[-1], {"result": "done"})
            self.assertEqual(executor.result("tool", "work", input={"number": 3}), "done")
        self.assertEqual(begun, [1, 3])

    def test_a_silent_call_pings(self) -> None:
        go = threading.Event()

        @tool
        def quiet() -> str:
            go.wait(60)
            return "done"

        with Serving(endpoint(quiet, ping=0.05)) as executor:
            answer = executor.call("tool", "quiet", input={})
            for _ in range(3):
                self.assertEqual(answer.line(), {"ping": {}})
            go.set()
            self.assertEqual(answer.lines()[-1], {"result": "done"})

    def test_an_application_that_stops_in_a_call_cuts_the_answer(self) -> None:
        @tool
        async def endless(call: Call) -> str:
            call.emit("begun", 1)
            await asyncio.sleep(60)
            return "never"

        serving = Serving(endpoint(endless))
        with serving as executor:
            answer = executor.call("tool", "endless", input={})
            answer.line()
        with self.assertRaises((http.client.IncompleteRead, ConnectionError)):
            answer.lines()


if __name__ == "__main__":
    unittest.main()
