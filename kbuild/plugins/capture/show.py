"""Text of a capture's result for `kbuild capture --show`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbuild.system.errors import UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.ops.section import DslSection
    from kbuild.plan.project import Project
    from kbuild.plugins.capture.description import Declaration


def show_captured(
    project: Project,
    functions: Sequence[tuple[str, DslSection, Declaration]],
    args: Namespace,
    ctx: Services,
) -> int:
    """Print what was captured.

    Raises:
        UsageError: a function was not captured yet.
    """
    from kbuild.dsl.candidates import planned_image_texts
    from kbuild.plugins.capture.description import read_description, wrapper_file
    from kbuild.plugins.capture.wrappers import captured_kernel

    descriptions, lines = [], list[str]()
    for name, section, declaration in functions:
        file = wrapper_file(name, declaration.name)
        path = project.root / file
        if not path.is_file():
            raise UsageError(f"`{file}` does not exist", hint="run `kbuild capture`")
        description = read_description(path.read_text("utf-8"), file)
        descriptions.append(description)
        kernel = captured_kernel(name, section, description["ops"], description["name"])
        lines += shown(description, planned_image_texts(kernel, project.root))
    if args.json:
        ctx.ui.data_json({"captured": descriptions})
    else:
        ctx.ui.data("\n".join(lines) + "\n")
    return 0


def shown(description: Mapping[str, Any], images: Mapping[str, str]) -> Iterator[str]:
    """The lines of `kbuild capture --show` for one function.

    `images` has, by op, how many images it has for one arch, and why.
    """
    yield f"{description['function']} ({description['source']})"
    yield f"  {description['schema']}"
    yield f"  {gradient_text(description)}"
    for op in description["ops"]:
        yield f"  op {op['schema']}"
        yield f"    images/arch {images[op['schema'].partition('(')[0]]}"
        dtypes = ", ".join(f"{name}: {_listed(rule)}" for name, rule in op["dtypes"].items())
        yield f"    dtypes      {dtypes}"
        for name, shape in op["shapes"].items():
            kind = "temporary" if name in op.get("temporaries", ()) else "shape"
            yield f"    {kind:11} {name} [{', '.join(map(str, shape))}]"
        for condition in op.get("require", ()):
            yield f"    requires    {condition}"
        for step in op["launch"]:
            yield from _step(step)
    for note in description["notes"]:
        yield f"  note: {note}"


def gradient_text(description: Mapping[str, Any]) -> str:
    """Text that lists the parameters of a captured function with a gradient."""
    if refused := description.get("refused_gradients"):
        return f"refuses calls that record a gradient of {', '.join(refused)}"
    names = gradients(description)
    return f"gradients of {', '.join(names)}" if names else "no gradient"


def gradients(description: Mapping[str, Any]) -> list[str]:
    """Parameters of a captured function that get gradients."""
    backward, renamed = description["backward"], description.get("renamed", {})
    pairs = zip(
        description["all_parameters"], backward["outputs"] if backward else (), strict=False
    )
    return [renamed.get(name, name) for name, (kind, *_) in pairs if kind != "none"]


def _step(step: Mapping[str, Any]) -> Iterator[str]:
    when = f" when {step['when']}" if "when" in step else ""
    if "aten" in step:
        results = ", ".join(step["results"])
        yield f"    aten        {results} = {step['aten']}{when}"
        return
    grid = ", ".join(map(str, step["grid"]))
    yield f"    launch      {step['function']}[{grid}]{when}"
    for name, value in step.get("constants", {}).items():
        if isinstance(value, dict) and "choices" in value:
            yield f"      constant  {name} = {_choice(value)}"
        else:
            yield f"      constant  {name} = {value}"
    candidates = step.get("configs", ())
    if isinstance(candidates, str):
        yield "      candidates of the kernel's own autotuner"
        return
    for candidate in candidates:
        values = ", ".join(f"{k} = {v}" for k, v in candidate.items() if k != "when")
        condition = f" when {candidate['when']}" if "when" in candidate else ""
        yield f"      candidate {values}{condition}"


def _choice(constant: Mapping[str, Any]) -> str:
    choices, text = constant["choices"], constant["value"]
    if isinstance(choices, Mapping):
        values = ", ".join(f"{key}: {value}" for key, value in choices.items())
        return f"({text}) of {values}"
    return f"{text}, one of {', '.join(map(str, choices))}"


def _listed(rule: Any) -> str:
    return "|".join(rule) if isinstance(rule, list) else str(rule)
