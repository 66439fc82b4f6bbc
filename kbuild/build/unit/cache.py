"""The object cache as one unit sees it: look up, deliver, store.

The lock that lets only one of several variants compile the same object; and the memory that
units took before.

    <cache>/objects/<kk>/<key>/<entry>.d     the files that the object was made from, with hashes
                              <entry>.o     the object
                              <entry>.err   the compiler's messages

The key covers compiler, flags and source, but not where headers are. An entry fits when every
header that this build finds has the content that it had. `.d` is renamed into place last.
"""

from __future__ import annotations

import os

from kbuild.build.unit.command import CLOCK_MACROS, OBJECT_FORMAT, object_key
from kbuild.build.unit.inputs import read_file, render_depfile, replace_file
from kbuild.system.file_state import hash_bytes

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbuild.build.unit.command import CompileCommand
    from kbuild.build.unit.inputs import UnitInputs
    from kbuild.system.unit_settings import LauncherSettings


TORCH_PREFIX = "/torch/"
"""Name of Torch's headers in generated projects, given by `-ffile-prefix-map`."""
_TORCH_INCLUDES = (b"<torch/", b"<ATen/", b"<c10/", b'"torch/', b'"ATen/', b'"c10/')
_TOOLKIT_INCLUDES = (b"<cu", b"<c10/cuda/", b"<ATen/cuda/", b"<hip", b"<c10/hip/", b"<ATen/hip/")


def compile_once_key(key: str, source: bytes, torch: str, compilers: str) -> str:
    """Name of the turn: the same for units whose objects are likely to be the same.

    Args:
        key: the object's key, which leaves headers out.
        source: what the unit's file holds.
        torch: where Torch's headers are. A source that includes some is compiled once for each
            Torch: its variants for several toolkits wait for one of them.
        compilers: their versions. A source that includes a toolkit's headers as well waits for
            nobody who has another toolkit.
    """
    parts = [key]
    if any(mark in source for mark in _TORCH_INCLUDES):
        parts.append(torch)
        if any(mark in source for mark in _TOOLKIT_INCLUDES):
            parts.append(compilers)
    return hash_bytes("\0".join(parts).encode("utf-8", "surrogateescape"))


