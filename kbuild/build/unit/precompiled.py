"""Torch's headers, compiled once by GCC and shared by all units that begin with the same ones.

    <cache>/headers/<kk>/<key>/pre.h.gch     what GCC starts with instead of reading the headers
                               record        the files that it was made from, with hashes
                               list.h        what was compiled: a line for each header

A unit starts with `-include pre.h` only if its source begins with these very headers, before any
other token or directive: GCC then sees the same text in the same order. The key covers compiler,
flags and headers; the record is compared with what this unit would read. There is no `pre.h`, so
that GCC fails at once where it does not accept the file, and the unit is compiled without it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time

from kbuild.build.unit.command import (
    COMPILER_VARIABLES,
    FILE_MAP,
    CompileCommand,
    compiler_identity,
)
from kbuild.build.unit.header_lists import COMPILED, LIST, headers_to_compile
from kbuild.build.unit.inputs import UnitInputs, read_file, render_depfile
from kbuild.system.atomic import draft_path, replace_file
from kbuild.system.cache import HEADER_REQUESTS, HEADERS, Cache
from kbuild.system.file_state import hash_bytes

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kbuild.build.unit.compiler import CompilerResult
    from kbuild.system.unit_settings import LauncherSettings, LogValue

    RunCompiler = Callable[[list[str]], CompilerResult]


_FORMAT = "kbuild-headers 2"
_REJECTED = b"rejected by the compiler"
_HEADER, _DEPFILE = "pre.h", "pre.d"
_ASKED = "asked"
"""First word of a row for a header whose presence the files ask for, `__has_include`."""
_HAS_INCLUDE = re.compile(rb'__has_include(?:_next)?\s*\(\s*[<"]([^>"\s]+)[>"]')
_GNU_MARK = "-fno-canonical-system-headers"
"""Option that generated projects give to GCC alone."""
_MAGIC = b"gpch"
"""First bytes of GCC's precompiled headers."""
_TOOLKIT = "cuda_runtime.h"
"""A header of a toolkit."""
_PRIVATE_MACROS = re.compile(r"-D(TORCH_EXTENSION_NAME|(CPU|CUDA|ROCM|XPU)_KERNEL)(=|$)")
"""Macros of one project or backend, which Torch's headers do not read: GCC verifies that."""
_PRIVATE = (FILE_MAP, "-frandom-seed=", "-Wa,")
_REFUSED = re.compile(
    r"-(g(?!0$).*|include.*|imacros.*|x.*|flto.*|fsanitize.*|fprofile.*|fpch.*|fdump.*|fmodules.*"
    r"|nostdinc.*|Wsystem-headers|Winvalid-pch|pg|E|S)"
)
"""Options with which objects could differ, or for which GCC takes no precompiled header."""
_UNUSABLE = (b"[-Winvalid-pch]", b"PCH", b"/pre.h: No such file")
"""Texts by which GCC rejects a precompiled header."""
_OF_SIGNALS = 128
"""First exit status of compilers killed by a signal, which says nothing about the headers."""
_ICE = b"internal compiler error"
_TROUBLE = (
    *(
        os.strerror(number).encode()
        for number in (
            errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE,
            errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE,
        )
    ),
    b"out of memory", b"virtual memory exhausted", b"Bus error",
)  # fmt: skip
"""Texts of GCC when the disk or the machine is the reason of a failure."""
_ENDED = b"signal terminated program"
_RETRY = 7 * 86400
"""Seconds after which a file that was rejected may be made again."""
WHOLE, PART = 3, 1
"""Weights of a compilation in thirds: without any file, and with one for fewer headers."""
_DUE = 2 * WHOLE
"""Making a file takes about two compilations, and it saves 0.6 of each one after that."""


