"""Compiles a CUDA unit for several architectures without reading all of Torch for each of them.

nvcc does all that it does otherwise, with another program in the place of `cicc`, which compiles
the preprocessed text of one architecture. That program is this module. It leaves headers of Torch
out (`kbuild.build.unit.device_text`) where that is known to change nothing:

- Architectures whose texts are the same, but for variants of the toolkit's headers, are a group.
- The first of a group is compiled with the whole text.
- The second compiles the first one's text again, with headers left out. The PTX and the host's part
  have to be the same, without other messages; otherwise all of the group are compiled with the
  whole text.
- All others, and the second, are compiled with headers left out.

    <run>/device-<pid>/cicc             what nvcc starts
                       places           the folders of Torch's and the toolkit's headers
                       <key>-<n>/       a group; see `PassGroup`
"""

from __future__ import annotations

import marshal
import os
import re
import shutil
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from kbuild.build.unit.command import CompileCommand
    from kbuild.build.unit.compiler import CompilerResult
    from kbuild.build.unit.device_text import DeviceText
    from kbuild.runtime.unit_settings import LauncherSettings, LogValue

    RunCompiler = Callable[[list[str]], CompilerResult]

_CICC, _PLACES, _LOCK = "cicc", "places", "lock"
_LEAST = 2_000_000
"""Bytes that have to be left out: cicc takes two to three seconds for as many of Torch's."""
_MARKS = (b"/torch/", b"/ATen/")
_OUTPUTS = ("-o", "--gen_c_file_name", "--stub_file_name", "--gen_device_file_name")
_PTX, _STUB = "-o", "--stub_file_name"
_TEMPORARY = re.compile(rb"\b__T\d+\b|^# 1 \"[^\n]*$", re.MULTILINE)
"""In the host's part: names of parameters, which are counted, and its own path."""
_OF_SIGNALS = 128
"""Exit statuses of compilers that were killed start here."""
_SHARED, _DIFFERENT = "shared", "different"


class PassGroup:
    """Architectures that may be compiled alike. What it holds is changed under the lock.

    `first.ii` is the first one's text with headers left out, `command` how the first was compiled,
    `varying` its `DeviceText.varying`, `words` its `left_out_words`, `members` has a byte for each
    architecture, `whole` and `lean` digest what cicc made of the first, `whole.said` and
    `lean.said` have its messages, `verdict` says whether the former was the same, without other
    messages, and `delivered` has a byte for each architecture that counts on it.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def begin(self, text: DeviceText, arguments: list[str]) -> None:
        """Be the first."""
        os.mkdir(self.folder)
        _write(self._path("first.ii"), text.lean)
        _write(self._path("command"), marshal.dumps(arguments))
        _write(self._path("varying"), marshal.dumps(text.varying))
        self.count("members")

    def has(self, text: DeviceText) -> bool:
        """Whether a text of the same key belongs to it."""
        path = self._path("words")
        if not os.path.exists(path):
            _write(path, marshal.dumps(text.left_out_words()))
        return text.is_like(_load(self._path("varying")), _load(path))

    def count(self, name: str) -> int:
        """Add one; how many there were."""
        path = self._path(name)
        with open(path, "ab") as file:
            file.write(b".")
            return file.tell() - 1

    @property
    def verdict(self) -> str:
        """Empty while it is open."""
        return _read(self._path("verdict")).decode()

    @property
    def is_sound(self) -> bool:
        """False when an architecture was compiled with headers left out that matter."""
        return self.verdict == _SHARED or not _read(self._path("delivered"))

    def settle(self, name: str, digest: bytes, said: bytes) -> None:
        """Note what became of the first one's text; an empty digest stands for a failure.

        Headers that were left out may have warnings of their own: the first one's are shown.
        """
        _write(self._path(f"{name}.said"), said)
        _write(self._path(name), digest or b"failed")
        whole, lean = _read(self._path("whole")), _read(self._path("lean"))
        if not digest or (whole and lean):
            known, more = (_read(self._path(f"{text}.said")) for text in ("whole", "lean"))
            is_same = whole == lean and {*more.split(b"\n")} <= {b"", *known.split(b"\n")}
            _write(self._path("verdict"), (_SHARED if is_same else _DIFFERENT).encode())

    def again(self) -> tuple[list[str], dict[str, str]]:
        """Arguments that compile the first one's lean text to files of the group."""
        arguments: list[str] = _load(self._path("command"))
        outputs = {flag: self._path(f"first{flag}") for flag in _OUTPUTS if flag in arguments}
        return _with(arguments, self._path("first.ii"), outputs), outputs

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"


