"""`kbuild init`: a new project that builds, with tests, a benchmark, an example and a card."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json
from kbuild.system.errors import UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.backends.frameworks import Framework
    from kbuild.cli.scaffold import Scaffold
    from kbuild.system.files import FileSet

ALL_BACKENDS = "all"
_NOARCH = "torch-noarch"
_README = "README.md"
_LICENCE = "Apache-2.0"
"""Licence of new kernels, unless another is given."""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from kbuild.backends.frameworks import FRAMEWORKS
    from kbuild.ops.language import LANGUAGES
    from kbuild.project.config.model import CXX

    languages = {language.name: language.init_backends for language in LANGUAGES.load(plugins=True)}
    languages = {name: backends for name, backends in languages.items() if backends}
    parser.add_argument(
        "path",
        nargs="?",
        type=Path,
        help=("folder of the new project (default: that of --name, else the current folder)"),
    )
    parser.add_argument(
        "--backends",
        nargs="+",
        metavar="NAME",
        help="backends, or `all` (default: those of --language; for C++ cpu and cuda, on macOS cpu "
        "and metal)",
    )
    parser.add_argument(
        "--framework",
        choices=FRAMEWORKS.names(),
        help="torch, torch-stable-abi (one build for all later releases), tvm-ffi "
        "(arrays of any framework), or torch-noarch (compile nothing); default: "
        "torch, in a DSL torch-stable-abi",
    )
    parser.add_argument(
        "--noarch",
        action="store_true",
        help=f"write a Python-only kernel: `--framework {_NOARCH}`",
    )
    parser.add_argument(
        "--language",
        choices=(CXX, *languages),
        help=f"`{CXX}` and the like, or a Python DSL: "
        + ", ".join(f"{name} for {' and '.join(each)}" for name, each in languages.items())
        + f" (default: {CXX})",
    )
    add_project_options(parser, licence=_LICENCE)


def add_project_options(parser: ArgumentParser, *, licence: str) -> None:
    """Declare the options of every command that writes a project; `licence` is the default one."""
    parser.add_argument("--name", metavar="OWNER/NAME", help="repository to publish to")
    parser.add_argument(
        "--license",
        metavar="SPDX",
        help=f"licence of the kernel, as an SPDX identifier (default: {licence})",
    )
    parser.add_argument("--overwrite", action="store_true", help="overwrite existing files")
    parser.add_argument("--no-git", action="store_true", help="do not create a git repository")
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Write the project, and say what to type next."""
    from kbuild.cli.scaffold import scaffold_files
    from kbuild.system.rendering import template_root

    scaffold, target = _resolve_scaffold(args, ctx)
    files = scaffold_files(scaffold, template_root() / "init")
    return write_project(args, ctx, scaffold, target, files)


def write_project(
    args: Namespace,
    ctx: Services,
    scaffold: Scaffold,
    target: Path,
    files: FileSet,
    *,
    is_new: bool = True,
    remaining_steps: Sequence[str] = (),
) -> int:
    """Write the files of a new project, and say what to type next.

    Args:
        args: options of `add_project_options`.
        ctx: the command's services.
        scaffold: the project's names and backends, for messages.
        target: its folder.
        files: its files.
        is_new: False for a package that is taken over, which has its own name and tests.
        remaining_steps: the steps that whoever takes over a package still has to do.
    """
    from kbuild.cli.scaffold import validate_no_conflicts

    if not args.overwrite:
        files = _without_existing_readme(files, target)
        validate_no_conflicts(files, target)
    # The files are the author's from now on: a manifest would let kbuild remove them later.
    files.write(target, manifest=False)
    if not args.no_git:
        _start_repository(target, files, ctx)
    paths = [path for path, _ in files.items()]
    if args.json:
        names = {"path": str(target), "name": scaffold.name, "repo_id": scaffold.repo_id}
        rows = {"backends": scaffold.backends, "files": paths}
        ctx.ui.data_json(names | rows | ({} if is_new else {"left": remaining_steps}))
    else:
        ctx.ui.data(str(target))
    for path in paths:
        ctx.ui.detail(f"  {path}")
    ctx.ui.say(f"wrote {scaffold.name} for {', '.join(scaffold.backends)}: {len(paths)} files")
    for note in _notes(args, scaffold, target, is_new=is_new):
        ctx.ui.say(f"note: {note}")
    if remaining_steps:
        steps = (f"  {step}" for step in remaining_steps)
        ctx.ui.say("\n".join(("", "not taken over, or to be checked:", *steps)))
    first = [f"cd {_shell_path(target, ctx.cwd)}"] if target != ctx.cwd else []
    last = ["kbuild test", "python example.py"] if is_new else []
    captures = ["kbuild capture"] if scaffold.is_captured else []
    commands = [*first, *captures, "kbuild build", *last]
    ctx.ui.say("\n".join(("", "next:", *(f"  {command}" for command in commands))))
    return 0


