"""What a tool or a callback knows about its call, and what it can do in it."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json
import math
import threading
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypedDict, TypeVar

from .errors import CallEnded, Cancelled
from .schema import Misfit, to_json
from .store import Store

__all__ = [
    "Call",
    "CompactCall",
    "Context",
    "EndHookCall",
    "GuardCall",
    "HookCall",
    "Message",
    "MessageHookCall",
    "MethodCall",
    "ModelHookCall",
    "PromptCall",
    "Run",
    "Session",
    "StateHookCall",
    "StepContextCall",
    "StopCall",
    "ToolCall",
    "ToolHookCall",
    "ToolResult",
    "User",
]

S = TypeVar("S")

MAX_LINE_BYTES = 2 << 20
"""The largest line of an answer."""
MAX_ANSWER_BYTES = 16 << 20
"""The size of all lines of an answer together. The last line always has room."""
MAX_EVENT_BYTES = 256 << 10
MAX_EVENTS = 10_000
MAX_USAGE = 1e15
MAX_NAME_BYTES = 256
MAX_STATE_KEYS = 1000
RUNTIME_EVENTS = ("error", "output", "state-patch", "subagent", "message-metadata")
RUNTIME_METADATA = (
    "runId",
    "agentType",
    "createdAt",
    "usage",
    "interrupted",
    "failed",
    "completionReason",
    "__proto__",
    "constructor",
    "prototype",
)


class ToolCall(TypedDict):
    callId: str
    name: str
    arguments: Any


class _ToolResult(TypedDict):
    callId: str
    name: str
    success: bool


class ToolResult(_ToolResult, total=False):
    result: Any
    error: str


class _Message(TypedDict):
    id: str
    role: Literal["user", "assistant", "tool", "system", "context"]
    parts: list[dict[str, Any]]


class Message(_Message, total=False):
    """Message is a message of the conversation. Each part has a `type`: text, reasoning, tool-call, tool-result or
    file."""

    metadata: dict[str, str]


@dataclasses.dataclass(frozen=True)
class User:
    id: str


@dataclasses.dataclass(frozen=True)
class Session:
    id: str
    parent_id: str | None
    tags: tuple[str, ...]
    metadata: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Run:
    """Run is empty in methods, which clients call outside of runs."""

    id: str
    turn: int


class Lines:
    """Lines writes the lines of one answer. It may be used by several threads."""

    def __init__(self) -> None:
        self._write: Callable[[bytes], None] = lambda line: None
        self._lock = threading.Lock()
        self._size = 0
        self._events = 0
        self._ended = False

    def start(self, write: Callable[[bytes], None]) -> None:
        """start gives all lines to write, which any thread may call."""
        self._write = write

    def send(self, kind: str, value: Any) -> None:
        """send writes a line before the last one. ValueError for a line that exceeds a limit, CallEnded after the
        end."""
        line = encode_line({kind: value})
        with self._lock:
            if self._ended:
                raise CallEnded("the call has ended, and takes no more events, writes or values")
            if len(line) > MAX_LINE_BYTES:
                raise ValueError(f"the {kind} has {len(line)} bytes; at most {MAX_LINE_BYTES} are allowed")
            if self._size + len(line) > MAX_ANSWER_BYTES - MAX_LINE_BYTES:
                raise ValueError(
                    f"the events, writes and values of a call may have {MAX_ANSWER_BYTES - MAX_LINE_BYTES} bytes "
                    "together, and with this one they have more"
                )
            if kind == "event" and self._events >= MAX_EVENTS:
                raise ValueError(f"the call has sent {MAX_EVENTS} events, which is the limit")
            self._events += kind == "event"
            self._size += len(line)
            self._write(line)

    def end(self, kind: str, value: Any) -> bool:
        """end writes the last line. It returns false if the line is too large, and then writes nothing."""
        line = encode_line({kind: value})
        with self._lock:
            if len(line) > MAX_LINE_BYTES:
                return False
            if not self._ended:
                self._ended = True
                self._write(line)
            return True

    def close(self) -> None:
        """close ends the answer without a last line."""
        with self._lock:
            self._ended = True


def encode_line(value: Any) -> bytes:
    return encode(value) + b"\n"


def encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


def check_name(what: str, name: str) -> None:
    if (
        not isinstance(name, str)
        or not 1 <= len(name.encode("utf-8", "replace")) <= MAX_NAME_BYTES
        or any(unicodedata.category(c) == "Cc" for c in name)
    ):
        raise ValueError(f"the {what} {name!r:.80} must have 1 to {MAX_NAME_BYTES} bytes without control characters")


class Draft:
    """Draft is the custom state of a call with the changes that the call makes."""

    def __init__(self, raw: Mapping[str, Any], load: Callable[[Any], Any] | None) -> None:
        self._raw = raw
        self._load = load
        self._lock = threading.RLock()
        self._is_loaded = False
        self._value: Any = None
        self._before: dict[str, Any] = {}

    def get(self) -> Any:
        """get returns the state. ValueError if it does not fit its type."""
        with self._lock:
            if not self._is_loaded:
                raw = copy.deepcopy(dict(self._raw))
                try:
                    value = self._load(raw) if self._load else raw
                except Misfit as misfit:
                    raise ValueError(f"the custom state does not fit its type: {misfit}") from None
                # A dict keeps the keys that its type does not have.
                self._value = {**raw, **value} if isinstance(value, dict) else value
                self._before = to_json(self._value)
                self._is_loaded = True
            return self._value

    def set(self, value: Any) -> None:
        """set replaces the state, also one that does not fit its type."""
        with self._lock:
            try:
                self.get()
            except ValueError:
                self._is_loaded = True
            self._value = value

    def take_ops(self) -> list[dict[str, Any]]:
        """take_ops returns the writes since the last call of take_ops. TypeError or ValueError for a state without
        JSON."""
        with self._lock:
            if not self._is_loaded:
                return []
            after = to_json(self._value)
            if not isinstance(after, dict):
                raise TypeError("the custom state must be an object in JSON")
            ops = _diff(self._before, after)
            if len(ops) > MAX_STATE_KEYS:
                raise ValueError(
                    f"{len(ops)} keys of the custom state were changed; at most {MAX_STATE_KEYS} are allowed"
                )
            for op in ops:
                check_name("key of the custom state", op["key"])
            self._before = after
            return ops


def _diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """_diff returns the writes from before to after, by key. A list with new items at its end is appended to."""
    ops: list[dict[str, Any]] = []
    for key in sorted({*before, *after}):
        if key not in after:
            ops.append({"op": "delete", "key": key})
            continue
        value = after[key]
        if key in before and encode(before[key]) == encode(value):
            continue
        was = before.get(key)
        if (
            isinstance(was, list)
            and isinstance(value, list)
            and 0 < len(was) < len(value)
            and encode(was) == encode(value[: len(was)])
        ):
            ops.append({"op": "append", "key": key, "value": value[len(was) :]})
        else:
            ops.append({"op": "replace", "key": key, "value": value})
    return ops


class Context(Generic[S]):
    """Context is what every callback knows. The runtime fills it; neither a model nor a user can change it."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        context = request["context"]
        session = context.get("session") or {}
        run = context.get("run") or {}
        user = context.get("user")
        deadline = context.get("deadline")
        self.agent: str = request["agent"]
        self.build: str | None = request.get("build")
        """The build of the description by which the run was planned."""
        self.tenant: str = context.get("tenant") or ""
        self.user: User | None = User(user["id"]) if user else None
        self.session = Session(
            session.get("id") or "",
            session.get("parentId"),
            tuple(session.get("tags") or ()),
            dict(session.get("metadata") or {}),
        )
        self.run = Run(run.get("id") or "", run.get("turn") or 0)
        self.step: int = context.get("step") or 0
        self.deadline: datetime.datetime | None = _time(deadline) if deadline else None
        """When the runtime stops waiting for the call."""
        self.traceparent: str | None = context.get("traceparent")
        self._draft = draft
        self._lines = lines
        self._cancelled = threading.Event()

    @property
    def state(self) -> S:
        """The custom state that the call sees, in the type of the agent's state, or a dict. The changes of tools and
        hooks are committed with the result, those of methods with it or by save_state. Other callbacks only read it."""
        state: S = self._draft.get()
        return state

    @state.setter
    def state(self, value: S) -> None:
        self._draft.set(value)

    @property
    def cancelled(self) -> bool:
        """Whether the runtime no longer waits: the run was stopped, or the time is up. The task of an async function
        is cancelled then; other functions should ask now and then."""
        return self._cancelled.is_set()

    def raise_if_cancelled(self) -> None:
        """Raises Cancelled if the runtime no longer waits."""
        if self._cancelled.is_set():
            raise Cancelled("the run was stopped, or the time for the call is up")

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Waits until the call is cancelled, at most timeout seconds, and returns whether it is: a sleep that a stop
        ends."""
        return self._cancelled.wait(timeout)


class _Writing(Context[S]):
    """_Writing is what tools and hooks can do."""

    def emit(self, name: str, data: Any, *, id: str | None = None, transient: bool = False) -> None:
        """Sends an event to the readers of the session. With an id it replaces the earlier event of the same name and
        id; a transient event is not stored. ValueError for an event that exceeds a limit, CallEnded after the call."""
        check_name("name of an event", name)
        if name in RUNTIME_EVENTS:
            raise ValueError(
                f"the event name {name!r} belongs to the runtime; choose another"
                + (" or use set_metadata" if name == "message-metadata" else "")
            )
        event: dict[str, Any] = {"name": name, "data": to_json(data)}
        if len(encode(event["data"])) > MAX_EVENT_BYTES:
            raise ValueError(f"the data of the event {name!r} has more than {MAX_EVENT_BYTES} bytes")
        if id is not None:
            check_name("id of an event", id)
            event["id"] = id
        if transient:
            event["transient"] = True
        self._lines.send("event", event)

    def set_metadata(self, values: Mapping[str, Any]) -> None:
        """Merges values into the metadata of the assistant's message. ValueError for a key of the runtime."""
        if reserved := [key for key in values if key in RUNTIME_METADATA]:
            raise ValueError(f"the metadata key {reserved[0]!r} belongs to the runtime; choose another")
        self._lines.send("metadata", to_json(values))

    def record_usage(self, kind: str, name: str, value: float) -> None:
        """Adds a value to the usage of the session, which is summed by kind and name. Usage of failed calls counts
        too."""
        check_name("kind of usage", kind)
        check_name("name of usage", name)
        if isinstance(value, bool) or not math.isfinite(value) or abs(value) > MAX_USAGE:
            raise ValueError(f"a usage must be a number up to {MAX_USAGE:g}")
        self._lines.send("usage", {"kind": kind, "name": name, "value": value})


