"""Facts about interpreters and compilers, asked once and cached until a file changes.

Another kbuild asks again: it may read more from what a process says.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.system.cache import FACTS, Cache
from kbuild.system.code_digest import package_digest
from kbuild.system.errors import DamagedFileError, ToolchainError
from kbuild.system.file_state import identify
from kbuild.system.processes import Runner
from kbuild.system.record import Record, read_record
from kbuild.system.untrusted import parse_json, reading

Facts = Mapping[str, Any]
_PROBE = Path(__file__).with_name("probe.py")


@dataclass(frozen=True)
class FactCache:
    """The facts in a cache folder, by question."""

    folder: Path

    def get(self, question: str, ask: Callable[[], tuple[Facts, tuple[str, ...]]]) -> Facts:
        """The cached answer, or `ask()`'s: facts and the paths that they depend on."""
        known = self.recall(question)
        if known is not None:
            return known
        since = time.time_ns()
        facts, paths = ask()
        self.remember(question, facts, paths, since)
        return facts

    def recall(self, question: str) -> Facts | None:
        """The cached answer; None when there is none, or when a path of it has changed."""
        record = read_record(self._cache, _key(question))
        if record is None or not record.holds(Path("/"), self.folder):
            return None
        facts: Facts = record.answer
        return facts

    def remember(self, question: str, facts: Facts, paths: tuple[str, ...], since: int) -> None:
        """Keep an answer for as long as the paths that it depends on stay as they are.

        Unless one of them changed at `since` (ns), when the question was asked, or later: which
        state was seen is not known.
        """
        observed = {path: identify(path) for path in paths}
        if any(then is not None and max(then[1:3]) >= since for then in observed.values()):
            return
        record = Record(facts, observed, package_digest(self.folder))
        record.write(self._cache, _key(question))

    def watched_paths(self) -> set[str]:
        """The files that cached answers depend on: compilers, interpreters and their Torch."""
        records = (read_record(self._cache, entry.key) for entry in self._cache.entries())
        return {path for record in records if record for path in record.observed}

    @property
    def _cache(self) -> Cache:
        return Cache(self.folder, FACTS)


def _key(question: str) -> str:
    return hashlib.sha256(question.encode()).hexdigest()


def interpreter_facts(python: Path, cache: FactCache, runner: Runner) -> Facts:
    """The headers and Torch that `python` has to build against; see `kbuild.toolchains.probe`.

    Raises:
        ToolchainError: the program is not a Python interpreter that can run the probe.
    """

    def ask() -> tuple[Facts, tuple[str, ...]]:
        # Isolated: neither PYTHONPATH nor the current folder may hide the interpreter's own Torch.
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

    return cache.get(f"compiler {program}", ask)
