"""The client: it talks to a gateway, and survives outages of it."""

from __future__ import annotations

import http.client
import json
import random
import ssl
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Union, cast
from urllib.parse import quote, urlencode, urlsplit

from . import api

__all__ = ["Answer", "Chunk", "Frame", "Holdfast", "HoldfastError", "RunFailedError", "Sessions"]

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
WAIT_SECONDS = 25
"""How long one request waits for the end of a run."""
STEADY_SECONDS = 10.0
"""How long a quiet stream lasts before it counts as a success."""
MAX_LINE_BYTES = 64 << 20

OnBusy = Literal["reject", "enqueue", "interrupt", "rollback"]


class HoldfastError(Exception):
    """HoldfastError is a refused request. `code` is stable; `detail` is for developers; `body` has facts for
    programs."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(body.get("error") or f"The gateway answered {status}.")
        self.status = status
        self.body = body
        self.code: str = body.get("code") or "UNKNOWN"
        self.detail: str | None = body.get("detail")
        retryable = body.get("retryable")
        self.retryable: bool = bool(retryable) if retryable is not None else status == 429 or status >= 502


class RunFailedError(Exception):
    """RunFailedError is a run that has failed, or was interrupted: then its `code` is RUN_INTERRUPTED."""

    def __init__(self, run: api.RunResult) -> None:
        failure = cast("Mapping[str, Any]", run.get("failure") or {})
        super().__init__(failure.get("error") or f"The run is {run['status']}.")
        self.run = run
        self.code: str | None = "RUN_INTERRUPTED" if run["status"] == "interrupted" else failure.get("code")


class Chunk(TypedDict):
    """Chunk is an event of a session: text_delta, tool_start and so on. It has further members by its type."""

    type: str
    agentId: str
    agentType: str
    timestamp: int
    step: int


class _ChunkFrame(TypedDict):
    type: Literal["chunk"]
    sequence: int
    chunk: dict[str, Any]


class ChunkFrame(_ChunkFrame, total=False):
    sessionId: str


class CaughtUpFrame(TypedDict):
    """All stored events are delivered; live events follow."""

    type: Literal["caught-up"]


class _RewoundFrame(TypedDict):
    type: Literal["rewound"]
    at: int


class RewoundFrame(_RewoundFrame, total=False):
    """Every chunk of the session after `at` is void; the following chunks replace it."""

    sessionId: str


class _EndFrame(TypedDict):
    type: Literal["end"]
    status: Literal["completed", "paused", "interrupted"]


class EndFrame(_EndFrame, total=False):
    output: Any
    usage: api.Usage
    completionReason: str


class _FailFrame(TypedDict):
    type: Literal["fail"]
    error: str
    recoverable: bool


class FailFrame(_FailFrame, total=False):
    errorDetail: dict[str, str]


Frame = Union[ChunkFrame, CaughtUpFrame, RewoundFrame, EndFrame, FailFrame]
"""A frame of the native stream, by its `type`. `sessionId` names the session of a sub-agent."""


@dataclass(frozen=True)
class Answer:
    """Answer is what a run has answered. `text` is the output if it is a text, else its JSON. `pending_calls` are the
    calls that the run waits for: see `Holdfast.approve`, `deny` and `answer`."""

    text: str
    output: Any
    run: api.RunResult
    pending_calls: list[api.PendingCall]

    @classmethod
    def of(cls, run: api.RunResult) -> Answer:
        """of returns the answer of a run from `wait`. RunFailedError: the run failed or was interrupted."""
        if run["status"] in ("failed", "interrupted"):
            raise RunFailedError(run)
        output = run.get("output")
        text = output if isinstance(output, str) else "" if output is None else json.dumps(output, ensure_ascii=False)
        return cls(text, output, run, run["pendingCalls"])


class Holdfast:
    """Holdfast is a client of a gateway. It may be used by several threads: each request has a connection of its own.

    A request that changes nothing twice is repeated while the gateway is away, for `patience` seconds from the first
    failure.
    HoldfastError: the gateway refused the request. OSError or http.client.HTTPException: the gateway cannot be reached.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8080",
        api_key: str | None = None,
        *,
        patience: float = 30.0,
        silence: float = 60.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """silence: how long a connection may be silent before it counts as broken, in seconds. The gateway sends a
        comment in its streams every 15 s."""
        self._url = urlsplit(base_url.rstrip("/"))
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ValueError(f"the address {base_url!r} must begin with http:// or https:// and have a host")
        self._headers = {"Accept": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._patience = patience
        self._silence = silence
        self._tls = tls
        self.sessions = Sessions(self)

    def start(
        self,
        message: str | None = None,
        *,
        agent: str | None = None,
        session_id: str | None = None,
        messages: Sequence[api.InputMessage] | None = None,
        user_id: str | None = None,
        organization_id: str | None = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, str] | None = None,
        state: Mapping[str, Any] | None = None,
        on_busy: OnBusy | None = None,
        request_key: str | None = None,
        timeout: float | None = None,
        priority: int | None = None,
        tools: Sequence[api.InputCallerTool] | None = None,
        instructions: str | None = None,
    ) -> api.StartResponse:
        """start begins the next run of a session, or of a new one. It is repeated after a broken connection, and
        starts one run only. timeout: the run has to end within these seconds; default no limit.

        tools: tools of the caller for this turn; the caller answers their calls, like those of client tools.
        instructions: instructions to the model for this turn. The agent has to permit both (`callerTools`,
        `callerInstructions`); HoldfastError with the code CALLER_TOOLS_REFUSED otherwise."""
        body = {
            "message": message,
            "agentType": agent,
            "sessionId": session_id or str(uuid.uuid4()),
            "messages": None if messages is None else list(messages),
            "userId": user_id,
            "organizationId": organization_id,
            "tags": None if tags is None else list(tags),
            "metadata": metadata,
            "state": state,
            "onBusy": on_busy,
            "requestKey": request_key or str(uuid.uuid4()),
            "timeoutMs": None if timeout is None else int(timeout * 1000),
            "priority": priority,
            "tools": None if tools is None else list(tools),
            "instructions": instructions,
        }
        return cast(
            api.StartResponse,
            self.request("POST", "/start", body={k: v for k, v in body.items() if v is not None}, repeat=True),
        )

    def wait(self, session_id: str, run_id: str | None = None) -> api.RunResult:
        """wait returns a run that has ended or waits for a client; without a run_id, the newest run at the time of
        the call."""
        while True:
            query = {"sessionId": session_id, "wait": WAIT_SECONDS * 1000, "runId": run_id}
            run = cast(api.RunResult, self.request("GET", "/result", query, repeat=True))
            if run["done"]:
                return run
            run_id = run["runId"]

    def ask(self, message: str | None = None, **options: Any) -> Answer:
        """ask sends a message and returns the answer. The options are those of `start`. RunFailedError: the run
        failed or was interrupted."""
        started = self.start(message, **options)
        return Answer.of(self.wait(started["sessionId"], started["runId"]))

    def stream(
        self, session_id: str, run_id: str | None = None, *, from_sequence: int = 0, family: bool = True
    ) -> Iterator[Frame]:
        """stream yields the frames of a session, or of one run, the last one being `end` or `fail`. After a broken
        connection it continues behind the last frame, so each frame comes once. The frames of a sub-agent begin
        again, behind a `rewound`.

        from_sequence: only what follows it. family=False leaves out the sessions of sub-agents."""
        retry = _Retry(self._patience)
        cursor, caught_up = from_sequence, False
        while True:
            try:
                query = {
                    "sessionId": session_id,
                    "runId": run_id,
                    "fromSequence": cursor,
                    "family": None if family else False,
                }
                opened = time.monotonic()
                for event in self._events("/sse", query):
                    frame = None if event is None else cast(Frame, {"type": event.name, **json.loads(event.data)})
                    # A connection that breaks again and again still sends its first comment, caught-up, and the frames
                    # of sub-agents.
                    if (
                        event is not None
                        and frame is not None
                        and event.id
                        and frame["type"] != "caught-up"
                        or time.monotonic() - opened > STEADY_SECONDS
                    ):
                        retry.succeeded()
                    if event is None or frame is None:
                        continue
                    cursor = int(event.id) if event.id else cursor
                    if frame["type"] != "caught-up" or not caught_up:
                        yield frame
                    caught_up = caught_up or frame["type"] == "caught-up"
                    if frame["type"] in ("end", "fail"):
                        return
                retry.failed(ConnectionError("The stream ended without a last frame."))
            except (HoldfastError, OSError, http.client.HTTPException) as error:
                retry.failed(error)

    def approve(self, call: api.PendingCall, reason: str | None = None) -> api.Submitted:
        """approve approves a pending call. The first answer to a call is final; a repeated one changes nothing. The
        run goes on
        by itself behind the last answer: `wait` for it."""
        return self._decide(call, True, reason)

    def deny(self, call: api.PendingCall, reason: str | None = None) -> api.Submitted:
        """deny denies a pending call; the model reads the reason."""
        return self._decide(call, False, reason)

    def _decide(self, call: api.PendingCall, approved: bool, reason: str | None) -> api.Submitted:
        body = {"kind": "approval-response", "approvalId": call["approvalId"], "approved": approved}
        return self._submit(call, {**body, "reason": reason} if reason is not None else body)

    def answer(self, call: api.PendingCall, result: Any) -> api.Submitted:
        """answer gives the result of a pending call of a client tool: any JSON."""
        return self._submit(call, {"result": result})

    def answer_error(self, call: api.PendingCall, error: str) -> api.Submitted:
        """answer_error says why a pending call of a client tool has no result; the model reads it."""
        return self._submit(call, {"error": error})

    def _submit(self, call: api.PendingCall, body: dict[str, Any]) -> api.Submitted:
        body = {"sessionId": call["sessionId"], "toolCallId": call["toolCallId"], **body}
        return cast(api.Submitted, self.request("POST", "/submit-tool-result", body=body, repeat=True))

    def pending_calls(
        self,
        *,
        user_id: str | None = None,
        agent: str | None = None,
        tool: str | None = None,
        kind: Literal["client_tool", "approval"] | None = None,
    ) -> Iterator[api.PendingCall]:
        """pending_calls yields the calls of all sessions that wait for an answer, oldest first."""
        query = {"userId": user_id, "agentType": agent, "toolName": tool, "kind": kind}
        return cast("Iterator[api.PendingCall]", self._pages("/calls", query, "calls"))

    def interrupt(
        self, session_id: str, run_id: str | None = None, *, reason: str | None = None, wait: float | None = None
    ) -> api.Stopped:
        """interrupt stops the live run, or the one with run_id. Its work is kept, and the session can be resumed.
        wait: seconds until the run has ended; default: it returns when the request is durable."""
        return self._stop("/interrupt", session_id, run_id, reason, wait)

    def abort(
        self, session_id: str, run_id: str | None = None, *, reason: str | None = None, wait: float | None = None
    ) -> api.Stopped:
        """abort fails the live run, or the one with run_id, for good."""
        return self._stop("/abort", session_id, run_id, reason, wait)

    def _stop(
        self, path: str, session_id: str, run_id: str | None, reason: str | None, wait: float | None
    ) -> api.Stopped:
        body = {name: value for name, value in (("runId", run_id), ("reason", reason)) if value is not None}
        query = {"sessionId": session_id, "wait": None if wait is None else int(wait * 1000)}
        return cast(api.Stopped, self.request("POST", path, query, body))

    def resume(self, body: api.ResumeRequest) -> api.ResumeResponse:
        """resume continues a session that was interrupted or has failed."""
        request_key = body.get("requestKey") or str(uuid.uuid4())
        return cast(
            api.ResumeResponse, self.request("POST", "/resume", body={**body, "requestKey": request_key}, repeat=True)
        )

    def usage(self, session_id: str, run_id: str | None = None) -> api.UsageRollup:
        """usage returns the sums of a session or of a run, with the tokens of its sub-agents beside."""
        query = {"mode": "rollup", "sessionId": session_id, "runId": run_id}
        return cast(api.UsageRollup, self.request("GET", "/usage", query, repeat=True))

    def query_usage(
        self,
        *,
        session_ids: Sequence[str] = (),
        user_id: str | None = None,
        agent: str | None = None,
        kinds: Sequence[str] = (),
        models: Sequence[str] = (),
        recorded_from: int | None = None,
        recorded_before: int | None = None,
        bucket_ms: int | None = None,
    ) -> list[api.UsageBucket]:
        """query_usage adds up usage over sessions, in buckets of time. Times are milliseconds since 1970."""
        query = {
            "sessionIds": session_ids,
            "userId": user_id,
            "agentType": agent,
            "kinds": kinds,
            "models": models,
            "recordedFrom": recorded_from,
            "recordedBefore": recorded_before,
            "bucketMs": bucket_ms,
        }
        return cast(api.QueryUsageResponse, self.request("GET", "/usage/query", query, repeat=True))["buckets"]

    def upload(self, data: bytes, media_type: str) -> api.Uploaded:
        """upload stores a file for messages: its `url` is for a file part. A file without a message is deleted after
        a day."""
        return cast(api.Uploaded, self.request("POST", "/files", data=data, media_type=media_type, repeat=True))

    def download(self, file_id: str) -> bytes:
        """download returns the bytes of a stored file."""
        return cast(bytes, self.request("GET", f"/files/{_segment(file_id)}", repeat=True, raw=True))

    def agents(self) -> list[api.Agent]:
        """agents lists the agents that executors serve."""
        return cast(api.AgentList, self.request("GET", "/agents", repeat=True))["agents"]

    def messages(self, session_id: str) -> Iterator[api.UIMessage]:
        """messages yields the conversation as UI messages of the AI SDK, oldest first."""
        offset = 0
        while True:
            query = {"sessionId": session_id, "offset": offset, "limit": 200}
            page = cast(api.MessagePage, self.request("GET", "/messages", query, repeat=True))
            yield from page["messages"]
            if not page["hasMore"]:
                return
            offset = page["offset"] + page["limit"]

    def runs(self, session_id: str) -> Iterator[api.Run]:
        """runs yields the runs of a session, newest first."""
        before = 0
        while True:
            page = cast(
                api.ListRunsResponse,
                self.request("GET", "/runs", {"sessionId": session_id, "beforeTurn": before}, repeat=True),
            )
            yield from page["runs"]
            if not page["hasMore"] or not page["runs"]:
                return
            before = page["runs"][-1]["turn"]

    def checkpoints(self, session_id: str) -> Iterator[api.Checkpoint]:
        """checkpoints yields the checkpoints of a session, newest first."""
        before = 0
        while True:
            query = {"sessionId": session_id, "beforeStep": before}
            page = cast(api.ListCheckpointsResponse, self.request("GET", "/checkpoints", query, repeat=True))
            yield from page["checkpoints"]
            if not page["hasMore"] or not page["checkpoints"]:
                return
            before = page["checkpoints"][-1]["step"]

    def _pages(self, path: str, query: Mapping[str, Any], member: str) -> Iterator[Any]:
        cursor = None
        while True:
            page = self.request("GET", path, {**query, "cursor": cursor}, repeat=True)
            yield from page[member]
            cursor = page["nextCursor"]
            if not cursor:
                return

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        *,
        data: bytes | None = None,
        media_type: str = "application/json",
        repeat: bool = False,
        raw: bool = False,
    ) -> Any:
        """request sends a request to any route, and returns the JSON of the answer (raw: its bytes). Members of query
        that are None are left out; lists are repeated. repeat: it is repeated while the gateway is away, so it must
        change nothing twice."""
        content = data if data is not None else None if body is None else json.dumps(body, ensure_ascii=False).encode()
        retry = _Retry(self._patience if repeat else -1)
        while True:
            try:
                connection, response = self._open(method, path, query, content, media_type)
                try:
                    answer = response.read()
                finally:
                    connection.close()
                if response.status >= 300:
                    raise _refusal(response.status, answer)
                return answer if raw else json.loads(answer) if answer else None
            except (HoldfastError, OSError, http.client.HTTPException) as error:
                retry.failed(error)

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        content: bytes | None,
        media_type: str = "application/json",
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        host = self._url.hostname or ""
        connection: http.client.HTTPConnection
        if self._url.scheme == "https":
            context = self._tls or ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, self._url.port, timeout=self._silence, context=context)
        else:
            connection = http.client.HTTPConnection(host, self._url.port, timeout=self._silence)
        try:
            headers = dict(self._headers) if content is None else {**self._headers, "Content-Type": media_type}
            connection.request(method, self._url.path + path + _query(query or {}), content, headers)
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def _events(self, path: str, query: Mapping[str, Any]) -> Iterator[_Event | None]:
        """_events yields the server-sent events of one connection. A comment is None: the connection lives."""
        connection, response = self._open("GET", path, query, None)
        try:
            if response.status != 200:
                raise _refusal(response.status, response.read())
            name, data, id = "message", "", None
            while line := response.readline(MAX_LINE_BYTES):
                if not line.endswith(b"\n"):
                    return  # an incomplete line is void
                text = line.rstrip(b"\r\n").decode()
                field, _, value = text.partition(":")
                value = value.removeprefix(" ")
                if not text:
                    if data:
                        yield _Event(name, data, id)
                    name, data, id = "message", "", None
                elif not field:
                    yield None
                elif field == "event":
                    name = value
                elif field == "id":
                    id = value
                elif field == "data":
                    data = f"{data}\n{value}" if data else value
        finally:
            connection.close()