class HeaderEntry:
    """The precompiled file of one list of headers with one set of options, cached or not."""

    def __init__(
        self, cache: str, key: str, compiler: str, options: list[str], names: list[str]
    ) -> None:
        self._cache, self._requests = Cache(cache, HEADERS), Cache(cache, HEADER_REQUESTS)
        self._key, self._names = key, names
        self._argv = [compiler, *options]
        self.folder = self._cache.path(key)
        self.header = f"{self.folder}/{_HEADER}"
        """The argument of `-include`."""

    def rows(self) -> list[list[str]] | None:
        """A row for each file that it was made from: two columns on its place, hash, name and path.

        Then those for headers whose presence was asked for. None when it is not there.
        """
        parts = self._cache.get(self._key)
        if parts is None or parts[0] == _REJECTED:
            return None
        return [line.split("\t") for line in os.fsdecode(parts[0]).split("\n")]

    def is_due(self) -> bool:
        """True if making the file would pay by now, and it is not there."""
        parts = self._cache.get(self._key)
        if parts is not None:
            if parts[0] != _REJECTED or time.time() - int(parts[1]) < _RETRY:
                return False
            self.discard()
        return self._requested >= _DUE

    def request(self, thirds: int) -> None:
        """Count a compilation that would have been faster with it."""
        self._requests.put(self._key, b"%d" % (self._requested + thirds))

    @property
    def _requested(self) -> int:
        return self._requests.get_parsed(self._key, lambda parts: int(parts[0])) or 0

    def forget(self) -> None:
        """Reset the count of requests."""
        self._requests.remove(self._key)

    def discard(self) -> None:
        """Remove the file, whose headers have changed."""
        self._cache.remove(self._key)

    def reject(self) -> None:
        """Mark the file as rejected, unless another process has removed it."""
        if os.path.exists(f"{self.folder}/{COMPILED}"):
            self._cache.put(self._key, *_rejection())
            os.unlink(f"{self.folder}/{COMPILED}")

    def make(
        self,
        settings: LauncherSettings,
        environ: Mapping[str, str],
        run: RunCompiler,
    ) -> CompilerResult | None:
        """Let GCC make the file, unless another process does; refuse headers that change meanwhile.

        What GCC refuses is rejected: it would refuse it the next time. A full disk is no refusal.
        """
        lock, fresh = self._cache.lock(self._key), ""
        try:
            # Another process may have made it since `is_due` was asked.
            if not lock.try_acquire() or self._cache.get(self._key) is not None:
                return None
            fresh = draft_path(self.folder)
            os.makedirs(fresh)
            lines = "".join(f"#include <{name}>\n" for name in self._names)
            replace_file(f"{fresh}/{_HEADER}", os.fsencode(lines))
            command = self._command(fresh)
            inputs = UnitInputs(settings, command, environ)
            inputs.expect(())
            ended = run(command.argv)
            if not _is_of_machine(ended):
                record = self._record(command, inputs, settings.headers, ended.status)
                os.rename(f"{fresh}/{_HEADER}", f"{fresh}/{LIST}")
                for name in os.listdir(fresh):
                    if name not in {COMPILED, LIST} or record is None:
                        os.unlink(f"{fresh}/{name}")
                parts = _rejection() if record is None else (os.fsencode(record),)
                self._cache.put_folder(self._key, fresh, *parts)
            return ended
        finally:
            lock.release()
            if fresh:
                shutil.rmtree(fresh, ignore_errors=True)

    def _command(self, folder: str) -> CompileCommand:
        outputs = ["-o", f"{folder}/{COMPILED}", "-MD", "-MF", f"{folder}/{_DEPFILE}"]
        # Without a seed, GCC takes a random one, and the file differs each time.
        seed = f"-frandom-seed={os.path.basename(self.folder)}"
        source = ["-x", "c++-header", "-c", f"{folder}/{_HEADER}"]
        return CompileCommand([*self._argv, seed, *outputs, *source], "CXX", "/")

    def _record(
        self, command: CompileCommand, inputs: UnitInputs, limit: int, status: int
    ) -> str | None:
        """The files that it was made from; None if that is not sure, or if it is too large."""
        paths = inputs.read()
        if status != 0 or inputs.changed(paths) or not _is_usable(command.object, limit):
            return None
        rows, asked = [], set()
        for path in paths:
            if path != command.source:
                known = inputs.files.of(path)
                if known is None or "\t" in path or "\n" in path:
                    return None
                row = (*inputs.search.find(path), known, command.name(path), path)
                rows.append("\t".join(row))
                asked.update(_HAS_INCLUDE.findall(read_file(path)))
        rows += ["\t".join((_ASKED, os.fsdecode(name), "", "", "")) for name in sorted(asked)]
        return "\n".join(rows)


def _rejection() -> tuple[bytes, bytes]:
    return _REJECTED, b"%d" % time.time()


def _is_of_machine(ended: CompilerResult) -> bool:
    """True when a signal, the disk or memory made a compilation fail, and not the headers."""
    if ended.status == 0:
        return False
    is_killed = ended.was_killed or ended.status >= _OF_SIGNALS
    is_ended = _ENDED in ended.messages and _ICE not in ended.messages
    return is_killed or is_ended or any(message in ended.messages for message in _TROUBLE)


def _is_usable(path: str, limit: int) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC and os.stat(path).st_size <= limit


