"""Compares what ops do in random calls with what the author's function does in the same calls.

The worker has run the function with the numbers of each call, see `worker.samples`. Here the
tables of the ops are read at these numbers, and both are followed step by step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kbuild.capture.expression_values import EVALUATION, compiled
from kbuild.capture.programs import CaptureError
from kbuild.capture.values import BATCH
from kbuild.capture.wrappers import CapturedOp, CapturedWrapper

_COPIES = ("contiguous", "clone")
_SAME_OPTIONS = ({"debug": "False"}, {"num_ctas": "1"})


class _DifferenceError(Exception):
    """Something that an op does otherwise; the message, and the author's line."""

    def __init__(self, message: str, line: str = "") -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class TensorLayout:
    """Where a tensor lies."""

    root: str
    """The memory."""
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def is_contiguous(self) -> bool:
        """As Torch says it."""
        return self.plain().strides == _dense(self.sizes)

    def plain(self) -> TensorLayout:
        """With the usual strides where they lead nowhere."""
        dense = _dense(self.sizes)
        pairs = zip(self.sizes, self.strides, dense, strict=True)
        strides = tuple(usual if size == 1 else own for size, own, usual in pairs)
        return replace(self, strides=dense if 0 in self.sizes else strides)


def _dense(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(max(s, 1) for s in sizes[at + 1 :]) for at in range(len(sizes)))


def _recorded(value: Mapping[str, Any]) -> TensorLayout:
    """A tensor of the worker's run."""
    sizes, strides = (tuple(map(int, value[key])) for key in ("sizes", "strides"))
    return TensorLayout(value["tensor"], int(value["offset"]), sizes, strides, value["dtype"])


class _Names(dict[str, Any]):
    """What expressions of an op name; tensors stand for themselves in `size(x, 0)`."""

    def __missing__(self, name: str) -> str:
        return name


@dataclass
class OpCall:
    """One op in one call."""

    op: CapturedOp
    tensors: dict[str, TensorLayout | None]
    """The arguments; then all others that have been asked for."""
    numbers: Mapping[str, Any]
    names: _Names = field(init=False)

    def __post_init__(self) -> None:
        known = self.tensors
        arguments = dict(known)
        plain = {n: v for n, v in self.numbers.items() if n.isidentifier()}
        self.names = _Names({**EVALUATION, "__builtins__": {}})
        self.names.update(
            size=lambda t, axis: arguments[t].sizes[axis],  # type: ignore[union-attr]
            stride=lambda t, axis: arguments[t].strides[axis],  # type: ignore[union-attr]
            numel=lambda t: math.prod(arguments[t].sizes),  # type: ignore[union-attr]
            dim=lambda t: len(arguments[t].sizes),  # type: ignore[union-attr]
            dtype=lambda t: arguments[t].dtype,  # type: ignore[union-attr]
            has=lambda t: arguments.get(t) is not None,
            address=lambda t: self.numbers.get(f"address({t})", 0),
        )
        for query in ("sm_count", "capability"):
            self.names[query] = lambda query=query: self.numbers[f"{query}()"]
        self.names.update(plain)
        for name, text in self.op.section.get("let", {}).items():
            self.names[name] = self.value(text)

    def value(self, text: Any) -> Any:
        """The value of an expression."""
        return eval(compiled(text), self.names) if isinstance(text, str) else text  # noqa: S307

    def unmet(self) -> str:
        """Why the op refuses the call; empty if it does not."""
        for name in self.op.section.get("contiguous", ()):
            tensor = self.tensors[name]
            if tensor is not None and not tensor.is_contiguous:
                return f"`{name}` is not contiguous"
        for condition in self.op.section.get("require", ()):
            if not self.holds(condition):
                return f"not `{condition}`"
        return ""

    def holds(self, condition: str) -> bool:
        """Whether a condition of the op holds."""
        try:
            return bool(self.value(condition))
        except ZeroDivisionError:
            return False

    def steps(self) -> Iterator[Mapping[str, Any]]:
        """The steps of the call."""
        return (s for s in self.op.section["launch"] if self.holds(s.get("when", "True")))

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
            strides = tuple(int(self.value(s)) for s in view.get("strides", _dense(sizes)))
            offset = owner.offset + int(self.value(view.get("offset", 0)))
            made = TensorLayout(owner.root, offset, sizes, strides, owner.dtype)
        elif not self.holds(section.get("returned", {}).get(name, "True")):
            return None
        elif name not in section["shapes"]:
            raise _DifferenceError(f"returns `{name}`, which it does not have")
        else:
            sizes = self.sizes(name)
            dtype = self.dtype(section["dtypes"][name])
            made = TensorLayout(f"{self.op.name}.{name}", 0, sizes, _dense(sizes), dtype)
        self.tensors[name] = made
        return made

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
            raise _DifferenceError(f"has no image with the constant {known} (`{value['value']}`)")
        return known