class CompileOnceLock:
    """A lock in the cache; it dies with its process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1

    def is_first(self) -> bool:
        """True when nobody makes the object now; the turn is then this unit's until `end`."""
        import fcntl

        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait(self) -> None:
        """Wait until the first has ended; the turn is nobody's afterwards."""
        import fcntl

        fcntl.flock(self._file, fcntl.LOCK_SH)
        self.end()

    def end(self) -> None:
        """Let the others look."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


OTHER_FILES = "it was made from other files than those that are here"
"""Why an entry of another machine is refused that may be right there."""
_MAX_ENTRIES = 16
"""Entries of one key; the oldest makes way."""
_RECORD_COLUMNS = 4


class UnitCache:
    """One command's part of the cache, as its inputs are at one moment."""

    def __init__(
        self,
        settings: LauncherSettings,
        command: CompileCommand,
        environ: Mapping[str, str],
        inputs: UnitInputs,
    ) -> None:
        self._command = command
        self._inputs = inputs
        source = read_file(command.absolute(command.source))
        self.refusal = command.refusal or _clock_macro_in(source)
        store = f"{settings.cache}/store"
        self.key = key = object_key(command, environ, inputs.files.of, settings.compilers, store)
        """Names every object of this command and source; headers tell them apart."""
        self._source, self._compilers = source, settings.compilers
        self._folder = f"{settings.cache}/objects/{key[:2]}/{key[2:]}"
        turn = compile_once_key(key, source, command.place(TORCH_PREFIX), settings.compilers)
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

    @property
    def slot(self) -> str:
        """Key of the objects that are likely to fit here, the same on every machine."""
        torch = self._inputs.files.of(f"{self._command.place(TORCH_PREFIX)}torch/version.h")
        return compile_once_key(self.key, self._source, torch or "", self._compilers)

    def has_fitting_entry(self) -> bool:
        """Whether the cache has an object for this build; `fetch` verifies it."""
        for entry in self._entries():
            try:
                if self.fits(read_file(f"{entry}.d")):
                    return True
            except (OSError, ValueError, IndexError):
                continue
        return False

    def fits(self, record: bytes) -> bool:
        """Whether an object with this record is the one that this build would make.

        Raises:
            ValueError: it is no record.
        """
        return self._fitting(record) is not None

    def fetch(self) -> bytes | None:
        """Deliver object and depfile; the compiler's words, or None when there is no entry."""
        for entry in self._entries():
            try:
                diagnostics = self._fetch_from(entry)
            except FileNotFoundError:  # pruned by another process
                continue
            except (ValueError, IndexError):  # damaged
                os.unlink(f"{entry}.d")
                continue
            if diagnostics is not None:
                return diagnostics
        return None

    def _fetch_from(self, entry: str) -> bytes | None:
        record = read_file(f"{entry}.d")
        paths = self._fitting(record)
        data = self._object(entry, record) if paths is not None else None
        if paths is None or data is None:
            return None
        diagnostics = read_file(f"{entry}.err")
        command = self._command
        text = render_depfile(command.target or command.object, paths)
        target = command.absolute(command.depfile)
        replace_file(target, text.encode("utf-8", "surrogateescape"))
        replace_file(command.absolute(command.object), data)
        os.utime(f"{entry}.d")
        self.record = f"{entry}.d"
        return self._placed(diagnostics)

    def entry(self) -> str:
        """Path of the newest entry that fits, without its suffix; empty when there is none."""
        for entry in self._entries():
            try:
                if self.fits(read_file(f"{entry}.d")):
                    return entry
            except (OSError, ValueError, IndexError):  # pruned, or damaged
                continue
        return ""

    def accept(self, record: bytes, data: bytes, diagnostics: bytes) -> str:
        """Keep an entry that another machine made; why it is refused, else empty.

        Every file that it was made from has to be here, with the content that it had there.
        """
        try:
            rows, digest = _record_rows(record), record.split(b"\n", 2)[1].decode()
            fits = self.fits(record)
        except (ValueError, IndexError):
            return "its record cannot be read"
        source = self._command.name(self._command.absolute(self._command.source))
        if source not in [row[3] for row in rows]:
            return "its record does not name its source"
        if not fits:
            return OTHER_FILES
        if hash_bytes(data) != digest:
            return "its digest is not that of its object"
        name = hash_bytes(record.split(b"\n", 2)[2])
        entry = f"{self._folder}/{name}"
        self._write_entry(entry, record, data, diagnostics)
        return ""

    def expected(self) -> list[str]:
        """What the newest entry was made from: what a compilation is likely to read."""
        try:
            record = read_file(f"{self._entries()[0]}.d")
            return [self._command.place(row[3]) for row in _record_rows(record)]
        except (OSError, ValueError, IndexError):
            return []

    def store(self, diagnostics: bytes, paths: list[str]) -> str:
        """Keep what the compiler just made from `paths`; the reason when it cannot be kept.

        That none of them has changed since it started is for the caller to know.
        """
        self.headers = [self._command.name(path) for path in paths]
        reason = self._unkeepable(paths)
        if not reason:
            self._write(paths, diagnostics)
        return reason

    def _entries(self) -> list[str]:
        try:
            with os.scandir(self._folder) as entries:
                records = [(e.stat().st_mtime_ns, e.path) for e in entries if e.name.endswith(".d")]
        except OSError:
            return []
        return [path[: -len(".d")] for _, path in sorted(records, reverse=True)]

    def _fitting(self, record: bytes) -> list[str] | None:
        """This build's paths of the entry's files, when all have the content that they had."""
        paths, names, inputs = [], [], self._inputs
        for position, relative, known, name in _record_rows(record):
            for path in self._command.places(name):
                is_same = inputs.files.of(path) == known
                if is_same and inputs.search.find(path) == (position, relative):
                    break
            else:
                return None
            paths.append(path)
            names.append(name)
        self.headers, self.paths = names, paths
        return paths

    def _object(self, entry: str, record: bytes) -> bytes | None:
        recorded = record.split(b"\n", 2)[1].decode()
        data = read_file(f"{entry}.o")
        if hash_bytes(data) == recorded:
            return data
        os.unlink(f"{entry}.d")
        return None

    def _unkeepable(self, paths: list[str]) -> str:
        own = tuple(f"{folder}/" for folder in self._command.own_folders)
        for path in paths:
            if any(character in path for character in "\\\t\n"):
                return f"{path!r} has a character that depfiles cannot hold"
            clock = _clock_macro_in(read_file(path)) if path.startswith(own) else ""
            if clock:
                return clock
        return ""

    def _write(self, paths: list[str], diagnostics: bytes) -> None:
        command = self._command
        rows = []
        for path in paths:
            position, relative = self._inputs.search.find(path)
            known = self._inputs.files.identity(path)
            if known is None:
                raise FileNotFoundError(path)
            rows.append(f"{position}\t{relative}\t{known[4]}\t{command.name(path)}")
            self.sizes[command.name(path)] = known[0]
        data = read_file(command.absolute(command.object))
        text = "\n".join((OBJECT_FORMAT, hash_bytes(data), *rows)).encode(
            "utf-8", "surrogateescape"
        )
        entry = f"{self._folder}/{hash_bytes(chr(10).join(rows).encode())}"
        self._write_entry(entry, text, data, self._named(diagnostics))

    def _write_entry(self, entry: str, record: bytes, data: bytes, diagnostics: bytes) -> None:
        """`diagnostics` name places as `_named` does."""
        os.makedirs(self._folder, exist_ok=True)
        for old in self._entries()[_MAX_ENTRIES - 1 :]:
            os.unlink(f"{old}.d")
        replace_file(f"{entry}.o", data)
        replace_file(f"{entry}.err", diagnostics)
        replace_file(f"{entry}.d", record)
        self.record = f"{entry}.d"

    def _named(self, diagnostics: bytes) -> bytes:
        for place, name in reversed(self._command.maps):
            diagnostics = diagnostics.replace(place.encode(), b"\0" + name.encode() + b"\0")
        return diagnostics

    def _placed(self, diagnostics: bytes) -> bytes:
        for place, name in self._command.maps:
            diagnostics = diagnostics.replace(b"\0" + name.encode() + b"\0", place.encode())
        return diagnostics