def _without_existing_readme(files: FileSet, target: Path) -> FileSet:
    """The files; without a README if the folder has one, which forges write in a new repository."""
    from kbuild.system.files import FileSet

    if not (target / _README).is_file():
        return files
    return FileSet({path: data for path, data in files.items() if path != _README})


def _resolve_scaffold(args: Namespace, ctx: Services) -> tuple[Scaffold, Path]:
    """The project's names and targets, and the folder that it goes to."""
    from kbuild.backends.frameworks import FRAMEWORKS
    from kbuild.cli.scaffold import PLACEHOLDER_OWNER, Scaffold, kernel_name, split_name

    folder = ctx.path(args.path) if args.path else None
    if args.name:
        owner, repository = split_name(args.name)
        target = folder or ctx.cwd / repository
    else:
        target = folder or ctx.cwd
        owner, repository = PLACEHOLDER_OWNER, kernel_name(target.name)
    if target.exists() and not target.is_dir():
        raise UsageError(f"`{target}` is a file", hint="give another folder")
    language = _language(args)
    framework = _resolve_framework(args, language)
    backends, compiled = _resolve_backends(args, language, framework)
    if not compiled and framework.runtime_module == "torch":
        # All backends are Python-only, such as tpu: there is no extension to bind to Torch.
        framework = FRAMEWORKS.get(_NOARCH)
    scaffold = Scaffold(
        name=kernel_name(repository),
        owner=owner,
        repo_id=f"{owner}/{repository}",
        license=chosen_licence(args) or _LICENCE,
        backends=backends,
        compiled=compiled,
        language=language,
        framework=framework.name,
    )
    return scaffold, target


def chosen_licence(args: Namespace) -> str:
    """The licence that was given; empty when none was.

    Raises:
        UsageError: it is no SPDX expression.
    """
    from kbuild.cli.scaffold import validate_license

    return "" if args.license is None else validate_license(args.license)


def _language(args: Namespace) -> str:
    """The Python DSL; empty for C++."""
    from kbuild.project.config.model import CXX

    return "" if args.language in (None, CXX) else args.language


def _resolve_framework(args: Namespace, language: str) -> Framework:
    """The framework that the kernel is bound to.

    Raises:
        UsageError: it does not go with the language, or with `--noarch`.
    """
    from kbuild.backends.frameworks import FRAMEWORKS
    from kbuild.cli.scaffold import DEFAULT_FRAMEWORK, LANGUAGE_FRAMEWORK, language_frameworks
    from kbuild.ops.language import LANGUAGES
    from kbuild.project.config.issue import listed
    from kbuild.project.config.model import CXX
    from kbuild.system.rendering import template_root

    if args.noarch and args.framework not in (None, _NOARCH):
        what = f"--noarch is `--framework {_NOARCH}`, and not `{args.framework}`"
        raise UsageError(what, hint="leave one of the two out")
    default = LANGUAGE_FRAMEWORK if language else DEFAULT_FRAMEWORK
    name = _NOARCH if args.noarch else args.framework or default
    if language:
        templates = template_root() / "init"
        pairs = {one.name: language_frameworks(one, templates) for one in LANGUAGES}
        if name not in pairs[language]:
            languages = [CXX, *(one for one, names in pairs.items() if name in names)]
            what = f"a kernel in {language} cannot have the framework {name}"
            hint = f"`{language}` goes with {listed(pairs[language])}; "
            raise UsageError(what, hint=f"{hint}`{name}` goes with {listed(languages)}")
    return FRAMEWORKS.get(name)


