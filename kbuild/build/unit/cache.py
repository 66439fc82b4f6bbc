"""The object cache as one unit sees it: look up, deliver, store.

    <cache>/objects/<kk>/<key>/<entry>.d     the files that the object was made from, with hashes
                              <entry>.o     the object
                              <entry>.err   what the compiler said

The key covers compiler, flags and source, without the places of headers. An entry fits when every
header, looked for in this build's folders, has the content that it had: so a unit whose headers are
the same is shared by all Torch releases and variants. An entry is complete when its `.d` is there,
which is renamed into place last.
"""

from __future__ import annotations

import os

from kbuild.build.unit import depfile, hashes
from kbuild.build.unit.key import CLOCKS, FORMAT, object_key
from kbuild.build.unit.turn import TORCH, turn_key
from kbuild.filestate import digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbuild.build.unit.command import Command
    from kbuild.build.unit.inputs import Inputs
    from kbuild.build.unit.settings import Settings

_ENTRIES = 16
"""Entries of one key; the oldest makes way."""
_COLUMNS = 4


class Unit:
    """One command's part of the cache, as its inputs are at one moment."""

    def __init__(
        self,
        settings: Settings,
        command: Command,
        environ: Mapping[str, str],
        inputs: Inputs,
    ) -> None:
        self._command = command
        self._inputs = inputs
        source = hashes.read(command.absolute(command.source))
        self.refusal = command.refusal or _clock_in(source)
        key = object_key(command, environ, inputs.files, settings.compilers)
        self._folder = f"{settings.cache}/objects/{key[:2]}/{key[2:]}"
        turn = turn_key(key, source, command.place(TORCH), settings.compilers)
        self.turn = f"{settings.cache}/turns/{turn[:2]}/{turn[2:]}"
        """Lock file of those who want the same object."""
        self.headers: list[str] = []
        """Names of the files that the object was made from, once it is there."""
        self.paths: list[str] = []
        """Where they are, once the object was fetched."""
        self.record = ""
        """The entry's record, once it is there."""
        self.sizes: dict[str, int] = {}
        """Bytes of the headers, by name, when they were just read."""

    def fetch(self) -> bytes | None:
        """Deliver object and depfile; the compiler's words, or None when there is no entry."""
        for entry in self._entries():
            try:
                said = self._fetch_from(entry)
            except FileNotFoundError:  # pruned by another process
                continue
            except (ValueError, IndexError):  # damaged
                os.unlink(f"{entry}.d")
                continue
            if said is not None:
                return said
        return None

    def _fetch_from(self, entry: str) -> bytes | None:
        paths = self._fitting(entry)
        data = self._object(entry) if paths is not None else None
        if paths is None or data is None:
            return None
        said = hashes.read(f"{entry}.err")
        self._deliver(data, paths)
        os.utime(f"{entry}.d")
        self.record = f"{entry}.d"
        return self._placed(said)

    def expected(self) -> list[str]:
        """What the newest entry was made from: what a compilation is likely to read."""
        try:
            return [self._command.place(row[3]) for row in _rows(f"{self._entries()[0]}.d")]
        except (OSError, ValueError, IndexError):
            return []

    def store(self, said: bytes, paths: list[str]) -> str:
        """Keep what the compiler just made from `paths`; the reason when it cannot be kept.

        That none of them has changed since it started is for the caller to know.
        """
        self.headers = [self._command.name(path) for path in paths]
        reason = self._unkeepable(paths)
        if not reason:
            self._write(paths, said)
        return reason

    def _entries(self) -> list[str]:
        try:
            with os.scandir(self._folder) as found:
                records = [(e.stat().st_mtime_ns, e.path) for e in found if e.name.endswith(".d")]
        except OSError:
            return []
        return [path[: -len(".d")] for _, path in sorted(records, reverse=True)]

    def _fitting(self, entry: str) -> list[str] | None:
        """This build's paths of the entry's files, when all have the content that they had."""
        paths, names = [], []
        for found, relative, known, name in _rows(f"{entry}.d"):
            path = self._command.place(name)
            inputs = self._inputs
            if inputs.files.of(path) != known or inputs.search.find(path) != (found, relative):
                return None
            paths.append(path)
            names.append(name)
        self.headers, self.paths = names, paths
        return paths

    def _object(self, entry: str) -> bytes | None:
        recorded = hashes.read(f"{entry}.d").split(b"\n", 2)[1].decode()
        data = hashes.read(f"{entry}.o")
        if digest(data) == recorded:
            return data
        os.unlink(f"{entry}.d")
        return None

    def _deliver(self, data: bytes, paths: list[str]) -> None:
        command = self._command
        text = depfile.render(command.target or command.object, paths)
        target = command.absolute(command.depfile)
        hashes.write(target, text.encode("utf-8", "surrogateescape"))
        hashes.write(command.absolute(command.object), data)

    def _unkeepable(self, paths: list[str]) -> str:
        own = tuple(f"{folder}/" for folder in self._command.own_folders)
        for path in paths:
            if any(character in path for character in "\\\t\n"):
                return f"{path!r} has a character that depfiles cannot hold"
            clock = _clock_in(hashes.read(path)) if path.startswith(own) else ""
            if clock:
                return clock
        return ""

    def _write(self, paths: list[str], said: bytes) -> None:
        command = self._command
        rows = []
        for path in paths:
            found, relative = self._inputs.search.find(path)
            known = self._inputs.files.identity(path)
            if known is None:
                raise FileNotFoundError(path)
            rows.append(f"{found}\t{relative}\t{known[4]}\t{command.name(path)}")
            self.sizes[command.name(path)] = known[0]
        data = hashes.read(command.absolute(command.object))
        text = "\n".join((FORMAT, digest(data), *rows)).encode("utf-8", "surrogateescape")
        entry = f"{self._folder}/{digest(chr(10).join(rows).encode())}"
        os.makedirs(self._folder, exist_ok=True)
        for old in self._entries()[_ENTRIES - 1 :]:
            os.unlink(f"{old}.d")
        hashes.write(f"{entry}.o", data)
        hashes.write(f"{entry}.err", self._named(said))
        hashes.write(f"{entry}.d", text)
        self.record = f"{entry}.d"

    def _named(self, said: bytes) -> bytes:
        for place, name in reversed(self._command.maps):
            said = said.replace(place.encode(), b"\0" + name.encode() + b"\0")
        return said

    def _placed(self, said: bytes) -> bytes:
        for place, name in self._command.maps:
            said = said.replace(b"\0" + name.encode() + b"\0", place.encode())
        return said


def recorded(record: str) -> list[str]:
    """Names of the files that an entry's object was made from.

    Raises:
        OSError: the entry is gone.
        ValueError: the file is no record.
    """
    return [row[3] for row in _rows(record)]


def _rows(record: str) -> list[list[str]]:
    """Of each file: where it is found, relative to what, its hash and its name."""
    lines = hashes.read(record).decode("utf-8", "surrogateescape").split("\n")
    rows = [line.split("\t") for line in lines[2:]]
    if lines[0] != FORMAT or any(len(row) != _COLUMNS for row in rows):
        raise ValueError(f"{record} is no record")
    return rows


def _clock_in(text: bytes) -> str:
    found = next((clock for clock in CLOCKS if clock in text), b"")
    return f"it uses {found.decode()}" if found else ""
