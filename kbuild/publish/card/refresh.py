"""The card of a build: its facts, and the file beside the variants, filled when a fact changed.

What a card was made from and what it became is remembered by content in `.kbuild/card.json`, so
that an unchanged project is answered without reading a library or loading a template engine.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.checks.base import Output
from kbuild.checks.manylinux import ManylinuxCheck
from kbuild.plan.metadata import METADATA_FILE, Metadata, MetadataError, read_metadata
from kbuild.plan.project import BUILD_FILE, Project
from kbuild.plan.selection import Selection, select_variants
from kbuild.project.config.dependencies import distribution_of
from kbuild.project.config.load import config_error
from kbuild.project.config.model import General
from kbuild.project.licences import licensed_parts
from kbuild.project.matrix import arch_order
from kbuild.project.variant import Variant, variant_named
from kbuild.publish.card.benchmarks import read_results
from kbuild.publish.card.model import CardFacts, PublicApi, VariantFacts
from kbuild.publish.card.public_api import find_package, read_public_api
from kbuild.system.code_digest import package_digest
from kbuild.system.errors import KbuildError, UsageError
from kbuild.system.files import replace_atomically, sha256_of_file
from kbuild.system.os_errors import explain_os_error
from kbuild.system.sourcetree import SourceTree
from kbuild.system.ui import Ui
from kbuild.system.untrusted import read_cache_file
from kbuild.system.workspace import WORKSPACE_FOLDER

if TYPE_CHECKING:
    from kbuild.publish.card import Card
    from kbuild.publish.card.fill import WrittenCard


BENCHMARKS = "benchmarks"
RESULTS = f"{BENCHMARKS}/results"
_SCRIPTS = "benchmark*.py"
_DIRTY = "_dirty"


def read_facts(
    project: Project,
    build: Path,
    *,
    repo_id: str | None = None,
    branch: str | None = None,
    faults: Mapping[str, str] | None = None,
) -> CardFacts:
    """Everything that is known of a project and its built variants.

    Args:
        project: the project.
        build: the folder with the variant directories; need not be there.
        repo_id: where it is published, when not where `build.toml` says.
        branch: the branch, when not the one that `build.toml` says.
        faults: variants that fail a check, with words; portability is looked at here.

    Raises:
        ConfigError: nothing says where the kernel is published.
        CardError: the package does not parse, or a file of benchmark results cannot be read.
    """
    general = project.file.general
    hub = general.hub
    package = find_package(project.root, project.python_name)
    variants = tuple(_built(build, general))
    return CardFacts(
        repo_id=repo_id or _repo_id(project),
        name=general.name,
        version=general.version,
        license=general.license,
        branch=branch or (hub.branch if hub and hub.branch else ""),
        public_api=read_public_api(package) if package else PublicApi(),
        variants=_variants(project, variants, faults or {}),
        python_depends=_needed(general, [metadata for _, metadata in variants]),
        kernel_depends=tuple(dependency.repo_id for dependency in general.kernel_depends),
        has_benchmark=any((project.root / BENCHMARKS).glob(_SCRIPTS)),
        runs=read_results(project.root / RESULTS),
        upstream=general.upstream,
        source=general.source,
    )


def variant_folders(build: Path) -> list[Path]:
    """The folders below `build` that have metadata, in name order."""
    if not build.is_dir():
        return []
    folders = (path for path in build.iterdir() if not path.name.startswith("."))
    return sorted(path for path in folders if (path / METADATA_FILE).is_file())


def _built(build: Path, general: General) -> Iterator[tuple[Path, Metadata]]:
    """The variants of this kernel at this version; others in the folder are not published."""
    for folder in variant_folders(build):
        try:
            metadata = read_metadata(folder)
        except (MetadataError, OSError):
            continue  # no client loads it, and checks say why
        if (metadata.name, metadata.version) == (general.name, general.version):
            yield folder, metadata


def _variants(
    project: Project, built: Sequence[tuple[Path, Metadata]], faults: Mapping[str, str]
) -> tuple[VariantFacts, ...]:
    """The variants that were built; those of a plain build when there are none yet."""
    if built:
        return tuple(_facts(folder, metadata, faults) for folder, metadata in built)
    planned = (choice.variant for choice in select_variants(project, Selection()))
    return tuple(VariantFacts(str(variant), variant) for variant in planned)


def _facts(folder: Path, metadata: Metadata, faults: Mapping[str, str]) -> VariantFacts:
    variant = variant_named(folder.name)
    provenance = metadata.provenance
    source = provenance.kernel if provenance else None
    builder = provenance.builder.git if provenance else None
    return VariantFacts(
        name=folder.name,
        variant=variant,
        archs=tuple(sorted(metadata.archs or (), key=arch_order)),
        size=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        build=metadata.id.removesuffix(_DIRTY).rpartition("_")[2],
        dirty=metadata.id.endswith(_DIRTY) or bool(source and source.dirty),
        by_dirty_builder=bool(builder and builder.dirty),
        fault=faults.get(folder.name) or _portability(folder, variant),
        overruled=tuple(metadata.overruled.items()),
        licensed=tuple(_licensed(metadata)),
    )


def _licensed(metadata: Metadata) -> Iterator[tuple[str, str]]:
    toolchain = metadata.provenance.builder.toolchain if metadata.provenance else None
    for name, what in licensed_parts(toolchain.versions if toolchain else {}).items():
        from kbuild.ops.language import find_licence

        licence = find_licence(name)
        yield what, f"[{licence.title}]({licence.text})" if licence.text else f"`{name}`"


def _portability(folder: Path, variant: Variant | None) -> str:
    """What the check `manylinux` holds against the libraries; empty when it holds nothing."""
    output = Output(folder, variant)
    check = ManylinuxCheck()
    if variant is None or variant.is_noarch or not check.applies(output):
        return ""
    worse = (finding for finding in check.run(output) if finding.severity != "info")
    if next(worse, None) is None:
        return ""
    return f"it needs newer system libraries than {output.limits.manylinux} has"


def _needed(general: General, built: Sequence[Metadata]) -> tuple[str, ...]:
    """Distributions that any of the variants needs."""
    names = [
        *general.python_depends,
        *(name for metadata in built for name in metadata.python_depends),
    ]
    return tuple(dict.fromkeys(map(distribution_of, names)))


def _repo_id(project: Project) -> str:
    hub = project.file.general.hub
    if hub is not None and hub.repo_id:
        return hub.repo_id
    message = "is missing: the card says where the kernel is published"
    hint = f'write `repo-id = "owner/{project.name}"` in `[general.hub]`'
    tree = SourceTree(project.root)
    raise config_error(tree, ("general", "hub", "repo-id"), message, hint)


CARD = "CARD.md"
_MEMORY = "card.json"
_INPUT_GLOBS = ("torch-ext/**/*.py", "tvm-ffi-ext/**/*.py", "benchmarks/results/*.json")


@dataclass(frozen=True)
class CardDestination:
    """What a card has to say of the place where it will be shown."""

    repo_id: str | None = None
    """Where the kernel is published; as `build.toml` says when None."""
    branch: str | None = None
    """The branch; as `build.toml` says when None."""
    faults: Mapping[str, str] | None = None
    """Variants that fail a check, with words; portability is always looked at."""


def fill_card(
    project: Project,
    build: Path,
    target: Path | None = None,
    *,
    publication: CardDestination | None = None,
    force: bool = False,
) -> WrittenCard:
    """Fill the card of a project and write it with its charts.

    Args:
        project: its `CARD.md` is the template.
        build: the folder with the variant directories.
        target: the file to write; `CARD.md` in `build` when None.
        publication: where it will be shown.
        force: replace the file also when kbuild did not write it, or it was edited.

    Raises:
        KbuildError: there is no template, it is wrong, or a fact cannot be read.
        FileConflictError: kbuild did not write the file that is there.
    """
    from kbuild.publish.card import write_card
    from kbuild.publish.card.fill import read_card

    path = target or build / CARD
    template = read_card(template_of(project))
    make = partial(make_project_card, project, build, publication=publication)
    return write_card(lambda text: make(template=text), template, path, force=force)


def make_project_card(
    project: Project,
    build: Path,
    *,
    template: str | None = None,
    publication: CardDestination | None = None,
) -> Card:
    """The card as it would be written; see `fill_card`."""
    from kbuild.publish.card import make_card
    from kbuild.publish.card.fill import read_card

    target = publication or CardDestination()
    text = read_card(template_of(project)) if template is None else template
    facts = read_facts(
        project, build, repo_id=target.repo_id, branch=target.branch, faults=target.faults
    )
    return make_card(text, facts)


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
    memory = project.root / WORKSPACE_FOLDER / _MEMORY
    # What was said when everything was as it is now; None when something is not.
    state = _state(project, build)
    known = read_cache_file(
        memory,
        lambda document: tuple(map(str, document["said"])) if document["state"] == state else None,
    )
    messages = _refreshed(project, build, ui) if known is None else known
    for message in messages:
        ui.warn(message)
    if known is None:
        data = {"state": _state(project, build), "said": list(messages)}
        with suppress(OSError):  # it is made again next time
            replace_atomically(memory, json.dumps(data, indent=1).encode())
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
    whole = hashlib.sha256(f"{package_digest()}\0".encode() + os.fsencode(build))
    for path in _files(project.root, build):
        whole.update(b"\0%b\0%b\0" % (os.fsencode(path), sha256_of_file(path).encode()))
    for path in sorted((project.root / "benchmarks").glob("benchmark*.py")):
        whole.update(b"\0" + os.fsencode(path))
    return whole.hexdigest()


def _files(root: Path, build: Path) -> Iterator[Path]:
    named = [root / CARD, root / BUILD_FILE, build / CARD, *sorted(build.glob("CARD-*.svg"))]
    paths: Iterable[Path] = (
        path for pattern in _INPUT_GLOBS for path in sorted(root.glob(pattern))
    )
    metadata = sorted(build.glob(f"*/{METADATA_FILE}"))
    return (path for path in (*named, *paths, *metadata) if path.is_file())
