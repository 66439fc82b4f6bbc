"""Writes the Python that joins the ops of a captured function: autograd, and one op to call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HEAD = '''
_composite = torch.library.Library(add_op_namespace_prefix("").removesuffix("::"), "FRAGMENT")


def _whole(name, schema, function):
    """Register an op that calls others; gradients come from those."""
    if name not in _registered:
        _registered.add(name)
        _composite.define(schema)
        _composite.impl(name, function, "CompositeImplicitAutograd")


def _gradients(name, backward, setup):
    key = f"backward of {name}"
    if key not in _registered:
        _registered.add(key)
        torch.library.register_autograd(
            add_op_namespace_prefix(name), backward, setup_context=setup
        )
'''
"""What `wrapper_source` needs, once; behind the head of `_aot.py`."""


def wrapper_source(wrapper: Mapping[str, Any]) -> str:
    """Python source for one captured function.

    Args:
        wrapper: `name`, `schema`, `parameters`, `forward` and `backward`, as
            `CapturedWrapper.to_json` has them.
    """
    parts = []
    if wrapper["backward"]:
        parts += [_setup(wrapper), _backward(wrapper)]
        forward = wrapper["forward"]["name"]
        name = wrapper["name"]
        parts.append(f'_gradients("{forward}", _backward_{name}, _setup_{name})')
    if wrapper["forward"]["name"] != wrapper["name"]:
        parts.append(_whole(wrapper))
    return "\n\n".join(parts)


def _setup(wrapper: Mapping[str, Any]) -> str:
    forward, backward = wrapper["forward"], wrapper["backward"]
    tensors = [*dict.fromkeys(name for name in backward["arguments"] if _is_saved(wrapper, name))]
    scalars, results = _scalars(wrapper), forward["results"]
    lines = [
        f"def _setup_{wrapper['name']}(ctx, inputs, output):",
        f"    {_listed(forward['arguments'])} = inputs",
        *([f"    {_listed(results)} = {_output(results)}"] if results else []),
        f"    ctx.save_for_backward({', '.join(tensors)})",
        *(f"    ctx.{name} = {name}" for name in scalars),
        *(
            f"    ctx.{name} = {tensor}.size({axis})"
            for name, (tensor, axis) in backward.get("sizes", {}).items()
        ),
    ]
    return "\n".join(lines)


def _backward(wrapper: Mapping[str, Any]) -> str:
    forward, backward = wrapper["forward"], wrapper["backward"]
    tensors = [*dict.fromkeys(name for name in backward["arguments"] if _is_saved(wrapper, name))]
    gradients = [f"_grad_{at}" for at in range(len(forward["results"]))]
    results = {name: at for at, name in enumerate(forward["results"])}
    values = []
    for name in backward["arguments"]:
        if name.startswith("grad_") and name[5:].isdigit():
            result = wrapper["outputs"][int(name[5:])]
            values.append(gradients[results[result]])
        elif name.startswith("needs_"):
            at = forward["arguments"].index(name.removeprefix("needs_"))
            values.append(f"ctx.needs_input_grad[{at}]")
        elif name in tensors:
            values.append(name)
        else:
            values.append(f"ctx.{name}")
    lines = [f"def _backward_{wrapper['name']}(ctx, {', '.join(gradients)}):"]
    if tensors:
        lines.append(f"    {_listed(tensors)} = ctx.saved_tensors")
    call = f"ops.{backward['name']}({', '.join(values)})"
    if backward["results"]:
        lines.append(f"    {_listed(backward['results'])} = {_as_tuple(call, backward['results'])}")
    else:
        lines.append(f"    {call}")
    returned = []
    for name in forward["arguments"]:
        kind, value = dict(zip(wrapper["all_parameters"], backward["outputs"], strict=False))[name]
        if kind == "argument" and value.startswith("grad_"):
            value = gradients[results[wrapper["outputs"][int(value[5:])]]]
        returned.append("None" if kind == "none" else value)
    lines.append(f"    return {', '.join(returned)}{',' if len(returned) == 1 else ''}")
    return "\n".join(lines)


def _whole(wrapper: Mapping[str, Any]) -> str:
    """The op that users call."""
    forward = wrapper["forward"]
    parameters = [
        f"{name}={default}" if default else name for name, default in wrapper["parameters"]
    ]
    name = wrapper["name"]
    lines = [f"def _call_{name}({', '.join(parameters)}):"]
    call = f"ops.{forward['name']}({', '.join(forward['arguments'])})"
    lines.append(
        f"    {_listed(forward['results'])} = {_as_tuple(call, forward['results'])}"
        if forward["results"]
        else f"    {call}"
    )
    own = forward["outputs"][: len(wrapper["outputs"])]
    returned = [value for kind, value in own if kind != "none"]
    lines.append(f"    return {', '.join(returned)}")
    register = f'_whole("{name}", {wrapper["schema"]!r}, _call_{name})'
    return "\n".join(lines) + f"\n\n\n{register}"


def _is_saved(wrapper: Mapping[str, Any], name: str) -> bool:
    return name in wrapper["tensors"] or name in wrapper["forward"]["results"]


def _scalars(wrapper: Mapping[str, Any]) -> list[str]:
    forward, backward = wrapper["forward"], wrapper["backward"]
    return [
        name
        for name in backward["arguments"]
        if name in forward["arguments"] and not _is_saved(wrapper, name)
    ]


def _listed(names: Sequence[str]) -> str:
    return f"{names[0]}," if len(names) == 1 else ", ".join(names)


def _output(results: Sequence[str]) -> str:
    return "(output,)" if len(results) == 1 else "output"


def _as_tuple(call: str, results: Sequence[str]) -> str:
    return f"({call},)" if len(results) == 1 else call
