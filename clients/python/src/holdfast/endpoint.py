"""The endpoint: it describes agents and runs their tools and callbacks for an executor (docs/endpoint.md).

`Endpoint.open` answers a request without any I/O. The ASGI and WSGI apps and the server for development carry its
answers.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import hashlib
import inspect
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .agents import Agent, Fail, Replace, Revise
from .calls import (
    Call,
    CompactCall,
    Context,
    Draft,
    EndHookCall,
    GuardCall,
    HookCall,
    Lines,
    MessageHookCall,
    MethodCall,
    ModelHookCall,
    PromptCall,
    StateHookCall,
    StepContextCall,
    StopCall,
    SubAgentHookCall,
    ToolHookCall,
    encode,
)
from .errors import Cancelled, ToolError
from .schema import Misfit, to_json
from .signing import TOLERANCE, Refused, Verifier, parse_secrets

if TYPE_CHECKING:
    from .asgi import ASGIApp
    from .wsgi import WSGIApp

__all__ = ["Endpoint", "Reply", "Work", "serve"]

VERSION = 1
SDK = "python/0.1.0"
MAX_BODY_BYTES = 16 << 20
MAX_DESCRIPTION_BYTES = 1 << 20
MAX_BUILD_BYTES = 128
MAX_ERROR_CHARACTERS = 16_000
PING = 15.0
"""Seconds of silence after which a ping is sent."""
CALLBACK_THREADS = 16
"""Threads of the callbacks that are no tools. They must not wait for slow tools."""

log = logging.getLogger("holdfast")


class Reply:
    """Reply is a complete answer."""

    def __init__(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.body = body
        self.headers = {"Content-Type": "application/json", "Cache-Control": "no-store", **(headers or {})}

    @classmethod
    def refusal(cls, refused: Refused) -> Reply:
        headers: dict[str, str] = {}
        if refused.status == 405:
            headers = {"Allow": "GET, POST"}
        elif refused.status == 503:
            headers = {"Retry-After": "1"}
        error: dict[str, object] = {"code": refused.code, "message": refused.message, **refused.members}
        return cls(refused.status, encode({"error": error}), headers)


class Work:
    """Work is a call whose answer is a stream of lines. Its headers are `Work.HEADERS`."""

    HEADERS = {
        "Content-Type": "application/x-ndjson",
        "Cache-Control": "no-store, no-transform",
        "X-Accel-Buffering": "no",
    }

    def __init__(
        self,
        what: str,
        call: Context[Any],
        draft: Draft,
        lines: Lines,
        pool: Callable[[], concurrent.futures.Executor],
        prepare: Callable[[], tuple[Callable[..., Any], list[Any], dict[str, Any]]],
        finish: Callable[[Any], Any] = to_json,
        writes: bool = False,
    ) -> None:
        """prepare returns the function and its arguments, finish makes the result of what the function returns."""
        self._what = what
        self._call = call
        self._draft = draft
        self._lines = lines
        self._pool = pool
        self._prepare = prepare
        self._finish = finish
        self._writes = writes

    async def run(self, write: Callable[[bytes], None]) -> None:
        """run executes the call and gives its lines to write, which must not wait, and which any thread may call. When
        the connection is closed, cancel it, and then the task of run: no line follows."""
        self._lines.start(write)
        try:
            await self._execute()
        except asyncio.CancelledError:
            if _is_cancelling():
                raise
            self._lines.end("error", {"message": "The function was cancelled by the application.", "code": "CANCELLED"})
        finally:
            self.cancel()  # for threads that go on

    def cancel(self) -> None:
        """cancel tells the function that the runtime no longer waits. What it sends from now on is refused."""
        self._lines.close()
        self._call._cancelled.set()

    async def _execute(self) -> None:
        """_execute runs the call to its last line."""
        lines = self._lines
        try:
            value = self._finish(await self._result())
            ops = self._draft.take_ops()
            if ops and self._writes:
                lines.send("state", ops)
            elif ops:
                log.warning("the %s has changed call.state, which only tools, hooks and methods can change", self._what)
            if not lines.end("result", value):
                lines.end(
                    "error",
                    {
                        "message": "The result has more than 2 MiB: return less, or store it and return a reference.",
                        "code": "RESULT_TOO_LARGE",
                    },
                )
        except ToolError as error:
            lines.end("error", _failure(error))
        except Cancelled as error:
            lines.end("error", {"message": str(error), "code": "CANCELLED"})
        except (Exception, SystemExit) as error:
            log.error("the %s has failed", self._what, exc_info=error)
            lines.end("error", {"message": _reason(error), "publicMessage": "Something went wrong."})

    async def _result(self) -> Any:
        """_result calls the function: an async one in this loop, any other in a thread."""
        try:
            function, positional, named = self._prepare()
        except Misfit as misfit:
            raise ToolError(f"The arguments do not fit: {misfit}", code="INPUT_INVALID") from None
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):
            return await function(*positional, **named)
        context = contextvars.copy_context()

        def outcome() -> tuple[Any, BaseException | None]:
            try:
                return context.run(function, *positional, **named), None
            except (Exception, SystemExit) as error:  # a future cannot carry a StopIteration
                return None, error

        result, error = await asyncio.get_running_loop().run_in_executor(self._pool(), outcome)
        if error is not None:
            raise error
        return await result if inspect.isawaitable(result) else result


class Endpoint:
    """Endpoint answers the requests of executors about some agents. `asgi` and `wsgi` are its apps."""

    asgi: ASGIApp
    wsgi: WSGIApp

    def __init__(
        self,
        agents: Sequence[Agent],
        *,
        secrets: str | Sequence[str] | None = None,
        allow_unsigned: bool | None = None,
        build: str | None = None,
        tolerance: float = TOLERANCE,
        max_body_bytes: int = MAX_BODY_BYTES,
        threads: int = 64,
        ping: float = PING,
    ) -> None:
        from .asgi import ASGIApp
        from .wsgi import WSGIApp

        self._agents = {agent.name: agent for agent in agents}
        if len(self._agents) < len(agents):
            names = [agent.name for agent in agents]
            raise ValueError(f"two agents have the name {next(name for name in names if names.count(name) > 1)!r}")
        if secrets is None:
            secrets = os.environ.get("HOLDFAST_ENDPOINT_SECRET", "")
        if allow_unsigned is None:
            allow_unsigned = os.environ.get("HOLDFAST_ENDPOINT_ALLOW_UNSIGNED", "").lower() in ("1", "true")
        if build is None:
            build = os.environ.get("HOLDFAST_ENDPOINT_BUILD") or None
        if build is not None and len(build.encode()) > MAX_BUILD_BYTES:
            raise ValueError(f"the build has {len(build.encode())} bytes; at most {MAX_BUILD_BYTES} are allowed")
        keys = parse_secrets(secrets)
        self.is_open = allow_unsigned and not keys
        """Whether unsigned requests are accepted."""
        self._verifier = Verifier(keys, allow_unsigned=allow_unsigned, tolerance=tolerance)
        self.max_body_bytes = max_body_bytes
        self.ping = ping
        self._threads = threads
        self._closing = False
        description: dict[str, Any] = {"endpoint": VERSION, "sdk": SDK}
        if build:
            description["build"] = build
        description["agents"] = [agent.definition for agent in agents]
        description["sources"] = {key: source for agent in agents for key, source in agent.sources.items()}
        self._description = encode(description)
        if len(self._description) > MAX_DESCRIPTION_BYTES:
            raise ValueError(
                f"the description of the agents has {len(self._description)} bytes; at most {MAX_DESCRIPTION_BYTES} "
                "are allowed: shorten schemas and prompts, or divide the agents among endpoints"
            )
        self._etag = '"' + hashlib.sha256(self._description).hexdigest()[:32] + '"'
        self._pools = _Pools(threads)
        self.asgi = ASGIApp(self)
        self.wsgi = WSGIApp(self)

    @property
    def description(self) -> dict[str, Any]:
        """The description of the agents, as executors read it."""
        found: dict[str, Any] = json.loads(self._description)
        return found

    @property
    def names(self) -> list[str]:
        return list(self._agents)

    def close(self) -> None:
        """close refuses further calls with 503, so that the executor repeats them elsewhere or later. Calls in
        progress go on."""
        self._closing = True

    def open(self, method: str, headers: Mapping[str, str], body: bytes) -> Reply | Work:
        """open answers a request. The names of headers are in lower case. The body may be cut behind max_body_bytes +
        1."""
        try:
            if len(body) > self.max_body_bytes:
                raise Refused(413, "REQUEST_TOO_LARGE", f"The request has more than {self.max_body_bytes} bytes.")
            if method not in ("GET", "POST"):
                raise Refused(405, "METHOD_UNKNOWN", "An endpoint has GET, its description, and POST, a call.")
            self._verifier.check(headers, body)
            if headers.get("holdfast-endpoint", str(VERSION)).strip() != str(VERSION):
                raise Refused(
                    400,
                    "VERSION_UNSUPPORTED",
                    f"The header Holdfast-Endpoint must be {VERSION}, which is the version "
                    "that this application knows.",
                    versions=[VERSION],
                )
            if method == "GET":
                if self._etag in (tag.strip() for tag in headers.get("if-none-match", "").split(",")):
                    return Reply(304, b"", {"ETag": self._etag})
                return Reply(200, self._description, {"ETag": self._etag})
            if self._closing:
                raise Refused(503, "STOPPING", "The application is stopping.")
            return self._work(_parse(body))
        except Refused as refused:
            return Reply.refusal(refused)

    def _work(self, request: dict[str, Any]) -> Work:
        """_work finds the function for a request. Refused if there is none."""
        agent = self._agents.get(request["agent"])
        if agent is None:
            raise Refused(
                404,
                "AGENT_UNKNOWN",
                f"This application has no agent {request['agent']!r:.80}. It has "
                f"{', '.join(self._agents) or 'none'}.",
            )
        kind, name = request["type"], request.get("name") or ""
        what = f"{kind} {name}".strip() + f" of the agent {agent.name}"
        try:
            if kind in ("tool", "approval"):
                return self._tool_work(what, agent, request)
            if kind == "method":
                return self._method_work(what, agent, request)
            return self._callback_work(what, agent, request)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Refused(
                400, "REQUEST_INVALID", f"The members of the {kind} are not valid: {_reason(error)}"
            ) from None

    def _tool_work(self, what: str, agent: Agent, request: dict[str, Any]) -> Work:
        name = request["name"]
        tool = agent.tools.get(name)
        if tool is None or tool.function is None:
            raise Refused(
                404, "TOOL_UNKNOWN", f"This application runs no tool {name!r:.80} of the agent {agent.name!r}."
            )
        function, load, bind, rule = tool.function, tool.load, tool.bind, tool.approval
        draft = Draft(request.get("state") or {}, tool.load_state or agent.load_state)
        if request["type"] == "tool":
            lines = Lines()
            call: Call[Any] = Call(request, draft, lines)

            def prepare() -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
                call.input = load(request.get("input"))
                positional, named = bind(call.input, call)
                return function, positional, named

            return Work(what, call, draft, lines, self._pools.tools, prepare, writes=True)
        if rule is None:
            raise Refused(
                404, "CALLBACK_UNKNOWN", f"The tool {name!r} of the agent {agent.name!r} has no approval rule."
            )
        decide = rule
        asked: Call[Any] = Call(request, draft, _ReadOnly())

        def prepare_rule() -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
            asked.input = load(request.get("input"))
            return decide, [asked], {}

        return Work(what, asked, draft, Lines(), self._pools.callbacks, prepare_rule, bool)

    def _method_work(self, what: str, agent: Agent, request: dict[str, Any]) -> Work:
        method = agent.methods.get(request["name"])
        if method is None:
            raise Refused(404, "CALLBACK_UNKNOWN", f"The agent {agent.name!r} has no method {request['name']!r:.80}.")
        lines = Lines()
        draft = Draft(request.get("state") or {}, method.load_state or agent.load_state)
        call: MethodCall[Any] = MethodCall(request, draft, lines)
        function, load, bind = method.function, method.load, method.bind
        return Work(
            what,
            call,
            draft,
            lines,
            self._pools.tools,
            lambda: (function, bind(load(call.args), call), {}),
            writes=True,
        )

    def _callback_work(self, what: str, agent: Agent, request: dict[str, Any]) -> Work:
        kind, name = request["type"], request.get("name")
        callback = {"guard": f"guard.{name}", "hook": f"hooks.{name}"}.get(kind, kind)
        if callback not in agent.callbacks:
            raise Refused(404, "CALLBACK_UNKNOWN", f"The agent {agent.name!r} has no callback {callback!r:.80}.")
        lines = Lines()
        draft = Draft(request.get("state") or {}, agent.load_state)
        function = agent.callbacks[callback]
        call, finish = _CALLBACKS[kind if kind != "hook" else callback]
        context = call(request, draft, lines)
        return Work(
            what,
            context,
            draft,
            lines,
            self._pools.callbacks,
            lambda: (function, [context], {}),
            finish,
            kind == "hook",
        )


class _ReadOnly(Lines):
    """_ReadOnly are the lines of an approval rule."""

    def send(self, kind: str, value: Any) -> None:
        raise RuntimeError("an approval rule can only read: it sends no events, metadata or usage")


class _Pools:
    """_Pools are the threads of functions that are not async. They begin with the first call in a process, so that a
    server may fork before."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._process = 0
        self._tools: concurrent.futures.ThreadPoolExecutor
        self._callbacks: concurrent.futures.ThreadPoolExecutor

    def _begin(self) -> None:
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                self._tools = concurrent.futures.ThreadPoolExecutor(self._threads, "holdfast-tool")
                self._callbacks = concurrent.futures.ThreadPoolExecutor(CALLBACK_THREADS, "holdfast-callback")

    def tools(self) -> concurrent.futures.Executor:
        self._begin()
        return self._tools

    def callbacks(self) -> concurrent.futures.Executor:
        self._begin()
        return self._callbacks


