"""What an upload is asked for, and where that leads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kbuild.errors import ConfigError, UsageError
from kbuild.hub.patience import Patience
from kbuild.hub.remote import Hub
from kbuild.hub.target import Target
from kbuild.hub.values import Repo, RepoKind
from kbuild.project import BUILD_FILE, Project, open_project

_REPO = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", flags=re.ASCII)


@dataclass(frozen=True)
class UploadOptions:
    """What `kbuild upload` was asked for."""

    repo_id: str | None = None
    """`owner/name`; `general.hub.repo-id` when None."""
    branch: str | None = None
    """`general.hub.branch`, else `v<version>`, when None."""
    kind: RepoKind = "kernel"
    private: bool = False
    pull: bool = False
    missing: bool = False
    """Only variants that the branch does not have."""
    allow_dirty: bool = False
    allow_noncompliant: bool = False
    accepted: frozenset[str] = frozenset()
    """Licences that the user accepts, see `kbuild.licences`."""


@dataclass(frozen=True)
class Desk:
    """The Hub, and how patient one is with it."""

    hub: Hub
    patience: Patience


def target_of(options: UploadOptions, project: Project | None, version: int) -> Target:
    """Where to.

    Raises:
        UsageError: nobody says which repository, or its name is none.
    """
    hub = project.file.general.hub if project else None
    name = options.repo_id or (hub.repo_id if hub else None)
    if not name:
        hint = 'give --repo-id OWNER/NAME, or write `repo-id = "..."` in `[general.hub]`'
        raise UsageError("no repository is named", hint=hint)
    if not _REPO.fullmatch(name):
        raise UsageError(f"`{name}` is no repository", hint="write OWNER/NAME")
    branch = options.branch or (hub.branch if hub else None) or f"v{version}"
    repo = Repo(name, options.kind)
    return Target(repo, branch, private=options.private, pull=options.pull)


def project_in(folder: Path, options: UploadOptions) -> Project | None:
    """The project of a folder; a broken one matters only when it has to say where to upload to.

    Raises:
        ConfigError: `build.toml` is wrong, and `--repo-id` was not given.
    """
    if not (folder / BUILD_FILE).is_file():
        return None
    try:
        return open_project(folder)
    except ConfigError:
        if options.repo_id:
            return None
        raise
