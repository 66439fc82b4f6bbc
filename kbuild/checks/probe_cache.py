"""Caches the answers of probes, and records which variants this user built.

A cached answer is used while the question and every file that decided it are unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kbuild.checks.probe_process import (
    ProbeAnswer,
    bubblewrap_program,
    passed_variables,
    run_probe,
)
from kbuild.project.variant import System, host_system
from kbuild.system.cache import BUILT_VARIANTS, PROBE_ANSWERS, PROBE_FILES, Cache
from kbuild.system.cache_sweep import sweep_if_due
from kbuild.system.code_digest import package_digest
from kbuild.system.emulator import find_emulator
from kbuild.system.file_state import all_unchanged, parse_file_states, stat_state
from kbuild.system.files import sha256, sha256_of_file
from kbuild.system.processes import Runner

_CPUINFO = Path("/proc/cpuinfo")
_CPU = re.compile(rb"^(?:vendor_id|model name|flags|CPU \w+|Features)\s*:.*$", re.MULTILINE)
_DEVICE_FILES = ("nvidia[0-9]*", "kfd", "dri/*")


@dataclass(frozen=True)
class ProbeQuestion:
    """One call of a probe."""

    python: Path
    probe: str
    arguments: tuple[str | Path, ...]
    """Paths stand for what they lead to."""
    cache: Path | None = None

    @cached_property
    def key(self) -> str | None:
        """Key of the question about exactly these bytes; None when they cannot all be read."""
        exact = self._exact
        if exact is None:
            return None
        environment = [
            package_digest(self.cache),
            str(self.python),
            sorted(passed_variables().items()),
            bool(bubblewrap_program()),
            *_machine_identity(),
        ]
        return sha256(json.dumps([*environment, self.probe, exact]).encode())

    @cached_property
    def _exact(self) -> list[Any] | None:
        try:
            return [
                {"bytes": content_digest(part)} if isinstance(part, Path) else part
                for part in self.arguments
            ]
        except OSError:
            return None

    def is_named_in(self, facts: Mapping[str, Any]) -> bool:
        """True if an answer names a path of the question: it is then wrong for a copy elsewhere."""
        text = json.dumps(facts, ensure_ascii=False)
        paths = (part for part in self.arguments if isinstance(part, Path))
        return any(str(path.resolve()) in text for path in paths)


def _machine_identity() -> Iterator[Any]:
    """Processor, kernel and devices: a cache may be shared between machines."""
    yield (platform.machine(), platform.release())
    try:
        with _CPUINFO.open("rb") as file:
            first = file.read(8192).partition(b"\n\n")[0]
    except OSError:
        first = b""
    yield [line.decode(errors="replace") for line in _CPU.findall(first)]
    yield sorted(str(path) for pattern in _DEVICE_FILES for path in Path("/dev").glob(pattern))


def content_digest(root: Path) -> str:
    """Names and bytes of every file, following links to files.

    Raises:
        OSError: one cannot be read, or a folder is a link, which may lead anywhere, or a name is
            that of a pipe or device.
    """
    digest = hashlib.sha256()
    for path in sorted(_files(root)):
        name = os.fsencode(path.relative_to(root))
        digest.update(b"%d:%s%s" % (len(name), name, sha256_of_file(path).encode()))
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    for base, folders, names in os.walk(root, onerror=_raise_error):
        if any(Path(base, name).is_symlink() for name in folders):
            raise OSError(f"`{base}` holds a link to a folder")
        for path in (Path(base, name) for name in names):
            if not path.is_file():
                raise OSError(f"`{path}` is not a file")
            yield path


def _raise_error(error: OSError) -> None:
    raise error


@dataclass(frozen=True)
class ProbeCache:
    """Asks probes, or repeats what they answered."""

    folder: Path | None = None
    """kbuild's cache folder; None keeps no answers."""
    fresh: bool = False
    """True to ask always; the answers are kept for other commands."""

    def ask(
        self,
        runner: Runner,
        python: Path,
        probe: str,
        *arguments: str | Path,
        system: System | None = None,
    ) -> ProbeAnswer:
        """See `run_probe`; the process is started only when its answer is not known.

        A variant for another `system` than this machine's runs in its emulator; without one the
        answer is `foreign`.
        """
        if system not in (None, host_system()):
            emulator = find_emulator(system)
            if emulator is None:
                here = f"it is for {system}, and this machine is {host_system()}"
                return ProbeAnswer("foreign", here)
            # Not cached: the paths that it names are not those of this machine.
            return run_probe(runner, emulator.python, probe, *arguments, emulator=emulator)
        if self.folder is None:
            return run_probe(runner, python, probe, *arguments)
        question = ProbeQuestion(python, probe, arguments, self.folder)
        known = None if self.fresh else _read_answer(self.folder, question.key)
        if known is not None:
            return known
        # The key is computed first: loading a kernel may change its own files.
        before, began = question.key, time.time_ns()
        answer = run_probe(runner, python, probe, *arguments)
        # A crash may be chance, and an answer that names this folder is wrong for any other.
        if answer.files and answer.returncode == 0 and not question.is_named_in(answer.facts):
            _store_answer(self.folder, before, answer, python=python, began=began)
            sweep_if_due(self.folder, {})
        return answer


def _read_answer(folder: Path, name: str | None) -> ProbeAnswer | None:
    """The answer of that name; None when there is none, or a file that decided it has changed."""
    known = Cache(folder, PROBE_ANSWERS).get_json(name, dict) if name is not None else None
    if known is None:
        return None
    files = Cache(folder, PROBE_FILES).get_json(known.pop("files"), parse_file_states)
    if files is None or not all_unchanged("/", files):
        return None
    return ProbeAnswer(**known)


def _store_answer(
    folder: Path, name: str | None, answer: ProbeAnswer, *, python: Path, began: int
) -> None:
    """Keep the answer, unless a file has changed meanwhile: which state was seen is not known."""
    observed = {path: stat_state(path) for path in (str(python), *answer.files)}
    is_old = all(then is None or max(then[1:3]) < began for then in observed.values())
    if name is None or not is_old:
        return
    files = json.dumps(observed).encode()
    key = sha256(files)  # many answers follow from the same files
    Cache(folder, PROBE_FILES).put(key, files)
    known = {"state": answer.state, "reason": answer.reason, "facts": answer.facts}
    Cache(folder, PROBE_ANSWERS).put_json(name, {**known, "files": key})


def record_built(cache: Path, variant: Path, built: Path | None = None) -> None:
    """Note that the folder `variant` was built here; `built` has its files as they were built.

    A folder that cannot be read or noted counts as built elsewhere.
    """
    with suppress(OSError):
        Cache(cache, BUILT_VARIANTS).put(_built_key(variant, built or variant))


def is_built_here(cache: Path, variant: Path) -> bool:
    """True when a build of this user left the folder so."""
    try:
        return Cache(cache, BUILT_VARIANTS).get(_built_key(variant, variant)) is not None
    except OSError:
        return False


def _built_key(variant: Path, built: Path) -> str:
    return sha256(f"{content_digest(built)} {variant.resolve()}".encode("utf-8", "surrogateescape"))
