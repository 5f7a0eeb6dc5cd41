from __future__ import annotations

import dataclasses
import os
import unittest
import unittest.mock

from holdfast import Call, CallEnded, Cancelled, agent, tool
from holdfast.testing import call, calls, fail, local_call, reasoning, runtime, turns


@dataclasses.dataclass
class State:
    seen: int = 0


@tool
def work(times: int, call: Call[State]) -> int:
    for number in range(times):
        call.raise_if_cancelled()
        call.emit("progress", number, id="p")
        call.set_metadata({"number": number})
        call.record_usage("api", "work", 1)
        call.state.seen += 1
    return times


class TestLocalCalls(unittest.TestCase):
    def test_a_local_call_records_what_the_function_does(self) -> None:
        local = local_call(State(5), user="ann", tool=work, metadata={"plan": "gold"}, tags=["vip"])
        self.assertEqual(work(2, local), 2)
        self.assertEqual(local.state, State(7))
        self.assertEqual(local.events, [{"name": "progress", "data": n, "id": "p"} for n in range(2)])
        self.assertEqual(local.metadata, [{"number": 0}, {"number": 1}])
        self.assertEqual(local.usage, [{"kind": "api", "name": "work", "value": 1}] * 2)
        assert local.user
        self.assertEqual((local.user.id, local.tool, local.session.metadata, local.session.tags),
                         ("ann", "work", {"plan": "gold"}, ("vip",)))  # fmt: skip

    def test_a_local_call_can_be_cancelled(self) -> None:
        local = local_call(State())
        local.cancel()
        with self.assertRaises(Cancelled):
            work(1, local)
        with self.assertRaises(CallEnded):
            local.emit("late", 1)

    def test_a_call_without_a_state_has_an_empty_one(self) -> None:
        local: Call[dict[str, int]] = local_call()
        local.state["a"] = 1
        self.assertEqual(local.state, {"a": 1})


class TestScripts(unittest.TestCase):
    def test_replies_become_rules(self) -> None:
        self.assertEqual(turns(["a"]), {"rules": [{"when": {"step": 1}, "reply": "a"}]})
        self.assertEqual(
            turns(
                [calls(call("t", x=1), call("u")), [reasoning("hm"), call("t")]],
                [fail("overloaded", retryable=False)],
            ),
            {"rules": [
                {"when": {"step": 1, "userTurns": 1},
                 "reply": [{"calls": [{"name": "t", "arguments": {"x": 1}}, {"name": "u", "arguments": {}}]}]},
                {"when": {"step": 2, "userTurns": 1},
                 "reply": [{"reasoning": "hm"}, {"call": {"name": "t", "arguments": {}}}]},
                {"when": {"step": 1, "userTurns": 2},
                 "reply": [{"error": {"code": "overloaded", "message": "the model has failed", "retryable": False}}]},
            ]},
        )  # fmt: skip

    def test_without_the_program_the_error_says_where_it_is_looked_for(self) -> None:
        with unittest.mock.patch.dict(os.environ, {"PATH": "", "HOLDFAST_BIN": ""}):
            with self.assertRaisesRegex(FileNotFoundError, "neither in HOLDFAST_BIN nor on the PATH"):
                with runtime([agent("a", model="scripted/a")]):
                    pass


if __name__ == "__main__":
    unittest.main()