def serve(
    agents: Sequence[Agent],
    *,
    secrets: str | Sequence[str] | None = None,
    allow_unsigned: bool | None = None,
    build: str | None = None,
    tolerance: float = TOLERANCE,
    max_body_bytes: int = MAX_BODY_BYTES,
    threads: int = 64,
    ping: float = PING,
) -> Endpoint:
    """serve returns the endpoint of some agents. Its `asgi` and `wsgi` are apps, which answer on each path that leads
    to them.

    secrets: of the executor, `whsec_…`, any of which may have signed a request; default HOLDFAST_ENDPOINT_SECRET, with
        commas between them. Without a secret, all requests are refused.
    allow_unsigned: accepts all requests if there is no secret, for development; default
        HOLDFAST_ENDPOINT_ALLOW_UNSIGNED=1.
    build: a name for the code, such as a revision; at most 128 bytes; default HOLDFAST_ENDPOINT_BUILD.
    tolerance: how far the clocks may be apart, in seconds; default 300.
    max_body_bytes: the largest request; default 16 MiB.
    threads: how many tools that are not async run at once; default 64. More wait.
    ping: after how many seconds of silence a line is sent; default 15."""
    return Endpoint(
        agents,
        secrets=secrets,
        allow_unsigned=allow_unsigned,
        build=build,
        tolerance=tolerance,
        max_body_bytes=max_body_bytes,
        threads=threads,
        ping=ping,
    )