class _ContextRow(TypedDict):
    kind: Literal["instruction", "notice", "tools", "memory"]


class ContextRow(_ContextRow, total=False):
    """ContextRow is a message to the model that users do not see. A row with a key is added only if it says something
    new. Rows of the kind tools disable and enable tools by their names; their text may be missing."""

    text: str
    key: str
    disable: list[str]
    enable: list[str]


class Call(_Writing[S]):
    """Call is a call of a tool, and the argument of an approval rule, which can only read."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        super().__init__(request, draft, lines)
        call = request["context"].get("call") or {}
        self.id: str = call.get("id") or ""
        self.tool: str = request["name"]
        self.idempotency_key: str = call.get("idempotencyKey") or ""
        """The same for all attempts of this call, and unique among calls. Pass it on to other services."""
        self.attempt: int = call.get("attempt") or 1
        """Counts the requests for this call, from 1."""
        self.store = Store(request.get("store"), lines.send)
        """The private storage of the session."""
        self.input: Any = None
        """The converted arguments: a dict by parameter, or the value of the tool's `input`."""

    def add_context(self, *rows: ContextRow) -> None:
        """Adds rows of context behind the results of the step. They are dropped if the call fails."""
        self._lines.send("context", [to_json(row) for row in rows])


class HookCall(_Writing[S]):
    """HookCall is the argument of all hooks; some have more."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        super().__init__(request, draft, lines)
        self.hook: str = request["name"]


class ModelHookCall(HookCall[S]):
    """ModelHookCall is the argument of before_model and after_model. `reply` and `error` are of after_model."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        super().__init__(request, draft, lines)
        self.model: str = request.get("model") or ""
        self.attempt: int = request.get("attempt") or 0
        self.system: str = request.get("system") or ""
        self.messages: list[Message] = request.get("messages") or []
        self.tools: list[str] = request.get("tools") or []
        self.reply: Message | None = request.get("reply")
        self.error: str | None = request.get("error")


