"""`kbuild init`: a new project that builds, with tests, a benchmark, an example and a card."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json
from kbuild.errors import UsageError
from kbuild.services import Services

if TYPE_CHECKING:
    from kbuild.runtime.files import FileSet
    from kbuild.scaffold import Scaffold

ALL_BACKENDS = "all"
_FRAMEWORKS = ("torch", "tvm-ffi")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from kbuild.languages.base import LANGUAGES

    languages = {language.name: language.init_backends for language in LANGUAGES.load(plugins=True)}
    languages = {name: backends for name, backends in languages.items() if backends}
    parser.add_argument(
        "path",
        nargs="?",
        type=Path,
        help=("folder of the new project (default: the kernel's name, else the current folder)"),
    )
    parser.add_argument("--name", metavar="OWNER/NAME", help="repository to publish to")
    parser.add_argument(
        "--backends",
        nargs="+",
        metavar="NAME",
        help="backends, or `all` that it can be compiled for (default: cpu cuda, on macOS cpu "
        "metal; those of the --language)",
    )
    parser.add_argument(
        "--framework",
        choices=_FRAMEWORKS,
        default="torch",
        help="bind to Torch, or to TVM-FFI for arrays of any framework (default: torch)",
    )
    parser.add_argument(
        "--noarch",
        action="store_true",
        help="write a Python-only kernel, even where a compiler is installed",
    )
    parser.add_argument(
        "--language",
        choices=tuple(languages),
        help="a kernel in this Python DSL: "
        + ", ".join(f"{name} for {' and '.join(able)}" for name, able in languages.items())
        + " (default: C++ and the like)",
    )
    parser.add_argument(
        "--from-setup",
        type=Path,
        metavar="DIR",
        help="take over the package in DIR: a setup.py or CMakeLists.txt with an extension for "
        "Torch, or Python with Triton kernels; setup.py is run, with nothing compiled",
    )
    parser.add_argument(
        "--license",
        default="Apache-2.0",
        metavar="SPDX",
        help="licence of the kernel, as an SPDX identifier",
    )
    parser.add_argument("--overwrite", action="store_true", help="overwrite existing files")
    parser.add_argument("--no-git", action="store_true", help="do not create a git repository")
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Write the project, and say what to type next."""
    from kbuild.rendering import template_root
    from kbuild.scaffold import scaffold_files, validate_no_conflicts

    left: tuple[str, ...] = ()
    if args.from_setup:
        scaffold, target, files, left = _migrate(args, ctx)
    else:
        scaffold, target = _resolve_scaffold(args, ctx)
        files = scaffold_files(scaffold, template_root() / "init")
    if not args.overwrite:
        validate_no_conflicts(files, target)
    files.write(target, manifest=False)
    if not args.no_git:
        _start_repository(target, files, ctx)
    paths = [path for path, _ in files.items()]
    if args.json:
        names = {"path": str(target), "name": scaffold.name, "repo_id": scaffold.repo_id}
        rows = {"backends": scaffold.backends, "files": paths}
        ctx.ui.data_json(names | rows | ({"left": left} if args.from_setup else {}))
    else:
        ctx.ui.data(str(target))
    for path in paths:
        ctx.ui.detail(f"  {path}")
    ctx.ui.say(f"wrote {scaffold.name} for {', '.join(scaffold.backends)}: {len(paths)} files")
    for note in _notes(args, scaffold, target):
        ctx.ui.say(f"note: {note}")
    if left:
        ctx.ui.say("\n".join(("", "not taken over, or to be checked:", *(f"  {x}" for x in left))))
    step = [f"cd {_shell_path(target, ctx.cwd)}"] if target != ctx.cwd else []
    last = [] if args.from_setup else ["kbuild test", "python example.py"]
    commands = [*step, "kbuild build", *last]
    ctx.ui.say("\n".join(("", "next:", *(f"  {command}" for command in commands))))
    return 0


def _resolve_scaffold(args: Namespace, ctx: Services) -> tuple[Scaffold, Path]:
    """The project's names, and the folder that it goes to."""
    from kbuild.scaffold import (
        PLACEHOLDER_OWNER,
        TVM_FFI,
        Scaffold,
        kernel_name,
        split_name,
        validate_license,
    )

    place = ctx.path(args.path) if args.path else ctx.cwd
    named = split_name(args.name) if args.name else None
    owner, repository = named or (PLACEHOLDER_OWNER, kernel_name(place.name))
    name = kernel_name(repository)
    target = ctx.cwd / name if args.name and not args.path else place
    if target.exists() and not target.is_dir():
        raise UsageError(f"`{target}` is a file", hint="give another folder")
    backends, compiled = _resolve_backends(args)
    _validate_tvm_ffi(args)
    _validate_templates(args, backends if args.framework == TVM_FFI else compiled)
    license_, language = validate_license(args.license), args.language or ""
    names = (name, owner, f"{owner}/{repository}", license_)
    return Scaffold(*names, backends, compiled, language, args.framework), target


def _migrate(args: Namespace, ctx: Services) -> tuple[Scaffold, Path, FileSet, tuple[str, ...]]:
    """The project that takes over a package, and what is left to do.

    Raises:
        UsageError: options that do not go with it, or nothing to take over.
    """
    from kbuild.migration.project import migrate_package
    from kbuild.migration.sources import read_package
    from kbuild.scaffold import (
        PLACEHOLDER_OWNER,
        TORCH,
        kernel_name,
        split_name,
        validate_license,
    )

    if args.language or args.noarch or args.backends or args.framework != TORCH:
        what = "--from-setup takes language, framework and backends from the package"
        raise UsageError(what, hint="leave --language, --framework, --backends and --noarch out")
    package = read_package(ctx.folder(args.from_setup), ctx.runner)
    owner, repository = split_name(args.name) if args.name else (PLACEHOLDER_OWNER, package.name)
    name = kernel_name(repository)
    repo_id = f"{owner}/{repository if args.name else name}"
    target = ctx.path(args.path) if args.path else ctx.cwd / name
    migrated = migrate_package(package, name, repo_id, validate_license(args.license))
    return migrated.scaffold, target, migrated.files, migrated.left