def _parse(body: bytes) -> dict[str, Any]:
    """_parse returns a request with the members that each has. Refused for any other body."""

    def refuse_constant(name: str) -> Any:
        raise ValueError(f"{name} is no JSON")

    try:
        request = json.loads(body, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "REQUEST_INVALID", f"The body is no JSON: {_reason(error)}") from None
    if not isinstance(request, dict):
        raise Refused(400, "REQUEST_INVALID", "The body must be a JSON object.")
    for member, kind, required in (
        ("type", str, True),
        ("agent", str, True),
        ("context", dict, True),
        ("name", str, False),
        ("state", dict, False),
        ("store", dict, False),
        ("build", str, False),
        ("args", list, False),
    ):
        value = request.get(member)
        if not isinstance(value, kind) and (required or value is not None):
            raise Refused(400, "REQUEST_INVALID", f"The member {member} of the request is missing or of another type.")
    if request["type"] in ("tool", "approval", "guard", "hook", "method") and not request.get("name"):
        raise Refused(400, "REQUEST_INVALID", f"A {request['type']} needs the member name.")
    return request


def _is_cancelling() -> bool:
    """_is_cancelling reports whether the current task is being cancelled, and not just something that it awaits.
    Python 3.10 cannot tell, and then it counts as cancelled."""
    cancelling = getattr(asyncio.current_task(), "cancelling", None)
    return cancelling is None or cancelling() > 0


