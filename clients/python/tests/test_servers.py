"""The apps under the servers that people use."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import wsgiref.simple_server
from collections.abc import Iterator
from typing import Any

from holdfast import Call, agent, serve, tool

from tests.executor import SECRET, Executor


@tool
def count(to: int, call: Call) -> int:
    for number in range(to):
        call.emit("number", number)
    return to


@tool
async def wait(path: str, call: Call) -> str:
    """Waits until it is cancelled, and leaves a file then."""
    call.emit("begun", 1)
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        with open(path, "w") as file:
            file.write("cancelled")
        raise
    return "never"


endpoint = serve([agent("support", model="scripted/m", tools=[count, wait])], secrets=SECRET, ping=0.2)
asgi, wsgi = endpoint.asgi, endpoint.wsgi


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def process(*command: str, port: int) -> Iterator[Executor]:
    """process runs a server until the end of the block."""
    child = subprocess.Popen(
        [sys.executable, "-m", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    output: list[str] = []
    reader = threading.Thread(target=lambda: output.extend(child.stdout or ()))
    reader.start()
    try:
        while child.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.02)  # a poll; nothing depends on it
        else:
            reader.join()
            raise AssertionError("".join(output))
        yield Executor(f"http://127.0.0.1:{port}/")
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait()
        reader.join()
        if child.stdout:
            child.stdout.close()


class TestServers(unittest.TestCase):
    def check(self, executor: Executor) -> None:
        """check sends what executors send."""
        self.assertEqual(executor.send("GET").body()["agents"][0]["name"], "support")
        lines = executor.lines("tool", "count", input={"to": 200})
        self.assertEqual(lines, [{"event": {"name": "number", "data": n}} for n in range(200)] + [{"result": 200}])
        refused = executor.send("POST", b"{")
        self.assertEqual((refused.status, refused.body()["error"]["code"]), (400, "REQUEST_INVALID"))
        executor.secret = None
        self.assertEqual(executor.send("GET").status, 401)
        executor.secret = SECRET
        large = executor.send("POST", b'{"x":"' + b"x" * (16 << 20) + b'"}')
        self.assertEqual((large.status, large.body()["error"]["code"]), (413, "REQUEST_TOO_LARGE"))

    def check_abort(self, executor: Executor) -> None:
        """check_abort closes a connection in the middle of a call."""
        path = os.path.join(self.folder(), "cancelled")
        answer = executor.call("tool", "wait", input={"path": path})
        self.assertIn("event", answer.line())
        self.assertEqual(answer.line(), {"ping": {}})
        answer.cut()
        while not os.path.exists(path):
            time.sleep(0.02)  # a poll; the test ends with the file

    def folder(self) -> str:
        import tempfile

        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def test_uvicorn(self) -> None:
        port = free_port()
        with process(
            "uvicorn", "tests.test_servers:asgi", "--port", str(port), "--log-level", "warning", port=port
        ) as executor:
            self.check(executor)
            self.check_abort(executor)

    def test_gunicorn_with_forked_workers(self) -> None:
        port = free_port()
        with process(
            "gunicorn",
            "tests.test_servers:wsgi",
            "--bind",
            f"127.0.0.1:{port}",
            "--workers",
            "2",
            "--threads",
            "4",
            "--preload",
            "--log-level",
            "warning",
            port=port,
        ) as executor:
            self.check(executor)
            self.check_abort(executor)

    def test_mounts_in_starlette_and_flask(self) -> None:
        port = free_port()
        with process("uvicorn", "tests.mounts:starlette", "--port", str(port), "--log-level", "warning", port=port):
            for path in ("/holdfast", "/below/"):
                self.check(Executor(f"http://127.0.0.1:{port}{path}"))
        port = free_port()
        bind = ("--bind", f"127.0.0.1:{port}", "--threads", "4", "--graceful-timeout", "1", "--log-level", "warning")
        with process("gunicorn", "tests.mounts:flask", *bind, port=port):
            self.check(Executor(f"http://127.0.0.1:{port}/holdfast"))

    def test_wsgiref(self) -> None:
        class Quiet(wsgiref.simple_server.WSGIRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

        with wsgiref.simple_server.make_server("127.0.0.1", 0, wsgi, handler_class=Quiet) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                executor = Executor(f"http://127.0.0.1:{server.server_port}/")
                self.check(executor)
                large = executor.send("POST", b"x" * (48 << 20))  # much more than the application keeps
                self.assertEqual((large.status, large.body()["error"]["code"]), (413, "REQUEST_TOO_LARGE"))
                self.check_abort(executor)
            finally:
                server.shutdown()
                thread.join()

    def test_the_server_for_development(self) -> None:
        program = "import tests.test_servers as t, holdfast, sys; holdfast.run(t.endpoint, port=int(sys.argv[1]))"
        port = free_port()
        child = subprocess.Popen([sys.executable, "-c", program, str(port)], stdout=subprocess.PIPE, text=True)
        assert child.stdout
        self.assertEqual(child.stdout.readline(), f"Agents support at http://127.0.0.1:{port}/\n")
        executor = Executor(f"http://127.0.0.1:{port}/")
        self.check(executor)
        self.check_abort(executor)
        self.check_keep_alive(port)
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(), 0)
        child.stdout.close()

    def check_keep_alive(self, port: int) -> None:
        """check_keep_alive sends several requests on one connection, one of them in chunks, as Go's client may."""
        from holdfast import signing
        import json
        from tests.executor import request

        connection = http.client.HTTPConnection("127.0.0.1", port)
        for chunked in (False, True, False):
            body = json.dumps(request("tool", "count", input={"to": 2})).encode()
            headers = {"Holdfast-Endpoint": "1", **signing.sign(SECRET, body)}
            if chunked:
                connection.request("POST", "/", iter([body[:10], body[10:]]), headers, encode_chunked=True)
            else:
                connection.request("POST", "/", body, headers)
            self.assertEqual(connection.getresponse().read().splitlines()[-1], b'{"result":2}')
        self.assertIsNotNone(connection.sock)
        connection.close()


class TestASGI(unittest.IsolatedAsyncioTestCase):
    async def test_lifespan_and_websockets(self) -> None:
        sent: list[Any] = []
        messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await asgi({"type": "lifespan"}, receive, send)
        self.assertEqual(sent, ["lifespan.startup.complete", "lifespan.shutdown.complete"])

        async def connect() -> Any:
            return {"type": "websocket.connect"}

        await asgi({"type": "websocket"}, connect, send)
        self.assertEqual(sent[-1], "websocket.close")


if __name__ == "__main__":
    unittest.main()
