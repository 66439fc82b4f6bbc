"""Generates inputs, and compares results."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

torch: Any = importlib.import_module("torch")

RTOL = {
    "float64": 1e-7,
    "float32": 1e-3,
    "float16": 1e-2,
    "bfloat16": 2e-2,
    "float8_e4m3fn": 0.13,
    "float8_e5m2": 0.26,
}
"""dtype -> how far a result may be from the expected one, relative to it; integers not at all.
float32 leaves room for products in TF32."""
_INTEGERS = 8
"""Generated integers are below this."""


def make_inputs(arguments: Sequence[Mapping[str, Any]], device: str) -> list[Any]:
    """Generate the arguments' values, the same each time: normal floats, small integers.

    For `arguments` see `kbuild.dsl.tune.cases.BenchmarkCase.arguments`.
    """
    generator = torch.Generator(device=device).manual_seed(0)
    return [_value(argument, generator, device) for argument in arguments]


def _value(argument: Mapping[str, Any], generator: Any, device: str) -> Any:
    if "value" in argument:
        return argument["value"]
    if "shape" not in argument:
        return getattr(torch, argument["dtype"])
    shape = argument["shape"]
    if shape is None:
        return None
    dtype = getattr(torch, argument["dtype"])
    if dtype.is_floating_point:
        # Torch draws no random numbers of 8 bits.
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        tensor = torch.randn(shape, generator=generator, device=device, dtype=wide)
    else:
        most = 2 if dtype == torch.bool else _INTEGERS
        tensor = torch.randint(most, shape, generator=generator, device=device)
    return tensor.to(dtype)


def joined(
    arguments: Sequence[Mapping[str, Any]], values: Sequence[Any]
) -> list[tuple[Mapping[str, Any], Any]]:
    """Pairs of argument and value; the tensors of a list become one pair."""
    pairs: list[tuple[Mapping[str, Any], Any]] = []
    for argument, value in zip(arguments, values, strict=True):
        if argument.get("item"):
            pairs[-1][1].append(value)
        elif "list" in argument:
            pairs.append(({**argument, "name": argument["list"]}, [value]))
        else:
            pairs.append((argument, value))
    return pairs


def chosen(inputs: Mapping[str, Any], argument: Mapping[str, Any], value: Any) -> Any:
    """The author's value for an argument; the generated one where the author gives none."""
    if "list" not in argument:
        return inputs.get(argument["name"], value)
    items = inputs.get(argument["list"])
    return value if items is None else items[argument["item"]]


def copies(values: Sequence[Any], arguments: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Copy the tensors that the op writes to, with their initial values; others stay."""
    copied = [
        value.clone() if argument.get("writes") and value is not None else value
        for value, argument in zip(values, arguments, strict=True)
    ]
    restore(copied, values, arguments)
    return copied


def restore(
    own: Sequence[Any], values: Sequence[Any], arguments: Sequence[Mapping[str, Any]]
) -> None:
    """Restore the tensors in `own` that a candidate wrote to; does not synchronise."""
    for tensor, value, argument in zip(own, values, arguments, strict=True):
        if value is not None and "reset" in argument:
            tensor.fill_(float(argument["reset"]))
        elif value is not None and argument.get("writes"):
            tensor.copy_(value)


def results(
    returned: Any, values: Sequence[Any], arguments: Sequence[Mapping[str, Any]]
) -> list[Any]:
    """Results of a call, followed by the tensors that it wrote to."""
    outputs = list(returned) if isinstance(returned, (list, tuple)) else [returned]
    pairs = zip(values, arguments, strict=True)
    outputs += [value for value, argument in pairs if argument.get("writes")]
    return [tensor for tensor in outputs if tensor is not None]


def difference(
    actual: Sequence[Any], expected: Sequence[Any], rtol: float | None, atol: float | None
) -> str:
    """Description of the first difference between results; empty if there is none."""
    if len(actual) != len(expected):
        return f"{len(actual)} results, {len(expected)} were expected"
    for index, (result, other) in enumerate(zip(actual, expected, strict=True)):
        problem = _differs(result, other, rtol, atol)
        if problem:
            return problem if len(actual) == 1 else f"result {index}: {problem}"
    return ""


def _differs(actual: Any, expected: Any, rtol: float | None, atol: float | None) -> str:
    if actual.shape != expected.shape:
        return f"the shape is {tuple(actual.shape)}, {tuple(expected.shape)} was expected"
    if not actual.is_floating_point():
        count = int((actual != expected).sum())
        return f"{count} of {actual.numel()} values differ" if count else ""
    wide = torch.float64 if actual.dtype == torch.float64 else torch.float32
    value, other = actual.to(wide), expected.to(wide)
    if rtol is None:
        rtol = RTOL[str(actual.dtype).removeprefix("torch.")]
    if atol is None:
        # Relative to the root mean square of the finite values, so that results near 0 may round.
        finite = other[torch.isfinite(other)]
        magnitude = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
        atol = rtol * magnitude
    wrong = ~torch.isclose(value, other, rtol=rtol, atol=atol, equal_nan=True)
    count = int(wrong.sum())
    if not count:
        return ""
    most = float((value - other)[wrong].abs().nan_to_num(nan=math.inf).max())
    return f"{count} of {actual.numel()} values differ, by up to {most:.3g}"
