"""A server for development, on the standard library's http.server."""

from __future__ import annotations

import http.server
import os
import select
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Sequence
from typing import Any

from .agents import Agent
from .endpoint import Endpoint, Reply, Work, serve
from .wsgi import DROP_BYTES, Stream

__all__ = ["Server", "run"]

RELOAD_SECONDS = 0.3
"""How often `run` with `reload` looks for changes."""
DROP_SECONDS = 2.0
"""How long the rest of a body that is too large is read and dropped at most."""
IDLE_SECONDS = 120
"""How long a connection may wait for its next request, or for the rest of one."""


class Server:
    """Server serves an endpoint at `url`, from its creation to `close`. Each connection has a thread."""

    def __init__(self, endpoint: Endpoint, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Port 0 is a free one. OSError if the address is taken."""
        self.endpoint = endpoint
        self._http = _HTTPServer((host, port), _handler(endpoint))
        self.port: int = self._http.server_address[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"
        self._thread = threading.Thread(target=self._http.serve_forever, name="holdfast-server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """close closes all connections, which cancels their calls."""
        self._http.shutdown()
        self._http.server_close()
        self._http.close_connections()
        self._thread.join()

    def wait(self) -> None:
        """wait returns when the server was closed."""
        while self._thread.is_alive():
            self._thread.join(1)  # so that Python handles signals

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(
    agents: Sequence[Agent] | Endpoint,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    reload: bool = False,
    **options: Any,
) -> None:
    """run serves agents until the process is interrupted: for development. The options are those of `serve`.

    reload: starts the program again when a module that it has loaded changes, for example after you save it. Calls in
        progress are cut, as by a crash. A file with a mistake in its syntax is named, and the program goes on as it
        is."""
    endpoint = agents if isinstance(agents, Endpoint) else serve(agents, **options)
    server = Server(endpoint, host=host, port=port)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)
    if reload:
        threading.Thread(target=_reload_when_changed, args=(_module_times(),), daemon=True).start()
    if endpoint.is_open and host not in ("127.0.0.1", "::1", "localhost"):
        print(f"warning: whoever reaches {server.url} may call the agents without a signature", file=sys.stderr)
    print(f"Agents {', '.join(endpoint.names) or '(none)'} at {server.url}", flush=True)
    try:
        server.wait()
    except KeyboardInterrupt:
        print("", file=sys.stderr)
        server.close()
        sys.stdout.flush()
        os._exit(0)  # without waiting for tools that do not notice that they are cancelled


def _reload_when_changed(seen: dict[str, int]) -> None:
    """_reload_when_changed starts the program again when one of its modules is no longer as it was seen."""
    while True:
        time.sleep(RELOAD_SECONDS)
        now = _module_times()
        changed = [path for path in now if now[path] != seen.get(path, now[path])]
        seen = now
        if not changed:
            continue
        try:
            for path in changed:
                with open(path, "rb") as file:
                    compile(file.read(), path, "exec")
        except (SyntaxError, ValueError, OSError) as error:
            print(f"not started again: {error}", file=sys.stderr, flush=True)
            continue
        print(
            f"{', '.join(os.path.basename(path) for path in changed)} changed: starting again",
            file=sys.stderr,
            flush=True,
        )
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _module_times() -> dict[str, int]:
    """_module_times returns when the files of the loaded modules were changed last."""
    times = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and path.endswith(".py"):
            try:
                times[path] = os.stat(path).st_mtime_ns
            except OSError:
                pass  # it is being replaced
    return times


def _interrupt(number: int, frame: types.FrameType | None) -> None:
    raise KeyboardInterrupt


class _HTTPServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        with self._lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the client has closed it

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


def _handler(endpoint: Endpoint) -> type[http.server.BaseHTTPRequestHandler]:
    """_handler returns the class that handles the connections of an endpoint."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "holdfast"
        disable_nagle_algorithm = True
        timeout = IDLE_SECONDS

        def answer(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.body()
            answer = endpoint.open(self.command, headers, body)
            if isinstance(answer, Reply):
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.status != 304:
                    self.send_header("Content-Length", str(len(answer.body)))
                if len(body) > endpoint.max_body_bytes:
                    self.close_connection = True  # the rest of the body is not read
                    self.send_header("Connection", "close")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)
                if len(body) > endpoint.max_body_bytes:
                    self.drop_rest()
            else:
                self.stream(answer)

        do_GET = do_POST = do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer

        def stream(self, work: Work) -> None:
            self.send_response(200)
            for name, value in Work.HEADERS.items():
                self.send_header(name, value)
            chunked = self.request_version != "HTTP/1.0"
            if chunked:
                self.send_header("Transfer-Encoding", "chunked")
            else:
                self.close_connection = True
            self.end_headers()
            lines = Stream(work, endpoint.ping, self.is_closed)
            try:
                for line in lines:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line) if chunked else line)
                if chunked:
                    self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True
            finally:
                lines.close()

        def drop_rest(self) -> None:
            """drop_rest reads some of a body that is too large, so that its client reads the answer before the end."""
            try:
                self.connection.shutdown(socket.SHUT_WR)
                self.connection.settimeout(DROP_SECONDS)
                deadline, rest = time.monotonic() + DROP_SECONDS, DROP_BYTES
                while rest > 0 and time.monotonic() < deadline and (dropped := self.connection.recv(1 << 16)):
                    rest -= len(dropped)
            except OSError:
                pass  # the client has gone, or sends nothing

        def is_closed(self) -> bool:
            """is_closed reports whether the client has closed the connection."""
            try:
                readable, _, _ = select.select([self.connection], [], [], 0)
                return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""
            except (OSError, ValueError):
                return True

        def body(self) -> bytes:
            """body returns the body, cut behind the limit."""
            limit = endpoint.max_body_bytes + 1
            if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
                length = self.headers.get("Content-Length", "0")
                return self.rfile.read(min(limit, int(length) if length.isdigit() else 0))
            body = bytearray()
            while len(body) < limit:
                size = int(self.rfile.readline(64).split(b";")[0].strip() or b"0", 16)
                if size == 0:
                    while self.rfile.readline(1024).strip():
                        pass  # trailers
                    break
                body += self.rfile.read(min(size, limit - len(body)))
                if len(body) < limit:
                    self.rfile.readline(8)
            return bytes(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
