"""The HTTP side: two ports on loopback (the Hub and its storage), faults, and the log."""

from __future__ import annotations

import errno
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from tests.support.hub import endpoints
from tests.support.hub.accounts import Accounts
from tests.support.hub.answers import Answer, Refused, Span
from tests.support.hub.faults import Fault, Faults
from tests.support.hub.hub import Hub
from tests.support.hub.log import Record, RequestLog
from tests.support.hub.request import Body, Request, dispatch, query_of

endpoints.load()
_REFUSALS = {
    "403": "Forbidden: the test says so",
    "429": "Too many requests",
    "500": "Internal error",
    "500-after-commit": "Internal error",
}


class HubServer:
    """A running Hub. Use as a context manager, or `start` and `stop`."""

    def __init__(
        self,
        root: Path,
        accounts: Accounts,
        follow: Callable[[Record], None] | None = None,
    ) -> None:
        self.hub = Hub(root, accounts)
        self.faults = Faults()
        self.log = RequestLog()
        self.follow = follow
        self._ports = [_Listener(self, storage=False), _Listener(self, storage=True)]
        self.endpoint, self.storage = (listener.url for listener in self._ports)

    def start(self) -> None:
        for listener in self._ports:
            loop = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
            loop.start()

    def stop(self) -> None:
        for listener in self._ports:
            listener.shutdown()
            listener.server_close()

    def __enter__(self) -> HubServer:  # noqa: PYI034 - Self is not in Python 3.10
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def record(self, record: Record) -> None:
        self.log.add(record)
        if self.follow is not None:
            self.follow(record)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, owner: HubServer, *, storage: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.owner = owner
        self.is_storage = storage
        self.connections: set[socket.socket] = set()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, client = super().get_request()
        self.connections.add(connection)
        return connection, client

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Hang up on everybody, too: a Hub that has stopped answers nothing more."""
        super().server_close()
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has left is no error; the rest is kept for the test."""
        error = sys.exc_info()[1]
        left = isinstance(error, ConnectionError) or (
            isinstance(error, OSError) and error.errno == errno.ENOTCONN
        )
        if isinstance(error, Exception) and not left:
            self.owner.hub.complaints.append(error)


class _Cut(Exception):  # noqa: N818 - an order, not an error
    """The connection ends here."""

    def __init__(self, *, reset: bool = False, sent: int = 0) -> None:
        super().__init__()
        self.reset = reset
        """Whether what is under way is lost, too."""
        self.sent = sent


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = (
        1 << 16
    )  # headers and body in one packet: a client must not wait for an acknowledgement
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        listener = cast("_Listener", self.server)
        owner = listener.owner
        owner.log.begin()
        request = self._request(owner)
        request.fault = owner.faults.take(f"{self.command} {self.path}")
        status, sent, known = 0, 0, True
        try:
            answer, known = self._answer(request, listener)
            for _ in request.body:  # else the next request would begin in the middle of this one
                pass
            sent = self._send(answer, request.fault)
            status = answer.status
        except _Cut as cut:
            sent = cut.sent
            self._hang_up(reset=cut.reset)
        except (ConnectionError, ValueError):  # the client has left, or speaks no HTTP
            self._hang_up(reset=True)
        finally:
            fault = request.fault.kind if request.fault else None
            agent = self.headers.get("User-Agent", "")
            received = request.body.received
            owner.record(
                Record(self.command, self.path, status, received, sent, fault, known, agent)
            )

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

    def _request(self, owner: HubServer) -> Request:
        path, _, query = self.path.partition("?")
        said = self.headers.get("Content-Length", "")
        length = int(said) if said.isdigit() else 0
        return Request(
            self.command,
            path,
            query_of(query),
            {name.title(): value for name, value in self.headers.items()},
            Body(self.rfile, length),
            owner.hub,
            owner.endpoint,
            owner.storage,
        )

    def _answer(self, request: Request, listener: _Listener) -> tuple[Answer, bool]:
        """The answer, and whether the route is known."""
        fault = request.fault
        if fault is not None:
            self._before(request, fault)
        if fault is not None and fault.kind in ("403", "429", "500"):
            return _refusal(fault), True
        answer, known = _carry_out(request, listener)
        if fault is not None and fault.kind == "500-after-commit":
            return _refusal(fault), known
        if fault is not None and fault.kind == "cut-after-commit":
            raise _Cut
        return answer, known

    def _before(self, request: Request, fault: Fault) -> None:
        if fault.kind == "slow":
            time.sleep(fault.seconds)
        if fault.kind == "cut":
            request.body.take(request.body.length // 2)
            raise _Cut(reset=True)

    def _send(self, answer: Answer, fault: Fault | None) -> int:
        """Send it, and say how many bytes of the body went."""
        size = len(answer.body)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            plain = value.encode("ascii", "replace").decode()
            self.send_header(name, " ".join(plain.splitlines()))
        if answer.status not in (204, 304):
            self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.command == "HEAD":
            size = 0
        if fault is not None and fault.kind == "cut-answer":
            self._write(answer.body, size // 2)
            self.wfile.flush()
            raise _Cut(sent=size // 2)
        self._write(answer.body, size)
        self.wfile.flush()
        return size

    def _write(self, body: bytes | Span, size: int) -> None:
        if isinstance(body, bytes):
            self.wfile.write(body[:size])
            return
        with body.path.open("rb") as file:
            file.seek(body.start)
            while size and (piece := file.read(min(size, 1 << 18))):
                self.wfile.write(piece)
                size -= len(piece)

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


def _carry_out(request: Request, listener: _Listener) -> tuple[Answer, bool]:
    authorization = request.headers.get("Authorization")
    handler = dispatch(request, listener.is_storage)
    if handler is None:
        return Refused(404, f"No such route: {request.path}").answer(), False
    if listener.is_storage and authorization:
        listener.owner.log.leaks.append(f"{request.method} {request.path}")
    try:
        if not listener.is_storage:
            request.account = request.hub.accounts.identify(authorization)
        return handler(request), True
    except Refused as refused:
        return refused.answer(), True
    except (ConnectionError, _Cut):
        raise
    except Exception as error:  # noqa: BLE001 - the test has to see it
        request.hub.complaints.append(error)
        return Refused(500, f"The test Hub failed: {error!r}").answer(), True


def _refusal(fault: Fault) -> Answer:
    headers = {}
    if fault.kind == "429" and fault.retry_after is not None:
        headers["Retry-After"] = str(fault.retry_after)
    return Refused(int(fault.kind[:3]), _REFUSALS[fault.kind], headers=headers).answer()
