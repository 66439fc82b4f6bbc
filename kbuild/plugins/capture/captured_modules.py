"""Writes the Python that joins the ops of captured functions.

`_captured_ops.py` registers gradients and ops that call others, and `_captured.py` has the
functions for users.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kbuild.plugins.capture.questions import BACKWARD_PREFIX, schema_of
from kbuild.plugins.capture.show import gradient_text

FUNCTIONS_MODULE = "_captured.py"
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
    """The module that registers what captured functions need beside their ops; empty for nothing.

    Args:
        wrappers: see `wrapper_source`.
    """
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


def captured_source(wrappers: Iterable[Mapping[str, Any]]) -> str:
    """The module with the captured functions, for users of the package.

    Args:
        wrappers: see `wrapper_source`.
    """
    wrappers = [*map(_with_own_names, wrappers)]
    notes = "".join(f"- `{wrapper['schema']}`: {gradient_text(wrapper)}\n" for wrapper in wrappers)
    parts, classes = [_FUNCTIONS_HEAD.format(notes=notes)], dict[tuple[str, ...], str]()
    for wrapper in wrappers:
        own = {}
        for kind, fields in wrapper.get("classes", {}).items():
            if (key := (kind, *fields)) not in classes:
                known = sum(other[0] == kind for other in classes)
                classes[key] = f"{kind}_{known}" if known else kind
                parts.append(f"{classes[key]} = _namedtuple({kind!r}, {list(fields)!r})")
            own[kind] = classes[key]
        name, returned = wrapper["name"], returned_results(wrapper)
        asks = wrapper["forward"].get("asked") or {}
        is_fast = returned is not None and bool(wrapper["backward"]) and not asks
        structure = _structure(wrapper, own)
        if not is_fast and not structure and not wrapper.get("renamed"):
            parts.append(f"{name} = _ops.{name}")
            continue
        arguments = ", ".join(n for n in wrapper["forward"]["arguments"] if n not in asks)
        calls = [("", f"_ops.{name}.default({arguments})")]
        if is_fast and returned is not None:
            recorded = f"_has_transforms() or ({_is_recorded(wrapper, '_torch')})"
            calls = [
                (f"if {recorded}:", calls[0][1]),
                ("else:", f"_ops.{_inference_name(wrapper, returned)}.default({arguments})"),
            ]
        lines = [f"def {name}({_parameters(wrapper)}):"]
        for condition, call in calls:
            lines += [f"    {condition}"] if condition else []
            indent = "        " if condition else "    "
            values = _value_names(wrapper)
            lines.append(indent + (_assigned(values, call) if structure else f"return {call}"))
        lines += [f"    return {structure}"] if structure else []
        parts.append("\n".join(lines))
    return "\n\n\n".join(parts) + "\n"


def _with_own_names(wrapper: Mapping[str, Any]) -> Mapping[str, Any]:
    """A function with the parameters that the author gave it."""
    renamed = wrapper.get("renamed", {})
    if not renamed:
        return wrapper
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, renamed))})(?=[,)=])")
    return {
        **wrapper,
        "schema": pattern.sub(lambda name: renamed[name[1]], wrapper["schema"]),
        "parameters": [[renamed.get(n, n), default] for n, default in wrapper["parameters"]],
        "tensors": [renamed.get(name, name) for name in wrapper["tensors"]],
        "forward": {
            **wrapper["forward"],
            "arguments": [renamed.get(name, name) for name in wrapper["forward"]["arguments"]],
        },
    }


def _value_names(wrapper: Mapping[str, Any]) -> list[str]:
    """Names of the values that the op of the function's name returns."""
    places = enumerate(_own_outputs(wrapper))
    return [f"_{at}" for at, (kind, *_) in places if kind != "none"]


def _structure(wrapper: Mapping[str, Any], classes: Mapping[str, str]) -> str:
    """The function's return expression; empty if the op returns exactly that already."""
    kinds = [kind for kind, *_ in _own_outputs(wrapper)]
    plain = ["{0}"] if len(kinds) == 1 else []
    plain += [f"({', '.join(f'{{{at}}}' for at in range(len(kinds)))})"] * (len(kinds) > 1)
    template = wrapper.get("structure", "")
    if not template or (template in plain and ("none" not in kinds or len(kinds) == 1)):
        return ""
    values = ["None" if kind == "none" else f"_{at}" for at, kind in enumerate(kinds)]
    return str(template.format(*values, **classes))


_FUNCTIONS_HEAD = '''\
"""The captured functions. Written by kbuild.

Each calls the op of its name. Where Torch records no gradients, it calls one that knows of none.

{notes}"""

from collections import namedtuple as _namedtuple

import torch as _torch

from ._ops import ops as _ops

_has_transforms = _torch._C._are_functorch_transforms_active'''


