"""Caches the problems of a project, so that an unchanged project is not read again.

Loading the models costs ten times what starting Python does; comparing one `stat` for each path
that was looked at costs nothing. This module imports neither pydantic nor tomli. Whatever is
wrong with a cached result, the project is checked again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.project.config.display import display_path, project_path
from kbuild.system.code_digest import package_digest
from kbuild.system.record import Record, read_record

if TYPE_CHECKING:
    from kbuild.system.errors import Problem
    from kbuild.system.file_state import FileState

_FORMAT = 4


class ConfigCheckResult:
    """The problems of a project, as JSON objects in the order in which they are shown."""

    def __init__(self, problems: Iterable[Mapping[str, Any]]) -> None:
        self.problems = tuple(dict(problem) for problem in problems)

    @property
    def ok(self) -> bool:
        """True when there are warnings at most."""
        return all(problem["severity"] != "error" for problem in self.problems)


def cached_result(root: Path, cache_dir: Path) -> ConfigCheckResult | None:
    """The verdict about `root` if looking at the project again would show the same files."""
    root = Path(os.path.abspath(root))  # noqa: PTH100 - without resolving links
    try:
        record = read_record(_path(root, cache_dir))
        if record is None or not record.holds(root, cache_dir):
            return None
        problems = [
            {**_validate_problem(p), "file": display_path(root, p["file"])}
            for p in record.answer["problems"]
        ]
        return ConfigCheckResult(problems)
    except Exception:  # noqa: BLE001 - `untrusted.remembered`, without its imports
        return None


def _validate_problem(problem: Mapping[str, Any]) -> Mapping[str, Any]:
    """A problem as `Problem.to_json` writes it."""
    texts = ("file", "key", "message", "hint", "severity", "source")
    numbers = ("line", "column", "length")
    if not all(isinstance(problem[name], int) for name in numbers) or not all(
        isinstance(problem[name], str) for name in texts
    ):
        raise ValueError("not a problem")
    return problem


def store_result(
    root: Path, cache_dir: Path, found: Iterable[Problem], observed: Mapping[str, FileState]
) -> ConfigCheckResult:
    """Keep the verdict about `root`, which rests on what was `observed`.

    A cache that cannot be written is no failure.
    """
    root = Path(os.path.abspath(root))  # noqa: PTH100 - without resolving links
    verdict = ConfigCheckResult(problem.to_json() for problem in found)
    problems = [{**p, "file": project_path(root, p["file"])} for p in verdict.problems]
    record = Record({"problems": problems}, observed, package_digest(cache_dir))
    with suppress(OSError, ValueError):
        record.write(_path(root, cache_dir))
    return verdict


def _path(root: Path, cache_dir: Path) -> Path:
    key = hashlib.sha256(b"%d\0%b" % (_FORMAT, os.fsencode(root))).hexdigest()[:32]
    return cache_dir / "verdicts" / f"{key}.json"
