"""Reading Debian packages without dpkg: an `ar` archive that holds a tar archive."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO

from kbuild.errors import ToolchainError

_MAGIC = b"!<arch>\n"
_HEADER = 60
_XZ = "data.tar.xz"

Destination = Callable[[str], str | None]
"""A package's path -> where it goes, or None."""


def unpack(deb: Path, target: Path, destination: Destination) -> None:
    """Write the package's wanted files and symbolic links below `target`.

    Raises:
        ToolchainError: the file is no Debian package with xz-compressed data, or names a place
            outside `target`.
    """
    with deb.open("rb") as file:
        _seek_data(file, deb)
        with tarfile.open(fileobj=file, mode="r|xz") as archive:
            for member in archive:
                place = destination(str(PurePosixPath(member.name)))
                if place is not None and not member.isdir():
                    _write(archive, member, _inside(target, place))


def _seek_data(file: IO[bytes], deb: Path) -> None:
    """To the first byte of the data archive (deb(5), ar(5): headers of 60 bytes, even offsets)."""
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ToolchainError(f"{deb} is not a Debian package")
    while len(header := file.read(_HEADER)) == _HEADER:
        name, size = header[:16].decode("ascii").strip().rstrip("/"), int(header[48:58])
        if name == _XZ:
            return
        file.seek(size + size % 2, 1)
    raise ToolchainError(f"{deb} has no {_XZ}, the only kind that kbuild reads")


def _inside(target: Path, place: str) -> Path:
    if ".." in PurePosixPath(place).parts or place.startswith("/"):
        raise ToolchainError(f"a package names a place outside its own folder: {place}")
    return target / place


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        place.symlink_to(member.linkname)
        return
    content = archive.extractfile(member)
    if content is None:
        raise ToolchainError(f"{member.name} is neither a file nor a symbolic link")
    with place.open("wb") as file:
        shutil.copyfileobj(content, file)
    place.chmod(0o755 if member.mode & 0o100 else 0o644)