class Sessions:
    """Sessions lists, changes and deletes sessions."""

    def __init__(self, client: Holdfast) -> None:
        self._client = client

    def list(
        self,
        *,
        user_id: str | None = None,
        organization_id: str | None = None,
        agent: str | None = None,
        status: Sequence[str] = (),
        parent_session_id: str | None = None,
        roots: bool | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        created_from: int | None = None,
        created_before: int | None = None,
    ) -> Iterator[api.Session]:
        """list yields all sessions that meet the filter, newest first. It loads pages as they are needed."""
        query: dict[str, Any] = {
            "userId": user_id,
            "organizationId": organization_id,
            "agentType": agent,
            "status": status,
            "parentSessionId": parent_session_id,
            "roots": roots,
            "tags": tags,
            "createdFrom": created_from,
            "createdBefore": created_before,
            **{f"metadata[{key}]": value for key, value in (metadata or {}).items()},
        }
        return cast("Iterator[api.Session]", self._client._pages("/sessions", query, "sessions"))

    def get(self, id: str) -> api.GetSessionResponse:
        return cast(api.GetSessionResponse, self._client.request("GET", f"/sessions/{_segment(id)}", repeat=True))

    def update(self, id: str, body: api.UpdateSessionRequest) -> api.UpdateSessionResponse:
        return cast(api.UpdateSessionResponse, self._client.request("PATCH", f"/sessions/{_segment(id)}", body=body))

    def merge_state(self, id: str, body: api.MergeStateRequest) -> api.MergeStateResponse:
        """merge_state writes keys of the custom state, in order, for a server with the scope operate. The next run
        reads them.
        It is not repeated: a repetition would append again, unless `expectedVersion` refuses it."""
        return cast(api.MergeStateResponse, self._client.request("PATCH", f"/sessions/{_segment(id)}/state", body=body))

    def set_status(self, id: str, body: api.SetStatusRequest) -> api.StatusSet | api.StatusConflict:
        """set_status sets the status of a session if it is as expected; `ok` tells. It needs the scope operate."""
        return cast(
            "api.StatusSet | api.StatusConflict",
            self._client.request("PATCH", f"/sessions/{_segment(id)}/status", body=body),
        )

    def delete(self, id: str) -> int:
        """delete removes a session and all sessions below it. It returns how many."""
        return cast(api.DeleteSessionResponse, self._client.request("DELETE", f"/sessions/{_segment(id)}"))["deleted"]

    def branch(self, body: api.BranchRequest) -> api.Session:
        """branch creates a session from a checkpoint of another."""
        return cast(api.Session, self._client.request("POST", "/branch", body=body)["session"])


