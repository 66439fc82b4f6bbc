"""The options of commands that plan or build: variants, revision, toolchain, headers, driver.

Each `add_x` declares options, and the `x_of` beside it reads them from the parsed arguments.
"""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.errors import UsageError
from kbuild.services import Services

if TYPE_CHECKING:
    from kbuild.identity import Identity
    from kbuild.nix.program import NixOptions
    from kbuild.pipeline.driver import DriverRequest
    from kbuild.project import Project
    from kbuild.runtime.processes import Runner
    from kbuild.selection import Selection
    from kbuild.variant import System


def add_selection(parser: ArgumentParser) -> None:
    """Declare `--variant`, `--backend`, `--torch` and `--system`."""
    group = parser.add_argument_group("which variants")
    group.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="GLOB",
        help="variants by name, e.g. 'torch213-*-cpu-*' (repeatable)",
    )
    group.add_argument(
        "--backend", action="append", default=[], metavar="NAME", help="one backend (repeatable)"
    )
    group.add_argument(
        "--torch", action="append", default=[], metavar="X.Y", help="a Torch release (repeatable)"
    )
    group.add_argument(
        "--system",
        action="append",
        default=[],
        metavar="CPU-OS",
        help="a system such as x86_64-linux, or `host` (repeatable)",
    )


