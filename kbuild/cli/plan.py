"""`kbuild plan`: what would be built, and how, without building it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.context import Context

if TYPE_CHECKING:
    from kbuild.plan import AotKernel, Component, VariantPlan


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from kbuild.cli.identity import add_identity
    from kbuild.cli.selection import add_selection
    from kbuild.cli.sources import add_sources
    from kbuild.cli.tools import add_archs, add_tools

    parser.add_argument(
        "kernel_dir", nargs="?", type=Path, help="the project's folder (default: here)"
    )
    add_selection(parser)
    add_identity(parser)
    add_tools(parser)
    add_sources(parser)
    add_archs(parser)
    parser.add_argument(
        "--no-toolchain",
        action="store_true",
        help="leave this machine out: the plans are then the same everywhere",
    )
    parser.add_argument("--json", action="store_true", help="print the plans as JSON")


def execute(args: Namespace, ctx: Context) -> int:
    """Print the plans of the selected variants."""
    from kbuild.cli.identity import identity_of
    from kbuild.cli.selection import selection_of
    from kbuild.cli.sources import sources_of
    from kbuild.cli.tools import archs_of, torch_wheels_of
    from kbuild.pipeline import fitted, plan, with_toolchains
    from kbuild.pipeline.tools import tools_of
    from kbuild.pipeline.torch_wheels import given_wheels, refuse_unused
    from kbuild.project import open_project
    from kbuild.sourcetree import SourceTree

    root = ctx.folder(args.kernel_dir)
    tree = SourceTree(root)
    project = open_project(root, tree)
    identity, archs = identity_of(args), archs_of(args, project, ctx.runner)
    plans = plan(project, selection_of(args), ctx.runner, identity=identity, archs=archs, tree=tree)
    if not args.no_toolchain:
        sources = sources_of(args, ctx, project)
        wheels = given_wheels(torch_wheels_of(args, ctx), ctx.cache, ctx.runner)
        refuse_unused(wheels, plans)
        tools = tools_of(
            args.toolchain, ctx.runner, ctx.cache, args.python, sources, torch_wheels=wheels
        )
        plans = fitted(project, plans, tools, ctx.runner, identity=identity, archs=archs, tree=tree)
        plans = with_toolchains(plans, tools)
    if args.json:
        ctx.ui.data_json([made.to_json() | {"digest": made.digest} for made in plans])
    else:
        ctx.ui.data("\n\n".join("\n".join(_lines(made, project.root)) for made in plans))
    return 0


def _lines(made: VariantPlan, root: Path) -> Iterator[str]:
    yield made.variant
    yield f"  ops        {made.ops_name}"
    if made.toolchain:
        versions = ", ".join(f"{name} {version}" for name, version in made.toolchain.versions)
        yield f"  toolchain  {made.toolchain.source}: {versions}"
    else:
        yield f"  toolchain  {_needs(made)}"
    if made.archs:
        yield f"  archs      {' '.join(made.archs)}"
    if made.is_compiled:
        yield f"  standard   C++{made.cxx_standard}"
        yield f"  macros     {' '.join(made.definitions)}"
        yield f"  links      {' '.join(made.libraries)}"
    for part in made.components:
        yield from _component_lines(part)
    for kernel in made.aot:
        yield f"  {kernel.name}"
        yield from (f"    {path}  ({kernel.language})" for path in kernel.sources)
        yield f"    compiler {' '.join(kernel.toolchain)}, {kernel.flavour}"
        yield f"    targets  {' '.join(kernel.targets)}"
        yield from (f"    images   {line}" for line in _images(kernel, root))
        if kernel.tables:
            yield f"    tuned    {' '.join(kernel.tables)}"
    yield f"  files      {len(made.files)} shipped as they are"
    yield from (f"  note       {note}" for note in made.notes)
    yield f"  digest     {made.digest[:16]}"


def _images(kernel: AotKernel, root: Path) -> Iterator[str]:
    from kbuild.languages.chosen import planned

    for op, count in planned(kernel, root).items():
        yield f"{op}: {count if count is not None else 'as many as its sources say'}"


def _needs(made: VariantPlan) -> str:
    wants = made.requires
    parts = (
        f"Torch {wants.torch}{'' if wants.torch_exact else ' or newer'}" if wants.torch else "",
        f"TVM-FFI {wants.tvm_ffi}" if wants.tvm_ffi else "",
        f"{wants.backend} {wants.toolkit}" if wants.toolkit else "",
        wants.system or "",
        *wants.libraries,
    )
    return f"not on this machine; needs {', '.join(part for part in parts if part) or 'Python'}"


def _component_lines(part: Component) -> Iterator[str]:
    yield f"  {part.name}"
    yield from (f"    {source.path}  ({source.language})" for source in part.compiled)
    if part.definitions:
        yield f"    macros   {' '.join(part.definitions)}"
    for language, flags in part.flags:
        yield f"    {language:<8} {' '.join(flags)}"
