"""Facts about interpreters and compilers, asked once and remembered while the files stay.

Each answer is stored in the cache with what it was read from; `sourcetree.unchanged` decides on
the next run whether the process has to be started again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.fileset import replace_atomically
from kbuild.run import Runner
from kbuild.sourcetree import look, unchanged

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
        facts, paths = ask()
        self.remember(question, facts, paths)
        return facts

    def recall(self, question: str) -> Facts | None:
        """The remembered answer; None when there is none, or when a path of it has changed."""
        return _read(self._file(question))

    def remember(self, question: str, facts: Facts, paths: tuple[str, ...]) -> None:
        """Keep an answer for as long as the paths that it depends on stay as they are."""
        observed = {path: look(path) for path in paths}
        record = {"question": question, "facts": facts, "observed": observed}
        replace_atomically(self._file(question), json.dumps(record, indent=1).encode())

    def _file(self, question: str) -> Path:
        name = hashlib.sha256(question.encode()).hexdigest()[:24]
        return self.folder / "facts" / f"{name}.json"


def _read(target: Path) -> Facts | None:
    try:
        record = json.loads(target.read_text())
        observed = {
            path: None if then is None else (int(then[0]), int(then[1]))
            for path, then in record["observed"].items()
        }
        facts: Facts = record["facts"]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    return facts if unchanged(Path("/"), observed) else None


def interpreter(python: Path, cache: FactCache, runner: Runner) -> Facts:
    """What `python` has to build against; see `kbuild.toolchains.probe`.

    Raises:
        ToolchainError: the program is no Python interpreter that can run the probe.
    """

    def ask() -> tuple[Facts, tuple[str, ...]]:
        done = runner.run((str(python), "-I", str(_PROBE)))
        try:
            facts: dict[str, Any] = json.loads(done.output)
        except ValueError:
            raise ToolchainError(
                f"`{python}` did not answer the probe: {done.output.strip()[-300:]}",
                hint="--python takes a Python interpreter, 3.9 or newer",
            ) from None
        torch = facts["torch"]
        version_file = str(Path(torch["root"], "version.py")) if torch else ""
        paths = (str(python), str(_PROBE), facts["python"]["purelib"], version_file)
        return facts, tuple(path for path in paths if path)

    return cache.get(f"interpreter {python}", ask)


def compiler(program: Path, cache: FactCache, runner: Runner) -> Facts:
    """`{"version": first line of --version, "text": all of it}` of a compiler.

    Raises:
        ToolchainError: the program cannot be started, or says nothing.
    """

    def ask() -> tuple[Facts, tuple[str, ...]]:
        done = runner.run((str(program), "--version"))
        if not done.ok or not done.output.strip():
            raise ToolchainError(f"`{program} --version` failed: {done.output.strip()[-300:]}")
        facts = {"version": done.output.splitlines()[0], "text": done.output}
        return facts, (str(program.resolve()),)

    return cache.get(f"compiler/2 {program}", ask)
