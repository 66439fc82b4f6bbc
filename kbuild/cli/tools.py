"""The options that choose compilers, Torch and archs."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.context import Context
from kbuild.errors import UsageError

if TYPE_CHECKING:
    from kbuild.project import Project
    from kbuild.run import Runner

ALL, NATIVE = "all", "native"


def add_tools(parser: ArgumentParser) -> None:
    """Declare `--toolchain`, `--python` and `--torch-wheel`."""
    parser.add_argument(
        "--toolchain",
        default=os.environ.get("KBUILD_TOOLCHAIN") or "auto",
        metavar="NAME",
        help="where compilers and Torch come from: host, wheels, debian-hip, "
        "debian-nvcc or auto "
        "(default: KBUILD_TOOLCHAIN, else auto)",
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


def torch_wheels_of(args: Namespace, ctx: Context) -> tuple[Path, ...]:
    """The files that `--torch-wheel` names."""
    return tuple(ctx.path(path) for path in args.torch_wheel)


def archs_of(args: Namespace, project: Project, runner: Runner) -> tuple[str, ...]:
    """What `--arch` asks for; empty for all.

    Raises:
        UsageError: not an arch of any of the project's backends, or no GPU for `native`.
    """
    asked = [name for text in args.arch for name in text.split(",") if name]
    if not asked and getattr(args, "dev", False):
        return _found_archs(project, runner)
    if not asked or asked == [ALL]:
        return ()
    if ALL in asked:
        raise UsageError("--arch all stands alone")
    named = tuple(name for name in asked if name != NATIVE)
    for name in named:
        _check(name, project)
    return (*named, *(_native(project, runner) if NATIVE in asked else ()))


def _check(name: str, project: Project) -> None:
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


def _native(project: Project, runner: Runner) -> tuple[str, ...]:
    found = _found_archs(project, runner)
    if not found:
        raise UsageError("--arch native: no GPU was found", hint="name one, e.g. --arch 9.0")
    return found


def _found_archs(project: Project, runner: Runner) -> tuple[str, ...]:
    """The archs of this machine's GPUs that the project's backends can use."""
    from kbuild.backends import BACKENDS

    backends = map(BACKENDS.get, project.file.general.backends)
    return tuple(arch for backend in backends for arch in backend.native_archs(runner))
