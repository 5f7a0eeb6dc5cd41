"""A small executor: it signs requests, and reads answers line by line."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from holdfast import Endpoint, Server, signing

SECRET = "whsec_" + "b2xkIHNlY3JldCBvZiB0aGUgZXhlY3V0b3I="
OTHER_SECRET = "whsec_" + "bmV3IHNlY3JldCBvZiB0aGUgZXhlY3V0b3I="


def context(**members: Any) -> dict[str, Any]:
    return {
        "tenant": "acme",
        "user": {"id": "u-17"},
        "session": {"id": "s-1", "parentId": None, "tags": ["vip"], "metadata": {"plan": "gold"}},
        "run": {"id": "r-1", "turn": 3},
        "step": 7,
        "call": {"id": "call_1", "idempotencyKey": "key-1", "attempt": 1},
        "deadline": "2099-11-28T10:00:30.123456789Z",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "newer": "members of a newer executor are ignored",
        **members,
    }


def request(type: str, name: str | None = None, *, agent: str = "support", **members: Any) -> dict[str, Any]:
    made = {"type": type, "agent": agent, "build": "git:1", "context": context(), "state": {}, **members}
    if name is not None:
        made["name"] = name
    return made


class Answer:
    """Answer is an answer whose lines are read as they come."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self.connection = connection
        self.status = response.status
        self.headers = response.headers
        self._response = response

    def __del__(self) -> None:
        self.cut()

    def body(self) -> Any:
        text = self._response.read()
        self.cut()
        return json.loads(text) if text else None

    def line(self) -> Any:
        """line returns the next line, or None at the end."""
        text = self._response.readline()
        return json.loads(text) if text else None

    def lines(self) -> list[Any]:
        """lines returns the rest of the lines. http.client.IncompleteRead if the connection is cut."""
        try:
            return [json.loads(line) for line in self._response.read().splitlines()]
        finally:
            self.cut()

    def cut(self) -> None:
        """cut closes the connection, as the executor does when the run is stopped."""
        self._response.close()
        self.connection.close()


class Executor:
    """Executor sends requests to an endpoint."""

    def __init__(self, url: str, secret: str | None = SECRET) -> None:
        self.url = urlsplit(url)
        self.secret = secret

    def send(
        self, method: str, body: bytes = b"", headers: dict[str, str] | None = None, timeout: float = 60
    ) -> Answer:
        connection = http.client.HTTPConnection(self.url.hostname or "", self.url.port, timeout=timeout)
        signed = signing.sign(self.secret, body) if self.secret else {}
        connection.request(
            method,
            self.url.path or "/",
            body or None,
            {"Holdfast-Endpoint": "1", "Content-Type": "application/json", **signed, **(headers or {})},
        )
        return Answer(connection, connection.getresponse())

    def call(self, type: str, name: str | None = None, **members: Any) -> Answer:
        return self.send("POST", json.dumps(request(type, name, **members)).encode())

    def lines(self, type: str, name: str | None = None, **members: Any) -> list[Any]:
        answer = self.call(type, name, **members)
        if answer.status != 200:
            raise AssertionError(f"status {answer.status}: {answer.body()}")
        return answer.lines()

    def result(self, type: str, name: str | None = None, **members: Any) -> Any:
        """result returns the result of a call that has one."""
        return self.lines(type, name, **members)[-1]["result"]

    def error(self, type: str, name: str | None = None, **members: Any) -> Any:
        """error returns the error of a failed call."""
        return self.lines(type, name, **members)[-1]["error"]


class Serving:
    """Serving is a server with an executor, for a `with`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.server = Server(endpoint)
        self.executor = Executor(self.server.url)

    def __enter__(self) -> Executor:
        return self.executor

    def __exit__(self, *_: object) -> None:
        self.server.close()
