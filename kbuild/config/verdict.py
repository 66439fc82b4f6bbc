"""What kbuild said about a project, kept so that nothing is read again while nothing changed.

Loading the models costs ten times what starting Python does; comparing one `stat` for each path
that was looked at costs nothing. This module imports neither pydantic nor tomli. A verdict is only
a cache: whatever is wrong with it, the answer is to judge again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild import __version__
from kbuild.config.place import display, relative
from kbuild.sourcetree import Look, unchanged

if TYPE_CHECKING:
    from kbuild.errors import Problem

_FORMAT = 1
_KBUILD = Path(__file__).parent.parent
# A change to kbuild's own rules makes every verdict stale.
_JUDGES = ("config", "config/rules", "backends")


class Verdict:
    """The problems of a project, as JSON objects in the order in which they are shown."""

    def __init__(self, problems: Iterable[Mapping[str, Any]]) -> None:
        self.problems = tuple(dict(problem) for problem in problems)

    @property
    def ok(self) -> bool:
        """True when there are warnings at most."""
        return all(problem["severity"] != "error" for problem in self.problems)


def cached_verdict(root: Path, cache_dir: Path) -> Verdict | None:
    """The verdict about `root` if looking at the project again would show the same files."""
    root = Path(os.path.abspath(root))  # noqa: PTH100 - without resolving links
    try:
        stored = json.loads(_path(root, cache_dir).read_bytes())
        observed = {
            path: tuple(then) if then else None for path, then in stored["observed"].items()
        }
        if stored["judges"] != _judges() or not unchanged(root, observed):
            return None
        problems = [{**p, "file": display(root, p["file"])} for p in stored["problems"]]
        return Verdict(problems)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def remember(
    root: Path, cache_dir: Path, problems: Iterable[Problem], observed: Mapping[str, Look]
) -> Verdict:
    """Keep the verdict about `root`, which rests on what was `observed`.

    A cache that cannot be written is no failure.
    """
    root = Path(os.path.abspath(root))  # noqa: PTH100 - without resolving links
    verdict = Verdict(problem.to_json() for problem in problems)
    stored = {
        "judges": _judges(),
        "observed": dict(observed),
        "problems": [{**p, "file": relative(root, p["file"])} for p in verdict.problems],
    }
    with suppress(OSError, ValueError):
        _write(_path(root, cache_dir), json.dumps(stored).encode())
    return verdict


def _write(path: Path, data: bytes) -> None:
    """As `kbuild.fileset.replace_atomically` does, without its imports."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(path)


def _path(root: Path, cache_dir: Path) -> Path:
    key = hashlib.sha256(f"{_FORMAT}\0{__version__}\0{root}".encode()).hexdigest()[:32]
    return cache_dir / "verdicts" / f"{key}.json"


def _judges() -> list[int]:
    """Modification times of the files that judge."""
    return [
        entry.stat().st_mtime_ns
        for folder in _JUDGES
        for entry in sorted(os.scandir(_KBUILD / folder), key=lambda entry: entry.name)
        if entry.is_file()
    ]