def _resolve_backends(
    args: Namespace, language: str, framework: Framework
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The backends, and those that get compiled sources.

    Raises:
        UsageError: there are no sources for one of them.
    """
    from kbuild.ops.language import LANGUAGES

    named = _named_backends(args.backends or ())
    # After the names, because looking these up has loaded the plug-ins that they belong to.
    supported = (
        LANGUAGES.get(language).init_backends if language else _supported_backends(framework)
    )
    if not args.backends:
        backends = tuple(sorted(supported if language else _default_backends(supported)))
    else:
        everything = supported if ALL_BACKENDS in named else ()
        backends = tuple(sorted({*named, *everything} - {ALL_BACKENDS}))
    compiled = _compiled(backends) if framework.compiled else ()
    if language:
        what, with_sources = f"{language} kernels are not compiled for", backends
    else:
        what = f"there is no {framework.name} project for"
        # A Torch project may have Python-only backends beside compiled ones.
        with_sources = compiled if framework.runtime_module == "torch" else backends
    if unsupported := [name for name in with_sources if name not in supported]:
        hint = f"choose from {', '.join(supported)}"
        raise UsageError(f"{what} {', '.join(unsupported)}", hint=hint)
    return backends, compiled


def _compiled(backends: Sequence[str]) -> tuple[str, ...]:
    from kbuild.backends import BACKENDS

    return tuple(name for name in backends if BACKENDS.get(name).section is not None)


def _supported_backends(framework: Framework) -> tuple[str, ...]:
    """Backends that `all` and the default stand for: those with templates of sources.

    A Python-only project has no sources; its are those of the default framework.
    """
    from kbuild.backends import BACKENDS
    from kbuild.backends.frameworks import FRAMEWORKS
    from kbuild.cli.scaffold import DEFAULT_FRAMEWORK, has_template
    from kbuild.system.rendering import template_root

    templates = template_root() / "init"
    wanted = framework if framework.compiled else FRAMEWORKS.get(DEFAULT_FRAMEWORK)
    return tuple(b.name for b in BACKENDS if has_template(b, wanted, templates))


def _default_backends(supported: Sequence[str]) -> tuple[str, ...]:
    """The CPU and the likely GPU."""
    from kbuild.backends import BACKENDS

    return tuple(name for name in supported if sys.platform in BACKENDS.get(name).default_on)


def _named_backends(texts: Sequence[str]) -> tuple[str, ...]:
    """The names in the values of `--backends`, among which may be `all`.

    Raises:
        UsageError: there is no such backend, or no name.
    """
    from kbuild.backends import BACKENDS
    from kbuild.backends.base import other_backend_names

    names = tuple(name for text in texts for name in text.split(",") if name)
    unknown = [name for name in names if name != ALL_BACKENDS and BACKENDS.find(name) is None]
    if not unknown and (names or not texts):
        return names
    from kbuild.project.config.issue import did_you_mean

    known, others = BACKENDS.names(), other_backend_names(BACKENDS)
    guess = next(filter(None, (did_you_mean(name, known, others) for name in unknown)), "")
    hint = f"choose from {', '.join(known)} or `{ALL_BACKENDS}`; a PATH goes before --backends"
    message = f"`{', '.join(unknown)}` is not a backend" if unknown else "--backends names none"
    raise UsageError(message, hint=f"{guess} {hint}".strip())


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


def _notes(args: Namespace, scaffold: Scaffold, target: Path, *, is_new: bool) -> list[str]:
    from kbuild.ops.language import LANGUAGES

    name = (args.name or target.name).rpartition("/")[2]
    notes = []
    if name != scaffold.name and is_new:  # a package that is taken over keeps its name
        notes.append(f"the kernel is called `{scaffold.name}`: `{name}` is not a kernel name")
    if "/" not in (args.name or ""):
        notes.append(f"`repo-id` in build.toml is `{scaffold.repo_id}`: put your name there")
    if scaffold.needs_gpu and is_new:
        notes.append("building needs no GPU; the tests and the example do")
    if (
        scaffold.language
        and scaffold.compiled
        and (note := LANGUAGES.get(scaffold.language).init_note)
    ):
        notes.append(note)
    return notes


def _shell_path(target: Path, cwd: Path) -> str:
    from shlex import quote

    return quote(str(target.relative_to(cwd) if target.is_relative_to(cwd) else target))