class PrecompiledHeaders:
    """The headers that one unit can start with, as its inputs are at one moment."""

    def __init__(
        self,
        settings: LauncherSettings,
        command: CompileCommand,
        environ: Mapping[str, str],
        inputs: UnitInputs,
    ) -> None:
        self._settings, self._command, self._environ = settings, command, environ
        self._inputs = inputs
        searched = [folder for _, folder in command.searched]
        toolkits = [folder for folder in searched if os.path.exists(f"{folder}/{_TOOLKIT}")]
        self._left_out = [
            *(folder for folder in command.own_folders[1:] if _is_below(folder, settings.root)),
            *(one for one in searched if any(_is_below(one, folder) for folder in toolkits)),
        ]
        """The folders of the project and of a toolkit: nothing that is found there is compiled
        once. The variants for all toolkits share what is compiled."""
        self.log: dict[str, LogValue] = {}
        """For the log of units: `used` or `made`, and processor seconds of making."""

    @property
    def is_possible(self) -> bool:
        """False for units of other compilers, and where nothing may be kept or is wanted."""
        command, settings = self._command, self._settings
        if not (settings.headers and settings.cache) or settings.tool or command.refusal:
            return False
        if command.language != "CXX" or _GNU_MARK not in command.options:
            return False
        return not any(_REFUSED.fullmatch(word) for word in command.options)

    def compile(self, run: RunCompiler, is_ended: Callable[[], bool]) -> CompilerResult | None:
        """Compile the unit with such headers; None where it is to be compiled without.

        `is_ended()` says that the last process was ended for others, and none is to follow.
        """
        text = read_file(self._command.absolute(self._command.source))
        wanted = headers_to_compile(text, self._quoted, self._is_left_out)
        entries = [self._entry(names) for names in wanted]
        usable = next((entry for entry in entries if self._fits(entry)), None)
        # Lists longer than the usable one would save more: they are counted, and made when due.
        for entry in entries[: entries.index(usable) if usable else None]:
            if entry.is_due():
                result = entry.make(self._settings, self._environ, run)
                if result is not None and is_ended():
                    return result
                if result is not None:
                    self.log["precompiling"] = result.user + result.system
                    for each in entries:
                        each.forget()
                if self._fits(entry):
                    usable = entry
                    break
            else:
                entry.request(PART if usable else WHOLE)
        return self._compiled_with(usable, run) if usable else None

    def _compiled_with(self, entry: HeaderEntry, run: RunCompiler) -> CompilerResult | None:
        command = self._command
        # Without `-fpch-deps`, the depfile would lack the headers inside of the precompiled one.
        begin = ["-include", entry.header, "-fpch-deps", "-Winvalid-pch"]
        ended = run([command.argv[0], *begin, *command.argv[1:]])
        if not ended.was_killed:
            if any(message in ended.messages for message in _UNUSABLE):
                if not _is_of_machine(ended):
                    entry.reject()
                return None
            if _ICE in ended.messages or os.fsencode(entry.folder) in ended.messages:
                return None  # messages are to name the author's files
        if ended.status == 0:
            paths = [path for path in self._inputs.read() if not path.startswith(entry.folder)]
            text = render_depfile(command.target or command.object, paths)
            replace_file(command.absolute(command.depfile), os.fsencode(text))
        self.log["precompiled"] = "made" if self.log else "used"
        return ended

    def _is_left_out(self, name: str) -> bool:
        return any(os.path.exists(f"{folder}/{name}") for folder in self._left_out)

    def _quoted(self, name: str) -> bytes:
        for folder in self._command.folders:
            try:
                return read_file(f"{folder}/{name}")
            except OSError:
                continue
        return b""

    def _entry(self, names: list[str]) -> HeaderEntry:
        command, environ, cache = self._command, self._environ, self._settings.cache
        options = self._options()
        identity = compiler_identity(command, environ, self._inputs.files.of, f"{cache}/store")
        variables = [f"{name}={environ[name]}" for name in COMPILER_VARIABLES if name in environ]
        parts = (_FORMAT, *identity, *variables, "", *options, "", *names)
        key = hash_bytes(os.fsencode("\0".join(parts)))
        return HeaderEntry(cache, key, command.argv[0], options, names)

    def _options(self) -> list[str]:
        """The command's options, without those that only this project or unit has."""
        command = self._command
        options = [
            word
            for word in command.options
            if not word.startswith(_PRIVATE) and not _PRIVATE_MACROS.match(word)
        ]
        searched = [pair for pair in command.searched if pair[1] not in self._left_out]
        for place, name in command.maps:
            if any(_is_below(folder, place) for _, folder in searched):
                options.append(f"{FILE_MAP}{place}={name}")
        return [*options, *(word for pair in searched for word in pair)]

    def _fits(self, entry: HeaderEntry) -> bool:
        """True when this unit would read just the headers that the file was made from."""
        rows = entry.rows()
        if rows is None:
            return False
        paths = [row[-1] for row in rows if row[0] != _ASKED]
        hashes = [row[2] for row in rows if row[0] != _ASKED]
        if list(map(self._inputs.files.of, paths)) != hashes:
            entry.discard()
            return False
        if not all(map(self._is_same, rows)):
            return False
        self._inputs.expect(paths)
        return True

    def _is_same(self, row: list[str]) -> bool:
        """True when this unit finds a file in the same way, or no header that was absent."""
        position, relative, _, name, path = row
        if position == _ASKED:
            return not self._is_left_out(relative)
        search = self._inputs.search
        if self._command.name(path) != name or search.find(path) != (position, relative):
            return False
        return not search.hidden.get(path, "").startswith(tuple(self._left_out))


def _is_below(folder: str, root: str) -> bool:
    return f"{folder}/".startswith(f"{root}/")
