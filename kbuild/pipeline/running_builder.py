"""The running kbuild, for the metadata of what it builds.

Its commit is known from git when it runs from a checkout (an editable installation is one), from
the record that pip leaves (PEP 610) when it was installed from a repository, and not otherwise.
"""

from __future__ import annotations

from pathlib import Path

import kbuild
from kbuild.plan.metadata import COMMIT, Builder, GitState
from kbuild.system.git import Repository
from kbuild.system.processes import Runner
from kbuild.system.untrusted import read_cache_file

PACKAGE = Path(kbuild.__file__).parent
_PARTS = ("kbuild", "templates", "pyproject.toml")
"""Folders and files that a checkout is run from."""


def running_builder(runner: Runner, package: Path = PACKAGE) -> Builder:
    """This kbuild, for the provenance of what it builds."""
    state = _checkout(package, runner) or _installed_from(package)
    return Builder(kbuild.__version__, git=state)


def _checkout(package: Path, runner: Runner) -> GitState | None:
    """The checkout's state; None when git does not know the package.

    A virtual environment below some repository is none of that repository's.
    """
    repository = Repository(package.parent, runner)
    if repository.ask("ls-files", "--error-unmatch", f"{package.name}/__init__.py") is None:
        return None
    commit = repository.ask("rev-parse", "--verify", "HEAD")
    if commit is None:
        return None
    parts = [name for name in _PARTS if (package.parent / name).exists()]
    new = repository.ask("ls-files", "--others", "--exclude-standard", "--", *parts)
    return GitState(commit, dirty=bool(new) or repository.is_changed(*parts))


def _installed_from(package: Path) -> GitState | None:
    for record in sorted(package.parent.glob(f"{package.name}-*.dist-info/direct_url.json")):
        commit = read_cache_file(
            record, lambda record_json: str(record_json["vcs_info"]["commit_id"]).lower()
        )
        if commit is not None and COMMIT.fullmatch(commit):
            return GitState(commit, dirty=False)
    return None
