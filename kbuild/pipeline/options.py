"""The options of a build and of an upload, their command lines, and the outcome."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kbuild.plan.command_options import Flag, given_flags, option
from kbuild.system.errors import KbuildError, UsageError
from kbuild.system.quantities import parse_duration, parse_memory, parse_size
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.build.unit_log import ImageRow
    from kbuild.checks import Finding
    from kbuild.pipeline.driver import DriverRequest
    from kbuild.pipeline.nix.program import NixOptions
    from kbuild.plan.project import Project
    from kbuild.plan.selection import Selection
    from kbuild.project.identity import Identity
    from kbuild.project.variant import System
    from kbuild.system.processes import Runner


EXECUTOR_VARIABLE = "KBUILD_EXECUTOR"
"""Variable with the address of other machines that units run on."""


def selection_of(args: Namespace, root: Path | None = None) -> Selection:
    """The selection that the options ask for, and `kbuild.toml` of the project in `root`.

    Raises:
        ConfigError: the project's `kbuild.toml` is wrong.
        UsageError: there is no such release, or a system is not written as one.
    """
    from kbuild.plan.kbuild_file import systems_of_project
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
        UsageError: an id that is no part of an identifier, or a commit that is no full object id.
    """
    from kbuild.project.identity import Identity

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
    if not asked and getattr(args, "dev", False):
        return _archs_of_gpus(project, ctx.runner)
    if not asked or asked == [ALL_ARCHS]:
        return ()
    if ALL_ARCHS in asked:
        raise UsageError("--arch all cannot be combined with other archs")
    named = tuple(name for name in asked if name != NATIVE_ARCHS)
    for name in named:
        _validate_arch(name, project)
    return (*named, *(_native_archs(project, ctx.runner) if NATIVE_ARCHS in asked else ()))


def _validate_arch(name: str, project: Project) -> None:
    """An arch that at least one of the backends writes like this."""
    from kbuild.backends import BACKENDS

    reasons = []
    for backend in map(BACKENDS.get, project.file.general.backends):
        if backend.arch_key is None:
            continue
        try:
            backend.check_gpu(name)
        except ValueError as error:
            reasons.append(str(error))
        else:
            return
    raise UsageError("; ".join(reasons) or f"no backend of {project.name} has archs")


def _native_archs(project: Project, runner: Runner) -> tuple[str, ...]:
    archs = _archs_of_gpus(project, runner)
    if not archs:
        raise UsageError("--arch native: no GPU was found", hint="name one, e.g. --arch 9.0")
    return archs


def _archs_of_gpus(project: Project, runner: Runner) -> tuple[str, ...]:
    """The archs of this machine's GPUs that the project's backends can use."""
    from kbuild.backends import BACKENDS

    backends = map(BACKENDS.get, project.file.general.backends)
    return tuple(arch for backend in backends for arch in backend.native_archs(runner))


