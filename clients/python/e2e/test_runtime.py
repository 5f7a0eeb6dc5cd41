"""The test kit, the endpoint and the client, over the real runtime."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import unittest

from holdfast import (
    Answer,
    Call,
    EndHookCall,
    Fail,
    Guard,
    GuardCall,
    Holdfast,
    HookCall,
    Hooks,
    Revise,
    RunFailedError,
    ToolError,
    Verdict,
    agent,
    client_tool,
    tool,
)
from holdfast.testing import call, calls, fail, runtime, turns


@dataclasses.dataclass
class State:
    notes: list[str] = dataclasses.field(default_factory=list)
    begun: int = 0


@tool(safe=True)
def note(text: str, call: Call[State]) -> int:
    """Notes a text."""
    call.emit("noted", {"text": text})
    call.set_metadata({"noted": text})
    call.record_usage("notes", "note", 1)
    call.state.notes.append(text)
    return len(text)


@client_tool
def ask_user(question: str) -> str:
    """Asks the user."""
    raise NotImplementedError


class TestRuntime(unittest.TestCase):
    def test_a_conversation_has_all_that_its_tool_has_done(self) -> None:
        clerk = agent("clerk", model="openai/none", tools=[note], state=State)
        both = calls(call("note", text="b"), call("note", text="c"))
        script = turns([call("note", text="a"), "One."], [both, "Two."])
        with runtime([clerk], script={"clerk": script}) as rt:
            first = rt.client.ask("note a", agent="clerk", session_id="s", user_id="ann")
            second = rt.client.ask("note b and c", session_id="s")
            self.assertEqual((first.text, second.text), ("One.", "Two."))
            frames = list(rt.client.stream("s", second.run["runId"]))
            events = [f["chunk"] for f in frames if f["type"] == "chunk" and f["chunk"]["type"] == "custom"]
            self.assertEqual(sorted(e["data"]["text"] for e in events if e["eventName"] == "noted"), ["b", "c"])
            self.assertEqual(frames[-1]["type"], "end")
            state = rt.client.sessions.get("s")["session"]["customState"]
            self.assertEqual(sorted(state["notes"]), ["a", "b", "c"])
            [custom] = [entry for entry in rt.client.usage("s")["custom"] if entry["name"] == "note"]
            self.assertEqual(custom["value"], 3)
            self.assertEqual([m["role"] for m in rt.client.messages("s")], ["user", "assistant"] * 2)
            self.assertEqual([s["sessionId"] for s in rt.client.sessions.list(user_id="ann")], ["s"])
            self.assertEqual(len(list(rt.client.runs("s"))), 2)
            uploaded = rt.client.upload(b"hello", "text/plain")
            self.assertEqual(rt.client.download(uploaded["id"]), b"hello")
            points = list(rt.client.checkpoints("s"))
            branch = rt.client.sessions.branch({"sessionId": "s", "checkpointId": points[0]["checkpointId"]})
            self.assertEqual(rt.client.sessions.delete(branch["sessionId"]), 1)

    def test_a_safe_call_runs_again_when_the_runtime_is_killed_in_it(self) -> None:
        keys: list[str] = []
        begun, go = threading.Event(), threading.Event()

        @tool(safe=True)
        async def slow(call: Call[State]) -> str:
            keys.append(call.idempotency_key)
            begun.set()
            while not go.is_set():
                await asyncio.sleep(0.01)
            call.state.begun += 1
            return "done"

        worker = agent("worker", model="openai/none", tools=[slow], state=State)
        with runtime([worker], script={"worker": [call("slow"), "Done."]}) as rt:
            started = rt.client.start("go", agent="worker")
            self.assertTrue(begun.wait(60))
            begun.clear()
            rt.restart()
            self.assertTrue(begun.wait(60))
            go.set()
            self.assertEqual(rt.client.wait(started["sessionId"])["output"], "Done.")
            self.assertEqual(rt.client.sessions.get(started["sessionId"])["session"]["customState"]["begun"], 1)
        self.assertEqual(len(keys), 2)
        self.assertEqual(len(set(keys)), 1)

    def test_a_call_that_is_not_safe_has_an_unknown_outcome_when_the_application_dies_in_it(self) -> None:
        runs: list[int] = []
        begun = threading.Event()

        @tool
        def once(call: Call) -> str:
            runs.append(1)
            begun.set()
            call.wait_cancelled(60)
            return "never read"

        worker = agent("worker", model="openai/none", tools=[once])
        with runtime([worker], script={"worker": [call("once"), "{{.LastResult}}"]}) as rt:
            started = rt.client.start("go", agent="worker")
            self.assertTrue(begun.wait(60))
            rt.restart_agents()
            output = rt.client.wait(started["sessionId"])["output"]
            self.assertIn("it is not known whether the call took effect", output)
        self.assertEqual(runs, [1])

    def test_an_interrupted_run_cancels_its_call(self) -> None:
        begun, cancelled = threading.Event(), threading.Event()

        @tool
        async def slow() -> str:
            begun.set()
            try:
                await asyncio.sleep(600)
            finally:
                cancelled.set()
            return "never"

        worker = agent("worker", model="openai/none", tools=[slow])
        with runtime([worker], script={"worker": [call("slow"), "Done."]}) as rt:
            started = rt.client.start("go", agent="worker")
            self.assertTrue(begun.wait(60))
            rt.client.interrupt(started["sessionId"], reason="enough", wait=30)
            self.assertTrue(cancelled.wait(60))
            with self.assertRaises(RunFailedError) as caught:
                Answer.of(rt.client.wait(started["sessionId"], started["runId"]))
            self.assertEqual(caught.exception.code, "RUN_INTERRUPTED")

    def test_a_browser_answers_a_client_tool(self) -> None:
        asker = agent("asker", model="openai/none", tools=[ask_user])
        with runtime([asker], script={"asker": [call("ask_user", question="Why?"), "{{.LastResult}}"]}) as rt:
            [pending] = rt.client.ask("ask me", agent="asker").pending_calls
            listed = list(rt.client.pending_calls(tool="ask_user"))
            self.assertEqual([one["toolCallId"] for one in listed], [pending["toolCallId"]])
            self.assertEqual(rt.client.answer(pending, "Because.")["status"], "accepted")
            self.assertEqual(rt.client.wait(pending["sessionId"])["output"], '"Because."')

    def test_prompts_guards_hooks_and_stops_decide(self) -> None:
        ends: list[str] = []
        ended = threading.Event()

        def begin(call: HookCall[State]) -> None:
            call.state.begun += 1

        def closed(call: HookCall[State]) -> None:
            if call.session.metadata.get("closed"):
                raise ToolError("The shop is closed.", code="CLOSED")

        def end(call: EndHookCall[State]) -> None:
            ends.append(call.status)
            ended.set()

        async def polite(call: GuardCall[State]) -> Verdict:
            if "bad" in call.output:
                return Fail("No bad words.")
            return None if "please" in call.output else Revise("Say please.")

        clerk = agent(
            "clerk",
            model="openai/none",
            state=State,
            guard=Guard(on_reply=polite),
            prompt=lambda call: f"begun {call.state.begun}",
            hooks=Hooks(before_run=closed, on_start=begin, after_run=end),
        )
        rules = {"rules": [
            {"when": {"lastUser": "bad"}, "reply": "bad"},
            {"when": {"lastUser": "Say please"}, "reply": "please {{.System}}"},
            {"reply": "well"},
        ]}  # fmt: skip
        with runtime([clerk], script={"clerk": rules}) as rt:
            self.assertEqual(rt.client.ask("hello", agent="clerk").text, "please begun 1")
            self.assertTrue(ended.wait(60))
            self.assertEqual(ends[0], "completed")
            with self.assertRaisesRegex(RunFailedError, "No bad words"):
                rt.client.ask("bad", agent="clerk")
            with self.assertRaisesRegex(RunFailedError, "The shop is closed"):
                rt.client.ask("hello", agent="clerk", metadata={"closed": "yes"})

    def test_a_model_that_fails_fails_the_run(self) -> None:
        clerk = agent("clerk", model="openai/none")
        with runtime([clerk], script={"clerk": [fail("provider_invalid_request")]}) as rt:
            with self.assertRaises(RunFailedError) as caught:
                rt.client.ask("hello", agent="clerk")
            self.assertEqual(caught.exception.code, "provider_invalid_request")

    def test_a_mistake_in_an_agent_is_named(self) -> None:
        wrong = agent("wrong", model="scripted/x", max_steps=0)
        fine = agent("fine", model="scripted/x")
        with self.assertRaisesRegex(AssertionError, "maxSteps"):
            with runtime([fine, wrong], script={"fine": "hi"}):
                pass

    def test_a_mistake_in_a_script_is_named(self) -> None:
        with self.assertRaisesRegex(AssertionError, "unknown error code"):
            with runtime([agent("clerk", model="openai/none")], script={"clerk": [fail("nonsense")]}):
                pass

    def test_a_client_survives_a_restart_of_the_runtime(self) -> None:
        clerk = agent("clerk", model="openai/none")
        slowly = {"text": "word ", "repeat": 30, "delay": "20ms", "chunk": "1 word"}
        with runtime([clerk], script={"clerk": [slowly]}) as rt:
            client = Holdfast(rt.url)
            started = client.start("hello", agent="clerk")
            text, restarted = "", None
            for frame in client.stream(started["sessionId"]):
                if frame["type"] == "chunk" and frame["chunk"]["type"] == "text_delta":
                    text += frame["chunk"]["delta"]
                    if restarted is None:
                        restarted = threading.Thread(target=rt.restart)
                        restarted.start()
                elif frame["type"] == "rewound":
                    text = ""  # there is one step
            assert restarted
            restarted.join()
            self.assertEqual(text.split(), ["word"] * 30)


if __name__ == "__main__":
    unittest.main()
