"""Writes `_captured_ops.py`, which registers gradients and ops that call others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kbuild.plugins.capture.questions import BACKWARD_PREFIX, schema_of

OPS_MODULE = "_captured_ops.py"
_OPS_HEAD = '''\
"""Gradients of the captured functions, and ops that call others. Written by kbuild."""

import torch

from ._ops import add_op_namespace_prefix, ops

# The package may be imported under several names, and an op is registered once.
_registered = vars(ops).setdefault("_kbuild_registered", set())
_library = torch.library.Library(add_op_namespace_prefix("").removesuffix("::"), "FRAGMENT")


def _whole(name, schema, function):
    """Register an op that calls others; gradients come from those."""
    if name not in _registered:
        _registered.add(name)
        _library.define(schema)
        _library.impl(name, function, "CompositeImplicitAutograd")


def _recorded(name):
    """Register what an op does where Torch may record gradients."""

    def register(kernel):
        if ("Autograd", name) not in _registered:
            _registered.add(("Autograd", name))
            _library.impl(name, kernel, "Autograd")
        return kernel

    return register


def _applied(function):
    """`function.apply`; what this does in Python is for transforms of `torch.func` alone."""
    apply = super(torch.autograd.Function, function).apply

    def call(*args):
        return (function.apply if torch._C._are_functorch_transforms_active() else apply)(*args)

    return call
'''


def ops_source(wrappers: Iterable[Mapping[str, Any]]) -> str:
    """The module that registers what functions need beside their ops; empty if nothing is."""
    parts = [source for wrapper in wrappers if (source := wrapper_source(wrapper))]
    return "\n\n\n".join((_OPS_HEAD.rstrip(), *parts)) + "\n" if parts else ""


def wrapper_source(wrapper: Mapping[str, Any]) -> str:
    """Python source for one captured function; empty where it is one op without gradients.

    Args:
        wrapper: `name`, `schema`, `parameters`, `forward` and `backward`, as
            `CapturedWrapper.to_json` has them.
    """
    if wrapper["forward"].get("asked"):
        inner = _inner(wrapper)
        return "\n\n\n".join(filter(None, (wrapper_source(inner), _asking(wrapper, inner))))
    returned, forward = returned_results(wrapper), wrapper["forward"]
    parts = [_refusal(wrapper)] if wrapper.get("refused_gradients") else []
    if wrapper["backward"]:
        own = forward["results"] if returned is None else returned
        parts += [_function(wrapper, own), _kernel(wrapper, returned)]
    if returned is None and forward["name"] != wrapper["name"]:
        parts.append(_whole(wrapper))
    return "\n\n\n".join(parts)


def returned_results(wrapper: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Results of the forward op that the op of the function's name returns.

    That op launches the same kernels. None where the forward op has the function's name, and where
    the function returns an argument or a tensor twice: then Python calls the forward op.
    """
    wrapper = _inner(wrapper)
    forward = wrapper["forward"]
    own = [place for place in own_outputs(wrapper) if place[0] != "none"]
    names = tuple(place[1] for place in own)
    is_plain = all(place[0] == "result" for place in own) and len({*names}) == len(names)
    is_plain = is_plain and not wrapper.get("copied")
    return names if is_plain and forward["name"] != wrapper["name"] else None


