"""Entries of the store in the cache that several machines share.

Their files are programs that run here, unlike objects outside of any sandbox. So they are sent and
accepted only where the machines share a secret.

    toolchains/<name>      recipe, facts, the list of files, and the pieces that they are cut into
    pieces/<kk>/<digest>   up to 16 MiB of the files' bytes, one after the other
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.errors import DamagedFileError
from kbuild.runtime.files import is_inside, sha256
from kbuild.runtime.readonly_tree import remove_tree
from kbuild.runtime.remote_cache import RemoteCache
from kbuild.runtime.untrusted import MAX_DOCUMENT_BYTES, reading
from kbuild.store import Recipe, StoreEntry

_PIECE = 16 << 20
_MAX_BYTES = 4 << 30
"""Of an entry's files: CUDA has 300 MB, Triton a gigabyte."""
_AHEAD = 3
"""Pieces that are asked for before they are needed."""
_LINK, _RUNS = "link:", ":x"
_OWN = ("recipe", "size", "linked", "files")
"""What the store says of an entry by itself."""
_KIND = "an entry of the store in the shared cache"


@dataclass(frozen=True)
class RemoteEntry:
    """One entry of the store, as the shared cache has it."""

    remote: RemoteCache
    recipe: Recipe

    @property
    def _name(self) -> str:
        return f"toolchains/{self.recipe.name}"

    def fetch(self, root: Path) -> Mapping[str, Any] | None:
        """Fill the empty folder; the facts of its maker, or None, and then it is empty again."""
        if not self.remote.is_signed or not self.remote.is_asked:
            return None
        data = self.remote.get(self._name, MAX_DOCUMENT_BYTES)
        facts = None
        if data is not None:
            try:
                facts = self._unpack(data, root)
            except (DamagedFileError, OSError):
                facts = None
        if facts is None:
            self.remote.count(hit=False)
            remove_tree(root)
            root.mkdir()
        return facts

    def files(self, entry: StoreEntry, seconds: float) -> Iterator[tuple[str, bytes]]:
        """What is sent of an entry that took so long to make; nothing of what has parts.

        One that names places of this machine is left out.
        """
        facts = {name: value for name, value in entry.facts.items() if name not in _OWN}
        members, place = entry.members, str(entry.folder.parent)
        sizes = {path: _size(entry.root / path) for path in members}
        own = (path for path, mark in members.items() if not mark.startswith(_LINK))
        if (
            entry.parts
            or sum(sizes.values()) > _MAX_BYTES
            or place in json.dumps([facts, members])
            or any(place.encode() in (entry.root / path).read_bytes() for path in own)
        ):
            return
        pieces = []
        for piece in _pieces(entry.root, members):
            pieces.append(sha256(piece))
            yield _piece_name(pieces[-1]), piece
        document = {
            "recipe": self.recipe.to_json(),
            "facts": facts,
            "members": members,
            "sizes": sizes,
            "pieces": pieces,
            "seconds": round(seconds, 2),
        }
        yield self._name, json.dumps(document).encode()

    def _unpack(self, data: bytes, root: Path) -> Mapping[str, Any] | None:
        with reading(self._name, _KIND):
            document = json.loads(data)
            members = {str(path): str(mark) for path, mark in document["members"].items()}
            sizes = {str(path): int(size) for path, size in document["sizes"].items()}
            names = [str(name) for name in document["pieces"]]
            facts, seconds = dict(document["facts"]), float(document["seconds"])
            if document["recipe"] != self.recipe.to_json() or sizes.keys() != members.keys():
                raise ValueError("it is another entry")
            is_small = min(sizes.values(), default=0) >= 0 and sum(sizes.values()) <= _MAX_BYTES
            if not is_small or not all(map(is_inside, members)):
                raise ValueError("its files are not to be unpacked")
            contents = _Stream(self._received(names, seconds))
            for path in sorted(members, key=lambda path: (members[path].startswith(_LINK), path)):
                _write(root, path, members[path], contents.take(sizes[path]))
        self.remote.count(hit=True, received=contents.taken, saved=seconds)
        return facts

    def _received(self, names: list[str], seconds: float) -> Iterator[bytes]:
        requests = [self.remote.request(_piece_name(name), _PIECE) for name in names[:_AHEAD]]
        for at, _ in enumerate(names):
            data = self.remote.receive(requests[at], seconds)
            if data is None:
                raise DamagedFileError(f"`{self._name}`: a piece is missing")
            if at + _AHEAD < len(names):
                requests.append(self.remote.request(_piece_name(names[at + _AHEAD]), _PIECE))
            yield data


class _Stream:
    """The bytes of pieces, as they are asked for."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""
        self.taken = 0

    def take(self, size: int) -> bytes:
        parts, missing = [], size
        while missing:
            if not self._rest:
                self._rest = next(self._pieces, b"")
                if not self._rest:
                    raise ValueError("its pieces have too few bytes")
            part, self._rest = self._rest[:missing], self._rest[missing:]
            parts.append(part)
            missing -= len(part)
        self.taken += size
        return b"".join(parts)


def _pieces(root: Path, members: Mapping[str, str]) -> Iterator[bytes]:
    rest = bytearray()
    for path in sorted(path for path, mark in members.items() if not mark.startswith(_LINK)):
        rest += (root / path).read_bytes()
        while len(rest) >= _PIECE:
            yield bytes(rest[:_PIECE])
            del rest[:_PIECE]
    if rest:
        yield bytes(rest)


def _write(root: Path, path: str, mark: str, content: bytes) -> None:
    """One file or link; links come last, so that nothing is written through them."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if mark.startswith(_LINK):
        target.symlink_to(mark.removeprefix(_LINK))
    else:
        if mark.removesuffix(_RUNS) != f"sha256:{sha256(content)}":
            raise ValueError("its files are not those that it lists")
        target.write_bytes(content)
        target.chmod(0o755 if mark.endswith(_RUNS) else 0o644)


def _size(path: Path) -> int:
    return 0 if path.is_symlink() else path.stat().st_size


def _piece_name(digest: str) -> str:
    return f"pieces/{digest[:2]}/{digest[2:]}"
