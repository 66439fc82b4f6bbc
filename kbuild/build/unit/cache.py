"""The object cache as one unit sees it: look up, deliver, store; and the costs of units.

An entry has three parts:

    the record     the digest of the object, then the files that it was made from, with hashes
    the messages   of the compiler
    the object

The key covers compiler, flags and source, but not where headers are. An entry fits when every
header that this build finds has the content that it had.
"""

from __future__ import annotations

from kbuild.build.unit.command import CLOCK_MACROS, object_key
from kbuild.build.unit.inputs import read_file, render_depfile
from kbuild.system.atomic import replace_file
from kbuild.system.cache import OBJECTS, UNIT_COSTS, Cache, EntryLock
from kbuild.system.file_state import hash_bytes

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kbuild.build.unit.command import CompileCommand
    from kbuild.build.unit.inputs import UnitInputs
    from kbuild.system.unit_settings import LauncherSettings


TORCH_PREFIX = "/torch/"
"""Name of Torch's headers in generated projects, given by `-ffile-prefix-map`."""
_TORCH_INCLUDES = (b"<torch/", b"<ATen/", b"<c10/", b'"torch/', b'"ATen/', b'"c10/')
_TOOLKIT_INCLUDES = (b"<cu", b"<c10/cuda/", b"<ATen/cuda/", b"<hip", b"<c10/hip/", b"<ATen/hip/")


def compile_once_key(key: str, source: bytes, torch: str, compilers: str) -> str:
    """Key of a lock: the same for units whose objects are likely to be the same.

    Args:
        key: the object's key, which leaves headers out.
        source: the content of the unit's file.
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


OTHER_FILES = "it was made from other files than those that are here"
"""Reason to refuse an entry that may be right on the machine that made it."""
ENTRY_PARTS = ("record", "messages", "object")
_MAX_ENTRIES = 16
"""Largest number of entries of one key; the oldest is removed."""
_RECORD_COLUMNS = 4


class UnitCache:
    """The cache entries of one command, with its inputs as they are at one moment."""

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
        """Key of all objects of this command and source; their headers distinguish them."""
        self._cache = Cache(settings.cache, OBJECTS)
        self._lock = compile_once_key(key, source, command.place(TORCH_PREFIX), settings.compilers)
        self.headers: list[str] = []
        """Names of the files that the object was made from, once it is there."""
        self.paths: list[str] = []
        """Paths of these files, once the object was fetched."""
        self._entry = ""
        """Key of the entry, once it is there."""
        self.sizes: dict[str, int] = {}
        """Bytes of the headers, by name, when they were just read."""

    def lock(self) -> EntryLock:
        """The lock of those who want the same object."""
        return self._cache.lock(self._lock)

    def fetch(self) -> bytes | None:
        """Write object and depfile; return the compiler's messages, None without an entry."""
        parts = self.find()
        if parts is None:
            return None
        _, messages, data = parts
        command = self._command
        text = render_depfile(command.target or command.object, self.paths)
        target = command.absolute(command.depfile)
        replace_file(target, text.encode("utf-8", "surrogateescape"))
        replace_file(command.absolute(command.object), data)
        return self._placed(messages)

    def find(self) -> list[bytes] | None:
        """The parts of the newest entry that fits; None when there is none."""
        for entry, record in self._fitting_entries():
            parts = self._cache.get(entry)
            # Another process may have replaced the entry since its record was read.
            if parts is not None and parts[0] == record:
                self._entry = entry
                return parts
        return None

    def has_entry(self) -> bool:
        """True when an entry fits; `find` verifies it."""
        return any(True for _ in self._fitting_entries())

    def remove(self) -> None:
        """Remove the entry that was stored or found."""
        self._cache.remove(self._entry)

    def accept(self, record: bytes, messages: bytes, data: bytes) -> str:
        """Store an entry that another machine made; return the reason if it is refused, else empty.

        Every file that it was made from has to be here, with the content that it had there.
        """
        try:
            rows, digest = _record_rows(record), record.partition(b"\n")[0].decode()
            fits = self._fitting(record) is not None
        except ValueError:
            return "its record cannot be read"
        source = self._command.name(self._command.absolute(self._command.source))
        if source not in [row[3] for row in rows]:
            return "its record does not name its source"
        if not fits:
            return OTHER_FILES
        if hash_bytes(data) != digest:
            return "its digest is not that of its object"
        self._put(record, messages, data)
        return ""

    def expected(self) -> list[str]:
        """The files that the newest entry was made from: a compilation is likely to read them."""
        for entry in self._cache.newest(self.key)[:1]:
            try:
                rows = _record_rows(self._cache.first_part(entry) or b"")
                return [self._command.place(row[3]) for row in rows]
            except ValueError:
                break
        return []

    def store(self, messages: bytes, paths: list[str]) -> str:
        """Store the object that was made from `paths`; return the reason if that is not possible.

        The caller has verified that none of them changed while the compiler ran.
        """
        self.headers = [self._command.name(path) for path in paths]
        reason = self._unkeepable(paths)
        if not reason:
            self._write(paths, messages)
        return reason

    def _fitting_entries(self) -> Iterator[tuple[str, bytes]]:
        """Keys and records, the newest first."""
        for entry in self._cache.newest(self.key):
            # The record alone decides whether an entry fits; objects are large.
            record = self._cache.first_part(entry)
            try:
                if record is not None and self._fitting(record) is not None:
                    yield entry, record
            except ValueError as error:
                self._cache.discard(entry, str(error))

    def _fitting(self, record: bytes) -> list[str] | None:
        """Paths in this build of the entry's files; None if any of them has another content."""
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

    def _unkeepable(self, paths: list[str]) -> str:
        own = tuple(f"{folder}/" for folder in self._command.own_folders)
        for path in paths:
            if any(character in path for character in "\\\t\n"):
                return f"{path!r} has a character that depfiles cannot hold"
            clock = _clock_macro_in(read_file(path)) if path.startswith(own) else ""
            if clock:
                return clock
        return ""

    def _write(self, paths: list[str], messages: bytes) -> None:
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
        record = "\n".join((hash_bytes(data), *rows)).encode("utf-8", "surrogateescape")
        self._put(record, self._named(messages), data)

    def _put(self, record: bytes, messages: bytes, data: bytes) -> None:
        """Keep an entry; `messages` name places as `_named` does."""
        # One less than the largest number: a new entry follows.
        for old in self._cache.newest(self.key)[_MAX_ENTRIES - 1 :]:
            self._cache.remove(old)
        rows = record.partition(b"\n")[2]
        # Without the object's digest: one made again from the same files replaces the old entry.
        self._entry = f"{self.key}/{hash_bytes(rows)}"
        self._cache.put(self._entry, record, messages, data)

    def _named(self, messages: bytes) -> bytes:
        for place, name in reversed(self._command.maps):
            # NUL marks what was replaced, so that `_placed` replaces nothing else.
            messages = messages.replace(place.encode(), b"\0" + name.encode() + b"\0")
        return messages

    def _placed(self, messages: bytes) -> bytes:
        for place, name in self._command.maps:
            messages = messages.replace(b"\0" + name.encode() + b"\0", place.encode())
        return messages