def _record_rows(record: bytes) -> list[list[str]]:
    """Of each file: where it is found, relative to what, its hash and its name."""
    lines = record.decode("utf-8", "surrogateescape").split("\n")
    rows = [line.split("\t") for line in lines[2:]]
    if lines[0] != OBJECT_FORMAT or any(len(row) != _RECORD_COLUMNS for row in rows):
        raise ValueError("not a record of an object")
    return rows


def _clock_macro_in(text: bytes) -> str:
    macro = next((clock for clock in CLOCK_MACROS if clock in text), b"")
    return f"it uses {macro.decode()}" if macro else ""


DEFAULT_MEMORY = {"CXX": 1536, "OBJCXX": 1536, "CUDA": 3072, "HIP": 3072}
"""MiB of one compiler process that sees all of Torch: 1.3 to 1.4 GiB were measured with g++ 12,
2.75 GiB with nvcc 13. HIP is taken to be like CUDA."""
_MARGIN = 1.1


PRECOMPILED_SHARE = 0.45
"""Of the time of a unit, what it takes with precompiled headers: 0.32 to 0.52 were measured."""


class PeakHistory:
    """Peaks and times of units, one small file per unit, and one with precompiled headers."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def recall(self, *keys: str, precompiled: bool = False) -> tuple[int, float] | None:
        """(peak in MiB, seconds) of the last compilation under the first key that is known.

        With precompiled headers, or without: one says nothing of the other.
        """
        for key in keys:
            try:
                peak, seconds = read_file(self._file(key, precompiled=precompiled)).split()
                return int(peak), float(seconds)
            except (OSError, ValueError):
                continue
        return None

    def largest(self, *keys: str) -> tuple[int, float] | None:
        """Peak and seconds of the last compilation with precompiled headers or of that without.

        Which of them comes next is not known before memory is reserved.
        """
        both = (self.recall(*keys, precompiled=used) for used in (False, True))
        return max(filter(None, both), default=None)

    def record(
        self, keys: tuple[str, ...], peak: int, seconds: float, *, precompiled: bool = False
    ) -> None:
        """Remember one compilation."""
        for key in keys:
            target = self._file(key, precompiled=precompiled)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            replace_file(target, f"{peak} {seconds:.2f}".encode())

    def _file(self, key: str, *, precompiled: bool) -> str:
        return f"{self._folder}/{key[:2]}/{key[2:]}{'.precompiled' if precompiled else ''}"


def memory_estimate(language: str, last: tuple[int, float] | None) -> int:
    """MiB to reserve for each of the unit's threads.

    The kernel tells the peak of a compilation's largest process, so threads do not change it.
    """
    return max(
        1, int(last[0] * _MARGIN) if last else DEFAULT_MEMORY.get(language, DEFAULT_MEMORY["CXX"])
    )
