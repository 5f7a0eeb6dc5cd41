from __future__ import annotations

import base64
import json
import os
import random
import threading
import unittest
import unittest.mock

from holdfast import serve
from holdfast.endpoint import Reply
from holdfast.signing import REMEMBERED_SECONDS, Refused, Verifier, parse_secrets, sign

from tests.executor import OTHER_SECRET, SECRET


class Clock:
    now = 1_764_324_000.0

    def __call__(self) -> float:
        return self.now


class TestSignatures(unittest.TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.verifier = Verifier(parse_secrets(SECRET), clock=self.clock)

    def refusal(self, headers: dict[str, str], body: bytes, verifier: Verifier | None = None) -> tuple[int, str]:
        with self.assertRaises(Refused) as caught:
            (verifier or self.verifier).check(headers, body)
        return caught.exception.status, caught.exception.code

    def sign(self, body: bytes = b"{}", secret: str = SECRET, id: str = "m1", late: int = 0) -> dict[str, str]:
        return sign(secret, body, id=id, timestamp=int(self.clock.now) - late)

    def test_a_signature_is_that_of_standard_webhooks(self) -> None:
        # The example of the specification's libraries.
        secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
        headers = sign(secret, body, id="msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp=1614265330)
        self.assertEqual(headers["webhook-signature"], "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")

    def test_a_signed_request_is_accepted(self) -> None:
        self.verifier.check(self.sign(), b"{}")
        self.verifier.check(self.sign(b"", id="get"), b"")

    def test_unsigned_forged_late_and_repeated_requests_are_refused(self) -> None:
        good = self.sign()
        for want, headers, body in [
            ((401, "SIGNATURE_MISSING"), {}, b"{}"),
            ((401, "SIGNATURE_MISSING"), {k: v for k, v in good.items() if k != "webhook-id"}, b"{}"),
            ((401, "SIGNATURE_MISSING"), {k: v for k, v in good.items() if k != "webhook-timestamp"}, b"{}"),
            ((401, "SIGNATURE_MISSING"), {**good, "webhook-signature": " "}, b"{}"),
            ((401, "SIGNATURE_INVALID"), good, b"{ }"),
            ((401, "SIGNATURE_INVALID"), {**good, "webhook-id": "m2"}, b"{}"),
            ((401, "SIGNATURE_INVALID"), {**good, "webhook-timestamp": str(int(self.clock.now) + 1)}, b"{}"),
            (
                (401, "SIGNATURE_INVALID"),
                {**good, "webhook-signature": good["webhook-signature"].replace("v1,", "v2,")},
                b"{}",
            ),
            (
                (401, "SIGNATURE_INVALID"),
                {**good, "webhook-signature": "v1," + base64.b64encode(b"x" * 32).decode()},
                b"{}",
            ),
            ((401, "SIGNATURE_INVALID"), {**good, "webhook-signature": "v1,\xff"}, b"{}"),
            ((401, "SIGNATURE_INVALID"), self.sign(secret=OTHER_SECRET), b"{}"),
            ((401, "SIGNATURE_INVALID"), self.sign(id="m" * 65), b"{}"),
            ((401, "TIMESTAMP_INVALID"), self.sign(late=301), b"{}"),
            ((401, "TIMESTAMP_INVALID"), self.sign(late=-301), b"{}"),
            ((401, "TIMESTAMP_INVALID"), sign(SECRET, b"{}", timestamp=10**20), b"{}"),
        ]:
            with self.subTest(want=want, headers=headers):
                self.assertEqual(self.refusal(headers, body), want)
        self.verifier.check(good, b"{}")
        self.assertEqual(self.refusal(good, b"{}"), (409, "REPLAYED"))
        self.verifier.check(self.sign(id="m" * 64, late=300), b"{}")

    def test_a_forged_request_does_not_use_up_an_id(self) -> None:
        self.assertEqual(self.refusal(self.sign(secret=OTHER_SECRET), b"{}"), (401, "SIGNATURE_INVALID"))
        self.verifier.check(self.sign(), b"{}")

    def test_secrets_rotate(self) -> None:
        both = Verifier(parse_secrets(f"{SECRET}, {OTHER_SECRET}"), clock=self.clock)
        both.check(self.sign(id="1"), b"{}")
        both.check(self.sign(id="2", secret=OTHER_SECRET), b"{}")
        # An executor with two secrets signs with both.
        self.verifier.check(self.sign(id="3", secret=f"{OTHER_SECRET},{SECRET}"), b"{}")
        Verifier(parse_secrets(OTHER_SECRET), clock=self.clock).check(
            self.sign(id="4", secret=f"{OTHER_SECRET},{SECRET}"), b"{}"
        )

    def test_ids_are_remembered_for_ten_minutes_and_within_bounds(self) -> None:
        verifier = Verifier(parse_secrets(SECRET), clock=self.clock, remembered=10_000, tolerance=10_000)
        headers = self.sign(id="first")
        verifier.check(headers, b"{}")
        for i in range(9_999):
            verifier._remember(str(i), self.clock.now)
        self.assertEqual(self.refusal(headers, b"{}", verifier), (409, "REPLAYED"))
        self.clock.now += REMEMBERED_SECONDS
        self.assertEqual(self.refusal(headers, b"{}", verifier), (409, "REPLAYED"))
        for i in range(10_000):
            verifier._remember(f"more {i}", self.clock.now)
        self.assertEqual(len(verifier._seen), 10_000)
        self.clock.now += REMEMBERED_SECONDS + 1
        verifier._remember("last", self.clock.now)
        self.assertEqual(len(verifier._seen), 1)

    def test_of_two_equal_requests_at_once_one_is_accepted(self) -> None:
        accepted: list[str] = []
        barrier = threading.Barrier(8)

        def check(id: str) -> None:
            barrier.wait()
            try:
                self.verifier.check(self.sign(id=id), b"{}")
                accepted.append(id)
            except Refused:
                pass

        for round in range(20):
            threads = [threading.Thread(target=check, args=(str(round),)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(accepted, [str(round) for round in range(20)])

    def test_random_changes_of_a_signed_request_are_refused(self) -> None:
        r = random.Random(1)
        for number in range(500):
            body = bytes(r.randrange(256) for _ in range(r.randrange(1, 60)))
            headers = self.sign(body, id=f"id-{number}")
            place = r.randrange(len(body))
            changed = body[:place] + bytes([body[place] ^ (1 << r.randrange(8))]) + body[place + 1 :]
            self.assertEqual(self.refusal(headers, changed), (401, "SIGNATURE_INVALID"))

    def test_without_a_secret_everything_is_refused_unless_the_author_allows_it(self) -> None:
        self.assertEqual(self.refusal(self.sign(), b"{}", Verifier([])), (401, "SECRET_MISSING"))
        Verifier([], allow_unsigned=True).check({}, b"{}")
        # But a page in the author's browser may not call it.
        from_page = {"origin": "http://evil.example"}
        self.assertEqual(self.refusal(from_page, b"{}", Verifier([], allow_unsigned=True)), (401, "SIGNATURE_MISSING"))
        # With a secret, nothing unsigned is accepted.
        self.assertEqual(
            self.refusal({}, b"{}", Verifier(parse_secrets(SECRET), allow_unsigned=True)), (401, "SIGNATURE_MISSING")
        )

    def test_the_environment_has_the_defaults_of_the_author(self) -> None:
        for environ, headers, want in [
            ({}, {}, "SECRET_MISSING"),
            ({"HOLDFAST_ENDPOINT_SECRET": f"{OTHER_SECRET},{SECRET}"}, sign(SECRET, b""), None),
            ({"HOLDFAST_ENDPOINT_SECRET": OTHER_SECRET}, sign(SECRET, b""), "SIGNATURE_INVALID"),
            ({"HOLDFAST_ENDPOINT_ALLOW_UNSIGNED": "1"}, {}, None),
            ({"HOLDFAST_ENDPOINT_ALLOW_UNSIGNED": "0"}, {}, "SECRET_MISSING"),
        ]:
            with self.subTest(environ=environ), unittest.mock.patch.dict(os.environ, environ):
                answer = serve([]).open("GET", headers, b"")
                assert isinstance(answer, Reply)
                self.assertEqual(json.loads(answer.body).get("error", {}).get("code"), want)

    def test_a_wrong_secret_is_refused_without_repeating_it(self) -> None:
        for text in (
            "c2hvcnQ",
            "whsec_",
            "whsec_c2hvcnQ=",
            "whsec_" + base64.b64encode(b"x" * 65).decode(),
            "whsec_*",
            SECRET + ",c2hvcnQ",
        ):
            with self.subTest(text=text), self.assertRaisesRegex(
                ValueError, "must be whsec_ and base64 of 24 to 64 bytes"
            ) as caught:
                serve([], secrets=text)
            self.assertNotIn("c2hvcnQ", str(caught.exception))
        self.assertEqual(parse_secrets(None), [])
        self.assertEqual(parse_secrets(""), [])
        self.assertEqual(len(parse_secrets([SECRET, OTHER_SECRET])), 2)


if __name__ == "__main__":
    unittest.main()