class ToolHookCall(HookCall[S]):
    """ToolHookCall is the argument of before_tool and after_tool. `tool_result` is of after_tool."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        super().__init__(request, draft, lines)
        self.tool_call: ToolCall = request["toolCall"]
        self.tool_result: ToolResult | None = request.get("toolResult")


class SubAgentHookCall(HookCall[S]):
    """SubAgentHookCall is the argument of before_sub_agent and after_sub_agent. `tool_result` is of after_sub_agent."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        super().__init__(request, draft, lines)
        self.tool_call: ToolCall = request["toolCall"]
        self.agent_type: str = request["subAgent"]["agentType"]
        self.session_id: str = request["subAgent"]["sessionId"]
        """The session of the sub-agent."""
        self.tool_result: ToolResult | None = request.get("toolResult")


class StepContextCall(_Writing[S]):
    """StepContextCall is the argument of a step_context. `tools` are those that the model is offered."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        super().__init__(request, draft, lines)
        self.steps: int = request.get("steps") or 0
        """The replies of the run so far."""
        self.model: str = request.get("model") or ""
        self.messages: list[Message] = request.get("messages") or []
        self.tools: list[str] = request.get("tools") or []


class StateHookCall(HookCall[S]):
    """StateHookCall is the argument of on_state_change. Each op has `op`, `key` and `value`."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        super().__init__(request, draft, lines)
        self.ops: list[dict[str, Any]] = request.get("ops") or []