def projections(wrapper: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The `projections` of the forward op: ops that return fewer results."""
    wrapper = _inner(wrapper)
    if (returned := returned_results(wrapper)) is not None:
        names = {wrapper["name"], inference_name(wrapper, returned)} - {wrapper["forward"]["name"]}
        for name in sorted(names):
            schema = name + wrapper["schema"].removeprefix(wrapper["name"])
            yield {"schema": schema, "results": list(returned)}


def _inner(wrapper: Mapping[str, Any]) -> Mapping[str, Any]:
    """The function with what it asks for as parameters; one that asks for nothing as it is."""
    asked = wrapper["forward"].get("asked")
    if not asked:
        return wrapper
    name, parameters = f"_{wrapper['name']}_asked", list(wrapper["parameters"])
    schema = wrapper["schema"].removeprefix(wrapper["name"])
    start, _, end = schema.rpartition(") -> ")
    added = [(argument, *schema_of(argument)) for argument in asked]
    parameters += [[argument, default] for argument, _, default in added]
    more = ", ".join(f"{kind} {argument}={default}" for argument, kind, default in added)
    return {
        **wrapper, "name": name, "schema": f"{name}{start}, {more}) -> {end}",
        "parameters": parameters, "forward": {**wrapper["forward"], "asked": {}},
    }  # fmt: skip


def _asking(wrapper: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """The op that users call, which asks for arguments of another one."""
    name, asked = wrapper["name"], wrapper["forward"]["asked"]
    values = [asked.get(argument, argument) for argument in wrapper["forward"]["arguments"]]
    lines = [
        f"def _ask_{name}({parameter_list(wrapper)}):",
        f"    return ops.{own['name']}.default(",
        *(f"        {value}," for value in values),
        "    )",
        "",
        "",
        f'_whole("{name}", {wrapper["schema"]!r}, _ask_{name})',
    ]
    return "\n".join(lines)


def inference_name(wrapper: Mapping[str, Any], returned: Sequence[str]) -> str:
    """The op without gradients that returns what the function returns."""
    forward = wrapper["forward"]
    is_same = list(returned) == list(forward["results"])
    return str(forward["name"]) if is_same else f"_{wrapper['name']}_inference"


def own_outputs(wrapper: Mapping[str, Any]) -> Sequence[Sequence[str]]:
    """The function's own results; the forward op returns the saved tensors after them."""
    outputs: Sequence[Sequence[str]] = wrapper["forward"]["outputs"][: len(wrapper["outputs"])]
    return outputs


def _function(wrapper: Mapping[str, Any], returned: Sequence[str]) -> str:
    """The `autograd.Function`, which returns these results of the forward op."""
    forward, backward = wrapper["forward"], wrapper["backward"]
    saved = {*wrapper["tensors"], *forward["results"]}
    tensors = [*dict.fromkeys(name for name in backward["arguments"] if name in saved)]
    own = {*forward["arguments"]} - {*tensors}
    scalars = {name: name for name in backward["arguments"] if name in own}
    # The forward pass asked these, and only the backward op depends on the answers.
    asked = backward.get("asked", {}).items()
    scalars |= {
        name: expression
        for name, expression in asked
        if name not in own and not name.startswith(BACKWARD_PREFIX)
    }
    sizes = backward.get("sizes", {}).items()
    scalars |= {name: f"{tensor}.size({axis})" for name, (tensor, axis) in sizes}
    lines = [
        f"class _Function_{wrapper['name']}(torch.autograd.Function):",
        "    @staticmethod",
        f"    def forward({', '.join(('ctx', *forward['arguments']))}):",
        f"        {assigned(forward['results'], _call(forward, forward['arguments']))}",
        f"        ctx.save_for_backward({', '.join(tensors)})",
    ]
    # `save_for_backward` takes tensors alone, and notices if one is changed before the backward.
    lines += [f"        ctx.scalars = ({', '.join(scalars.values())},)"] if scalars else []
    if marked := [name for name in wrapper.get("without_gradient", ()) if name in returned]:
        lines.append(f"        ctx.mark_non_differentiable({', '.join(marked)})")
    lines += [
        f"        return {', '.join(returned)}",
        "",
        "    @staticmethod",
        f"    def backward({', '.join(('ctx', *(f'_grad_{name}' for name in returned)))}):",
    ]
    lines += [f"        ({', '.join(tensors)},) = ctx.saved_tensors"] if tensors else []
    lines += [f"        ({', '.join(scalars)},) = ctx.scalars"] if scalars else []
    call = _call(backward, _backward_values(wrapper))
    lines += [
        f"        {assigned(backward['results'], call)}",
        f"        return ({', '.join(_input_gradients(wrapper))},)",
    ]
    return "\n".join(lines)


def _backward_values(wrapper: Mapping[str, Any]) -> Iterator[str]:
    """The arguments of the backward op."""
    for name in wrapper["backward"]["arguments"]:
        if name.startswith(BACKWARD_PREFIX):
            yield wrapper["backward"]["asked"][name]
        elif name.startswith("needs_"):
            at = wrapper["forward"]["arguments"].index(name.removeprefix("needs_"))
            yield f"ctx.needs_input_grad[{at}]"
        else:
            yield _of_result(wrapper, name)


def _input_gradients(wrapper: Mapping[str, Any]) -> Iterator[str]:
    """The gradient of each argument of the forward op."""
    pairs = zip(wrapper["all_parameters"], wrapper["backward"]["outputs"], strict=False)
    outputs = dict(pairs)
    for name in wrapper["forward"]["arguments"]:
        kind, *names = outputs.get(name, ("none",))
        values = [_of_result(wrapper, value) for value in names[:2]]
        if kind == "either":
            yield f"{values[1]} if {values[0]} is None else {values[0]}"
        else:
            yield "None" if kind == "none" else values[0]


def _of_result(wrapper: Mapping[str, Any], name: str) -> str:
    """`grad_0` is the gradient of the first result."""
    place = name.removeprefix("grad_")
    is_gradient = place != name and place.isdigit()
    return f"_grad_{wrapper['outputs'][int(place)]}" if is_gradient else name


def _kernel(wrapper: Mapping[str, Any], returned: Sequence[str] | None) -> str:
    """Source of the op's autograd kernel, which applies the `autograd.Function` where needed."""
    name, forward = wrapper["name"], wrapper["forward"]
    op = forward["name"] if returned is None else name
    arguments = ", ".join(forward["arguments"])
    lines = [
        f"_apply_{name} = _applied(_Function_{name})",
        "",
        "",
        f'@_recorded("{op}")',
        f"def _record_{name}({parameter_list(wrapper)}):",
        f"    if {is_recorded(wrapper, 'torch')}:",
        f"        return _apply_{name}({arguments})",
    ]
    if returned is not None:
        lines.append(f"    return ops.{inference_name(wrapper, returned)}.default({arguments})")
    else:
        lines += _below_autograd(forward)
    return "\n".join(lines)


def _refusal(wrapper: Mapping[str, Any]) -> str:
    """Source of an autograd kernel that raises an error if an uncaptured gradient is recorded."""
    name, forward, refused = wrapper["name"], wrapper["forward"], wrapper["refused_gradients"]
    message = (
        f"{name} has a gradient of {', '.join(refused)} in the function that it was captured from, "
        "and none here: call it under torch.no_grad(), or with detached tensors"
    )
    lines = [
        f'@_recorded("{forward["name"]}")',
        f"def _refuse_{name}({parameter_list(wrapper)}):",
        f"    if {is_recorded({**wrapper, 'tensors': refused}, 'torch')}:",
        f"        raise RuntimeError({message!r})",
        *_below_autograd(forward),
    ]
    return "\n".join(lines)


def _below_autograd(op: Mapping[str, Any]) -> list[str]:
    """The end of an op's autograd kernel: a plain call of the op would call the kernel again."""
    return [
        "    with torch._C._AutoDispatchBelowAutograd():",
        f"        return {_call(op, op['arguments'])}",
    ]


def is_recorded(wrapper: Mapping[str, Any], torch: str) -> str:
    """Python expression that is true if Torch records gradients of these arguments."""
    optional = re.findall(r"Tensor(?:\(\w!?\))?\? (\w+)", wrapper["schema"])
    tensors = (
        f"({name} is not None and {name}.requires_grad)"
        if name in optional
        else f"{name}.requires_grad"
        for name in wrapper["tensors"]
    )
    return f"{torch}.is_grad_enabled() and ({' or '.join(tensors)})"


def _whole(wrapper: Mapping[str, Any]) -> str:
    """The op that users call, where Python picks what it returns."""
    forward, name = wrapper["forward"], wrapper["name"]
    copied = wrapper.get("copied", {})
    places = [place for place in own_outputs(wrapper) if place[0] != "none"]
    either = [
        (result, other, *(condition or [f"{result} is not None"]))
        for kind, result, other, *condition in (place for place in places if place[0] == "either")
    ]
    returned = [copied.get(value, value) for _, value, *_ in places]
    lines = [
        f"def _call_{name}({parameter_list(wrapper)}):",
        f"    {assigned(forward['results'], _call(forward, forward['arguments']))}",
        *(f"    {argument}.copy_({result})" for result, argument in copied.items()),
        *(
            f"    {result} = {result} if {condition} else {other}"
            for result, other, condition in either
        ),
        f"    return {', '.join(returned)}",
        "",
        "",
        f'_whole("{name}", {wrapper["schema"]!r}, _call_{name})',
    ]
    return "\n".join(lines)


def parameter_list(wrapper: Mapping[str, Any]) -> str:
    """The parameters of a captured function, with their defaults."""
    return ", ".join(
        f"{name}={default}" if default else name for name, default in wrapper["parameters"]
    )


def _call(op: Mapping[str, Any], arguments: Iterable[str]) -> str:
    return f"ops.{op['name']}.default({', '.join(arguments)})"


def assigned(names: Sequence[str], call: str) -> str:
    """The statement that assigns the results of a call."""
    return f"{', '.join(names)} = {call}" if names else call
