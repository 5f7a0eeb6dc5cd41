"""What a type checker accepts, and what it refuses: mypy reports each ignored error that is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine, Iterator
from typing import Any

from holdfast import (
    Answer,
    Call,
    Endpoint,
    EndHookCall,
    Guard,
    GuardCall,
    Holdfast,
    HookCall,
    Hooks,
    MethodCall,
    PromptCall,
    Revise,
    StopCall,
    Tool,
    Verdict,
    agent,
    api,
    client_tool,
    run,
    serve,
    sub_agent,
    tool,
)
from holdfast.client import Frame
from holdfast.testing import LocalCall, call, local_call, runtime, turns


@dataclasses.dataclass
class State:
    refunds: int = 0


@dataclasses.dataclass
class Receipt:
    id: str


def needs(call: Call[State]) -> bool:
    return call.state.refunds > 2


@tool(safe=True, approval=needs, timeout="20s")
async def refund(order: str, amount: float, call: Call[State]) -> Receipt:
    call.state.refunds += 1
    call.state.refunds = "many"  # type: ignore[assignment]
    call.state.missing  # type: ignore[attr-defined]
    call.emit("progress", {"percent": 10}, id="p")
    call.user.id  # type: ignore[union-attr]
    name: str = call.user.id if call.user else "nobody"
    return Receipt(name)


@tool
def plain(order: str) -> int:
    return len(order)


@client_tool(answer_within="24h")
def ask_user(question: str) -> str:
    """Asks the user."""
    raise NotImplementedError


count: int = plain("o-1")
wrong: str = plain(order="o-1")  # type: ignore[assignment]
plain(1)  # type: ignore[arg-type]
later: Coroutine[Any, Any, Receipt] = refund("o-1", 1.0, local_call(State()))
made: Tool[..., Any] = sub_agent("reader")

tool(timeout=[])  # type: ignore[call-overload]


def polite(call: GuardCall[State]) -> Verdict:
    return Revise("again") if call.steps < 2 else None


async def later_polite(call: GuardCall[State]) -> Verdict:
    return None


def prompt(call: PromptCall[State]) -> str:
    return str(call.state.refunds)


def stop(call: StopCall[State]) -> bool:
    return call.reply["role"] == "assistant"


def start(call: HookCall[State]) -> None:
    call.state.refunds = 0


def end(call: EndHookCall[State]) -> None:
    call.duration.total_seconds()


def reset(call: MethodCall[State], keep: int = 0) -> int:
    return keep


support = agent(
    "support",
    model="anthropic/claude",
    prompt=prompt,
    tools=[refund, plain, ask_user, made, "calculate", {"mcp": "files"}],
    state=State,
    guard=Guard(on_reply=polite, on_output=later_polite),
    hooks=Hooks(on_start=start, after_run=end),
    stop_when=stop,
    methods=[reset],
)
agent("support", on_busy="sometimes")  # type: ignore[arg-type]
agent("support", sistem_prompt="x")  # type: ignore[call-arg]

endpoint: Endpoint = serve([support], secrets=["whsec_"])


def client(holdfast: Holdfast) -> str:
    answer: Answer = holdfast.ask("hi", agent="support")
    for pending in answer.pending_calls:
        submitted: api.Submitted = holdfast.approve(pending)
        submitted["status"]
        submitted["state"]  # type: ignore[typeddict-item]
    frames: Iterator[Frame] = holdfast.stream("s")
    for frame in frames:
        if frame["type"] == "end":
            return frame["status"]
        if frame["type"] == "chunk":
            frame["chunk"]["delta"]
    sessions: list[api.Session] = list(holdfast.sessions.list(status=["completed"]))
    return sessions[0]["sessionId"]


def kit() -> None:
    local: LocalCall[State] = local_call(State(), user="ann")
    local.state.refunds
    with runtime([support], script={"support": turns([call("refund", order="o"), "Done."])}) as rt:
        rt.client.ask("hi")
        rt.restart()


def main() -> None:
    run([support], port=8000)
