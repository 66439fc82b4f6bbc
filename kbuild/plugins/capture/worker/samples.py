"""Random calls of a function, each run with numbers in place of symbols.

What such a run records is compared with what the ops do in the same call, see
`kbuild.plugins.capture.verification`.
"""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.values import GPUS
from kbuild.plugins.capture.worker.paths import numbers_of
from kbuild.plugins.capture.worker.recorder import Recorder
from kbuild.plugins.capture.worker.runs import (
    Bounds,
    NeedsContiguous,
    TensorArgument,
    Trace,
    WrapperCall,
)
from kbuild.plugins.capture.worker.symbols import Numbers
from kbuild.plugins.capture.worker.tensors import contiguous_strides, extent_of, usual_strides
from kbuild.plugins.capture.worker.trace import traced

_SIZES = (0, 1, 2, 3, 5, 7, 13, 16, 17, 31, 32, 48, 64, 100, 127, 128, 144, 256, 1000, 1024, 4096)
_MOST = 1 << 14
_OLDEST = 75
"""The first GPU that calls are drawn for."""
_INTEGERS = (0, 1, -1, 2, 3, -7, 8, 16, 100, -128)
_FLOATS = (0.0, 1.0, -1.0, 0.5, -2.5, 1e-6, 3.0, 100.0)
_LAYOUTS = ("contiguous", "rows", "turned", "expanded", "every other", "apart")


@dataclass
class DrawnNumbers(Numbers):
    """The numbers of one call, in place of symbols."""

    draw: random.Random = field(default_factory=random.Random)
    contiguous: frozenset[str] = frozenset()
    """Tensors that are mostly contiguous: ops refuse others."""
    keeps_strides: bool = False
    """See `Recorder.keeps_strides`."""

    def integer(self, text: str, least: int = 0, most: int = 0) -> int:  # noqa: ARG002
        """See `Symbols.integer`; the number is kept in `hints`."""
        if text not in self.hints:
            values: tuple[int, ...] = (least or 1,)
            if text.startswith("address("):
                # Aligned as allocators do, to 16 bytes, to 8, and to an element of 2 bytes.
                values = (4096, 4096, 4096 + 16, 4096 + 8, 4096 + 2)
            self.hints = {**self.hints, text: self.draw.choice(values)}
        return int(self.hints[text])

    def strides(self, tensor: str, sizes: Sequence[Any]) -> list[int]:
        """The strides of a layout that is drawn."""
        is_plain = self.draw.random() < (0.8 if tensor in self.contiguous else 0.4)
        layout = "contiguous" if is_plain else self.draw.choice(_LAYOUTS)
        sizes = [int(size) for size in sizes]
        if self.keeps_strides and min(sizes, default=2) < 2:  # noqa: PLR2004
            layout = "contiguous"  # `empty_like` may keep any stride of a size that is 1
        strides = drawn_strides(layout, sizes, self.draw)
        if tensor in self.contiguous and _are_dense(sizes, strides):
            strides = usual_strides(sizes)  # the op reads no others
        names = (f"stride({tensor}, {axis})" for axis in range(len(sizes)))
        self.hints = {**self.hints, **dict(zip(names, strides, strict=True))}
        return strides

    def text_of_extent(self, tensor: torch.Tensor) -> str:
        """See `Symbols.text_of_extent`."""
        return str(extent_of(tensor.shape, tensor.stride()) if tensor.numel() else 0)


def _are_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """True if the strides are those of a contiguous tensor; strides of sizes of 1 do not count."""
    pairs = zip(sizes, strides, contiguous_strides(sizes), strict=True)
    return 0 in sizes or all(size == 1 or own == dense for size, own, dense in pairs)


def drawn_strides(layout: str, sizes: Sequence[int], draw: random.Random) -> list[int]:
    """The strides of a layout: those of a slice, of a transposed or of an expanded tensor."""
    strides = usual_strides(sizes)
    if layout == "rows" and sizes:
        strides = contiguous_strides([*sizes[:-1], max(sizes[-1], 1) + draw.choice((1, 3, 8, 16))])
    elif layout == "turned" and sizes:
        order = draw.sample(range(len(sizes)), len(sizes))
        dense = contiguous_strides([max(sizes[axis], 1) for axis in order])
        strides = [dense[order.index(axis)] for axis in range(len(sizes))]
    elif layout == "expanded" and sizes:
        at = draw.randrange(len(sizes))
        dense = contiguous_strides([1 if axis == at else max(s, 1) for axis, s in enumerate(sizes)])
        strides = [0 if axis == at else stride for axis, stride in enumerate(dense)]
    elif layout == "every other":
        strides = [2 * stride for stride in strides]
    elif layout == "apart" and sizes:  # Torch keeps any stride of a size that is 1
        strides[0] += 8
    return strides


class DrawnAnswers(dict[str, bool]):
    """Answers to questions of a run, drawn when they are asked for."""

    def __init__(self, draw: random.Random, known: Mapping[str, bool]) -> None:
        super().__init__(known)
        self._draw = draw

    def get(self, question: str, _: Any = None) -> bool:
        """The answer, also to a question that was not known before."""
        return self.setdefault(question, self._draw.random() < 0.5)  # noqa: PLR2004


