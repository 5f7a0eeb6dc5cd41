from __future__ import annotations

import unittest

from app import Receipt, SupportState, is_large, refund, support
from holdfast import ToolError
from holdfast.testing import call, local_call, runtime, turns


class TestSupport(unittest.IsolatedAsyncioTestCase):
    async def test_an_order_is_refunded_once(self) -> None:
        local = local_call(SupportState(), user="ann")
        self.assertIsInstance(await refund("o-17", local), Receipt)
        self.assertEqual(local.state.refunded, ["o-17"])
        with self.assertRaises(ToolError):
            await refund("o-17", local)

    def test_a_large_refund_waits_for_a_human_through_crashes_of_both_programs(self) -> None:
        script = {
            "support": turns([call("refund", order="o-17"), "Done."], [call("refund", order="o-18"), "Done too."])
        }
        with runtime([support], script=script) as rt:
            small = rt.client.ask("Refund o-17.", session_id="s", agent="support")
            self.assertEqual((small.text, small.pending_calls), ("Done.", []))

            large = rt.client.ask("Refund o-18.", session_id="s")
            [pending] = large.pending_calls
            self.assertEqual((pending["toolName"], pending["input"]), ("refund", {"order": "o-18"}))
            rt.restart_agents()
            rt.restart()

            rt.client.approve(pending)
            self.assertEqual(rt.client.wait("s")["output"], "Done too.")
            self.assertEqual(rt.client.sessions.get("s")["session"]["customState"], {"refunded": ["o-17", "o-18"]})

    def test_the_third_refund_is_large(self) -> None:
        local = local_call(SupportState(refunded=["o-1", "o-2"]))
        local.input = {"order": "o-17"}
        self.assertTrue(is_large(local))
