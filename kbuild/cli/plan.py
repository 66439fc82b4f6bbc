"""`kbuild plan` and `list-variants`: show what would be built, without building it."""

from __future__ import annotations

import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_kernel_dir
from kbuild.pipeline.options import BuildOptions
from kbuild.plan.command_options import add_options, read_options
from kbuild.project.matrix import arch_order
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.plan.plan import VariantPlan
    from kbuild.plan.selection import VariantChoice


_WIDTH = 80
"""Columns of output that goes to no terminal."""
_PLANNING = ("selection", "identity")
_PROVISIONING = ("toolchain", "python", "sources")
"""Fields of `BuildOptions` that say what is planned, and with what it would be built."""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_options(parser, BuildOptions, *_PLANNING, *_PROVISIONING, "archs")
    parser.add_argument(
        "--no-toolchain",
        action="store_true",
        help="ignore this machine, so that the plans are the same everywhere",
    )
    parser.add_argument("--json", action="store_true", help="print the plans as JSON")


def execute(args: Namespace, ctx: Services) -> int:
    """Print the plans of the selected variants."""
    from kbuild.pipeline.toolchains import (
        find_toolchains,
        replan_for_compilers,
        unsupported_plan_reason,
    )
    from kbuild.plan.project import open_project
    from kbuild.system.sourcetree import SourceTree

    root = ctx.folder(args.kernel_dir)
    tree = SourceTree(root)
    project = open_project(root, tree)
    fields = (*_PLANNING, *_PROVISIONING, "archs")
    options = read_options(args, ctx, project, BuildOptions, *fields)
    planner = options.planner(project, tree, ctx.runner)
    plans = planner.select(options.selection)
    refusals: dict[str, str | None] = {plan.variant: None for plan in plans}
    if not args.no_toolchain:
        tools = find_toolchains(options, ctx)
        plans = replan_for_compilers(planner, plans, tools)
        refusals = {plan.variant: unsupported_plan_reason(tools, plan) for plan in plans}
        # With the toolchain that would build each, where one fits; nothing is fetched.
        plans = tuple(
            plan.with_toolchain(tools.preview(plan.requires))
            if refusals[plan.variant] is None
            else plan
            for plan in plans
        )
    for message in _image_warnings(plans, project.root):
        ctx.ui.warn(message)
    if args.json:
        ctx.ui.data_json([plan.to_json() | {"digest": plan.digest} for plan in plans])
    elif len(plans) == 1 or ctx.ui.verbosity > 0:
        ctx.ui.data("\n\n".join("\n".join(_plan_lines(plan, project.root)) for plan in plans))
    else:
        _print_table(plans, refusals, ctx)
    return 0


def _print_table(
    plans: Sequence[VariantPlan], refusals: Mapping[str, str | None], ctx: Services
) -> None:
    """Print a row for each variant that can be built here, and why the others cannot."""
    from kbuild.plan.selection import reason_lines

    rows = []
    for plan in plans:
        if refusals[plan.variant] is None:
            sources = sum(len(part.compiled) for part in plan.components)
            sources += sum(len(kernel.sources) for kernel in plan.aot)
            toolchain = plan.toolchain.source if plan.toolchain else "-"
            rows.append((plan.variant, str(sources), toolchain))
    headers = ("variant", "sources", "toolchain")
    if rows:
        columns = zip(headers, *rows, strict=True)
        taken = sum(max(map(len, column)) + 2 for column in columns)
        room = (ctx.ui.width or _WIDTH) - taken
        archs = [_archs_text(plan.archs, room) for plan in plans if refusals[plan.variant] is None]
        rows_with_archs = [(*row, text) for row, text in zip(rows, archs, strict=True)]
        ctx.ui.table((*headers, "archs"), rows_with_archs)
    lines = reason_lines(refusals)
    if lines:
        ctx.ui.data("\nnot on this machine:" if rows else "not on this machine:")
        ctx.ui.data("\n".join(_wrapped(f"  {line}") for line in lines))
    ctx.ui.say("`kbuild plan --variant NAME` shows one variant in full, `-v` shows all")


def _archs_text(archs: Sequence[str], room: int) -> str:
    """All archs, or the first, the last and their number where there is no room for all."""
    ordered = sorted(archs, key=arch_order)
    text = " ".join(ordered)
    if len(text) <= room:
        return text or "-"
    return f"{ordered[0]} ... {ordered[-1]} ({len(ordered)})"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="    ", break_on_hyphens=False)


