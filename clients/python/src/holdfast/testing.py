"""A test kit: agents run in the real runtime, with a scripted model.

    with runtime([support], script={"support": [call("refund", order="o-1"), "Done."]}) as rt:
        answer = rt.client.ask("Refund o-1.", agent="support")
        assert answer.text == "Done."

It starts the program `holdfast` (HOLDFAST_BIN, or on the PATH) with a folder of its own, on free ports. It works with
pytest and with unittest alike.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, Union

from .agents import Agent, Tool
from .calls import Call, Draft, Lines
from .client import Holdfast, HoldfastError
from .endpoint import serve
from .server import Server

__all__ = ["LocalCall", "Runtime", "call", "calls", "fail", "local_call", "reasoning", "runtime", "turns"]

S = TypeVar("S")

Part = Mapping[str, Any]
Reply = Union[str, Part, Sequence[Part]]
"""One reply of the model: a text, a part or parts. A text is a Go template, which knows `{{.LastUser}}` and
`{{.LastResult}}`.
"""
Script = Union[str, Sequence[Reply], Mapping[str, Any]]

START_SECONDS = 60.0
"""How long the runtime may take to be ready."""
KEPT_LINES = 200
"""Lines of the runtime's output that are kept for messages."""


def call(tool: str, /, **arguments: Any) -> Part:
    """call is a reply of the model that calls a tool."""
    return {"call": {"name": tool, "arguments": arguments}}


def calls(*parts: Part) -> Part:
    """calls is a reply of the model that calls several tools at once, each a `call`."""
    return {"calls": [part["call"] for part in parts]}


def reasoning(text: str) -> Part:
    return {"reasoning": text}


def fail(
    code: str = "provider_unavailable", message: str = "the model has failed", *, retryable: bool | None = None
) -> Part:
    """fail is a reply that ends with an error of the provider."""
    error: dict[str, Any] = {"code": code, "message": message}
    return {"error": error if retryable is None else {**error, "retryable": retryable}}


class Runtime:
    """Runtime is a running `holdfast dev` with the agents of this process. `client` talks to it."""

    def __init__(
        self,
        agents: Sequence[Agent],
        script: Mapping[str, Script],
        environ: Mapping[str, str],
        arguments: Sequence[str],
    ) -> None:
        self._folder = tempfile.mkdtemp(prefix="holdfast-test-")
        self._secret = "whsec_" + base64.b64encode(os.urandom(32)).decode()
        self._agents = [_scripted(agent) if agent.name in script else agent for agent in agents]
        self._names = [agent.name for agent in agents]
        self._environ = {**os.environ, **environ, "HOLDFAST_EXECUTOR_ENDPOINT_SECRETS": self._secret}
        self._arguments = list(arguments)
        self._address = "127.0.0.1:0"
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._output: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        with open(os.path.join(self._folder, "models.yaml"), "w", encoding="utf-8") as file:
            models = {name: _model(replies) for name, replies in script.items()}
            json.dump({"models": {"scripted": {"script": json.dumps({"models": models})}}}, file)  # JSON is YAML
        self.server = Server(serve(self._agents, secrets=self._secret))
        """The server of the agents."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def client(self) -> Holdfast:
        return Holdfast(self.url)

    @property
    def url(self) -> str:
        """The address of the gateway. It stays the same when the runtime is started again."""
        return f"http://{self._address}"

    @property
    def output(self) -> str:
        """The newest output of the runtime."""
        return "".join(self._output)

    def start(self) -> None:
        """start starts the runtime after `kill` or `stop`, with everything that it had stored. AssertionError if it
        does not serve the agents in time."""
        program = os.environ.get("HOLDFAST_BIN") or shutil.which("holdfast")
        if not program:
            raise FileNotFoundError("the program holdfast is neither in HOLDFAST_BIN nor on the PATH")
        command = [
            program,
            "dev",
            "--listen",
            self._address,
            "--data",
            os.path.join(self._folder, "data"),
            "--agents",
            os.path.join(self._folder, "models.yaml"),
            "--endpoint",
            self.server.url,
            *self._arguments,
        ]
        self._process = subprocess.Popen(
            command, env=self._environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        self._wait_until_ready(self._process)

    def kill(self) -> None:
        """kill ends the runtime at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._wait_for_end()

    def stop(self) -> None:
        """stop ends the runtime in order."""
        if self._process is not None:
            self._process.terminate()
            self._wait_for_end()

    def restart(self) -> None:
        """restart kills the runtime and starts it again."""
        self.kill()
        self.start()

    def restart_agents(self) -> None:
        """restart_agents closes all connections to the agents of this process, as if it crashed, and serves them
        again. Functions that run are cancelled."""
        port = self.server.port
        self.server.close()
        self.server = Server(serve(self._agents, secrets=self._secret), port=port)

    def close(self) -> None:
        self.kill()
        self.server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self._output.append(line)
            if self._address.endswith(":0") and (found := re.search(r"http://(127\.0\.0\.1:\d+)", line)):
                self._address = found[1]

    def _wait_for_end(self) -> None:
        assert self._process is not None and self._reader is not None
        self._process.wait()
        self._reader.join()
        if self._process.stdout:
            self._process.stdout.close()
        self._process = None

    def _wait_until_ready(self, process: subprocess.Popen[str]) -> None:
        """_wait_until_ready returns when the runtime serves the agents."""
        deadline = time.monotonic() + START_SECONDS
        missing: object = self._names
        while time.monotonic() < deadline:
            if process.poll() is not None:
                assert self._reader is not None
                self._reader.join()
                raise AssertionError(f"holdfast has ended with {process.returncode}:\n{self.output}")
            if "kind=provider name=scripted" in self.output:
                raise AssertionError(f"the script of the models has a mistake:\n{self.output}")
            if not self._address.endswith(":0"):
                try:
                    listed = Holdfast(self.url, patience=0).request("GET", "/agents")
                except (OSError, HoldfastError):
                    listed = {"agents": []}
                served = {agent["agentType"] for agent in listed["agents"] if agent["executors"]}
                if problems := listed.get("problems"):
                    raise AssertionError(
                        f"the runtime does not serve all agents: {json.dumps(problems)}\n{self.output}"
                    )
                missing = [name for name in self._names if name not in served]
                if not missing:
                    return
            time.sleep(0.02)
        raise AssertionError(f"the runtime does not serve {missing} after {START_SECONDS:g} s:\n{self.output}")


