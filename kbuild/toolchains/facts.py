"""Facts about interpreters and compilers, asked once and remembered while the files stay.

Each answer is stored in the cache with what it was read from; `filestate.unchanged` decides on
the next run whether the process has to be started again. Another kbuild asks again: it may read
more from what a process says.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.system.code_digest import package_digest
from kbuild.system.errors import DamagedFileError, ToolchainError
from kbuild.system.file_state import all_unchanged, identify, parse_file_states
from kbuild.system.files import replace_atomically
from kbuild.system.processes import Runner
from kbuild.system.untrusted import parse_json, read_cache_file, reading

Facts = Mapping[str, Any]
_PROBE = Path(__file__).with_name("probe.py")


@dataclass(frozen=True)
class FactCache:
    """Remembered answers below one folder."""

    folder: Path

    def get(self, question: str, ask: Callable[[], tuple[Facts, tuple[str, ...]]]) -> Facts:
        """The remembered answer, or `ask()`'s: facts and the paths that they depend on."""
        remembered = self.recall(question)
        if remembered is not None:
            return remembered
        since = time.time_ns()
        facts, paths = ask()
        self.remember(question, facts, paths, since)
        return facts

    def recall(self, question: str) -> Facts | None:
        """The remembered answer; None when there is none, or when a path of it has changed."""
        return _read_facts(self._file(question), package_digest(self.folder))

    def remember(self, question: str, facts: Facts, paths: tuple[str, ...], since: int) -> None:
        """Keep an answer for as long as the paths that it depends on stay as they are.

        Unless one of them changed at `since` (ns), when the question was asked, or later: which
        state was seen is not known. A cache that cannot be written is no failure: the next command
        asks again.
        """
        observed = {path: identify(path) for path in paths}
        if any(then is not None and max(then[1:3]) >= since for then in observed.values()):
            return
        record = {"question": question, "facts": facts, "observed": observed}
        record["kbuild"] = package_digest(self.folder)
        with suppress(OSError):
            replace_atomically(self._file(question), json.dumps(record, indent=1).encode())

    def watched_paths(self) -> set[str]:
        """The files that remembered answers depend on: compilers, interpreters and their Torch."""
        records = map(_read_record, self.folder.glob("facts/*.json"))
        return {path for record in records if record for path in record["observed"]}

    def _file(self, question: str) -> Path:
        name = hashlib.sha256(question.encode()).hexdigest()[:24]
        return self.folder / "facts" / f"{name}.json"


def _read_record(target: Path) -> Facts | None:
    return read_cache_file(target, lambda record: record if record["observed"].keys() else None)


def _read_facts(target: Path, kbuild: str) -> Facts | None:
    def understood(record: Facts) -> Facts | None:
        if record["kbuild"] != kbuild:
            return None
        facts: Facts = {**record["facts"]}
        return facts if all_unchanged(Path("/"), parse_file_states(record["observed"])) else None

    return read_cache_file(target, understood)


def interpreter_facts(python: Path, cache: FactCache, runner: Runner) -> Facts:
    """What `python` has to build against; see `kbuild.toolchains.probe`.

    Raises:
        ToolchainError: the program is not a Python interpreter that can run the probe.
    """

    def ask() -> tuple[Facts, tuple[str, ...]]:
        done = runner.run((str(python), "-I", str(_PROBE)))
        try:
            with reading(python, "an interpreter"):
                facts = parse_json(done.output, python, "an interpreter")
                torch = facts["torch"]
                version_file = str(Path(torch["root"], "version.py")) if torch else ""
                paths = (str(python), str(_PROBE), facts["python"]["purelib"], version_file)
        except DamagedFileError:
            raise ToolchainError(
                f"`{python}` did not answer the probe: {done.output.strip()[-300:]}",
                hint="--python takes a Python interpreter, 3.9 or newer",
            ) from None
        return facts, tuple(path for path in paths if path)

    return cache.get(f"interpreter {python}", ask)


def compiler_facts(program: Path, cache: FactCache, runner: Runner) -> Facts:
    """`{"version": first line of --version, "text": all of it}` of a compiler.

    Raises:
        ToolchainError: the program cannot be started, or says nothing.
    """

    def ask() -> tuple[Facts, tuple[str, ...]]:
        done = runner.run((str(program), "--version"))
        if not done.ok or not done.output.strip():
            raise ToolchainError(f"`{program} --version` failed: {done.output.strip()[-300:]}")
        facts = {"version": done.output.splitlines()[0], "text": done.output}
        return facts, (str(program),)

    return cache.get(f"compiler/2 {program}", ask)
