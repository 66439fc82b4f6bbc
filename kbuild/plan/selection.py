"""The variants of a project, from the matrix, and those that a command line selects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from kbuild.backends import BACKENDS
from kbuild.backends.base import other_backend_names
from kbuild.plan.project import Project
from kbuild.project.config.issue import did_you_mean
from kbuild.project.matrix import MatrixEntry, matrix_entries
from kbuild.project.variant import CPUS, System, Variant, host_system
from kbuild.system.errors import UsageError, counted
from kbuild.system.version import Version

_TORCH_RELEASE = re.compile(r"(\d+\.\d+)(?:\.\d+)?")


@dataclass(frozen=True)
class VariantChoice:
    """A variant of a project, and where in the matrix it comes from."""

    variant: Variant
    torch: Version | None
    """The Torch release that it is built with: the newest one for a stable ABI."""
    default: bool
    """Part of a plain build."""


@dataclass(frozen=True)
class Selection:
    """The variants that a command line selects; empty fields select everything."""

    globs: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    torch: tuple[Version, ...] = ()
    systems: tuple[System, ...] = ()
    cross: frozenset[System] = frozenset()
    """Systems that somebody asked to build for, although this machine may be of another."""

    @property
    def is_explicit(self) -> bool:
        """True when variants or releases were named."""
        return bool(self.globs or self.torch)


def systems_in_names(globs: Iterable[str]) -> frozenset[System]:
    """The systems of this operating system whose processor one of the names or patterns has."""
    systems = (System(cpu, host_system().os) for glob in globs for cpu in CPUS if cpu in glob)
    return frozenset(systems)


def parse_torch_release(text: str) -> Version:
    """A Torch release that kbuild knows, written `2.13` or `2.13.0`.

    Raises:
        UsageError: there is none of that name.
    """
    match = _TORCH_RELEASE.fullmatch(text)
    release = Version.parse(match[1]) if match else None
    known = {entry.torch for entry in matrix_entries()}
    if release not in known:
        # Plug-ins are imported only for a release that kbuild's own matrix lacks.
        plugged = (backend.builds() for backend in BACKENDS.load(plugins=True))
        known |= {entry.torch for entries in plugged for entry in entries}
    if release is None or release not in known:
        listed = ", ".join(map(str, sorted(known)))
        what = f"--torch: `{text}` is not a Torch release that kbuild knows"
        raise UsageError(what, hint=f"choose from {listed}")
    return release


def variants_by_reason(reasons: Mapping[str, str | None]) -> dict[str, list[str]]:
    """Reason why variants cannot be built here -> their names; those without a reason can."""
    groups: dict[str, list[str]] = {}
    for variant, reason in reasons.items():
        if reason is not None:
            groups.setdefault(reason, []).append(variant)
    return groups


def reason_lines(reasons: Mapping[str, str | None]) -> list[str]:
    """Each reason once, with how many variants it is about, or the name of the only one."""
    return [
        f"{names[0] if len(names) == 1 else counted(len(names), 'variant')}: {reason}"
        for reason, names in variants_by_reason(reasons).items()
    ]


def environments(project: Project) -> tuple[MatrixEntry, ...]:
    """Matrix entries that fit the project's backends and version bounds, in matrix order."""
    wanted = project.file.general.backends
    plugged = (entry for name in wanted for entry in BACKENDS.get(name).builds())
    return tuple(
        entry
        for entry in (*matrix_entries(), *plugged)
        if entry.backend in wanted and _in_bounds(project, entry)
    )


def project_variants(project: Project) -> tuple[VariantChoice, ...]:
    """Every variant of the project, backend by backend in its order, oldest Torch first."""
    choices: dict[str, VariantChoice] = {}
    for backend in project.file.general.backends:
        for choice in _of_backend(project, backend):
            before = choices.get(str(choice.variant))
            choices[str(choice.variant)] = (
                choice if before is None else _merge_choices(before, choice)
            )
    return tuple(choices.values())


def variants_for_torch(project: Project, backend: str, torch: str) -> tuple[VariantChoice, ...]:
    """The variants of a backend for this machine that a Torch such as `2.11.0+cu130` loads.

    Those for its CUDA or ROCm release where there are any, else those for each.
    """
    number, _, compute = torch.partition("+")
    release = re.match(r"\d+\.\d+", number)
    here = host_system()
    fitting = [
        choice
        for choice in project_variants(project)
        if choice.variant.backend == backend
        and choice.variant.system in (None, here)
        and (
            choice.torch is None
            or choice.variant.framework == "tvm-ffi"
            or (release and supports_release(choice, (Version.parse(release[0]),)))
        )
    ]
    suffix = f"-{compute.replace('.', '')}-{here}"
    return tuple(c for c in fitting if str(c.variant).endswith(suffix)) or tuple(fitting)


