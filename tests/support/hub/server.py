"""The HTTP side: a port on loopback, faults, and the log."""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import parse_qs

from tests.support.hub.api import Answer, Request, find_handler, reply
from tests.support.hub.faults import Faults
from tests.support.hub.log import Record, RequestLog
from tests.support.hub.state import Account, Hub, Refused

SLOW_S = 0.01


class HubServer(ThreadingHTTPServer):
    """A Hub that answers."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, tokens: Mapping[str, Account], trusted: frozenset[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = Hub(tokens, trusted)
        self.faults = Faults()
        self.log = RequestLog()
        self.follow: Callable[[Record], None] | None = None
        """Called after each request."""
        self.endpoint = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has left is no error; the rest is kept for the test."""
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self.hub.complaints.append(error)


@contextmanager
def running_server(tokens: Mapping[str, Account], trusted: frozenset[str]) -> Iterator[HubServer]:
    server = HubServer(tokens, trusted)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class _Cut(Exception):  # noqa: N818 - an order, not an error
    """The connection ends here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # one packet: a client must not wait for an acknowledgement
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        server = cast("HubServer", self.server)
        server.log.begin()
        fault = server.faults.take(f"{self.command} {self.path}")
        status, is_known = 0, True
        try:
            answer, is_known = self._answer(server, fault)
            self._send(answer, is_half=fault == "cut-answer")
            status = answer.status
        except (_Cut, ConnectionError):  # the client may have left
            self._hang_up(reset=fault == "cut")
        finally:
            agent = self.headers.get("User-Agent", "")
            record = Record(self.command, self.path, status, is_known, agent)
            server.log.add(record)
            if server.follow is not None:
                server.follow(record)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

    def _answer(self, server: HubServer, fault: str | None) -> tuple[Answer, bool]:
        """The answer, and whether the route is known."""
        if fault == "cut":
            raise _Cut
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if fault == "slow":
            time.sleep(SLOW_S)
        if fault in ("403", "429", "500"):
            return _refusal(Refused(int(fault), "The test says so")), True
        answer, is_known = self._carried_out(server, fault, body)
        if fault == "500-after-commit":
            return _refusal(Refused(500, "The test says so")), is_known
        if fault == "cut-after-commit":
            raise _Cut
        return answer, is_known

    def _carried_out(
        self, server: HubServer, fault: str | None, body: bytes
    ) -> tuple[Answer, bool]:
        path, _, query = self.path.partition("?")
        token = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        request = Request(
            server.hub, server.endpoint, path, parse_qs(query, keep_blank_values=True),
            dict(self.headers), body, server.hub.tokens.get(token), fault == "stale",
        )  # fmt: skip
        handler = find_handler(self.command, request)
        if handler is None:
            return _refusal(Refused(404, f"No such route: {path}")), False
        if token and token not in server.hub.tokens:
            return _refusal(Refused(401, "Invalid credentials in Authorization header")), True
        try:
            return handler(request), True
        except Refused as refused:
            return _refusal(refused), True
        except Exception as error:  # noqa: BLE001 - the test has to see it
            server.hub.complaints.append(error)
            return _refusal(Refused(500, f"The test Hub failed: {error!r}")), True

    def _send(self, answer: Answer, *, is_half: bool) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        size = 0 if self.command == "HEAD" else len(answer.body)
        self.wfile.write(answer.body[: size // 2 if is_half else size])
        self.wfile.flush()
        if is_half:
            raise _Cut

    def _hang_up(self, *, reset: bool) -> None:
        """End the connection at once; the client may have ended it before."""
        self.close_connection = True
        with suppress(OSError):
            if reset:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
            else:
                self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: requests are in the log."""


def _refusal(refused: Refused) -> Answer:
    """As the Hub says it: once in headers, which clients read, and once in the body."""
    headers = {"X-Error-Message": " ".join(refused.message.split())}
    headers |= {"X-Error-Code": refused.code} if refused.code else {}
    headers |= {"Retry-After": "0"} if refused.status == 429 else {}
    return reply({"error": refused.message}, refused.status, headers)