def _record_rows(record: bytes) -> list[list[str]]:
    """Four columns for each file: position and path in the `HeaderSearch`, hash, and name."""
    lines = record.decode("utf-8", "surrogateescape").split("\n")
    rows = [line.split("\t") for line in lines[1:]]
    if not lines[0] or any(len(row) != _RECORD_COLUMNS for row in rows):
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
"""Duration of a unit with precompiled headers, relative to one without: 0.32 to 0.52 were measured.
"""


class PeakHistory:
    """Peaks and times of units, with and without precompiled headers."""

    def __init__(self, folder: str) -> None:
        self._cache = Cache(folder, UNIT_COSTS)

    def recall(self, *keys: str, precompiled: bool = False) -> tuple[int, float] | None:
        """(peak in MiB, seconds) of the last compilation under the first key that is known.

        With precompiled headers, or without: one says nothing of the other.
        """
        suffix = ".precompiled" if precompiled else ""
        costs = (self._cache.get_parsed(f"{key}{suffix}", _parse_cost) for key in keys)
        return next((cost for cost in costs if cost is not None), None)

    def largest(self, *keys: str) -> tuple[int, float] | None:
        """Peak and seconds of the last compilation with precompiled headers or of that without.

        Which of them comes next is not known before memory is reserved.
        """
        both = (self.recall(*keys, precompiled=used) for used in (False, True))
        return max(filter(None, both), default=None)

    def record(
        self, keys: tuple[str, ...], peak: int, seconds: float, *, precompiled: bool = False
    ) -> None:
        """Keep peak and time of one compilation."""
        suffix = ".precompiled" if precompiled else ""
        for key in keys:
            self._cache.put(f"{key}{suffix}", f"{peak} {seconds:.2f}".encode())


def _parse_cost(parts: list[bytes]) -> tuple[int, float]:
    peak, seconds = parts[0].split()
    return int(peak), float(seconds)


def memory_estimate(language: str, last: tuple[int, float] | None) -> int:
    """MiB to reserve for each of the unit's threads; `last` is what `PeakHistory` has of the unit.

    A peak is that of a compilation's largest process, whatever its number of threads.
    """
    return max(
        1, int(last[0] * _MARGIN) if last else DEFAULT_MEMORY.get(language, DEFAULT_MEMORY["CXX"])
    )
