"""The card of a build: filled beside the variants, and only when something about it changed.

A digest of what a card was made from and what it became is kept in the project, so that an
unchanged project is answered without reading a library or loading a template engine.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.plan.metadata import METADATA_FILE
from kbuild.plan.project import BUILD_FILE, Project
from kbuild.system.cache import FILLED_CARD, Cache
from kbuild.system.code_digest import package_digest
from kbuild.system.errors import KbuildError, UsageError
from kbuild.system.files import sha256_of_file
from kbuild.system.os_errors import explain_os_error
from kbuild.system.sourcetree import SourceTree
from kbuild.system.ui import Ui
from kbuild.system.workspace import WORKSPACE_FOLDER

if TYPE_CHECKING:
    from kbuild.publish.card.fill import WrittenCard

CARD = "CARD.md"
_INPUT_GLOBS = ("torch-ext/**/*.py", "tvm-ffi-ext/**/*.py", "benchmarks/results/*.json")


@dataclass(frozen=True)
class CardDestination:
    """Facts of a card about the place where it will be shown."""

    repo_id: str | None = None
    """Repository of the kernel; that of `build.toml` when None."""
    branch: str | None = None
    """The branch; as `build.toml` says when None."""
    faults: Mapping[str, str] | None = None
    """Variants that fail a check, with words; portability is always looked at."""


def fill_card(
    project: Project,
    build: Path,
    target: Path | None = None,
    *,
    force: bool = False,
) -> WrittenCard:
    """Fill the card of a project and write it.

    Args:
        project: its `CARD.md` is the template.
        build: the folder with the variant directories.
        target: the file to write; `CARD.md` in `build` when None.
        force: replace the file also when kbuild did not write it, or it was edited.

    Raises:
        KbuildError: there is no template, it is wrong, or a fact cannot be read.
        FileConflictError: kbuild did not write the file that is there.
    """
    from kbuild.publish.card import write_card
    from kbuild.publish.card.fill import read_card

    path = target or build / CARD
    template = read_card(template_of(project))

    def make(text: str) -> str:
        return make_project_card(project, build, template=text)

    return write_card(make, template, path, force=force)


def make_project_card(
    project: Project,
    build: Path,
    *,
    template: str | None = None,
    publication: CardDestination | None = None,
) -> str:
    """The card as it would be written; see `fill_card`."""
    from kbuild.publish.card import card_text
    from kbuild.publish.card.facts import read_facts
    from kbuild.publish.card.fill import read_card

    target = publication or CardDestination()
    text = read_card(template_of(project)) if template is None else template
    facts = read_facts(
        project, build, repo_id=target.repo_id, branch=target.branch, faults=target.faults
    )
    return card_text(text, facts)


def template_of(project: Project) -> Path:
    """The project's `CARD.md`.

    Raises:
        ConfigError: it is not a file, or leads out of the project.
        UsageError: it is not there.
    """
    template = project.root / CARD
    SourceTree(project.root).refuse(CARD)
    if not template.is_file():
        raise UsageError(f"`{template}` does not exist", hint="`kbuild init` writes one")
    return template


def refresh_card(project: Project, build: Path, ui: Ui) -> Path | None:
    """Bring the card of a build up to date; what is wrong with it is a warning.

    Returns:
        The card; None when the project has no template, nothing is built, or it cannot be filled.
    """
    if not (project.root / CARD).is_file() or not any(build.glob(f"*/{METADATA_FILE}")):
        return None
    cache, state = Cache(project.root / WORKSPACE_FOLDER, FILLED_CARD), _state(project, build)
    # The messages when everything was as it is now; None when something is not.
    known = cache.get_json(
        "",
        lambda data: tuple(map(str, data["messages"])) if data["state"] == state else None,
    )
    messages = _refreshed(project, build, ui) if known is None else known
    for message in messages:
        ui.warn(message)
    # The state is computed again: filling has changed the card, which is a part of it.
    if known is None:
        cache.put_json("", {"state": _state(project, build), "messages": messages})
    return None if messages and not (build / CARD).is_file() else build / CARD


def _refreshed(project: Project, build: Path, ui: Ui) -> tuple[str, ...]:
    try:
        written = fill_card(project, build)
    except KbuildError as error:
        return (f"the card was not filled: {error}",)
    except OSError as error:
        return (f"the card was not filled: {explain_os_error(error) or error}",)
    if written.changed:
        ui.say(f"filled {written.path}")
    if written.edited:
        return (f"`{written.path}` was edited by hand: its own text was kept, not that of {CARD}",)
    return ()


def _state(project: Project, build: Path) -> str:
    """A digest of all that goes into a card and of what came out."""
    hasher = hashlib.sha256(f"{package_digest()}\0".encode() + os.fsencode(build))
    for path in _files(project.root, build):
        hasher.update(b"\0%b\0%b\0" % (os.fsencode(path), sha256_of_file(path).encode()))
    for path in sorted((project.root / "benchmarks").glob("benchmark*.py")):
        hasher.update(b"\0" + os.fsencode(path))
    return hasher.hexdigest()


def _files(root: Path, build: Path) -> Iterator[Path]:
    named = [root / CARD, root / BUILD_FILE, build / CARD]
    paths: Iterable[Path] = (
        path for pattern in _INPUT_GLOBS for path in sorted(root.glob(pattern))
    )
    metadata = sorted(build.glob(f"*/{METADATA_FILE}"))
    return (path for path in (*named, *paths, *metadata) if path.is_file())