def _validate_tvm_ffi(args: Namespace) -> None:
    """TVM-FFI binds compiled code."""
    from kbuild.scaffold import TVM_FFI

    if args.framework != TVM_FFI:
        return
    if args.noarch:
        raise UsageError("--noarch is for Torch", hint="leave it or --framework out")
    if args.language:
        hint = "leave --framework out; then rename `torch-ext` to `tvm-ffi-ext`, `[torch]` to "
        hint += "`[tvm-ffi]`, and remove `stable-abi`"
        raise UsageError(f"there is no TVM-FFI template in {args.language}", hint=hint)


def _validate_templates(args: Namespace, compiled: Sequence[str]) -> None:
    """Every backend that gets sources has some."""
    if args.language:
        return
    able = _supported_backends(args)
    strange = [name for name in compiled if name not in able]
    if strange:
        framework = {"torch": "Torch", "tvm-ffi": "TVM-FFI"}[args.framework]
        what = f"there is no {framework} project for {', '.join(strange)}"
        raise UsageError(what, hint=f"choose from {', '.join(able)}")


def _resolve_backends(args: Namespace) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The backends, and those that get compiled sources; a DSL compiles for some of them."""
    from kbuild.languages.base import LANGUAGES

    if args.language and args.noarch:
        raise UsageError("--noarch compiles nothing", hint="leave out --language or --noarch")
    able = LANGUAGES.get(args.language).init_backends if args.language else ()
    backends, compiled = _parse_backends(args, able or _supported_backends(args))
    unable = sorted(set(backends) - set(able or backends))
    if able and unable:
        what = f"{args.language} kernels are not compiled for {', '.join(unable)}"
        raise UsageError(what, hint=f"choose from {', '.join(able)}")
    return backends, compiled


def _supported_backends(args: Namespace) -> tuple[str, ...]:
    """What there are C++ sources and the like for."""
    from kbuild.backends import BACKENDS
    from kbuild.rendering import template_root
    from kbuild.scaffold import has_template

    templates = template_root() / "init"
    return tuple(b.name for b in BACKENDS if has_template(b, args.framework, templates))


def _default_backends(args: Namespace, able: Sequence[str]) -> tuple[str, ...]:
    """The backends when none are asked for: all of a DSL, else the CPU and the likely GPU."""
    if args.language:
        return tuple(able)
    from kbuild.backends import BACKENDS

    return tuple(name for name in able if sys.platform in BACKENDS.get(name).default_on)


def _parse_backends(
    args: Namespace, able: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The backends in name order, and those that get compiled sources."""
    from kbuild.backends import BACKENDS
    from kbuild.backends.base import other_backend_names

    texts = args.backends or _default_backends(args, able)
    asked = [name for text in texts for name in text.split(",") if name]
    wanted = {name for word in asked for name in (able if word == ALL_BACKENDS else [word])}
    backends = tuple(sorted(wanted))
    unknown = [name for name in backends if BACKENDS.find(name) is None]
    if unknown or not backends:
        from kbuild.config.issue import did_you_mean

        known = ", ".join(BACKENDS.names())
        others = other_backend_names(BACKENDS)
        guesses = (did_you_mean(name, BACKENDS.names(), others) for name in unknown)
        guess = next(filter(None, guesses), "")
        hint = f"choose from {known} or `{ALL_BACKENDS}`; a PATH goes before --backends"
        hint = f"{guess} {hint}".strip()
        raise UsageError(f"`{', '.join(unknown)}` is not a backend", hint=hint)
    compiled = (name for name in backends if BACKENDS.get(name).section is not None)
    return backends, () if args.noarch else tuple(compiled)


def _start_repository(target: Path, files: FileSet, ctx: Services) -> None:
    """`git init` and `git add`, unless git is missing or the folder is in a repository."""
    inside = ctx.runner.run(("git", "rev-parse", "--is-inside-work-tree"), cwd=target)
    if inside.ok or not ctx.runner.run(("git", "--version")).ok:
        return
    paths = [path for path, _ in files.items()]
    for command in (("git", "init", "--quiet"), ("git", "add", "--", *paths)):
        done = ctx.runner.run(command, cwd=target)
        if not done.ok:
            ctx.ui.warn(f"`{' '.join(command[:2])}` failed: {done.output.strip()}")
            return


def _notes(args: Namespace, scaffold: Scaffold, target: Path) -> list[str]:
    from kbuild.languages.base import LANGUAGES

    name = (args.name or target.name).rpartition("/")[2]
    notes = []
    if name != scaffold.name:
        notes.append(f"the kernel is called `{scaffold.name}`: `{name}` is not a kernel name")
    if "/" not in (args.name or ""):
        notes.append(f"`repo-id` in build.toml is `{scaffold.repo_id}`: put your name there")
    if scaffold.needs_gpu:
        notes.append("building needs no GPU; the tests and the example do")
    if scaffold.language and (note := LANGUAGES.get(scaffold.language).init_note):
        notes.append(note)
    return notes


def _shell_path(target: Path, cwd: Path) -> str:
    from shlex import quote

    return quote(str(target.relative_to(cwd) if target.is_relative_to(cwd) else target))