def returned_results(wrapper: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Results of the forward op that the op of the function's name returns.

    That op launches the same kernels. None where the forward op has the function's name, and where
    the function returns an argument or a tensor twice: then Python calls the forward op.
    """
    wrapper = _inner(wrapper)
    forward = wrapper["forward"]
    own = [place for place in _own_outputs(wrapper) if place[0] != "none"]
    names = tuple(place[1] for place in own)
    is_plain = all(place[0] == "result" for place in own) and len({*names}) == len(names)
    is_plain = is_plain and not wrapper.get("copied")
    return names if is_plain and forward["name"] != wrapper["name"] else None


def projections(wrapper: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The `projections` of the forward op: ops that return fewer results."""
    wrapper = _inner(wrapper)
    if (returned := returned_results(wrapper)) is not None:
        names = {wrapper["name"], _inference_name(wrapper, returned)} - {wrapper["forward"]["name"]}
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
        f"def _ask_{name}({_parameters(wrapper)}):",
        f"    return ops.{own['name']}.default(",
        *(f"        {value}," for value in values),
        "    )",
        "",
        "",
        f'_whole("{name}", {wrapper["schema"]!r}, _ask_{name})',
    ]
    return "\n".join(lines)


def _inference_name(wrapper: Mapping[str, Any], returned: Sequence[str]) -> str:
    """The op without gradients that returns what the function returns."""
    forward = wrapper["forward"]
    is_same = list(returned) == list(forward["results"])
    return str(forward["name"]) if is_same else f"_{wrapper['name']}_inference"


def _own_outputs(wrapper: Mapping[str, Any]) -> Sequence[Sequence[str]]:
    """The function's own results; the forward op returns the saved tensors after them."""
    outputs: Sequence[Sequence[str]] = wrapper["forward"]["outputs"][: len(wrapper["outputs"])]
    return outputs


def _function(wrapper: Mapping[str, Any], returned: Sequence[str]) -> str:
    """The `autograd.Function`.

    Args:
        wrapper: the captured function.
        returned: results of the forward op that it returns.
    """
    forward, backward = wrapper["forward"], wrapper["backward"]
    tensors = [*dict.fromkeys(name for name in backward["arguments"] if _is_saved(wrapper, name))]
    scalars = {name: name for name in backward["arguments"] if name in forward["arguments"]}
    scalars = {name: name for name in scalars if name not in tensors}
    sizes = backward.get("sizes", {}).items()
    scalars |= {name: f"{tensor}.size({axis})" for name, (tensor, axis) in sizes}
    lines = [
        f"class _Function_{wrapper['name']}(torch.autograd.Function):",
        "    @staticmethod",
        f"    def forward({', '.join(('ctx', *forward['arguments']))}):",
        f"        {_assigned(forward['results'], _call(forward, forward['arguments']))}",
        f"        ctx.save_for_backward({', '.join(tensors)})",
    ]
    lines += [f"        ctx.scalars = ({', '.join(scalars.values())},)"] if scalars else []
    if marked := [name for name in wrapper.get("without_gradient", ()) if name in returned]:
        lines.append(f"        ctx.mark_non_differentiable({', '.join(marked)})")
    lines += [
        f"        return {', '.join(returned)}",
        "",
        "    @staticmethod",
        f"    def backward({', '.join(('ctx', *map(_gradient, returned)))}):",
    ]
    lines += [f"        ({', '.join(tensors)},) = ctx.saved_tensors"] if tensors else []
    lines += [f"        ({', '.join(scalars)},) = ctx.scalars"] if scalars else []
    call = _call(backward, _backward_values(wrapper))
    lines += [
        f"        {_assigned(backward['results'], call)}",
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
    return _gradient(wrapper["outputs"][int(place)]) if is_gradient else name


def _gradient(result: str) -> str:
    return f"_grad_{result}"


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
        f"def _record_{name}({_parameters(wrapper)}):",
        f"    if {_is_recorded(wrapper, 'torch')}:",
        f"        return _apply_{name}({arguments})",
    ]
    if returned is not None:
        lines.append(f"    return ops.{_inference_name(wrapper, returned)}.default({arguments})")
    else:
        lines += [
            "    with torch._C._AutoDispatchBelowAutograd():",
            f"        return {_call(forward, forward['arguments'])}",
        ]
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
        f"def _refuse_{name}({_parameters(wrapper)}):",
        f"    if {_is_recorded({**wrapper, 'tensors': refused}, 'torch')}:",
        f"        raise RuntimeError({message!r})",
        "    with torch._C._AutoDispatchBelowAutograd():",
        f"        return {_call(forward, forward['arguments'])}",
    ]
    return "\n".join(lines)


def _is_recorded(wrapper: Mapping[str, Any], torch: str) -> str:
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
    places = [place for place in _own_outputs(wrapper) if place[0] != "none"]
    either = [
        (result, other, *(condition or [f"{result} is not None"]))
        for kind, result, other, *condition in (place for place in places if place[0] == "either")
    ]
    returned = [copied.get(value, value) for _, value, *_ in places]
    lines = [
        f"def _call_{name}({_parameters(wrapper)}):",
        f"    {_assigned(forward['results'], _call(forward, forward['arguments']))}",
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


def _parameters(wrapper: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={default}" if default else name for name, default in wrapper["parameters"]
    )


def _is_saved(wrapper: Mapping[str, Any], name: str) -> bool:
    return name in wrapper["tensors"] or name in wrapper["forward"]["results"]


def _call(op: Mapping[str, Any], arguments: Iterable[str]) -> str:
    return f"ops.{op['name']}.default({', '.join(arguments)})"


def _assigned(names: Sequence[str], call: str) -> str:
    return f"{', '.join(names)} = {call}" if names else call
