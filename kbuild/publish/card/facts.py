"""A card's facts, read from the project and from the variants that were built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kbuild.checks.base import Output
from kbuild.checks.manylinux import ManylinuxCheck
from kbuild.plan.metadata import METADATA_FILE, Metadata, MetadataError, read_metadata
from kbuild.plan.project import Project
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
from kbuild.system.sourcetree import SourceTree

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
        not_run="load" in metadata.not_run,
        licensed=tuple(_licensed(metadata)),
    )


def _licensed(metadata: Metadata) -> Iterator[tuple[str, str]]:
    toolchain = metadata.provenance.builder.toolchain if metadata.provenance else None
    for name, what in licensed_parts(toolchain.versions if toolchain else {}).items():
        from kbuild.ops.language import find_licence

        licence = find_licence(name)
        yield what, f"[{licence.title}]({licence.text})" if licence.text else f"`{name}`"


def _portability(folder: Path, variant: Variant | None) -> str:
    """The objection of the check `manylinux` against the libraries; empty without one."""
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
