"""Parameters named after strides: `stride_am`, `x_stride_0`, `stride_out_1`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kbuild.languages.expression.nodes import Name, Query
from kbuild.languages.spec.values import OpSpec, ShapeRule

_FORMS = (re.compile(r"stride_?(?P<rest>\w+)"), re.compile(r"(?P<rest>\w+?)_stride_?(?P<axis>\w*)"))


def stride_of(op: OpSpec, called: Mapping[str, str], parameter: str) -> Query | None:
    """`stride(a, 0)` for `stride_am` when `a` is `["M", "K"]`; None unless one reading fits.

    Args:
        op: gives the shapes.
        called: what a tensor is called in the kernel -> the tensor.
        parameter: the kernel function's parameter.
    """
    found = {reading for text in _texts(parameter) for reading in _readings(op, called, text)}
    if len(found) != 1:
        return None
    tensor, axis = found.pop()
    return Query("stride", tensor, axis)


def _texts(parameter: str) -> Iterator[str]:
    """Tensor and dimension together: `am`, `out_1`."""
    for form in _FORMS:
        if match := form.fullmatch(parameter):
            yield "_".join(part for part in match.groups() if part)


def _readings(op: OpSpec, called: Mapping[str, str], text: str) -> Iterator[tuple[str, int]]:
    for name, tensor in called.items():
        if text.startswith(name):
            rule = op.shape(tensor)
            axis = _axis(text[len(name) :].lstrip("_"), rule)
            if axis is not None:
                yield tensor, axis


def _axis(word: str, rule: ShapeRule | None) -> int | None:
    """The dimension that a word names: its number, or its name in small or capital letters."""
    if word.isdecimal():
        rank = rule.rank if rule is not None else None
        return int(word) if rank is None or int(word) < rank else None
    if rule is None or not word:
        return None
    named = [
        rule.axis(position)
        for position, dim in enumerate(rule.dims)
        if dim is not None and isinstance(dim.root, Name) and dim.root.name.lower() == word.lower()
    ]
    return named[0] if len(named) == 1 else None