def sources_of(args: Namespace, ctx: Services, project: Project) -> dict[str, Path]:
    """Folder by dependency; warns of those that the project does not depend on.

    Raises:
        UsageError: an entry is not written as one, is named twice, or names nothing that there is.
    """
    if not args.with_source:
        return {}
    folders = _parse_sources(args.with_source, ctx)
    used = {name for section in project.kernels.values() for name in section.depends}
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
        UsageError: a name is no check's, or that of one that is not overruled.
    """
    from kbuild.plan.project import KBUILD_FILE

    if not args.allow and (project is None or not os.path.lexists(project / KBUILD_FILE)):
        return {}
    from kbuild.checks.allow import allowed_checks, checks_allowed_by_option
    from kbuild.system.sourcetree import SourceTree

    return (
        allowed_checks(SourceTree(project), args.allow)
        if project
        else checks_allowed_by_option(args.allow)
    )


def nix_options_of(args: Namespace) -> NixOptions:
    """The options for Nix, including `KBUILD_NIX_ARGS`.

    Raises:
        UsageError: a number is none, or the variable holds something else.
    """
    from kbuild.pipeline.nix.program import NixOptions, with_environment

    max_jobs, cores = getattr(args, "max_jobs", None), getattr(args, "cores", None)
    if max_jobs is not None and max_jobs != "auto" and not max_jobs.isdecimal():
        raise UsageError(f"--max-jobs takes a number or `auto`, not `{max_jobs}`")
    if cores is not None and cores < 0:
        raise UsageError("--cores takes a number of processors, or 0 for all")
    options = NixOptions(
        max_jobs=max_jobs or "",
        cores=cores,
        builders=getattr(args, "builders", None) or "",
        overrides=tuple((name, other) for name, other in args.override_input),
        settings=tuple((name, other) for name, other in args.option),
        print_logs=getattr(args, "print_build_logs", False),
        rebuild=getattr(args, "rebuild", False),
    )
    return with_environment(options, os.environ)


def _no_selection() -> Selection:
    from kbuild.plan.selection import Selection

    return Selection()


def _environment_default(name: str) -> str:
    return os.environ.get(name) or "auto"


def _parse_driver(name: str) -> str:
    from kbuild.pipeline.driver import DRIVER_NAMES

    if name not in DRIVER_NAMES:
        raise UsageError(f"there is no driver `{name}`", hint="there are auto, local or nix")
    return name


def _parse_count(flag: str, count: int) -> int:
    if count < 1:
        raise UsageError(f"{flag} takes a number, 1 or more")
    return count


def _parse_provenance(wanted: bool) -> bool:
    if wanted:
        from kbuild.pipeline.provenance.attestation import source_date_epoch

        source_date_epoch(os.environ)
    return wanted


FLAKE_FLAGS = (
    Flag(
        "--override-input",
        nargs=2,
        action="append",
        metavar=("INPUT", "FLAKE"),
        help="override an input of the flake (repeatable)",
    ),
    Flag(
        "--option",
        nargs=2,
        action="append",
        metavar=("NAME", "VALUE"),
        help="set an option of Nix (repeatable)",
    ),
)
"""Options that every command hands on to Nix."""


@dataclass(frozen=True)
class BuildOptions:
    """The options of `kbuild build`; each field describes its command-line option."""

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
        driver="",
        value=_no_selection,
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
        record=("identity", lambda identity: identity is not None),
    )
    """The state of the source, where the caller knows better than git."""
    output: Path | None = option(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder to write the variants to",
        driver="",
        read=lambda args, ctx, _: ctx.path(args.output) if args.output else None,
    )
    toolchain: str = option(
        "--toolchain",
        value="auto",
        default=partial(_environment_default, "KBUILD_TOOLCHAIN"),
        metavar="NAME",
        help="source of compilers and Torch: auto, host, wheels, or a plug-in's such as "
        "debian-nvcc (default: KBUILD_TOOLCHAIN, else auto)",
        read=lambda args, *_: "host" if getattr(args, "dev", False) else args.toolchain,
        record=("toolchain", str),
    )
    """Name of a `ToolchainSource`, see `kbuild.pipeline.toolchains.TOOLCHAIN_NAMES`."""
    python: Path | None = option(
        "--python",
        type=Path,
        metavar="PROGRAM",
        help="build against this interpreter's Torch, with the host's compilers",
        record=("python", lambda python: python is not None),
    )
    """Interpreter whose Torch is built against first; found when None."""
    torch_wheels: tuple[Path, ...] = option(
        "--torch-wheel",
        value=(),
        action="append",
        type=Path,
        metavar="FILE",
        help="build against the Torch of this wheel where its release and backend fit (repeatable)",
        read=lambda args, ctx, _: tuple(map(ctx.path, args.torch_wheel)),
        record=("torch-wheel", lambda wheels: [path.name for path in wheels]),
    )
    """Wheel files of Torch, built against first by the variants that they fit."""
    sources: Mapping[str, Path] = option(
        "--with-source",
        value=dict,
        action="append",
        metavar="NAME=DIR",
        help="take headers of a dependency from a source tree, e.g. cutlass_4_0=DIR (repeatable)",
        read=sources_of,
        record=("with-source", sorted),
    )
    archs: tuple[str, ...] = option(
        "--arch",
        value=(),
        action="append",
        metavar="ARCH",
        help="GPU architecture to compile for, e.g. 9.0 or gfx942; `native`: this "
        "machine's; `all`: the kernel's (default; repeatable)",
        read=archs_of,
        record=("archs", list),
    )
    """Archs to compile for; all that each kernel asks for when empty."""
    dev: bool = option(
        "--dev",
        action="store_true",
        help="development build, for the installed Torch and this machine's GPUs",
    )
    """True to keep names while files are edited; see `Identity.for_development`."""
    keep_all: bool = option(
        "--keep-all",
        action="store_true",
        help="compile every candidate of kernels in Python DSLs, for `kbuild tune`",
    )
    allowed: Mapping[str, str] = option(
        "--allow",
        value=dict,
        action="append",
        metavar="CHECK",
        help="treat this check's errors as warnings (repeatable)",
        read=lambda args, _, project: allow_of(args, project.root),
        record=("allow", lambda allowed: dict(sorted(allowed.items()))),
    )
    """Checks that are overruled, with reasons; see `kbuild.checks.allow`."""
    driver: str = option(
        "--driver",
        value="auto",
        default=partial(_environment_default, "KBUILD_DRIVER"),
        metavar="NAME",
        help="who builds: local, nix, or auto: nix if the project was built with Nix "
        "before (default: KBUILD_DRIVER, else auto)",
        driver="",
        parse=_parse_driver,
    )
    """A name of `kbuild.pipeline.driver.DRIVER_NAMES`."""
    executor: str = option(
        "--executor",
        value="",
        default=lambda: os.environ.get(EXECUTOR_VARIABLE) or "",
        metavar="ADDRESS",
        help="have objects compiled by a cluster, at tls://HOST:8786 or in a scheduler "
        "file (default: KBUILD_EXECUTOR)",
    )
    """Address of other machines; empty when this machine builds alone."""
    nix: NixOptions | None = option(
        Flag(
            "--max-jobs",
            metavar="N",
            help="derivations to build at once, or `auto`; 0 builds only on remote machines",
        ),
        Flag("--cores", type=int, metavar="N", help="processors per derivation; 0 uses all"),
        Flag("--builders", metavar="MACHINES", help="remote builders, in the syntax of nix.conf"),
        Flag("--rebuild", action="store_true", help="build again and compare the bytes"),
        Flag(
            "-L", "--print-build-logs", action="store_true", help="show the full output of builders"
        ),
        *FLAKE_FLAGS,
        group="with Nix",
        driver="nix",
        read=lambda args, *_: nix_options_of(args),
    )
    objects: bool = True
    """False when the object cache is not to be looked into, and gets nothing."""
    fresh: bool = False
    """True to load every variant, also those that were loaded before as they are included."""
    is_published: bool = True
    """False for a variant that its author loads at once: it is not checked, and runs only here."""
    link_flags: tuple[str, ...] = ()
    """Flags of the extension's link, after those of the plan."""
    jobs: int | None = option(
        "-j",
        "--jobs",
        type=int,
        metavar="N",
        help="compiler processes at once, for all variants together",
        parse=partial(_parse_count, "--jobs"),
    )
    """Compiler processes of all variants together; as many as there are processors when None."""
    max_file_size: int = option(
        "--max-file-size",
        value=256 << 20,
        metavar="SIZE",
        help="largest project file that may be copied into a variant, e.g. 2G (default: 256M)",
        parse=partial(parse_size, option="--max-file-size"),
    )
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
        "--report", action="store_true", help="print the path of the report of times and memory"
    )
    provenance: bool = option(
        "--provenance",
        action="store_true",
        help="write SLSA provenance and an SBOM beside each variant",
        parse=_parse_provenance,
    )


