"""An op in one call: its table, read at the numbers of the call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kbuild.plugins.capture.values import BATCH, EVALUATION, compiled
from kbuild.plugins.capture.wrappers import CapturedOp


class DifferenceError(Exception):
    """An op does something that the function does not; the message, and the author's line."""

    def __init__(self, message: str, line: str = "") -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class TensorLayout:
    """Memory, offset, sizes, strides and dtype of a tensor."""

    root: str
    """The memory."""
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def is_contiguous(self) -> bool:
        """True if Torch calls it contiguous."""
        return self.plain().strides == dense_strides(self.sizes)

    def plain(self) -> TensorLayout:
        """The layout with the usual strides in dimensions of size 1, where any will do."""
        dense = dense_strides(self.sizes)
        pairs = zip(self.sizes, self.strides, dense, strict=True)
        strides = tuple(usual if size == 1 else own for size, own, usual in pairs)
        return replace(self, strides=dense if 0 in self.sizes else strides)


def dense_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, as Torch has them."""
    return tuple(math.prod(max(s, 1) for s in sizes[at + 1 :]) for at in range(len(sizes)))


def recorded(value: Mapping[str, Any]) -> TensorLayout:
    """A tensor of the worker's run."""
    sizes, strides = (tuple(map(int, value[key])) for key in ("sizes", "strides"))
    return TensorLayout(value["tensor"], int(value["offset"]), sizes, strides, value["dtype"])


class _Names(dict[str, Any]):
    """Names in an op's expressions; one without a value is a tensor, as in `size(x, 0)`."""

    def __missing__(self, name: str) -> str:
        return name


@dataclass
class OpCall:
    """A call of one op with concrete values."""

    op: CapturedOp
    tensors: dict[str, TensorLayout | None]
    """Values of the arguments; later also of names that were evaluated."""
    numbers: Mapping[str, Any]
    names: _Names = field(init=False)

    def __post_init__(self) -> None:
        known = self.tensors
        arguments = dict(known)
        plain = {n: v for n, v in self.numbers.items() if n.isidentifier()}
        # Without the key, `eval` would add Python's own functions.
        self.names = _Names({**EVALUATION, "__builtins__": {}})
        self.names.update(
            size=lambda t, axis: arguments[t].sizes[axis],  # type: ignore[union-attr]
            stride=lambda t, axis: arguments[t].strides[axis],  # type: ignore[union-attr]
            numel=lambda t: math.prod(arguments[t].sizes),  # type: ignore[union-attr]
            dim=lambda t: len(arguments[t].sizes),  # type: ignore[union-attr]
            dtype=lambda t: arguments[t].dtype,  # type: ignore[union-attr]
            has=lambda t: arguments.get(t) is not None,
            # An address that the function has not asked for is as aligned as 0.
            address=lambda t: self.numbers.get(f"address({t})", 0),
        )
        for query in ("sm_count", "capability"):
            # As a default, which is bound now: the loop changes `query`.
            self.names[query] = lambda query=query: self.numbers[f"{query}()"]
        self.names.update(plain)
        for name, text in self.op.section.get("let", {}).items():
            self.names[name] = self.value(text)

    def value(self, text: Any) -> Any:
        """The value of an expression."""
        return eval(compiled(text), self.names) if isinstance(text, str) else text  # noqa: S307

    def unmet(self) -> str:
        """Reason why the op refuses the call; empty if it does not."""
        for name in self.op.section.get("contiguous", ()):
            tensor = self.tensors[name]
            if tensor is not None and not tensor.is_contiguous:
                return f"`{name}` is not contiguous"
        for condition in self.op.section.get("require", ()):
            if not self.holds(condition):
                return f"not `{condition}`"
        return ""

    def holds(self, condition: str) -> bool:
        """True if a condition of the op holds; False if it divides by zero."""
        try:
            return bool(self.value(condition))
        except ZeroDivisionError:
            return False

    def taken(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Steps, or candidates of a launch, whose conditions hold."""
        return (row for row in rows if self.holds(row.get("when", "True")))

    def sizes(self, name: str) -> tuple[int, ...]:
        """The shape of a result or a temporary."""
        shape: list[int] = []
        for size in self.op.section["shapes"][name]:
            batch = [self.numbers[n] for n in BATCH if n in self.numbers]
            shape += batch if size == "..." else [int(self.value(size))]
        return tuple(shape)

    def dtype(self, rule: Any) -> str:
        """A dtype, or that of a tensor."""
        rules = self.op.section["dtypes"]
        while isinstance(rule, str) and rule in rules:
            tensor = self.tensors.get(rule)
            rule = tensor.dtype if tensor is not None else rules[rule]
        return str(rule)

    def tensor(self, name: str) -> TensorLayout | None:
        """A tensor of the op; what it allocates is dense."""
        if name in self.tensors:
            return self.tensors[name]
        section = self.op.section
        if name in section.get("views", {}):
            view = section["views"][name]
            owner = self.tensor(view["of"])
            if owner is None:
                return None
            sizes = tuple(int(self.value(size)) for size in view["shape"])
            strides = tuple(int(self.value(s)) for s in view.get("strides", dense_strides(sizes)))
            offset = owner.offset + int(self.value(view.get("offset", 0)))
            layout = TensorLayout(owner.root, offset, sizes, strides, owner.dtype)
        elif not self.holds(section.get("returned", {}).get(name, "True")):
            return None
        elif name not in section["shapes"]:
            raise DifferenceError(f"returns `{name}`, which it does not have")
        else:
            sizes = self.sizes(name)
            dtype = self.dtype(section["dtypes"][name])
            layout = TensorLayout(f"{self.op.name}.{name}", 0, sizes, dense_strides(sizes), dtype)
        self.tensors[name] = layout
        return layout

    def constant(self, value: Any) -> Any:
        """The value of a constant of a launch."""
        if not isinstance(value, Mapping):
            return self.value(value)
        if "value" not in value:
            return value
        known, choices = self.value(value["value"]), value["choices"]
        if isinstance(choices, Mapping):
            return choices[str(known)]
        if known not in choices:
            raise DifferenceError(f"has no image with the constant {known} (`{value['value']}`)")
        return known


def tensor_text(tensor: TensorLayout | None) -> str:
    """A tensor, for people."""
    if tensor is None:
        return "None"
    strides = "" if tensor.is_contiguous else f" with strides {list(tensor.strides)}"
    offset = f" at {tensor.offset}" if tensor.offset else ""
    name = tensor.root.rpartition(".")[2]
    return f"`{name}`{offset} of {list(tensor.sizes)}{strides} ({tensor.dtype})"


def expanded_layout(tensor: TensorLayout, sizes: Sequence[int]) -> TensorLayout:
    """The layout after broadcasting dimensions of size 1."""
    if len(tensor.sizes) != len(sizes):
        return tensor
    pairs = zip(tensor.sizes, tensor.strides, sizes, strict=True)
    strides = tuple(0 if size == 1 != wanted else stride for size, stride, wanted in pairs)
    return replace(tensor, sizes=tuple(sizes), strides=strides)


def is_same_number(value: Any, text: str) -> bool:
    """True if a value is the number that a text is."""
    return bool(value == float(text)) or str(value) == text
