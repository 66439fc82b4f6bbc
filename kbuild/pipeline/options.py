"""The options of a build, and their command lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.pipeline.option_values import (
    allow_of,
    archs_of,
    identity_of,
    is_development,
    selection_of,
    sources_of,
    validated_count,
)
from kbuild.plan.command_options import Flag, option
from kbuild.system.quantities import parse_duration, parse_memory, parse_size

if TYPE_CHECKING:
    from kbuild.plan.project import Project
    from kbuild.plan.selection import Selection
    from kbuild.plan.variant import Identity, Planner
    from kbuild.system.processes import Runner
    from kbuild.system.sourcetree import SourceTree

EXECUTOR_VARIABLE = "KBUILD_EXECUTOR"
"""Variable with the default of `--executor`."""


def _no_selection() -> Selection:
    from kbuild.plan.selection import Selection

    return Selection()


@dataclass(frozen=True)
class BuildOptions:
    """The options of `kbuild build`; each field describes its command-line option.

    `option` says what its keywords mean: `parse`, `read`, `nix`.
    """

    selection: Selection = option(
        Flag(
            "--variant",
            action="append",
            metavar="GLOB",
            help="select variants by name, e.g. 'torch213-*-cpu-*' (repeatable)",
        ),
        Flag("--backend", action="append", metavar="NAME", help="select a backend (repeatable)"),
        Flag("--torch", action="append", metavar="X.Y", help="select a Torch release (repeatable)"),
        Flag(
            "--system",
            action="append",
            metavar="CPU-OS",
            help="select a system, e.g. aarch64-linux, or `host` (repeatable)",
        ),
        group="which variants",
        nix=True,
        default=_no_selection,
        read=lambda args, _, project: selection_of(args, project.root if project else None),
    )
    identity: Identity | None = option(
        Flag("--unique-id", metavar="ID", help="suffix of the op namespace"),
        Flag("--kernel-sha", metavar="OID", help="commit to record as the source of the build"),
        Flag(
            "--kernel-dirty",
            action="store_true",
            help="record that the source differs from --kernel-sha",
        ),
        group="which source (default: asked of git, or its content)",
        read=lambda args, *_: identity_of(args),
    )
    """The state of the source, where the caller knows better than git."""
    output: Path | None = option(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder to write the variants to",
        nix=True,
        read=lambda args, ctx, _: ctx.path(args.output) if args.output else None,
    )
    toolchain: str = option(
        "--toolchain",
        default="auto",
        variable="KBUILD_TOOLCHAIN",
        metavar="NAME",
        help="source of compilers and Torch: auto, host, wheels, or a plug-in's such as "
        "debian-nvcc (default: KBUILD_TOOLCHAIN, else auto)",
        read=lambda args, *_: "host" if is_development(args) else args.toolchain,
    )
    """Name of a `ToolchainSource`, see `kbuild.pipeline.toolchains.TOOLCHAIN_NAMES`."""
    python: Path | None = option(
        "--python",
        type=Path,
        metavar="PROGRAM",
        help="build against this interpreter's Torch, with the host's compilers",
    )
    """Interpreter whose Torch is built against; kbuild chooses one when None."""
    sources: Mapping[str, Path] = option(
        "--with-source",
        default=dict,
        action="append",
        metavar="NAME=DIR",
        help="take headers of a dependency from a source tree, e.g. cutlass_4_0=DIR (repeatable)",
        read=sources_of,
    )
    archs: tuple[str, ...] = option(
        "--arch",
        default=(),
        action="append",
        metavar="ARCH",
        help="GPU architecture to compile for, e.g. 9.0 or gfx942; `native`: this "
        "machine's; `all`: the kernel's (default; repeatable)",
        read=archs_of,
    )
    """Archs to compile for; when empty, all that each kernel lists."""
    dev: bool = option(
        "--dev",
        action="store_true",
        help="development build, for the installed Torch and this machine's GPUs",
    )
    """True for an op namespace that stays the same while sources change; see
    `Identity.for_development`."""
    keep_all: bool = option(
        "--keep-all",
        action="store_true",
        help="compile every candidate of kernels in Python DSLs, for `kbuild tune`",
    )
    allowed: Mapping[str, str] = option(
        "--allow",
        default=dict,
        action="append",
        metavar="CHECK",
        help="treat this check's errors as warnings (repeatable)",
        read=lambda args, _, project: allow_of(args, project.root),
    )
    """Checks that are overruled, with reasons; see `kbuild.checks.allow`."""
    driver: str = option(
        "--driver",
        default="local",
        choices=("local", "nix"),
        help="who builds: this machine's tools, or Nix (default: local)",
        nix=True,
    )
    executor: str = option(
        "--executor",
        default="",
        variable=EXECUTOR_VARIABLE,
        metavar="ADDRESS",
        help="compile objects and images on a cluster, at tls://HOST:8786 or in a scheduler "
        "file (default: KBUILD_EXECUTOR)",
    )
    """Address of other machines, see `RemoteExecutor`; empty when this machine builds alone."""
    use_object_cache: bool = True
    """False to neither read nor fill the object cache."""
    fresh: bool = False
    """True to load the variant for its checks even if the same files were loaded before."""
    is_local_only: bool = False
    """True for a variant that is loaded on this machine alone: it is not checked, and may need what
    only this machine has."""
    link_flags: tuple[str, ...] = ()
    """Flags of the extension's link, after those of the plan."""
    jobs: int | None = option(
        "-j",
        "--jobs",
        type=int,
        metavar="N",
        help="compiler processes at once, for all variants together",
        parse=partial(validated_count, "--jobs"),
    )
    """Compiler processes of all variants together; as many as there are processors when None."""
    max_file_size: int = option(
        "--max-file-size",
        default=256 << 20,
        metavar="SIZE",
        help="largest project file that may be copied into a variant, e.g. 2G (default: 256M)",
        parse=partial(parse_size, option="--max-file-size"),
    )
    """Bytes."""
    memory: int | None = option(
        "--memory",
        metavar="SIZE",
        help="memory limit for all compilers together, e.g. 12G",
        parse=parse_memory,
    )
    """MiB for all compilers together; what is free when None."""
    seconds: float | None = option(
        "--time-budget",
        metavar="TIME",
        help="start no new work after this time, e.g. 5h45m",
        parse=parse_duration,
    )
    report: bool = option(
        "--report", action="store_true", help="print time and memory of each unit of the last build"
    )

    def planner(self, project: Project, tree: SourceTree, runner: Runner) -> Planner:
        """The planner of a project for these options."""
        from kbuild.plan.variant import Planner

        settings = (self.identity, self.archs, self.dev, self.link_flags)
        return Planner(project, tree, runner, *settings)