@dataclass
class Comparison:
    """One call, as the author's function and as the ops."""

    trace: Mapping[str, Any]
    same: dict[str, str] = field(default_factory=dict)
    """Memory of the function -> of an op."""
    copies: dict[str, TensorLayout] = field(default_factory=dict)
    """Memory of either that is a contiguous copy -> what it is a copy of."""
    position: int = 0

    def __post_init__(self) -> None:
        self.steps = [s for s in self.trace["steps"] if not self._is_copy(s)]
        self.buffers = {buffer["name"]: buffer for buffer in self.trace["buffers"]}

    def _is_copy(self, step: Mapping[str, Any]) -> bool:
        """Whether a step of the function is `contiguous`, which is then known."""
        if step.get("aten") != "contiguous":
            return False
        self.copies[step["results"][0]] = _recorded(step["arguments"][0])
        return True

    def follow(self, call: OpCall, end: int) -> None:
        """Compare the steps of an op with the function's up to a place."""
        for step in call.steps():
            own = self.steps[self.position] if self.position < end else None
            try:
                if "aten" in step and self._copied(call, step, own):
                    continue
                if own is None or ("aten" in step) != ("aten" in own):
                    what = step.get("aten") or step["function"]
                    raise _DifferenceError(f"calls `{what}`, which the function does not")
                (self._call if "aten" in step else self._launch)(call, step, own)
            except _DifferenceError as difference:
                difference.line = difference.line or (own["line"] if own else "")
                raise
            self.position += 1
        if self.position < end:
            own = self.steps[self.position]
            what = own.get("aten") or own["launch"]
            raise _DifferenceError(f"does not call `{what}`", own["line"])

    def _copied(
        self, call: OpCall, step: Mapping[str, Any], own: Mapping[str, Any] | None
    ) -> bool:
        """Whether a step is a copy of the op's own."""
        if step["aten"] == "_to_copy" and (own is None or own.get("aten") != "_to_copy"):
            source, copy = call.tensor(step["arguments"][0]), call.tensor(step["results"][0])
            if source is None or copy is None or source.dtype != copy.dtype:
                return False
            self.copies[copy.root] = source
            return True
        if step["aten"] not in _COPIES:
            return False
        if step["aten"] == "clone":
            form = step["arguments"][1]
            if form != {"string": "contiguous_format"}:
                return False
            if own is not None and own.get("aten") == "clone" and own["arguments"][1] is not None:
                return False
        source, copy = call.tensor(step["arguments"][0]), call.tensor(step["results"][0])
        if source is not None and copy is not None:
            self.copies[copy.root] = source
        return True

    # tensors

    def _origin(self, tensor: TensorLayout) -> tuple[Any, ...]:
        """The memory and the place in it; a copy of what is contiguous counts as the same."""
        offset, root = tensor.offset, tensor.root
        while root in self.copies:
            source = self.copies[root]
            if not source.is_contiguous:
                origin = self._origin(source)
                return (*origin, source.plain().strides, offset)
            root, offset = source.root, source.offset + offset
        return (self.same.get(root, root), offset)

    def _is_same_memory(self, call: OpCall, given: TensorLayout, own: TensorLayout) -> bool:
        if own.root in self.buffers and own.root not in self.same | self.copies:
            if given.root in self.same.values() or "." not in given.root:
                return False
            self.same[own.root] = given.root
            self._compare_memory(call, given.root.partition(".")[2], self.buffers[own.root])
        return 0 in own.sizes or self._origin(given) == self._origin(own)

    def _compare_memory(self, call: OpCall, name: str, buffer: Mapping[str, Any]) -> None:
        """What an op allocates has room for what the function allocates, and the same values."""
        own = _recorded({**buffer, "tensor": buffer["name"]})
        span = 1 + sum((n - 1) * s for n, s in zip(own.sizes, own.strides, strict=True))
        span = 0 if 0 in own.sizes else span
        sizes = call.sizes(name) if name in call.op.section["shapes"] else own.sizes
        if math.prod(sizes) != span and not buffer.get("produced"):
            message = f"allocates {math.prod(sizes)} elements, not {span}"
            raise _DifferenceError(f"{message}, for {list(own.sizes)}", buffer["line"])
        dtype = call.dtype(call.op.section["dtypes"][name])
        if dtype != own.dtype:
            raise _DifferenceError(f"allocates `{dtype}`, not `{own.dtype}`", buffer["line"])
        fill, wanted = call.op.section.get("fill", {}).get(name), buffer.get("fill")
        if (fill is None) != (wanted is None) or (
            wanted is not None and not _is_number(call.value(fill), next(iter(wanted.values())))
        ):
            raise _DifferenceError(f"fills with {fill}, not {wanted}", buffer["line"])

    # steps

    def _launch(self, call: OpCall, step: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        if step["function"] != own["launch"]:
            message = f"launches `{step['function']}` in place of `{own['launch']}`"
            raise _DifferenceError(message)
        call.names.update(own["candidate"])
        rows = step.get("configs", [])
        row = {} if rows == "autotune" else _first(call, rows)
        known = {**step["args"], **step.get("constants", {}), **row}
        for name, value in (*own["arguments"].items(), *own["constants"].items()):
            if name not in known or not self._is_equal(call, known[name], value, step):
                raise _DifferenceError(self._unequal(call, name, known.get(name), value))
        options = {name: v for name, v in own["options"].items() if v is not None}
        for name, value in options.items():
            if {name: next(iter(value.values()))} in _SAME_OPTIONS or rows == "autotune":
                continue
            if name not in row or not self._is_equal(call, row[name], value, step):
                raise _DifferenceError(self._unequal(call, name, row.get(name), value))
        grid = [call.value(block) for block in step["grid"]]
        if grid != [int(block) for block in own["grid"]]:
            raise _DifferenceError(f"launches {grid} blocks, not {own['grid']}")

    def _call(self, call: OpCall, step: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        if step["aten"] != own["aten"]:
            raise _DifferenceError(f"calls `{step['aten']}` in place of `{own['aten']}`")
        for at, (given, value) in enumerate(zip(step["arguments"], own["arguments"], strict=True)):
            if not self._is_equal(call, given, value, step):
                name = f"argument {at} of `{own['aten']}`"
                raise _DifferenceError(self._unequal(call, name, given, value))
        for name, root in zip(step["results"], own["results"], strict=True):
            buffer = self.buffers[root]
            result = _recorded({**buffer, "tensor": root})
            made = call.tensor(name)
            if made is not None:
                self.same[root] = made.root
                self._compare_memory(call, name, buffer)
                call.tensors[name] = replace(made, sizes=result.sizes, strides=result.strides)

    def _is_equal(self, call: OpCall, given: Any, own: Any, step: Mapping[str, Any]) -> bool:
        """Whether a value of an op is that of the function."""
        if own is None:
            return given == "None" or (isinstance(given, str) and call.tensors.get(given, 0) is None)
        if "tensor" in own:
            return self._is_tensor(call, given, _recorded(own), step)
        if "list" in own:
            return len(given) == len(own["list"]) and all(
                self._is_equal(call, a, b, step) for a, b in zip(given, own["list"], strict=True)
            )
        ((kind, text),) = own.items()
        if kind == "device":
            return True
        if kind == "dtype":
            return call.dtype(given["dtype"]) == text
        if kind in ("string", "layout", "memory_format"):
            known = given["string"] if isinstance(given, Mapping) else given
            return str(known) == str(text).removeprefix("torch.")
        value = call.constant(given)
        return value == (text == "True") if kind == "bool" else _is_number(value, text)

    def _is_tensor(
        self, call: OpCall, given: Any, own: TensorLayout, step: Mapping[str, Any]
    ) -> bool:
        name = given["tensor"] if isinstance(given, Mapping) else given
        tensor = call.tensor(name) if isinstance(name, str) else None
        if tensor is None or tensor.dtype != own.dtype:
            return False
        is_launch = "function" in step
        if is_launch and not isinstance(given, Mapping):
            return self._is_same_memory(call, tensor, own)
        if tensor.sizes != own.sizes:
            own = _expanded(own, tensor.sizes)
        copied = self.copies.get(tensor.root)
        if copied is not None and not is_launch and self._is_layout(call, copied, own):
            return True  # a copy has the same elements
        return self._is_layout(call, tensor, own)

    def _is_layout(self, call: OpCall, given: TensorLayout, own: TensorLayout) -> bool:
        return given.plain().strides == own.plain().strides and self._is_same_memory(
            call, given, own
        )

    def _unequal(self, call: OpCall, name: str, given: Any, own: Any) -> str:
        text = given
        if isinstance(given, str) and own is not None and "tensor" in own:
            text = _tensor_text(call.tensor(given)) if given != "None" else "None"
        wanted = _tensor_text(_recorded(own)) if own is not None and "tensor" in own else own
        if isinstance(wanted, Mapping):
            wanted = next(iter(wanted.values()))
            try:
                text = call.constant(given)
            except (TypeError, NameError, KeyError):
                text = given
        return f"passes {text} as `{name}`, not {wanted}"

    # results

    def results(
        self, call: OpCall, pairs: Sequence[tuple[str, str]], names: Sequence[str], values: Any
    ) -> None:
        """Compare the results of an op with those of the function."""
        for (kind, name), label, own in zip(pairs, names, values, strict=False):
            given = None if kind == "none" else call.tensor(name)
            if given is None or own is None:
                if given is not None or own is not None:
                    wanted = "None" if own is None else _tensor_text(_recorded(own))
                    text = f"returns {_tensor_text(given)} as `{label}`, not {wanted}"
                    raise _DifferenceError(text)
                continue
            wanted = _recorded(own)
            is_copy = given.root in self.copies and kind == "result"
            source = self.copies[given.root] if is_copy else given
            same = given.sizes == wanted.sizes and given.dtype == wanted.dtype
            if not same or not (
                self._is_layout(call, source, wanted) or self._is_layout(call, given, wanted)
            ):
                text = f"returns {_tensor_text(given)} as `{label}`, not {_tensor_text(wanted)}"
                raise _DifferenceError(text)


def _expanded(tensor: TensorLayout, sizes: Sequence[int]) -> TensorLayout:
    """As an operator takes a tensor with sizes of 1 beside others."""
    if len(tensor.sizes) != len(sizes):
        return tensor
    pairs = zip(tensor.sizes, tensor.strides, sizes, strict=True)
    strides = tuple(0 if size == 1 != wanted else stride for size, stride, wanted in pairs)
    return replace(tensor, sizes=tuple(sizes), strides=strides)


def _first(call: OpCall, rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The candidate of a call."""
    return next((row for row in rows if call.holds(row.get("when", "True"))), {})


def _is_number(value: Any, text: str) -> bool:
    return bool(value == float(text)) or str(value) == text


def _tensor_text(tensor: TensorLayout | None) -> str:
    if tensor is None:
        return "None"
    strides = "" if tensor.is_contiguous else f" with strides {list(tensor.strides)}"
    offset = f" at {tensor.offset}" if tensor.offset else ""
    name = tensor.root.rpartition(".")[2]
    return f"`{name}`{offset} of {list(tensor.sizes)}{strides} ({tensor.dtype})"


@dataclass
class Verification:
    """The calls of one function."""

    wrapper: CapturedWrapper
    described: Mapping[str, Mapping[str, Any]]
    parameters: Sequence[str]
    batch: int = 2

    def refusals(self, samples: Sequence[Mapping[str, Any]]) -> list[str]:
        """Sentences about calls that the ops refuse and the function takes.

        Raises:
            CaptureError: an op does something else than the function.
        """
        refused: dict[str, list[str]] = {}
        taken = 0
        for sample in samples:
            call, trace = self._call(sample), sample["trace"]
            reason = call.unmet()
            taken += not trace["raises"]
            try:
                if trace["raises"] and not reason:
                    message = f"does not raise {trace['raises']}"
                    raise _DifferenceError(message, trace["place"])
                reason = reason or self._compare(call, trace)
                if reason and not trace["raises"]:
                    refused.setdefault(reason, []).append(_call_text(call, self.wrapper))
            except _DifferenceError as difference:
                text = _call_text(call, self.wrapper)
                message = f"does something else than its op, which {difference}, for {text}"
                raise CaptureError(message, difference.line) from None
        return [
            f"refuses {len(calls)} of {taken} random calls that the function takes: {reason}, "
            f"for example {calls[0]}"
            for reason, calls in refused.items()
        ]

    def _call(self, sample: Mapping[str, Any]) -> OpCall:
        """The forward op in a call."""
        configuration, numbers = sample["configuration"], dict(sample["trace"]["hints"])
        tensors: dict[str, TensorLayout | None] = {}
        for name in self.parameters:
            described = self.described.get(name, {})
            if f"value:{name}" in configuration:
                numbers[name] = configuration[f"value:{name}"]
            if "shape" not in described:
                continue
            if not configuration.get(f"has:{name}", True):
                tensors[name] = None
                continue
            tensors[name] = self._tensor(name, numbers, configuration[f"dtype:{name}"])
        return OpCall(self.wrapper.forward, tensors, numbers)

    def _tensor(self, name: str, numbers: Mapping[str, Any], dtype: str) -> TensorLayout:
        sizes: list[int] = []
        for size in self.described[name]["shape"]:
            names = BATCH[: self.batch] if size == "..." else (size,)
            sizes += [int(numbers.get(str(n), n if str(n).isdigit() else 0)) for n in names]
        dense = _dense(sizes)
        strides = tuple(numbers.get(f"stride({name}, {axis})", s) for axis, s in enumerate(dense))
        return TensorLayout(name, 0, tuple(sizes), strides, dtype)

    def _compare(self, call: OpCall, trace: Mapping[str, Any]) -> str:
        """Why the backward op refuses the call; empty if it does not."""
        comparison, outs = Comparison(trace), self.wrapper.outputs
        backward = self.wrapper.backward
        end = trace["boundary"].get("steps", len(trace["steps"]))
        copies = sum(s.get("aten") == "contiguous" for s in trace["steps"][:end])
        comparison.follow(call, end - copies)
        comparison.results(call, call.op.outputs[: len(outs)], outs, trace["outputs"])
        if backward is None or not trace["boundary"]:
            return ""
        numbers = dict(call.numbers)
        for question, answer in trace["decisions"].items():
            at = int(question.partition("[")[2].rstrip("]"))
            numbers[f"needs_{self.parameters[at]}"] = answer
        tensors: dict[str, TensorLayout | None] = {}
        for name in backward.arguments:
            place = name.removeprefix("grad_")
            if name in call.tensors and name in self.wrapper.tensors:
                tensors[name] = call.tensors[name]
            elif place != name and place.isdigit():
                value = trace["outputs"][int(place)]
                layout = _recorded(value)
                strides = tuple(
                    call.numbers[f"stride({name}, {at})"] for at in range(len(layout.sizes))
                )
                tensors[name] = TensorLayout(name, 0, layout.sizes, strides, layout.dtype)
            elif name in call.op.results:
                tensors[name] = call.tensor(name)
        back = OpCall(backward, tensors, numbers)
        if reason := back.unmet():
            return reason
        comparison.follow(back, len(comparison.steps))
        names = [f"the gradient of {name}" for name in self.parameters]
        comparison.results(back, backward.outputs, names, trace["gradients"])
        return ""


def _call_text(call: OpCall, wrapper: CapturedWrapper) -> str:
    """A call, for people."""
    parts = []
    for name in wrapper.forward.arguments:
        tensor = call.tensors.get(name, 0)
        if isinstance(tensor, TensorLayout):
            parts.append(_tensor_text(tensor))
        else:
            parts.append(f"{name} = {tensor if tensor is None else call.numbers.get(name)}")
    return ", ".join(parts)
