"""Caches the problems of a project, so that an unchanged project is not read again.

Loading the models costs ten times what starting Python does; comparing one `stat` for each path
that was looked at costs nothing. This module imports neither pydantic nor tomli.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.project.config.display import display_path, project_path
from kbuild.system.cache import CONFIG_CHECKS, Cache
from kbuild.system.code_digest import package_digest
from kbuild.system.record import Record, read_record

if TYPE_CHECKING:
    from kbuild.system.errors import Problem
    from kbuild.system.file_state import FileState


class ConfigCheckResult:
    """The problems of a project, as JSON objects in the order in which they are shown."""

    def __init__(self, problems: Iterable[Mapping[str, Any]]) -> None:
        self.problems = tuple(dict(problem) for problem in problems)

    @property
    def ok(self) -> bool:
        """True when there are warnings at most."""
        return all(problem["severity"] != "error" for problem in self.problems)


def cached_result(root: Path, cache_dir: Path) -> ConfigCheckResult | None:
    """The problems of `root` if checking the project again would read the same files."""
    root = Path(os.path.abspath(root))  # noqa: PTH100 - without resolving links
    record = read_record(Cache(cache_dir, CONFIG_CHECKS), _key(root))
    if record is None or not record.holds(root, cache_dir):
        return None
    problems = record.answer["problems"]
    return ConfigCheckResult({**p, "file": display_path(root, p["file"])} for p in problems)


def store_result(
    root: Path, cache_dir: Path, issues: Iterable[Problem], observed: Mapping[str, FileState]
) -> ConfigCheckResult:
    """Keep the problems of `root`, which follow from the `observed` files."""
    root = Path(os.path.abspath(root))  # noqa: PTH100 - without resolving links
    result = ConfigCheckResult(problem.to_json() for problem in issues)
    problems = [{**p, "file": project_path(root, p["file"])} for p in result.problems]
    record = Record({"problems": problems}, observed, package_digest(cache_dir))
    record.write(Cache(cache_dir, CONFIG_CHECKS), _key(root))
    return result


def _key(root: Path) -> str:
    return hashlib.sha256(os.fsencode(root)).hexdigest()