def driver_request_of(args: Namespace, nix: NixOptions) -> DriverRequest:
    """The options that decide which driver builds.

    Raises:
        UsageError: there is no such driver.
    """
    from kbuild.pipeline.driver import DriverRequest

    local, own = (given_flags(args, BuildOptions, driver) for driver in ("local", "nix"))
    return DriverRequest(_parse_driver(args.driver), local, own, nix.configuration)


def _result_file_of(args: Namespace, ctx: Services, _project: None) -> Path | None:
    if args.output_json and not ctx.path(args.output_json).parent.is_dir():
        raise UsageError(f"--output-json: `{args.output_json.parent}` is not a folder")
    return ctx.path(args.output_json) if args.output_json else None


def _parse_licences(names: Sequence[str]) -> frozenset[str]:
    from kbuild.project.licences import accepted_licences

    return accepted_licences(names, os.environ)


_WHERE, _WHAT = "where to", "what is uploaded"
"""Headings in the help."""


@dataclass(frozen=True)
class UploadOptions:
    """Options of `kbuild upload`; a field says how it is written on a command line."""

    repo_id: str | None = option(
        "--repo-id",
        group=_WHERE,
        metavar="OWNER/NAME",
        help="repository (default: general.hub.repo-id)",
    )
    branch: str | None = option(
        "--branch",
        group=_WHERE,
        metavar="NAME",
        help="branch (default: general.hub.branch, else v<version>)",
    )
    private: bool = option(
        "--private", group=_WHERE, action="store_true", help="make a new repository private"
    )
    create_pr: bool = option(
        "--create-pr",
        group=_WHERE,
        action="store_true",
        help="open pull requests instead of changing branches",
    )
    missing: bool = option(
        "--missing",
        group=_WHAT,
        action="store_true",
        help="upload only variants that the branch does not have",
    )
    allow_dirty: bool = option(
        "--allow-dirty",
        group=_WHAT,
        action="store_true",
        help="also upload variants built from uncommitted sources; the card lists them",
    )
    allow_noncompliant: bool = option(
        "--allow-noncompliant",
        group=_WHAT,
        action="store_true",
        help="also upload variants that fail a check; the card lists them",
    )
    accepted: frozenset[str] = option(
        "--accept-license",
        group=_WHAT,
        value=frozenset,
        action="append",
        metavar="NAME",
        help="accept the licence of code that is linked into a kernel (repeatable; or "
        "KBUILD_ACCEPT_LICENSE)",
        parse=_parse_licences,
    )
    dry_run: bool = option(
        "--dry-run",
        group=_WHAT,
        action="store_true",
        help="show what would change, without changing it",
    )
    output_json: Path | None = option(
        "--output-json",
        type=Path,
        metavar="FILE",
        help="also write the result to FILE",
        read=_result_file_of,
    )