@contextlib.contextmanager
def runtime(
    agents: Sequence[Agent],
    *,
    script: Mapping[str, Script] | None = None,
    environ: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Iterator[Runtime]:
    """runtime starts the real runtime with some agents.

    script: what the model of each agent replies, in place of its own model, by the agent's name. A list has a reply
        for each step behind a message of the user, `turns` has such a list for each message, and a text is the only
        reply. Or a dict with `rules`, as the package services/executor/internal/model/scripted has them. Agents
        without a script keep their models.
    environ, arguments: further variables and arguments of `holdfast dev`.

    FileNotFoundError without the program holdfast; AssertionError if it does not serve the agents."""
    started = Runtime(agents, script or {}, environ or {}, arguments)
    try:
        yield started
    finally:
        started.close()


def _scripted(agent: Agent) -> Agent:
    """_scripted returns the agent with the model of its script."""
    definition = {
        name: value for name, value in agent.definition.items() if name not in ("fallbacks", "providerOptions")
    }
    return dataclasses.replace(agent, definition={**definition, "model": f"scripted/{agent.name}"})


def _model(script: Script) -> dict[str, Any]:
    """_model returns the rules of a script."""
    if isinstance(script, Mapping):
        return dict(script)
    if isinstance(script, str):
        return {"rules": [{"reply": script}]}
    return turns(script)


def turns(*turns: Sequence[Reply]) -> dict[str, Any]:
    """turns is a script for a conversation: the replies to each message of the user."""
    rules: list[dict[str, Any]] = []
    for number, replies in enumerate(turns, 1):
        for step, reply in enumerate(replies, 1):
            when = {"step": step, **({"userTurns": number} if len(turns) > 1 else {})}
            rules.append({"when": when, "reply": [reply] if isinstance(reply, Mapping) else reply})
    return {"rules": rules}


class LocalCall(Call[S]):
    """LocalCall is a call without a runtime, for tests of a single function. It records what the function does."""

    def __init__(self, request: Mapping[str, Any], draft: Draft, lines: Lines) -> None:
        super().__init__(request, draft, lines)
        self.events: list[dict[str, Any]] = []
        self.metadata: list[dict[str, Any]] = []
        self.usage: list[dict[str, Any]] = []
        recorded = {"event": self.events, "metadata": self.metadata, "usage": self.usage}

        def record(line: bytes) -> None:
            [(kind, value)] = json.loads(line).items()
            recorded[kind].append(value)

        lines.start(record)

    def cancel(self) -> None:
        """cancel cancels the call, as a stop of the run does."""
        self._lines.close()
        self._cancelled.set()


def local_call(
    state: S | None = None,
    *,
    user: str | None = None,
    tenant: str = "tenant",
    session: str = "session",
    tool: str | Tool[..., Any] = "tool",
    agent: str = "agent",
    metadata: Mapping[str, str] | None = None,
    tags: Sequence[str] = (),
) -> LocalCall[S]:
    """local_call is a call for a test that calls the function of a tool by itself: `refund(order="o-1",
    call=local_call(State()))`. Without a state it is an empty dict."""
    request = {
        "type": "tool",
        "agent": agent,
        "name": tool if isinstance(tool, str) else tool.name,
        "context": {
            "tenant": tenant,
            "user": {"id": user} if user else None,
            "run": {"id": "run", "turn": 1},
            "step": 1,
            "session": {"id": session, "tags": list(tags), "metadata": dict(metadata or {})},
            "call": {"id": "call", "idempotencyKey": "key", "attempt": 1},
        },
    }
    draft = Draft({}, None)
    if state is not None:
        draft.set(state)
    return LocalCall(request, draft, Lines())
