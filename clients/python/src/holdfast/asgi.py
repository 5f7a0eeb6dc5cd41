"""The ASGI app of an endpoint: for uvicorn, hypercorn, and mounts of FastAPI, Starlette and Django."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from .endpoint import Reply, Work
from .calls import encode_line

if TYPE_CHECKING:
    from .endpoint import Endpoint

__all__ = ["ASGIApp"]

PING_LINE = encode_line({"ping": {}})

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ASGIApp:
    """ASGIApp is an ASGI 3 app. A closed connection cancels the call."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            body = await self._body(receive)
            if body is not None:
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
                answer = self._endpoint.open(scope["method"], headers, body)
                if isinstance(answer, Reply):
                    await send(_head(answer.status, {**answer.headers, "Content-Length": str(len(answer.body))}))
                    await send({"type": "http.response.body", "body": answer.body})
                else:
                    await self._stream(answer, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1003})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _body(self, receive: Receive) -> bytes | None:
        """_body returns the body, cut behind the limit, or None if the client has gone."""
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            if len(body) <= self._endpoint.max_body_bytes:
                body += message.get("body", b"")
            more = message.get("more_body", False)
        return bytes(body[: self._endpoint.max_body_bytes + 1])

    async def _stream(self, work: Work, receive: Receive, send: Send) -> None:
        """_stream sends the lines of a call as they come, until its end or until the client has gone."""
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()  # bounded by the size of an answer
        running = asyncio.ensure_future(work.run(lambda line: _put(loop, lines, line)))
        running.add_done_callback(lambda _: _put(loop, lines, None))  # behind the last line
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await send(_head(200, Work.HEADERS))
            while True:
                waiting = asyncio.ensure_future(lines.get())
                await asyncio.wait((waiting, gone), timeout=self._endpoint.ping, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    waiting.cancel()
                    work.cancel()
                    return
                if not waiting.done():
                    waiting.cancel()
                    await send({"type": "http.response.body", "body": PING_LINE, "more_body": True})
                    continue
                line = waiting.result()
                if line is None:
                    break
                await send({"type": "http.response.body", "body": line, "more_body": True})
            if not running.cancelled() and running.exception() is None:
                await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()
            running.cancel()
            await asyncio.gather(running, gone, return_exceptions=True)


def _put(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes | None], line: bytes | None) -> None:
    try:
        loop.call_soon_threadsafe(lines.put_nowait, line)
    except RuntimeError:
        pass  # the server has stopped


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _head(status: int, headers: Mapping[str, str]) -> MutableMapping[str, Any]:
    return {
        "type": "http.response.start",
        "status": status,
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
    }