class NumberRecorder(Recorder):
    """Records a run with numbers; tensors are contiguous as Torch says it."""

    def is_free(self, tensor: Any) -> bool:
        """See `Recorder.is_free`: `reshape` copies what is not contiguous, also if it need not."""
        is_asked = sys._getframe(1).f_code.co_name == "reshaped"  # noqa: SLF001
        return is_asked and tensor.stride() != tuple(usual_strides(tensor.shape))

    def contiguous(
        self, tensor: torch.Tensor, memory_format: Any = torch.contiguous_format
    ) -> torch.Tensor:
        """See `Recorder.contiguous`; strides of sizes that are 1 become the usual ones as well."""
        copy = super().contiguous(tensor, memory_format)
        strides = usual_strides(copy.shape)
        if copy.stride() == tuple(strides):
            return copy
        with self.paused():
            return torch.as_strided(copy, copy.shape, strides, copy.storage_offset())


def sampled(
    calls: Sequence[tuple[Mapping[str, Any], WrapperCall, Mapping[str, float], Sequence[Trace]]],
    name: str,
    count: int,
) -> list[dict[str, Any]]:
    """Record random calls as JSON: `configuration`, `values` and `trace`.

    The calls depend on the name of the function, so each capture draws the same.
    """
    source = inspect.getsource(calls[0][1].function)
    draw = random.Random(name + source)  # noqa: S311 - no secret
    numbers = [sorted(_numbers(traces)) for _, _, _, traces in calls]
    samples = []
    for at in range(count):
        chosen = at % len(calls) if len(calls) <= count else draw.randrange(len(calls))
        configuration, call, examples, traces = calls[chosen]
        capability = configuration.get("capability")
        known = {} if capability is None else {"capability()": capability}
        near = [trace.hints for trace in traces if not trace.raises]
        values = {**_values(call, examples, numbers[chosen], near, draw), **known}
        trace = _ran(call, values, draw)
        if trace is not None:
            samples.append({"configuration": configuration, "trace": asdict(trace)})
    return samples


def _ran(call: WrapperCall, values: Mapping[str, float], draw: random.Random) -> Trace | None:
    """Run one call; None if the run cannot be recorded."""
    contiguous = frozenset(call.contiguous)
    numbers = DrawnNumbers(
        values, draw=draw, contiguous=contiguous, keeps_strides=call.keeps_strides
    )
    recorder = NumberRecorder(numbers, call.files, call.place)
    names = [f"needs_input_grad[{at}]" for at in range(len(call.arguments))]
    needs = DrawnAnswers(draw, {name: draw.random() < 0.7 for name in names})  # noqa: PLR2004
    # With no tensor in the set, `DrawnNumbers.strides` draws the layout of all.
    given = WrapperCall(**{**vars(call), "contiguous": set()})
    try:
        return traced(given, values, needs, recorder)
    except (CaptureError, NeedsContiguous):
        return None


def _values(
    call: WrapperCall,
    examples: Mapping[str, float],
    numbers: Sequence[int],
    near: Sequence[Mapping[str, float]],
    draw: random.Random,
) -> dict[str, float]:
    """A value of each name of the call; half of the calls are near one that takes a path."""
    values = dict(_drawn(call, examples, numbers, draw))
    if near and draw.random() < 0.5:  # noqa: PLR2004
        known = draw.choice(near)
        kept = draw.sample(sorted(values), max(len(values) - 1 - draw.randrange(2), 0))
        values |= {name: known[name] for name in kept if name in known}
    return values


def _drawn(
    call: WrapperCall, examples: Mapping[str, float], numbers: Sequence[int], draw: random.Random
) -> Iterator[tuple[str, float]]:
    """A value of each name, drawn by itself."""
    span = call.bounds["capability()"]
    capabilities = [c for c in GPUS if max(span.least, _OLDEST) <= c <= span.most]
    yield "capability()", draw.choice(capabilities or [span.least])
    yield "sm_count()", draw.choice((1, 16, 108, 132, 148))
    for name, value in call.arguments:
        if value == ["int"]:
            yield name, draw.choice((int(examples[name]), *_INTEGERS, *numbers))
        elif value == ["float"]:
            yield name, draw.choice((float(examples[name]), *_FLOATS))
    sizes = {s for _, v in call.arguments if isinstance(v, TensorArgument) for s in v.sizes}
    for name in sorted(size for size in sizes if not size.isdigit()):
        bounds = call.bounds.get(name, Bounds())
        most = max(min(bounds.most, _MOST), bounds.least)
        near = [n + step for n in numbers for step in (-1, 0, 1)]
        usual = (draw.randint(bounds.least, min(most, bounds.least + 300)), *_SIZES)
        values = [v for v in usual if bounds.least <= v <= most]
        near = [v for v in near if bounds.least <= v <= bounds.most]
        yield name, draw.choice(near if near and draw.random() < 0.3 else [*values, most])  # noqa: PLR2004


def _numbers(traces: Sequence[Trace]) -> set[int]:
    """Integers of the conditions of paths."""
    known = {number for trace in traces for guard in trace.guards for number in numbers_of(guard)}
    return {int(number) for number in known if number == int(number) and abs(number) <= 8 * _MOST}