BuildStatus = Literal["built", "up-to-date", "skipped", "failed", "incomplete"]


@dataclass(frozen=True)
class BuildResult:
    """The outcome for one variant."""

    variant: str
    status: BuildStatus
    reason: str = ""
    path: Path | None = None
    seconds: float = 0.0
    units: int = 0
    """Build steps that ran."""
    objects: int = 0
    """Objects that were made."""
    from_cache: int = 0
    """Objects that the object cache had."""
    findings: tuple[Finding, ...] = ()
    images: tuple[ImageRow, ...] = ()
    """Images of the kernels in DSLs; of a variant that was up to date, none."""
    provenance: tuple[Path, ...] = ()
    """The statement and the SBOM, where they were asked for."""
    not_run: tuple[str, ...] = ()
    """Checks that need a machine of the variant's processor, and had none."""
    overruled: Mapping[str, str] = field(default_factory=dict)
    """Checks that found errors which are overruled, with reasons."""
    error: KbuildError | None = None

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        return {
            "variant": self.variant,
            "status": self.status,
            "reason": self.reason,
            "path": str(self.path) if self.path else None,
            "seconds": round(self.seconds, 3),
            "units": self.units,
            "objects": self.objects,
            "from_cache": self.from_cache,
            "findings": [finding.to_json() for finding in self.findings],
            **({"images": [asdict(row) for row in self.images]} if self.images else {}),
            "overruled": dict(self.overruled),
            **({"not_run": list(self.not_run)} if self.not_run else {}),
            "provenance": [str(path) for path in self.provenance],
            "error": self.error.to_json() if self.error else None,
        }
