"""Debian packages of a few bytes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping


def ar(*members: tuple[str, bytes]) -> bytes:
    """An `ar` archive."""
    parts = [b"!<arch>\n"]
    for name, data in members:
        parts.append(f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode())
        parts.append(data + b"\n" * (len(data) % 2))
    return b"".join(parts)


def tar_xz(files: Mapping[str, str], programs: tuple[str, ...] = ("tool",)) -> bytes:
    """A tar archive of files below `usr`; content `-> x` makes a symbolic link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"./usr/{name}")
            if content.startswith("-> "):
                info.type, info.linkname = tarfile.SYMTYPE, content[3:]
            info.mode = 0o755 if name in programs else 0o644
            info.size = 0 if info.issym() else len(content)
            archive.addfile(info, io.BytesIO(content.encode()))
    return buffer.getvalue()


def odd_deb(*members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A package of just these members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", format=tarfile.GNU_FORMAT) as archive:
        for member in members:
            info, data = member if isinstance(member, tuple) else (member, b"")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return ar(("data.tar.xz", buffer.getvalue()))


def make_deb(files: Mapping[str, str], programs: tuple[str, ...] = ("tool",)) -> bytes:
    """A package of these files."""
    data = ("data.tar.xz", tar_xz(files, programs))
    return ar(("debian-binary", b"2.0"), ("control.tar.xz", b"odd"), data)
