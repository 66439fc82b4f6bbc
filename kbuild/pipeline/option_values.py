"""Values of build options that follow from several arguments, the project or this machine."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.system.errors import UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.plan.project import Project
    from kbuild.plan.selection import Selection
    from kbuild.plan.variant import Identity
    from kbuild.project.variant import System
    from kbuild.system.processes import Runner


def selection_of(args: Namespace, root: Path | None = None) -> Selection:
    """The selection that the options ask for, and `kbuild.toml` of the project in `root`.

    Raises:
        ConfigError: the project's `kbuild.toml` is wrong.
        UsageError: there is no such release, or a system is not written `CPU-OS`.
    """
    from kbuild.plan.project import systems_of_project
    from kbuild.plan.selection import Selection, parse_torch_release, systems_in_names

    cross = systems_of_project(root) if root else frozenset()
    try:
        systems = tuple(_parse_system(text) for text in args.system)
        return Selection(
            globs=tuple(args.variant),
            backends=tuple(args.backend),
            torch=tuple(map(parse_torch_release, args.torch)),
            systems=systems,
            cross=cross | frozenset(systems) | systems_in_names(args.variant),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _parse_system(text: str) -> System:
    from kbuild.project.variant import System, host_system

    return host_system() if text == "host" else System.parse(text)


_UNIQUE_ID = re.compile(r"[A-Za-z0-9_]{1,64}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def identity_of(args: Namespace) -> Identity | None:
    """The identity that the options give; None when they give none.

    Raises:
        UsageError: the id has characters that identifiers cannot have, or the commit is not a full
            object id.
    """
    from kbuild.plan.variant import Identity

    commit = args.kernel_sha.lower() if args.kernel_sha else None
    if args.kernel_dirty and commit is None:
        raise UsageError("--kernel-dirty needs --kernel-sha")
    if commit is not None and not _COMMIT.fullmatch(commit):
        raise UsageError(f"`{args.kernel_sha}` is not a commit", hint="40 or 64 hexadecimal digits")
    if args.unique_id is None and commit is None:
        return None
    tail = "_dirty" if args.kernel_dirty else ""
    unique_id = f"{str(commit)[:7]}{tail}" if args.unique_id is None else args.unique_id
    if not _UNIQUE_ID.fullmatch(unique_id):
        raise UsageError(
            f"`{unique_id}` cannot end an identifier", hint="letters, digits and `_`, 64 at most"
        )
    return Identity(unique_id, commit, args.kernel_dirty)


ALL_ARCHS, NATIVE_ARCHS = "all", "native"


def archs_of(args: Namespace, ctx: Services, project: Project) -> tuple[str, ...]:
    """The archs of `--arch`; empty for all.

    Raises:
        UsageError: not an arch of any of the project's backends, or no GPU for `native`.
    """
    asked = [name for text in args.arch for name in text.split(",") if name]
    if not asked and is_development(args):
        # Nobody named an arch: without a GPU, a development build still compiles device code, for
        # all archs, where `--arch native` has nothing to choose.
        return _archs_of_gpus(project, ctx.runner)
    if not asked or asked == [ALL_ARCHS]:
        return ()
    if ALL_ARCHS in asked:
        raise UsageError("--arch all cannot be combined with other archs")
    named = tuple(name for name in asked if name != NATIVE_ARCHS)
    for name in named:
        _validate_arch(name, project)
    native = _archs_of_gpus(project, ctx.runner) if NATIVE_ARCHS in asked else ()
    if NATIVE_ARCHS in asked and not native:
        raise UsageError("--arch native: no GPU was found", hint="name one, e.g. --arch 9.0")
    return (*named, *native)


def is_development(args: Namespace) -> bool:
    """True for `--dev`, which few commands have."""
    return getattr(args, "dev", False)


def _validate_arch(name: str, project: Project) -> None:
    """Raise `UsageError` where no backend of the project has GPUs with this arch."""
    from kbuild.backends import BACKENDS

    reasons = []
    for backend in map(BACKENDS.get, project.file.general.backends):
        if backend.arch_key is None:
            continue
        try:
            backend.check_gpu_arch(name)
        except ValueError as error:
            reasons.append(str(error))
        else:
            return
    raise UsageError("; ".join(reasons) or f"no backend of {project.name} has archs")


def _archs_of_gpus(project: Project, runner: Runner) -> tuple[str, ...]:
    """The archs of this machine's GPUs that the project's backends can use."""
    from kbuild.backends import BACKENDS

    backends = map(BACKENDS.get, project.file.general.backends)
    return tuple(arch for backend in backends for arch in backend.native_archs(runner))


def sources_of(args: Namespace, ctx: Services, project: Project) -> dict[str, Path]:
    """Dependency -> folder of its headers; warns of those that the project does not depend on.

    Raises:
        UsageError: an entry is not `NAME=DIR`, its dependency is given twice or does not exist.
    """
    if not args.with_source:
        return {}
    folders = _parse_sources(args.with_source, ctx)
    used = {name for section in project.cxx_kernels.values() for name in section.depends}
    for name in sorted({*folders} - used):
        ctx.ui.warn(f"--with-source {name}: no section of build.toml depends on `{name}`")
    return folders


def _parse_sources(texts: Sequence[str], ctx: Services) -> dict[str, Path]:
    from kbuild.project.config.issue import one_of
    from kbuild.toolchains.dependency_headers.pins import header_dependency_names

    folders: dict[str, Path] = {}
    for text in texts:
        name, _, folder = text.partition("=")
        if not name or not folder:
            raise UsageError(
                f"--with-source takes NAME=DIR, not `{text}`", hint="e.g. cutlass_4_0=../cutlass"
            )
        if name not in header_dependency_names():
            hint = one_of(name, header_dependency_names())
            raise UsageError(f"--with-source: there is no dependency `{name}`", hint=hint)
        if name in folders:
            raise UsageError(f"--with-source: `{name}` is given twice")
        folders[name] = ctx.path(Path(folder))
    return folders


def allow_of(args: Namespace, project: Path | None) -> Mapping[str, str]:
    """The checks that are overruled, with reasons: of the options, and of the project's file.

    Raises:
        ConfigError: the project's `kbuild.toml` is wrong.
        UsageError: a name in `--allow` is not a check, or the check cannot be overruled.
    """
    from kbuild.plan.project import KBUILD_FILE

    # Most builds overrule nothing, and need not import all checks for that.
    if not args.allow and (project is None or not os.path.lexists(project / KBUILD_FILE)):
        return {}
    from kbuild.checks.allow import allowed_checks, checks_allowed_by_option
    from kbuild.system.sourcetree import SourceTree

    return (
        allowed_checks(SourceTree(project), args.allow)
        if project
        else checks_allowed_by_option(args.allow)
    )


def validated_count(flag: str, count: int) -> int:
    """The count, if it is 1 or more.

    Raises:
        UsageError: it is less.
    """
    if count < 1:
        raise UsageError(f"{flag} takes a number, 1 or more")
    return count