class DevicePass:
    """One run of cicc: `folder` is the unit's, `program` the toolkit's cicc."""

    def __init__(self, folder: str, program: str, arguments: list[str]) -> None:
        self._folder, self._program, self._arguments = folder, program, arguments
        self._outputs = {
            flag: arguments[arguments.index(flag) + 1] for flag in _OUTPUTS if flag in arguments
        }

    def run(self) -> CompilerResult:
        """Compile, with headers left out if that is known to change nothing."""
        try:
            ended = self._shared()
        except Exception:  # noqa: BLE001 - what a text holds must not end a build
            ended = None
        return ended or self._cicc(self._arguments)

    def _shared(self) -> CompilerResult | None:
        """None where the whole text is to be compiled."""
        text = self._text()
        if text is None:
            return None
        with self._locked():
            group, number = self._group(text)
        lean = text.lean
        del text  # cicc needs the memory
        if number == 0:
            return self._first(group)
        if number == 1:
            self._verify(group)
        return self._lean(group, lean)

    def _text(self) -> DeviceText | None:
        """The text, if it is one from which much can be left out."""
        sources = [word for word in self._arguments if word.endswith(".ii")]
        is_known = len(sources) == 1 and self._outputs.get(_PTX, "").endswith(".ptx")
        if not is_known or _STUB not in self._outputs:
            return None
        data = _read(sources[0])
        if len(data) < _LEAST or not all(mark in data for mark in _MARKS):
            return None
        from kbuild.build.unit.device_text import DeviceText  # imports a lot

        torch, toolkit = _load(f"{self._folder}/{_PLACES}")
        text = DeviceText(data, torch, toolkit)
        return text if len(text.left_out) >= _LEAST else None

    def _group(self, text: DeviceText) -> tuple[PassGroup, int]:
        """The group of the text, and how many were in it before."""
        number = 0
        while True:
            group = PassGroup(f"{self._folder}/{text.key}-{number}")
            if not os.path.exists(group.folder):
                group.begin(text, self._arguments)
                return group, 0
            if group.has(text):
                return group, group.count("members")
            number += 1

    def _first(self, group: PassGroup) -> CompilerResult:
        ended = self._cicc(self._arguments)
        digest = _digest(ended, self._outputs)
        with self._locked():
            group.settle("whole", digest, ended.said)
        return ended

    def _verify(self, group: PassGroup) -> None:
        arguments, outputs = group.again()
        ended = self._cicc(arguments)
        digest = _digest(ended, outputs)
        with self._locked():
            group.settle("lean", digest, ended.said)

    def _lean(self, group: PassGroup, text: bytes) -> CompilerResult | None:
        """Compile with headers left out; None if that is not possible."""
        if group.verdict == _DIFFERENT:
            return None
        source = f"{group.folder}/{os.getpid()}.ii"
        _write(source, text)
        ended = self._cicc(_with(self._arguments, source, {}))
        os.unlink(source)
        with self._locked():
            if ended.status != 0 or group.verdict == _DIFFERENT:
                return None
            group.count("delivered")
        return ended

    def _cicc(self, arguments: list[str]) -> CompilerResult:
        from kbuild.build.unit.compiler import run_compiler

        scratch = f"{self._folder}/said-{os.getpid()}"
        return run_compiler([self._program, *arguments], scratch, lambda _: None)

    def _locked(self) -> _Lock:
        return _Lock(f"{self._folder}/{_LOCK}")


class _Lock:
    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        import fcntl

        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _with(arguments: list[str], source: str, outputs: dict[str, str]) -> list[str]:
    """cicc's arguments with another text, and other files for what it writes."""
    words = [source if word.endswith(".ii") else word for word in arguments]
    for flag, path in outputs.items():
        words[words.index(flag) + 1] = path
    return words


def _digest(ended: CompilerResult, outputs: dict[str, str]) -> bytes:
    """The PTX and the host's part, whose names of types are in any order; empty when it failed."""
    import hashlib

    if ended.status != 0:
        return b""
    stub = _TEMPORARY.sub(b"", _read(outputs[_STUB])).split(b"\n")
    stub.sort(key=lambda line: line if line.startswith(b"typedef ") else b"")
    parts = (_read(outputs[_PTX]), b"\n".join(stub))
    return b"".join(hashlib.sha256(part).digest() for part in parts).hex().encode()


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _load(path: str) -> Any:
    return marshal.loads(_read(path))  # noqa: S302 - written by the same run


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