@dataclass(frozen=True)
class _Event:
    name: str
    data: str
    id: str | None


class _Retry:
    """_Retry decides whether a failed request is repeated, and waits before."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._pause = FIRST_PAUSE
        self._since: float | None = None  # the first failure of the outage

    def succeeded(self) -> None:
        """succeeded begins a new outage at the next failure."""
        self._pause = FIRST_PAUSE
        self._since = None

    def failed(self, error: Exception) -> None:
        """failed waits, or raises the error if a repetition is of no use."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if (
            isinstance(error, HoldfastError)
            and not error.retryable
            or isinstance(error, ssl.SSLCertVerificationError)
            or now - self._since > self._patience
        ):
            raise error
        time.sleep(self._pause * (0.5 + random.random() / 2))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


def _refusal(status: int, answer: bytes) -> HoldfastError:
    try:
        body = json.loads(answer)
    except ValueError:
        body = {}
    return HoldfastError(status, body if isinstance(body, dict) else {})


def _query(query: Mapping[str, Any]) -> str:
    pairs = []
    for name, value in query.items():
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if one is not None:
                pairs.append((name, str(one).lower() if isinstance(one, bool) else str(one)))
    return "?" + urlencode(pairs) if pairs else ""


def _segment(text: str) -> str:
    return quote(text, safe="")