class MessageHookCall(HookCall[S]):
    """MessageHookCall is the argument of on_message."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        super().__init__(request, draft, lines)
        self.message: Message = request["message"]


class EndHookCall(HookCall[S]):
    """EndHookCall is the argument of after_run. Its changes of the state are dropped."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        super().__init__(request, draft, lines)
        self.status: str = request.get("status") or ""
        """completed, failed, interrupted or a suspended status."""
        self.output: Any = request.get("output")
        self.error: str = request.get("error") or ""
        self.code: str = request.get("code") or ""
        self.steps: int = request.get("steps") or 0
        self.duration = datetime.timedelta(milliseconds=request.get("durationMs") or 0)
        """The time since the run was first claimed."""


class PromptCall(Context[S]):
    """PromptCall is the argument of a prompt."""


class StopCall(Context[S]):
    """StopCall is the argument of a stop_when."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        super().__init__(request, draft, lines)
        self.steps: int = request.get("steps") or 0
        """The steps of the run so far."""
        self.reply: Message = request["reply"]
        self.results: list[ToolResult] = request.get("results") or []


class GuardCall(Context[S]):
    """GuardCall is the argument of a guard."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        super().__init__(request, draft, lines)
        self.steps: int = request.get("steps") or 0
        self.output: Any = request.get("output")
        """The output as JSON; a reply is a string."""
        self.reply: Message | None = request.get("reply")


class CompactCall(Context[S]):
    """CompactCall is the argument of a compact function. `messages` are those to summarize."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        super().__init__(request, draft, lines)
        self.messages: list[Message] = request.get("messages") or []


class MethodCall(Context[S]):
    """MethodCall is a call of a method by a client, outside of runs."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        super().__init__(request, draft, lines)
        self.method: str = request["name"]
        self.args: list[Any] = request.get("args") or []
        """The arguments as JSON."""
        self.store = Store(None, lines.send)
        """The private storage of the session, which a method can only write. It is written when the method succeeds."""

    def send(self, value: Any) -> None:
        """Sends a value to the client before the result."""
        self._lines.send("send", to_json(value))

    def save_state(self) -> None:
        """Writes the changes of the state so far. The end of the method writes the rest."""
        if ops := self._draft.take_ops():
            self._lines.send("state", ops)


def _time(text: str) -> datetime.datetime:
    """_time parses a time of RFC 3339. datetime knows microseconds, and Python 3.10 no Z."""
    body, dot, fraction = text.partition(".")
    if dot:
        digits = len(fraction) - len(fraction.lstrip("0123456789"))
        text = f"{body}.{fraction[:digits][:6]:0<6}{fraction[digits:]}"
    return datetime.datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text)
