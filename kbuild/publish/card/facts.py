"""A card's facts, read from the project and from the variants that were built."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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
from kbuild.publish.card.model import (
    BenchmarkRun,
    CardError,
    CardFacts,
    PublicApi,
    Timing,
    VariantFacts,
)
from kbuild.publish.card.public_api import find_package, read_public_api
from kbuild.system.errors import DamagedFileError
from kbuild.system.sourcetree import SourceTree
from kbuild.system.untrusted import parse_json, read_bytes, reading, reason_of

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


_RESULTS_HINT = "`kbuild bench --output FILE` writes such files"
_RESULTS_KIND = "benchmark results"
_MIN_TIME_MS, _MAX_TIME_MS = 1e-9, 1e12
"""Milliseconds, between which a time is one."""
_UNKNOWN_VALUES = {"", "N/A", "Unknown"}
_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]+")


def read_results(folder: Path) -> tuple[BenchmarkRun, ...]:
    """The runs in a folder, in the order of their files' names; none when it is not there.

    Raises:
        CardError: a file is not what the client writes.
    """
    return tuple(_read_run(path) for path in sorted(folder.glob("*.json")) if path.is_file())


def _read_run(path: Path) -> BenchmarkRun:
    shown = f"{path.parent.parent.name}/{path.parent.name}/{path.name}"
    try:
        with reading(shown, "benchmark results"):
            document = parse_json(
                read_bytes(path, _RESULTS_KIND), path, _RESULTS_KIND, strict=False
            )
            return _run_of(document, path.stem)
    except (OSError, DamagedFileError) as error:
        message = f"{shown}: not benchmark results: {reason_of(error)}"
        raise CardError(message, hint=_RESULTS_HINT) from error


def _run_of(document: Mapping[str, Any], name: str) -> BenchmarkRun:
    """The run of a file of results; errors are those of a dictionary that lacks keys."""
    machine = document.get("machineInfo", {})
    named = (str(machine.get(key, "")) for key in ("gpu", "cpu"))
    return BenchmarkRun(
        name=_UNSAFE_CHARACTERS.sub("-", name),
        machine=next((name for name in named if name not in _UNKNOWN_VALUES), "an unnamed machine"),
        software=_software_text(machine),
        build=str(document.get("kernelCommitSha", "")),
        timings=_strip_common_class(tuple(_read_timings(document["results"]))),
    )


def _read_timings(results: list[Any]) -> Iterator[Timing]:
    """The workloads with a right result, in name order."""
    for entry in sorted(results, key=lambda entry: str(entry["workload"])):
        if entry.get("verified") is False:
            continue
        measured = entry["timingResults"]
        value = measured.get("iterations")
        time, deviation = _read_time(measured["mean_ms"]), _read_deviation(measured, "std_ms")
        reference = _read_optional(measured, "ref_mean_ms")
        if "median_ms" in measured:  # `kbuild bench` wrote it, whose table has these figures
            time, spread = _read_time(measured["median_ms"]), _read_deviation(measured, "iqr_ms")
            deviation = None if spread is None else spread / 2
            reference = _read_optional(entry.get("reference", {}), "median_ms")
        yield Timing(
            workload=str(entry["workload"]),
            time=time,
            deviation=deviation,
            iterations=value if isinstance(value, int) else None,
            reference=reference,
            ratio=_read_optional(entry, "speedup"),
        )


def _read_time(value: Any) -> float:
    time = float(value)
    if not _MIN_TIME_MS < time < _MAX_TIME_MS:
        raise ValueError(f"{value} is not a time")
    return time


def _read_optional(measured: Mapping[str, Any], key: str) -> float | None:
    value = measured.get(key)
    return None if value is None else _read_time(value)


def _read_deviation(measured: Mapping[str, Any], key: str) -> float | None:
    """None where one measurement has none."""
    deviation = float(measured.get(key, -1))
    return deviation if 0 <= deviation < _MAX_TIME_MS else None


def _strip_common_class(timings: tuple[Timing, ...]) -> tuple[Timing, ...]:
    """Names without the benchmark's class, if all have the same one."""
    owners = {timing.workload.rpartition(".")[0] for timing in timings}
    if len(owners) != 1 or owners == {""}:
        return timings
    return tuple(
        Timing(**{**vars(timing), "workload": timing.workload.rpartition(".")[2]})
        for timing in timings
    )


def _software_text(info: Mapping[str, Any]) -> str:
    torch, backend = (str(info.get(key, "")) for key in ("pytorchVersion", "backend"))
    parts = [
        f"Torch {torch}" * (torch not in _UNKNOWN_VALUES),
        backend * (backend not in _UNKNOWN_VALUES),
    ]
    return ", ".join(part for part in parts if part)
