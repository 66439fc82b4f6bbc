"""A proxy on this machine that counts what passes: the bytes that one program really received.

It understands CONNECT and requests with absolute addresses, and passes everything on unread. With
a proxy of the user's, all goes there. What other programs receive meanwhile is not counted.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

_BLOCK = 1 << 18
_END = b"\r\n\r\n"
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class CountingProxy:
    """Listens on the loopback interface; counts over all connections."""

    def __init__(self, upstream: str | None) -> None:
        self.received = 0
        """Bytes from servers to the program: encryption, headers and repeats included."""
        self.sent = 0
        self.connections = 0
        self._upstream = urlsplit(upstream) if upstream else None
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """For the program's settings; the upstream proxy's credentials are kept."""
        place = "{}:{}".format(*self._socket.getsockname())
        if self._upstream is None or "@" not in self._upstream.netloc:
            return f"http://{place}"
        credentials = self._upstream.netloc.rpartition("@")[0]
        return urlunsplit(("http", f"{credentials}@{place}", "", "", ""))

    def serve(self) -> None:
        """Accept until the socket is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                self.connections += 1
                threading.Thread(target=self._handle, args=(client,), daemon=True).start()

    def close(self) -> None:
        """Accept no more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _handle(self, client: socket.socket) -> None:
        with suppress(OSError), closing(client):
            head = _head(client)
            if not head:
                return
            with closing(self._connected(head)) as server:
                if self._upstream is None and head.startswith(b"CONNECT"):
                    client.sendall(_ESTABLISHED)
                else:
                    server.sendall(head)
                away = threading.Thread(target=self._pass, args=(client, server, "sent"))
                away.start()
                self._pass(server, client, "received")
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
                away.join()

    def _connected(self, head: bytes) -> socket.socket:
        if self._upstream is not None:
            return socket.create_connection((self._upstream.hostname, self._upstream.port or 3128))
        method, address = head.split(b" ", 2)[:2]
        text = address.decode()
        place = urlsplit(f"//{text}" if method == b"CONNECT" else text)
        return socket.create_connection((place.hostname, place.port or 80))

    def _pass(self, source: socket.socket, target: socket.socket, count: str) -> None:
        with suppress(OSError):
            while block := source.recv(_BLOCK):
                with self._lock:
                    setattr(self, count, getattr(self, count) + len(block))
                target.sendall(block)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def _head(client: socket.socket) -> bytes:
    head = b""
    while _END not in head:
        block = client.recv(_BLOCK)
        if not block:
            return b""
        head += block
    return head


@contextmanager
def counting_proxy(upstream: str | None = None) -> Iterator[CountingProxy]:
    """A proxy that serves until the end."""
    proxy = CountingProxy(upstream)
    threading.Thread(target=proxy.serve, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
