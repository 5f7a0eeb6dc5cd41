"""The client against a gateway that plays a script, connection by connection. e2e/python runs it against a real one."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
import unittest
import unittest.mock
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from holdfast import Answer, Holdfast, HoldfastError, RunFailedError
from holdfast import client as module

Script = Callable[["Exchange"], None]


class Exchange(socketserver.StreamRequestHandler):
    """Exchange is one connection of the scripted gateway."""

    server: Gateway

    def handle(self) -> None:
        method, target, _ = self.rfile.readline().decode().split(" ")
        self.method = method
        parts = urllib.parse.urlsplit(target)
        self.path, self.query = parts.path, urllib.parse.parse_qs(parts.query)
        self.headers = {}
        while line := self.rfile.readline().decode().strip():
            name, _, value = line.partition(": ")
            self.headers[name.lower()] = value
        self.body = self.rfile.read(int(self.headers.get("content-length", "0")))
        with self.server.lock:
            number = len(self.server.asked)
            self.server.asked.append(self)
        self.server.scripts[min(number, len(self.server.scripts) - 1)](self)

    def write(self, text: str) -> None:
        self.wfile.write(text.encode())
        self.wfile.flush()

    def stream(self, *events: str) -> None:
        self.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + "".join(events))

    def json(self, body: Any, status: int = 200) -> None:
        text = json.dumps(body)
        self.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}")


class Gateway(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, scripts: tuple[Script, ...]) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.scripts = scripts
        self.asked: list[Exchange] = []
        self.lock = threading.Lock()


@contextlib.contextmanager
def gateway(*scripts: Script, silence: float = 60, patience: float = 30) -> Iterator[tuple[Holdfast, list[Exchange]]]:
    """gateway serves scripts: the nth connection plays the nth one, and later ones the last."""
    with Gateway(scripts) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Holdfast(
                f"http://127.0.0.1:{server.server_address[1]}", "key", silence=silence, patience=patience
            ), server.asked
        finally:
            server.shutdown()
            thread.join()


def chunk(id: int) -> str:
    return f'id: {id}\nevent: chunk\ndata: {{"sequence":{id},"chunk":{{"type":"text_delta"}}}}\n\n'


CAUGHT_UP = "event: caught-up\ndata: {}\n\n"
END = 'event: end\ndata: {"status":"completed"}\n\n'


def run(**more: Any) -> dict[str, Any]:
    return {"runId": "r1", "sessionId": "s", "done": True, "status": "completed", "pendingCalls": [], **more}


def cut(exchange: Exchange) -> None:
    """cut breaks a connection before its answer."""


class FakeTime:
    """FakeTime passes only while the client sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class TestClient(unittest.TestCase):
    def setUp(self) -> None:
        self.time = FakeTime()
        patch = unittest.mock.patch.object(module, "time", self.time)
        patch.start()
        self.addCleanup(patch.stop)

    def types(self, client: Holdfast) -> str:
        return " ".join(frame["type"] for frame in client.stream("s"))

    def test_a_stream_continues_behind_the_last_frame(self) -> None:
        def later(exchange: Exchange) -> None:
            exchange.stream(": keep-alive\n\n", CAUGHT_UP, chunk(9), 'id: 10\nevent: chunk\ndata: {"sequence"')

        with gateway(lambda e: e.stream(chunk(7), CAUGHT_UP), cut, later, lambda e: e.stream(END)) as (client, asked):
            self.assertEqual(self.types(client), "chunk caught-up chunk end")
        self.assertEqual([e.query["fromSequence"] for e in asked], [["0"], ["7"], ["7"], ["9"]])
        self.assertEqual(asked[0].headers["authorization"], "Bearer key")

    def test_data_in_several_lines_and_carriage_returns_are_one_event(self) -> None:
        with gateway(lambda e: e.stream('event: end\r\ndata: {"status":\r\ndata:"completed"}\r\n\r\n')) as (client, _):
            self.assertEqual(list(client.stream("s", "r", family=False)), [{"type": "end", "status": "completed"}])
            self.assertEqual(list(client.stream("s", "r", family=False))[-1]["type"], "end")

    def test_a_silent_stream_is_opened_again(self) -> None:
        def silent(exchange: Exchange) -> None:
            exchange.stream(chunk(7))
            exchange.rfile.read(1)  # until the client closes

        with gateway(silent, lambda e: e.stream(END), silence=0.05) as (client, asked):
            self.assertEqual(self.types(client), "chunk end")
        self.assertEqual(asked[1].query["fromSequence"], ["7"])

    def test_a_stream_that_breaks_again_and_again_without_progress_fails_after_the_patience(self) -> None:
        with gateway(lambda e: e.stream(": open\n\n", CAUGHT_UP)) as (client, asked):
            seen = []
            with self.assertRaisesRegex(ConnectionError, "without a last frame"):
                for frame in client.stream("s"):
                    seen.append(frame["type"])
        self.assertEqual(seen, ["caught-up"])
        self.assertGreater(self.time.now, 30)
        self.assertLess(self.time.now, 33)
        self.assertLess(max(self.time.pauses), 2.0)
        self.assertLess(self.time.pauses[0], 0.05)

    def test_progress_begins_a_new_outage(self) -> None:
        def progress(exchange: Exchange) -> None:
            self.time.now += 20
            exchange.stream(chunk(int(exchange.query["fromSequence"][0]) + 1))

        with gateway(*[progress] * 5, lambda e: e.stream(END)) as (client, asked):
            self.assertEqual(self.types(client), "chunk " * 5 + "end")

    def test_a_wait_survives_an_outage_and_stays_with_its_run(self) -> None:
        with gateway(
            cut, lambda e: e.json({"error": "Later."}, 503), lambda e: e.json(run(done=False)), lambda e: e.json(run())
        ) as (client, asked):
            self.assertEqual(client.wait("s")["status"], "completed")
        self.assertEqual([e.query.get("runId") for e in asked], [None, None, None, ["r1"]])

    def test_a_start_is_repeated_with_the_same_key(self) -> None:
        for key in (None, "own"):
            with gateway(cut, lambda e: e.json({"sessionId": "s"})) as (client, asked):
                client.start("hi", request_key=key, user_id="ann", timeout=1.5, state={"a": None})
            first, second = (json.loads(e.body) for e in asked)
            self.assertEqual(first, second)
            self.assertEqual(first["requestKey"], key or first["requestKey"])
            self.assertEqual((first["userId"], first["timeoutMs"], first["state"]), ("ann", 1500, {"a": None}))
            self.assertNotIn("tags", first)

    def test_an_ask_returns_the_answer_or_the_failure(self) -> None:
        started = {"sessionId": "s", "runId": "r1"}
        call = {"toolCallId": "c", "sessionId": "s"}
        with gateway(lambda e: e.json(started), lambda e: e.json(run(output={"a": 1}, pendingCalls=[call]))) as (
            client,
            _,
        ):
            answer = client.ask("hi")
            self.assertEqual((answer.text, answer.output, answer.pending_calls), ('{"a": 1}', {"a": 1}, [call]))
        for status, failure, code, text in [
            ("failed", {"error": "No.", "code": "X"}, "X", "No."),
            ("interrupted", None, "RUN_INTERRUPTED", "The run is interrupted."),
        ]:
            with gateway(lambda e: e.json(started), lambda e: e.json(run(status=status, failure=failure))) as (
                client,
                _,
            ):
                with self.assertRaisesRegex(RunFailedError, text) as caught:
                    client.ask("hi")
                self.assertEqual(caught.exception.code, code)
        self.assertEqual(Answer.of(run()).text, "")  # type: ignore[arg-type]

    def test_a_refusal_is_typed_and_not_repeated(self) -> None:
        with gateway(
            lambda e: e.json({"error": "No.", "code": "SESSION_NOT_FOUND", "retryable": False, "kind": "session"}, 404)
        ) as (client, asked):
            with self.assertRaises(HoldfastError) as caught:
                client.sessions.get("a/b ü")
            error = caught.exception
            self.assertEqual(
                (error.status, error.code, error.body["kind"], error.retryable, str(error)),
                (404, "SESSION_NOT_FOUND", "session", False, "No."),
            )
            with self.assertRaises(HoldfastError):
                list(client.stream("s"))
        self.assertEqual(len(asked), 2)
        self.assertEqual(asked[0].path, "/sessions/a%2Fb%20%C3%BC")
        with gateway(
            lambda e: e.write("HTTP/1.1 502 X\r\nContent-Length: 3\r\nConnection: close\r\n\r\n<h>"), patience=1
        ) as (client, asked):
            with self.assertRaisesRegex(HoldfastError, "The gateway answered 502"):
                client.wait("s")
            self.assertGreater(len(asked), 2)

    def test_what_changes_something_twice_is_not_repeated(self) -> None:
        for act in (
            lambda c: c.sessions.delete("s"),
            lambda c: c.sessions.merge_state("s", {"ops": []}),
            lambda c: c.request("POST", "/x", body={}),
        ):
            with gateway(cut) as (client, asked), self.assertRaises(Exception):
                act(client)
            self.assertEqual(len(asked), 1)

    def test_answers_have_their_forms(self) -> None:
        call: Any = {"toolCallId": "c", "approvalId": "a", "sessionId": "s"}
        with gateway(lambda e: e.json({"status": "accepted", "continuation": "new_run"})) as (client, asked):
            client.approve(call)
            client.deny(call, "too much")
            client.answer(call, None)
            client.answer_error(call, "no browser")
        base = {"sessionId": "s", "toolCallId": "c"}
        decision = {**base, "kind": "approval-response", "approvalId": "a"}
        self.assertEqual(
            [json.loads(e.body) for e in asked],
            [
                {**decision, "approved": True},
                {**decision, "approved": False, "reason": "too much"},
                {**base, "result": None},
                {**base, "error": "no browser"},
            ],
        )

    def test_lists_load_pages_as_they_are_needed(self) -> None:
        with gateway(
            lambda e: e.json({"sessions": [{"sessionId": "1"}], "nextCursor": "n"}),
            lambda e: e.json({"sessions": [{"sessionId": "2"}], "nextCursor": ""}),
        ) as (client, asked):
            listed = client.sessions.list(
                user_id="ann", status=["completed", "failed"], roots=True, metadata={"plan": "gold"}
            )
            self.assertEqual(next(listed)["sessionId"], "1")
            self.assertEqual(len(asked), 1)
            self.assertEqual([session["sessionId"] for session in listed], ["2"])
        self.assertEqual(
            asked[0].query,
            {"userId": ["ann"], "status": ["completed", "failed"], "roots": ["true"], "metadata[plan]": ["gold"]},
        )
        self.assertEqual(asked[1].query["cursor"], ["n"])
        with gateway(
            lambda e: e.json({"messages": [{"id": "1"}], "hasMore": True, "offset": 0, "limit": 200}),
            lambda e: e.json({"messages": [], "hasMore": False, "offset": 200, "limit": 200}),
        ) as (client, asked):
            self.assertEqual(len(list(client.messages("s"))), 1)
            self.assertEqual(asked[1].query["offset"], ["200"])

    def test_an_address_without_a_host_is_refused(self) -> None:
        for address in ("localhost:8080", "", "ftp://x"):
            with self.assertRaises(ValueError):
                Holdfast(address)


if __name__ == "__main__":
    unittest.main()
