"""Tiny wheels, and a package index on 127.0.0.1 that serves them with or without ranges."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from kbuild.toolchains.wheels.lock import LockedWheel
from kbuild.toolchains.wheels.settings import IndexSettings

TAG = "py3-none-manylinux_2_28_x86_64"


def make_wheel(
    folder: Path,
    project: str,
    version: str,
    members: Mapping[str, bytes],
    *,
    tag: str = TAG,
    metadata: str = "",
    lie: Mapping[str, bytes] | None = None,
) -> Path:
    """A wheel; `lie` gives members another content than RECORD says."""
    name = project.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    files = {**members, f"{info}/METADATA": f"Name: {project}\n{metadata}".encode()}
    rows = [f"{path},sha256={_base64(data)},{len(data)}\n" for path, data in files.items()]
    record = f"{info}/RECORD"
    files[record] = "".join([*rows, f"{record},,\n"]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            always = zipfile.ZipInfo(path)  # the same time for each wheel, and so the same bytes
            archive.writestr(always, (lie or {}).get(path, data), zipfile.ZIP_DEFLATED)
    return target


def pinned(path: Path, *, record: bool = True) -> LockedWheel:
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/RECORD"))
        text = hashlib.sha256(archive.read(name)).hexdigest()
    digest = hashlib.sha256(data).hexdigest()
    return LockedWheel(path.name, digest, len(data), text if record else None)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@dataclass
class Served:
    """What the server was asked for."""

    url: str
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and Range header of each GET."""
    drops: int = 0
    """Connections to break off in the middle of the next answers with ranges."""

    @property
    def settings(self) -> IndexSettings:
        return IndexSettings(index_url=f"{self.url}/simple")

    def ranges(self) -> list[str]:
        return [asked for _, asked in self.requests if asked]

    def whole(self) -> list[str]:
        return [path for path, asked in self.requests if path.startswith("/files/") and not asked]


class Handler(BaseHTTPRequestHandler):
    """An index below /simple/, files below /files/."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # header and body in one packet
    folder: Path
    ranges: bool
    served: Served

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self._send(200, (self.folder / Path(self.path).name).read_bytes(), body=False)

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.served.requests.append((self.path, asked))
        path = self.folder / Path(self.path).name
        if self.path.startswith("/simple/"):
            self._send(200, self._page(), {"Content-Type": "text/html"})
        elif not path.is_file():
            self._send(404, b"")
        elif asked and self.ranges:
            self._send_part(path.read_bytes(), asked)
        else:
            self._send(200, path.read_bytes())

    def _page(self) -> bytes:
        project = self.path.strip("/").split("/")[1].replace("-", "_")
        links = [
            f'<a href="/files/{path.name}#sha256={pinned(path).sha256}">{path.name}</a>'
            for path in sorted(self.folder.glob(f"{project}-*.whl"))
        ]
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()

    def _send_part(self, data: bytes, asked: str) -> None:
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", asked)
        assert match
        first, last = int(match[1]), int(match[2])
        part = data[first : last + 1]
        headers = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
        if self.served.drops > 0:
            self.served.drops -= 1
            self.close_connection = True
            self._send(206, part[: len(part) // 2], {**headers, "Content-Length": str(len(part))})
        else:
            self._send(206, part, headers)

    def _send(
        self, code: int, data: bytes, headers: Mapping[str, str] | None = None, *, body: bool = True
    ) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)


@contextmanager
def serve(folder: Path, *, ranges: bool = True) -> Iterator[Served]:
    """Serve the wheels in a folder as an index."""
    served = Served("")
    handler = type("Own", (Handler,), {"folder": folder, "ranges": ranges, "served": served})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