def _plan_lines(plan: VariantPlan, root: Path) -> Iterator[str]:
    yield plan.variant
    yield f"  ops        {plan.ops_name}"
    if plan.toolchain:
        versions = ", ".join(f"{name} {version}" for name, version in plan.toolchain.versions)
        yield f"  toolchain  {plan.toolchain.source}: {versions}"
    else:
        yield f"  toolchain  {_requirements_text(plan)}"
    if plan.archs:
        yield f"  archs      {' '.join(sorted(plan.archs, key=arch_order))}"
    if plan.is_compiled:
        yield f"  standard   C++{plan.cxx_standard}"
        yield f"  macros     {' '.join(plan.definitions)}"
        yield f"  links      {' '.join(plan.libraries)}"
    for part in plan.components:
        yield f"  {part.name}"
        yield from (f"    {source.path}  ({source.language})" for source in part.compiled)
        if part.definitions:
            yield f"    macros   {' '.join(part.definitions)}"
        for language, flags in part.flags:
            yield f"    {language:<8} {' '.join(flags)}"
    for kernel in plan.aot:
        from kbuild.dsl.candidates import planned_image_texts

        yield f"  {kernel.name}"
        yield from (f"    {path}  ({kernel.language})" for path in kernel.sources)
        yield f"    compiler {' '.join(kernel.toolchain)}, {kernel.flavour}"
        yield f"    targets  {' '.join(kernel.targets)}"
        images = planned_image_texts(kernel, root)
        yield from (f"    images   {op}: {text}" for op, text in images.items())
        if kernel.tables:
            yield f"    tuned    {' '.join(kernel.tables)}"
    yield f"  files      {len(plan.files)} shipped as they are"
    yield from (f"  note       {note}" for note in plan.notes)
    yield f"  digest     {plan.digest[:16]}"


def _image_warnings(plans: Sequence[VariantPlan], root: Path) -> tuple[str, ...]:
    """A sentence for each variant with very many images, each once."""
    # Most variants compile the same sections for the same targets.
    variants = {tuple((k.name, k.targets) for k in plan.aot): plan.aot for plan in plans}
    if not any(variants):
        return ()
    from kbuild.dsl.candidates import image_count_warning, planned_units

    messages: dict[str, None] = {}
    for kernels in variants.values():
        sections = []
        for kernel in kernels:
            planned = planned_units(kernel, root).values()
            units = [unit for of_op in planned for unit in of_op or ()]
            sections.append((kernel.name, kernel.section.ops, units))
        messages[image_count_warning(sections)] = None
    return tuple(filter(None, messages))


def _requirements_text(plan: VariantPlan) -> str:
    wants = plan.requires
    parts = (
        f"Torch {wants.torch}{'' if wants.torch_exact else ' or newer'}" if wants.torch else "",
        f"TVM-FFI {wants.tvm_ffi}" if wants.tvm_ffi else "",
        f"{wants.backend} {wants.toolkit}" if wants.toolkit else "",
        wants.system or "",
        *wants.libraries,
    )
    return f"not on this machine; needs {', '.join(part for part in parts if part) or 'Python'}"


def configure_list(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_options(parser, BuildOptions, "selection")
    parser.add_argument(
        "--arch",
        action="store_true",
        help=(
            "list the environments in which the kernel can be tested, Python-only kernels included"
        ),
    )
    parser.add_argument(
        "--all", action="store_true", help="also list variants that are not built by default"
    )
    parser.add_argument(
        "--reasons",
        action="store_true",
        help="show for each variant whether this machine can build it",
    )
    add_options(parser, BuildOptions, *_PROVISIONING)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def execute_list(args: Namespace, ctx: Services) -> int:
    """Print one name per line, or one object per variant."""
    from kbuild.plan.project import open_project
    from kbuild.plan.selection import environment_variants, select_variants

    project = open_project(ctx.folder(args.kernel_dir))
    options = read_options(args, ctx, project, BuildOptions, "selection", *_PROVISIONING)
    selection = options.selection
    if args.all and not selection.globs:
        from dataclasses import replace

        selection = replace(selection, globs=("*",))
    choices = (environment_variants if args.arch else select_variants)(project, selection)
    reasons: dict[str, str | None] = {}
    if args.json or args.reasons:
        from kbuild.pipeline.toolchains import find_toolchains, unsupported_plan_reason
        from kbuild.plan.variant import Planner
        from kbuild.system.sourcetree import SourceTree

        tools = find_toolchains(options, ctx)
        plans = Planner(project, SourceTree(project.root), ctx.runner).plans(choices)
        reasons = {plan.variant: unsupported_plan_reason(tools, plan) for plan in plans}
    if args.json:
        ctx.ui.data_json([_variant_json(choice, reasons) for choice in choices])
    elif args.reasons:
        _print_reasons(reasons, ctx)
    else:
        ctx.ui.data("\n".join(str(choice.variant) for choice in choices))
    return 0


def _print_reasons(reasons: Mapping[str, str | None], ctx: Services) -> None:
    """A row for each variant; long reasons are below the table, each once."""
    from kbuild.plan.selection import variants_by_reason

    room = _WIDTH - max(map(len, reasons), default=0) - 2
    notes = [reason for reason in variants_by_reason(reasons) if len(reason) > room]
    cells = {reason: f"cannot be built here (note {n})" for n, reason in enumerate(notes, 1)}
    rows = [
        (name, cells.get(reason, reason) if reason else "can be built here")
        for name, reason in reasons.items()
    ]
    ctx.ui.table(("variant", "on this machine"), rows)
    for number, reason in enumerate(notes, 1):
        ctx.ui.data(f"\n{_wrapped(f'note {number}: {reason}')}")


def _variant_json(choice: VariantChoice, reasons: dict[str, str | None]) -> dict[str, object]:
    variant = choice.variant
    return {
        "variant": str(variant),
        "framework": variant.framework,
        "backend": variant.backend,
        "torch": str(choice.torch) if choice.torch else None,
        "backend_version": str(variant.backend_version) if variant.backend_version else None,
        "system": str(variant.system) if variant.system else None,
        "default": choice.default,
        "buildable": reasons[str(variant)] is None,
        "reason": reasons[str(variant)],
    }