def select_variants(project: Project, selection: Selection) -> tuple[VariantChoice, ...]:
    """The selected variants; those outside a plain build only when named.

    Raises:
        UsageError: a glob matches no variant of the project, a backend is not the project's, or
            nothing fits all of a selection.
    """
    candidates = project_variants(project)
    names = [str(choice.variant) for choice in candidates]
    for glob in selection.globs:
        if not any(fnmatchcase(name, glob) for name in names):
            close = get_close_matches(glob, names, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(f'`{name}`' for name in close)}?" if close else ""
            raise UsageError(
                f"no variant of {project.name} matches `{glob}`",
                hint=hint or "`kbuild list-variants` lists them",
            )
    for backend in selection.backends:
        if backend not in project.file.general.backends:
            guess = did_you_mean(
                backend, project.file.general.backends, other_backend_names(BACKENDS)
            )
            raise UsageError(
                f"{project.name} does not list the backend `{backend}`",
                hint=guess or f"general.backends has: {', '.join(project.file.general.backends)}",
            )
    chosen = tuple(choice for choice in candidates if _matches(choice, selection))
    if not chosen and (selection.is_explicit or selection.backends or selection.systems):
        raise _empty_selection(project, candidates, selection)
    return chosen


def _empty_selection(
    project: Project, candidates: Iterable[VariantChoice], selection: Selection
) -> UsageError:
    """Error for a selection that no variant fits, with the reason and the remedy."""
    releases = {_served_releases(choice): choice.torch for choice in candidates if choice.torch}
    systems = sorted({str(c.variant.system) for c in candidates if c.variant.system is not None})
    for what, alone, known in (
        ("Torch", Selection(torch=selection.torch), sorted(releases, key=releases.__getitem__)),
        ("system", Selection(systems=selection.systems), systems),
    ):
        if not any(_matches(choice, alone) for choice in candidates):
            asked = ", ".join(map(str, alone.torch or alone.systems))
            message = f"{project.name} has no variant for {what} {asked}"
            return UsageError(message, hint=f"it has variants for {', '.join(known)}")
    return UsageError(
        f"no variant of {project.name} fits all of the selection",
        hint="`kbuild list-variants --all` lists the variants; leave out one of the options",
    )


def _served_releases(choice: VariantChoice) -> str:
    """The releases of Torch that a variant is for: `2.13`, or `2.12 to 2.15`."""
    if choice.variant.framework == "torch-stable-abi":
        return f"{choice.variant.framework_version} to {choice.torch}"
    return str(choice.torch)


def environment_variants(project: Project, selection: Selection) -> tuple[VariantChoice, ...]:
    """The environments as variant names: where a Python-only kernel can be tested, too."""
    choices = (
        VariantChoice(
            Variant("torch", entry.backend, entry.torch, entry.backend_version, entry.system),
            entry.torch,
            entry.default,
        )
        for entry in environments(project)
    )
    return tuple(choice for choice in choices if _matches(choice, selection))


def _of_backend(project: Project, backend: str) -> Iterator[VariantChoice]:
    if not project.is_compiled(backend):
        yield VariantChoice(Variant("torch-noarch", backend), None, default=True)
        return
    for entry in environments(project):
        if entry.backend == backend:
            variant = _variant_of(project, entry)
            if variant is not None:
                yield VariantChoice(variant, entry.torch, entry.default)


def _variant_of(project: Project, entry: MatrixEntry) -> Variant | None:
    file = project.file
    if file.tvm_ffi is not None:
        if entry.tvm_ffi is None:
            return None
        return Variant("tvm-ffi", entry.backend, entry.tvm_ffi, entry.backend_version, entry.system)
    floor = file.torch.stable_abi_for(entry.backend) if file.torch else None
    if floor is None:
        return Variant("torch", entry.backend, entry.torch, entry.backend_version, entry.system)
    if entry.torch < floor:
        return None
    return Variant("torch-stable-abi", entry.backend, floor, entry.backend_version, entry.system)


def _merge_choices(choice: VariantChoice, other: VariantChoice) -> VariantChoice:
    """One name from several releases (stable ABI, TVM-FFI): built with the newest of them."""
    if choice.torch is None or other.torch is None:
        return choice
    newest = max(choice.torch, other.torch)
    return VariantChoice(choice.variant, newest, default=choice.default or other.default)


def _in_bounds(project: Project, entry: MatrixEntry) -> bool:
    torch = project.file.torch
    if torch is not None and not _within(entry.torch, torch.minver, torch.maxver):
        return False
    table = project.file.general.backend_general(entry.backend)
    if entry.backend_version is None or table is None:
        return True
    return _within(
        entry.backend_version, getattr(table, "minver", None), getattr(table, "maxver", None)
    )


def _within(version: Version, low: str | None, high: str | None) -> bool:
    return (low is None or Version.parse(low) <= version) and (
        high is None or version <= Version.parse(high)
    )


def _matches(choice: VariantChoice, selection: Selection) -> bool:
    variant, named = choice.variant, selection
    if named.globs and not any(fnmatchcase(str(variant), glob) for glob in named.globs):
        return False
    if named.backends and variant.backend not in named.backends:
        return False
    if named.torch and choice.torch is not None and not supports_release(choice, named.torch):
        return False
    if named.systems and variant.system is not None and variant.system not in named.systems:
        return False
    return choice.default or named.is_explicit


def supports_release(choice: VariantChoice, releases: Iterable[Version]) -> bool:
    """A stable-ABI variant serves every release from its floor on, one for TVM-FFI every one."""
    floor = choice.variant.framework_version
    if choice.variant.framework == "tvm-ffi":
        return True
    if choice.variant.framework == "torch-stable-abi" and floor is not None:
        return any(floor <= release for release in releases)
    return choice.torch in set(releases)