def _failure(error: ToolError) -> dict[str, Any]:
    failure = {"message": _reason(error)}
    if error.public_message is not None:
        failure["publicMessage"] = error.public_message[:MAX_ERROR_CHARACTERS]
    if error.code is not None:
        failure["code"] = error.code
    return failure


def _reason(error: BaseException) -> str:
    """_reason is the text of an error for a model."""
    if isinstance(error, ToolError):
        return (str(error) or "The call has failed.")[:MAX_ERROR_CHARACTERS]
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text[:MAX_ERROR_CHARACTERS]


def _text(result: Any) -> str:
    if not isinstance(result, str):
        raise TypeError(f"the function returned a {type(result).__name__}, and must return a str")
    return result


def _verdict(result: Any) -> Any:
    if result is None:
        return None
    if isinstance(result, Revise):
        return {"revise": result.text}
    if isinstance(result, Fail):
        return {"fail": result.text}
    if isinstance(result, Replace):
        return {"replace": to_json(result.output)}
    raise TypeError(f"the guard returned a {type(result).__name__}, and must return Revise, Fail, Replace or None")


def _rows(result: Any) -> list[Any]:
    if not isinstance(result, (list, tuple, type(None))):
        raise TypeError(f"the function returned a {type(result).__name__}, and must return a list of rows, or None")
    return [to_json(row) for row in result or ()]


def _nothing(result: Any) -> None:
    return None


_CALLBACKS: dict[str, tuple[Callable[[dict[str, Any], Draft, Lines], Context[Any]], Callable[[Any], Any]]] = {
    "prompt": (PromptCall, _text),
    "stopWhen": (StopCall, bool),
    "stepContext": (StepContextCall, _rows),
    "compact": (CompactCall, _text),
    "guard": (GuardCall, _verdict),
    "hooks.beforeRun": (HookCall, _nothing),
    "hooks.onStart": (HookCall, _nothing),
    "hooks.onResume": (HookCall, _nothing),
    "hooks.beforeModel": (ModelHookCall, _nothing),
    "hooks.afterModel": (ModelHookCall, _nothing),
    "hooks.beforeTool": (ToolHookCall, _nothing),
    "hooks.afterTool": (ToolHookCall, _nothing),
    "hooks.beforeSubAgent": (SubAgentHookCall, _nothing),
    "hooks.afterSubAgent": (SubAgentHookCall, _nothing),
    "hooks.onStateChange": (StateHookCall, _nothing),
    "hooks.onMessage": (MessageHookCall, _nothing),
    "hooks.afterRun": (EndHookCall, _nothing),
}