_FEWEST = 2
"""Architectures: with fewer there is nothing to share."""
_UNSURE = re.compile(
    r"((-Xcompiler=|--compiler-options=)(.*,)?)?-g([1-3]|gdb.*|dwarf.*|stabs.*|split.*)?"
    r"|--?(G|debug|device-debug|lineinfo|generate-line-info|pg|profile|dlto|dlink-time-opt|dryrun"
    r"|dc|dw|device-c|device-w|noprof|dont-use-profile|optix-ir|ptx|cubin|fatbin"
    r"|rdc.*|relocatable-device-code.*|Xcicc.*|keep.*|save-temps)"
)
"""Words with which more follows from a text than this module compares."""
_MORE_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_ASSIGNMENT = re.compile(r"^#\$ ((?!NVCC)[A-Z][A-Z_]*)=(.*)$", re.MULTILINE)
_TOOLKIT_HEADER, _TORCH_HEADERS = "cuda_runtime.h", ("ATen/ATen.h", "torch/all.h")


class SharedDevicePasses:
    """One CUDA unit, compiled so."""

    def __init__(self, settings: LauncherSettings, command: CompileCommand) -> None:
        self._settings, self._command = settings, command
        self._folder = f"{settings.run}/device-{os.getpid()}"
        self.log: dict[str, LogValue] = {}
        """What the unit's log is to say of it."""

    @property
    def is_possible(self) -> bool:
        """False where nothing can be shared, or nothing may be kept or is wanted."""
        command, settings = self._command, self._settings
        if not (settings.headers and settings.cache) or settings.tool or command.refusal:
            return False
        if command.language != "CUDA" or command.archs < _FEWEST or not self._of_torch:
            return False
        if any(os.environ.get(name) for name in _MORE_FLAGS):
            return False
        return not any(_UNSURE.fullmatch(word) for word in command.words)

    @property
    def _of_torch(self) -> list[bytes]:
        return list(self._searched(*_TORCH_HEADERS))

    def _searched(self, *headers: str) -> Iterator[bytes]:
        for _, folder in self._command.search:
            if any(os.path.exists(f"{self._command.absolute(folder)}/{name}") for name in headers):
                yield os.fsencode(folder)

    def compile(self, run: RunCompiler, is_ended: Callable[[], bool]) -> CompilerResult | None:
        """Compile the unit; None where it is to be compiled as usual.

        `is_ended()` says that the last process was ended for others, and none is to follow.
        """
        from kbuild.build.unit.compiler import run_compiler

        plain = self._command.plain
        scratch = f"{self._folder}.said"
        told = run_compiler([*plain, "--dryrun"], scratch, lambda _: None)
        values = dict(_ASSIGNMENT.findall(os.fsdecode(told.said)))
        program = f"{values.get('CICC_PATH', '')}/{_CICC}"
        if told.status != 0 or not os.path.exists(program):
            return None
        try:
            self._prepare(program, values)
            words = [f"{name}={value}" for name, value in values.items()]
            words.append(f"CICC_PATH={self._folder}")
            ended = run(["env", *words, plain[0], "-noprof", *plain[1:]])
            groups = [PassGroup(entry.path) for entry in os.scandir(self._folder) if entry.is_dir()]
            self.log["shared_passes"] = sum(map(_delivered, groups))
            if ended.was_killed or is_ended() or all(group.is_sound for group in groups):
                return ended
            self.log["shared_passes"] = 0
            return None
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _prepare(self, program: str, values: dict[str, str]) -> None:
        import shlex

        os.makedirs(self._folder)
        named = re.findall(r'"(?:-I)?(/[^"]+)"', values.get("INCLUDES", ""))
        named += re.findall(r'"(/[^"]+)"', values.get("SYSTEM_INCLUDES", ""))
        toolkit = [*map(os.fsencode, named), *self._searched(_TOOLKIT_HEADER)]
        toolkit += [os.path.realpath(folder) for folder in toolkit]  # GCC writes the shorter one
        _write(f"{self._folder}/{_PLACES}", marshal.dumps((self._of_torch, toolkit)))
        python = [sys.executable, "-I", "-S", os.path.abspath(__file__)]
        words = " ".join(map(shlex.quote, [*python, self._folder, program]))
        script = f"{self._folder}/{_CICC}"
        _write(script, f'#!/bin/sh\nexec {words} "$@"\n'.encode())
        os.chmod(script, 0o700)


def _delivered(group: PassGroup) -> int:
    return len(_read(f"{group.folder}/delivered"))


def main(argv: Sequence[str]) -> int:
    """Be cicc: the unit's folder, the real cicc and its arguments."""
    folder, program, *arguments = argv
    unit = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(unit))))
    ended = DevicePass(folder, program, arguments).run()
    sys.stderr.buffer.write(ended.said)
    sys.stderr.flush()
    if ended.status > _OF_SIGNALS:  # nvcc is to see how it ended
        os.kill(os.getpid(), ended.status - _OF_SIGNALS)
    return ended.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