def selection_of(args: Namespace) -> Selection:
    """What the options ask for.

    Raises:
        UsageError: a release or a system is not written as one.
    """
    from kbuild.selection import Selection
    from kbuild.version import Version

    try:
        return Selection(
            globs=tuple(args.variant),
            backends=tuple(args.backend),
            torch=tuple(Version.parse(text) for text in args.torch),
            systems=tuple(_parse_system(text) for text in args.system),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _parse_system(text: str) -> System:
    from kbuild.variant import System, host_system

    return host_system() if text == "host" else System.parse(text)


_UNIQUE_ID = re.compile(r"[A-Za-z0-9_]{1,64}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def add_identity(parser: ArgumentParser) -> None:
    """Declare `--unique-id`, `--kernel-sha` and `--kernel-dirty`."""
    group = parser.add_argument_group("which source (default: asked of git, or its content)")
    group.add_argument("--unique-id", metavar="ID", help="tail of the op namespace")
    group.add_argument("--kernel-sha", metavar="OID", help="commit that the source is")
    group.add_argument(
        "--kernel-dirty", action="store_true", help="the source differs from --kernel-sha"
    )


def identity_of(args: Namespace) -> Identity | None:
    """What the options say; None when they say nothing.

    Raises:
        UsageError: an id that is no part of an identifier, or a commit that is no full object id.
    """
    from kbuild.identity import Identity

    commit = args.kernel_sha.lower() if args.kernel_sha else None
    if args.kernel_dirty and commit is None:
        raise UsageError("--kernel-dirty goes with --kernel-sha")
    if commit is not None and not _COMMIT.fullmatch(commit):
        raise UsageError(f"`{args.kernel_sha}` is no commit", hint="40 or 64 hexadecimal digits")
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


def add_tools(parser: ArgumentParser) -> None:
    """Declare `--toolchain`, `--python` and `--torch-wheel`."""
    parser.add_argument(
        "--toolchain",
        default=os.environ.get("KBUILD_TOOLCHAIN") or "auto",
        metavar="NAME",
        help="where compilers and Torch come from: host, wheels, debian-hip, "
        "debian-nvcc or auto (default: KBUILD_TOOLCHAIN, else auto)",
    )
    parser.add_argument(
        "--python",
        type=Path,
        metavar="PROGRAM",
        help="build against this interpreter's Torch, with the host's compilers",
    )
    add_torch_wheel(parser)


def add_torch_wheel(parser: ArgumentParser) -> None:
    """Declare `--torch-wheel`."""
    parser.add_argument(
        "--torch-wheel",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="build against the Torch of this wheel file (ROCm, XPU, another CUDA, ...) where its "
        "release and backend fit; it goes before every other Torch (repeatable)",
    )


def add_archs(parser: ArgumentParser) -> None:
    """Declare `--arch`."""
    parser.add_argument(
        "--arch",
        action="append",
        default=[],
        metavar="ARCH",
        help="GPU architectures to compile for, e.g. 9.0 or gfx942; `native` are this machine's, "
        "`all` are the kernel's (default; repeatable)",
    )


def add_dev(parser: ArgumentParser) -> None:
    """Declare `--dev`."""
    parser.add_argument(
        "--dev",
        action="store_true",
        help="while working on a kernel: only for the Torch that is installed, with the host's "
        "compilers, for this machine's GPUs when it has any, and under names that stay while files "
        "are edited",
    )


def toolchain_of(args: Namespace) -> str:
    """The toolchain source that the options ask for."""
    return "host" if args.dev else str(args.toolchain)


def torch_wheels_of(args: Namespace, ctx: Services) -> tuple[Path, ...]:
    """The files that `--torch-wheel` names."""
    return tuple(ctx.path(path) for path in args.torch_wheel)


def archs_of(args: Namespace, project: Project, runner: Runner) -> tuple[str, ...]:
    """What `--arch` asks for; empty for all.

    Raises:
        UsageError: not an arch of any of the project's backends, or no GPU for `native`.
    """
    asked = [name for text in args.arch for name in text.split(",") if name]
    if not asked and getattr(args, "dev", False):
        return _archs_of_gpus(project, runner)
    if not asked or asked == [ALL_ARCHS]:
        return ()
    if ALL_ARCHS in asked:
        raise UsageError("--arch all stands alone")
    named = tuple(name for name in asked if name != NATIVE_ARCHS)
    for name in named:
        _validate_arch(name, project)
    return (*named, *(_native_archs(project, runner) if NATIVE_ARCHS in asked else ()))


def _validate_arch(name: str, project: Project) -> None:
    """An arch that at least one of the backends writes like this."""
    from kbuild.backends import BACKENDS

    reasons = []
    for backend in map(BACKENDS.get, project.file.general.backends):
        if backend.arch_key is None:
            continue
        try:
            backend.check_arch(name)
        except ValueError as error:
            reasons.append(str(error))
        else:
            return
    raise UsageError("; ".join(reasons) or f"no backend of {project.name} has archs")


def _native_archs(project: Project, runner: Runner) -> tuple[str, ...]:
    found = _archs_of_gpus(project, runner)
    if not found:
        raise UsageError("--arch native: no GPU was found", hint="name one, e.g. --arch 9.0")
    return found


def _archs_of_gpus(project: Project, runner: Runner) -> tuple[str, ...]:
    """The archs of this machine's GPUs that the project's backends can use."""
    from kbuild.backends import BACKENDS

    backends = map(BACKENDS.get, project.file.general.backends)
    return tuple(arch for backend in backends for arch in backend.native_archs(runner))


def add_sources(parser: ArgumentParser) -> None:
    """Declare `--with-source`."""
    parser.add_argument(
        "--with-source",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="take the headers of a dependency from a source tree, e.g. cutlass_4_0=DIR "
        "(repeatable)",
    )


def sources_of(args: Namespace, ctx: Services, project: Project) -> dict[str, Path]:
    """Folder by dependency; warns of those that the project does not depend on.

    Raises:
        UsageError: an entry is not written as one, is named twice, or names nothing that there is.
    """
    if not args.with_source:
        return {}
    found = _parse_sources(args.with_source, ctx)
    used = {name for section in project.kernels.values() for name in section.depends}
    for name in sorted({*found} - used):
        ctx.ui.warn(f"--with-source {name}: no section of build.toml depends on `{name}`")
    return found


def _parse_sources(given: Sequence[str], ctx: Services) -> dict[str, Path]:
    from kbuild.config.issue import one_of
    from kbuild.toolchains.dependency_headers.pins import header_dependency_names

    found: dict[str, Path] = {}
    for text in given:
        name, _, folder = text.partition("=")
        if not name or not folder:
            raise UsageError(
                f"--with-source takes NAME=DIR, not `{text}`", hint="e.g. cutlass_4_0=../cutlass"
            )
        if name not in header_dependency_names():
            hint = one_of(name, header_dependency_names())
            raise UsageError(f"--with-source: there is no dependency `{name}`", hint=hint)
        if name in found:
            raise UsageError(f"--with-source: `{name}` is given twice")
        found[name] = ctx.path(Path(folder))
    return found


def add_allow(parser: ArgumentParser | _ArgumentGroup) -> None:
    """Declare `--allow`."""
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="CHECK",
        help="take this check's errors for warnings (repeatable); kbuild.toml does it for a "
        "project, with a reason",
    )


def allow_of(args: Namespace, project: Path | None) -> Mapping[str, str]:
    """The checks that are overruled, with reasons: of the options, and of the project's file.

    Raises:
        ConfigError: the project's `kbuild.toml` is wrong.
        UsageError: a name is no check's, or that of one that is not overruled.
    """
    from kbuild.project import KBUILD_FILE

    if not args.allow and (project is None or not os.path.lexists(project / KBUILD_FILE)):
        return {}
    from kbuild.checks.allow import allowed_checks, checks_allowed_by_option
    from kbuild.sourcetree import SourceTree

    return (
        allowed_checks(SourceTree(project), args.allow)
        if project
        else checks_allowed_by_option(args.allow)
    )


_DRIVER_CHOICES = "auto, local or nix"
_LOCAL_ONLY_OPTIONS = (
    *("python", "torch_wheel", "with_source", "arch", "dev", "jobs", "memory", "time_budget"),
    *("keep_all", "report", "provenance", "allow", "unique_id", "kernel_sha", "kernel_dirty"),
)
_NIX_ONLY_OPTIONS = (
    *("max_jobs", "cores", "builders", "rebuild", "print_build_logs"),
    *("override_input", "option"),
)


def add_driver(parser: ArgumentParser) -> None:
    """Declare `--driver` and what it hands on."""
    parser.add_argument(
        "--driver",
        default=os.environ.get("KBUILD_DRIVER") or "auto",
        metavar="NAME",
        help="who builds: local (this machine), nix (a derivation per variant, in a sandbox) or "
        "auto: nix where the project's flake.nix uses kbuild and Nix can be used "
        "(default: KBUILD_DRIVER, else auto)",
    )
    group = parser.add_argument_group("with Nix")
    group.add_argument(
        "--max-jobs",
        metavar="N",
        help="derivations to build at once, a number or `auto`; 0 leaves all to other machines",
    )
    group.add_argument(
        "--cores", type=int, metavar="N", help="processors of one derivation; 0 are all"
    )
    group.add_argument(
        "--builders", metavar="MACHINES", help="other machines to build on, as nix.conf has them"
    )
    group.add_argument(
        "--rebuild", action="store_true", help="build a second time, and compare the bytes"
    )
    group.add_argument(
        "-L", "--print-build-logs", action="store_true", help="show all that builders say"
    )
    add_flake_options(group)


def add_flake_options(parser: ArgumentParser | object) -> None:
    """Declare `--override-input` and `--option`."""
    add = getattr(parser, "add_argument")  # noqa: B009 - groups and parsers share no public type
    add(
        "--override-input",
        nargs=2,
        action="append",
        default=[],
        metavar=("INPUT", "FLAKE"),
        help="take an input of the flake from elsewhere (repeatable)",
    )
    add(
        "--option",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="a setting of Nix (repeatable)",
    )


def nix_options_of(args: Namespace) -> NixOptions:
    """What is handed on to Nix, that of `KBUILD_NIX_ARGS` included.

    Raises:
        UsageError: a number is none, or the variable holds something else.
    """
    from kbuild.nix.program import NixOptions, with_environment

    max_jobs, cores = getattr(args, "max_jobs", None), getattr(args, "cores", None)
    if max_jobs is not None and max_jobs != "auto" and not max_jobs.isdecimal():
        raise UsageError(f"--max-jobs takes a number or `auto`, not `{max_jobs}`")
    if cores is not None and cores < 0:
        raise UsageError("--cores takes a number of processors, or 0 for all")
    given = NixOptions(
        max_jobs=max_jobs or "",
        cores=cores,
        builders=getattr(args, "builders", None) or "",
        overrides=tuple((one, other) for one, other in args.override_input),
        settings=tuple((one, other) for one, other in args.option),
        print_logs=getattr(args, "print_build_logs", False),
        rebuild=getattr(args, "rebuild", False),
    )
    return with_environment(given, os.environ)


def driver_request_of(args: Namespace, nix: NixOptions) -> DriverRequest:
    """What the options say about who is to build.

    Raises:
        UsageError: there is no such driver.
    """
    from kbuild.pipeline.driver import DRIVER_NAMES as KNOWN
    from kbuild.pipeline.driver import DriverRequest

    if args.driver not in KNOWN:
        raise UsageError(f"there is no driver `{args.driver}`", hint=f"there are {_DRIVER_CHOICES}")
    ambient = os.environ.get("KBUILD_TOOLCHAIN") or "auto"
    local = ["--toolchain"] if args.toolchain != ambient else []
    local += [_flag(name) for name in _LOCAL_ONLY_OPTIONS if _is_given(getattr(args, name))]
    own = [_flag(name) for name in _NIX_ONLY_OPTIONS if _is_given(getattr(args, name))]
    return DriverRequest(args.driver, tuple(local), tuple(own), nix.configuration)


def _is_given(value: object) -> bool:
    """Whether a value differs from what it is without the option; 0 does."""
    return value is not None and value is not False and value != []


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
