"""The WSGI app of an endpoint: for gunicorn, waitress, and mounts of Flask and Django."""

from __future__ import annotations

import asyncio
import concurrent.futures
import http
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .calls import encode_line
from .endpoint import Reply, Work

if TYPE_CHECKING:
    from .endpoint import Endpoint

__all__ = ["Stream", "WSGIApp"]

PING_LINE = encode_line({"ping": {}})
PING = 5.0
"""Seconds between the pings of a WSGI app at most: it learns of a closed connection only when it writes."""


DROP_BYTES = 64 << 20
"""How much of a body that is too large is read, so that its client reads the answer before the end."""


class Stream(Iterator[bytes]):
    """Stream runs a call in a loop of another thread, and yields its lines. `close` cancels the call."""

    def __init__(self, work: Work, ping: float, stopped: Callable[[], bool] | None = None) -> None:
        """stopped, if any, is asked about every half second, and ends the stream when it returns true."""
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()  # bounded by the size of an answer
        self._work = work
        self._ping = ping
        self._stopped = stopped
        self._is_over = False
        self._running: concurrent.futures.Future[None] = asyncio.run_coroutine_threadsafe(
            work.run(self._lines.put), _loop()
        )
        self._running.add_done_callback(lambda _: self._lines.put(None))

    def __next__(self) -> bytes:
        if self._is_over:
            raise StopIteration
        silence = 0.0
        while True:
            wait = min(0.5, self._ping - silence) if self._stopped else self._ping - silence
            try:
                line = self._lines.get(timeout=max(wait, 0.001))
            except queue.Empty:
                silence += wait
                if self._stopped and self._stopped():
                    self.close()
                    raise ConnectionError("the client has closed the connection") from None
                if silence >= self._ping:
                    return PING_LINE
                continue
            if line is not None:
                return line
            self._is_over = True
            if self._running.cancelled() or self._running.exception() is not None:
                raise ConnectionError("the call has ended without a last line")
            raise StopIteration

    def close(self) -> None:
        self._is_over = True
        self._work.cancel()
        self._running.cancel()


class WSGIApp:
    """WSGIApp is a WSGI app. A closed connection cancels the call when the server notices it, at the latest with the
    next line."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        headers = {
            name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name.startswith("HTTP_")
        }
        answer = self._endpoint.open(environ["REQUEST_METHOD"], headers, self._body(environ))
        if isinstance(answer, Reply):
            start_response(_status(answer.status), [*answer.headers.items(), ("Content-Length", str(len(answer.body)))])
            return [answer.body]
        start_response(_status(200), list(Work.HEADERS.items()))
        return Stream(answer, min(PING, self._endpoint.ping))

    def _body(self, environ: dict[str, Any]) -> bytes:
        """_body returns the body, cut behind the limit."""
        limit = self._endpoint.max_body_bytes + 1
        rest = limit + DROP_BYTES
        length = environ.get("CONTENT_LENGTH") or ""
        if length.isdigit():
            rest = min(rest, int(length))
        elif not environ.get("wsgi.input_terminated"):
            return b""
        body = bytearray()
        while rest > 0:
            read = environ["wsgi.input"].read(min(rest, 1 << 20))
            if not read:
                break
            rest -= len(read)
            body += read[: limit - len(body)]
        return bytes(body)


def _status(status: int) -> str:
    return f"{status} {http.HTTPStatus(status).phrase}"


_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def _loop() -> asyncio.AbstractEventLoop:
    """_loop returns the loop in which the calls of this process run. It begins with the first call, because servers
    fork."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            _loops.clear()
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="holdfast-loop", daemon=True).start()
        return loop
