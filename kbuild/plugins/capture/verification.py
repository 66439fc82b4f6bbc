"""Compares what ops do in random calls with what the author's function does in the same calls.

The worker has run the function with the numbers of each call, see `worker.samples`. The ops are
followed step by step beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kbuild.plugins.capture.op_calls import (
    DifferenceError,
    OpCall,
    TensorLayout,
    dense_strides,
    expanded_layout,
    is_same_number,
    recorded,
    tensor_text,
)
from kbuild.plugins.capture.programs import CaptureError, written_roots
from kbuild.plugins.capture.questions import answers_of
from kbuild.plugins.capture.values import BATCH
from kbuild.plugins.capture.wrappers import CapturedOp, CapturedWrapper

_COPIES = ("contiguous", "clone", "_to_copy")
_CONTIGUOUS = {"string": "contiguous_format"}


@dataclass
class Comparison:
    """One call, as the author's function and as the ops."""

    trace: Mapping[str, Any]
    same: dict[str, str] = field(default_factory=dict)
    """Memory of the function -> memory of the op."""
    copies: dict[str, TensorLayout] = field(default_factory=dict)
    """Memory that is a contiguous copy -> the tensor that it is a copy of."""
    position: int = 0

    def __post_init__(self) -> None:
        self.buffers = {buffer["name"]: buffer for buffer in self.trace["buffers"]}
        self.steps = []
        for step in self.trace["steps"]:
            # Some calls of it copy nothing, so the op need not take the step at this place.
            if step.get("aten") == "contiguous":
                self.copies[step["results"][0]] = recorded(step["arguments"][0])
            else:
                self.steps.append(step)

    def follow(self, call: OpCall, end: int) -> None:
        """Compare the steps of an op with the function's up to a place.

        Raises:
            DifferenceError: the op does something else.
        """
        for step in call.taken(call.op.section["launch"]):
            own = self._next(end, _name(step))
            try:
                if self._copied(call, step, own):
                    continue
                self._step(call, step, own)
            except DifferenceError as difference:
                difference.line = difference.line or (own["line"] if own else "")
                raise
            self.position += 1
        if own := self._next(end, ""):
            raise DifferenceError(f"does not call `{_name(own)}`", own["line"])

    def _next(self, end: int, name: str) -> Mapping[str, Any] | None:
        """The function's next step; copies that only the function makes are remembered and skipped.

        Torch's derivative of `reshape` makes one with some strides.
        """
        while self.position < end:
            own: Mapping[str, Any] = self.steps[self.position]
            if own.get("aten") != "copy_" or name == "copy_":
                return own
            copy, source = map(recorded, own["arguments"][:2])
            later = {root for s in self.steps[self.position + 1 :] for root in written_roots(s)}
            earlier = {root for s in self.steps[: self.position] for root in written_roots(s)}
            is_only_copy = copy.root not in earlier and not {copy.root, source.root} & later
            is_whole = copy.offset == 0 and copy.sizes == source.sizes and copy.is_contiguous
            buffer = self.buffers.get(copy.root)
            if not is_whole or not is_only_copy or buffer is None or copy.dtype != source.dtype:
                return own
            if math.prod(copy.sizes) != math.prod(map(int, buffer["sizes"])):
                return own
            self.copies[copy.root] = source
            self.position += 1
        return None

    def _copied(self, call: OpCall, step: Mapping[str, Any], own: Mapping[str, Any] | None) -> bool:
        """True if a step is a copy that only the op makes: `contiguous`, or `x.to(x.dtype)`."""
        name = step.get("aten")
        if name not in _COPIES:
            return False
        source, copy = call.tensor(step["arguments"][0]), call.tensor(step["results"][0])
        if source is None or copy is None:
            return False
        if name == "_to_copy":
            is_own = source.dtype == copy.dtype and (own is None or own.get("aten") != name)
        else:
            is_own = name == "contiguous" or step["arguments"][1] == _CONTIGUOUS
            is_own = is_own and not (own and own.get("aten") == "clone" and own["arguments"][1])
        if is_own:
            self.copies[copy.root] = source
        return is_own

    def _step(self, call: OpCall, step: Mapping[str, Any], own: Mapping[str, Any] | None) -> None:
        name = _name(step)
        if own is None or name != _name(own):
            instead = f" in place of `{_name(own)}`" if own else ", which the function does not"
            raise DifferenceError(f"calls `{name}`{instead}")
        (self._call if "aten" in step else self._launch)(call, step, own)

    def _origin(self, tensor: TensorLayout) -> tuple[Any, ...]:
        """Memory and offset of a tensor; a copy of a contiguous tensor counts as the tensor."""
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
            # Memory that the op allocates has a dot in its name, and stands for one buffer only.
            if given.root in self.same.values() or "." not in given.root:
                return 0 in own.sizes  # an empty tensor may be any
            self.same[own.root] = given.root
            self._compare_memory(call, given.root.partition(".")[2], self.buffers[own.root])
        return 0 in own.sizes or self._origin(given) == self._origin(own)

    def _compare_memory(self, call: OpCall, name: str, buffer: Mapping[str, Any]) -> None:
        """Check that the op's buffer has the room, the dtype and the fill of the function's."""
        own = recorded({**buffer, "tensor": buffer["name"]})
        # The op allocates densely and views that with strides: it needs the room that they span.
        span = 1 + sum((n - 1) * s for n, s in zip(own.sizes, own.strides, strict=True))
        span = 0 if 0 in own.sizes else span
        sizes = call.sizes(name) if name in call.op.section["shapes"] else own.sizes
        if math.prod(sizes) != span and not buffer.get("produced"):
            message = f"allocates {math.prod(sizes)} elements, not {span}"
            raise DifferenceError(f"{message}, for {list(own.sizes)}", buffer["line"])
        dtype = call.dtype(call.op.section["dtypes"][name])
        if dtype != own.dtype:
            raise DifferenceError(f"allocates `{dtype}`, not `{own.dtype}`", buffer["line"])
        fill, wanted = call.op.section.get("fill", {}).get(name), buffer.get("fill")
        # Where only the op fills, a kernel writes all of it.
        if wanted is not None and (
            fill is None or not is_same_number(call.value(fill), next(iter(wanted.values())))
        ):
            raise DifferenceError(f"fills with {fill}, not {wanted}", buffer["line"])

    def _launch(self, call: OpCall, step: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        # The grid may depend on constants of the candidate that was launched.
        call.names.update(own["candidate"])
        rows = step.get("configs", [])
        row = {} if rows == "autotune" else next(call.taken(rows), {})
        known = {**step["args"], **step.get("constants", {}), **row}
        for name, value in (*own["arguments"].items(), *own["constants"].items()):
            if name not in known or not self._is_equal(call, known[name], value, own):
                raise DifferenceError(self._unequal(call, name, known.get(name), value))
        options = {name: v for name, v in own["options"].items() if v is not None}
        for name, value in options.items():
            if rows == "autotune":
                continue
            if name not in row or not self._is_equal(call, row[name], value, own):
                raise DifferenceError(self._unequal(call, name, row.get(name), value))
        grid = [call.value(block) for block in step["grid"]]
        if grid != [int(block) for block in own["grid"]]:
            raise DifferenceError(f"launches {grid} blocks, not {own['grid']}")

    def _call(self, call: OpCall, step: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        for at, (given, value) in enumerate(zip(step["arguments"], own["arguments"], strict=True)):
            if not self._is_equal(call, given, value, own):
                name = f"argument {at} of `{own['aten']}`"
                raise DifferenceError(self._unequal(call, name, given, value))
        for name, root in zip(step["results"], own["results"], strict=True):
            buffer = self.buffers[root]
            result = recorded({**buffer, "tensor": root})
            tensor = call.tensor(name)
            if tensor is not None:
                self.same[root] = tensor.root
                self._compare_memory(call, name, buffer)
                # ATen decides the layout of its results, where `OpCall.tensor` assumes a dense one.
                call.tensors[name] = replace(tensor, sizes=result.sizes, strides=result.strides)

    def _is_equal(self, call: OpCall, given: Any, own: Any, step: Mapping[str, Any]) -> bool:
        """True if a value of an op equals that of the function; `step` is the function's."""
        if own is None:
            return given == "None" or (given in call.tensors and call.tensors[given] is None)
        if "tensor" in own:
            return self._is_tensor(call, given, recorded(own), step)
        if "list" in own:
            pairs = zip(given, own["list"], strict=False)
            return len(given) == len(own["list"]) and all(
                self._is_equal(call, one, other, step) for one, other in pairs
            )
        ((kind, text),) = own.items()
        if kind in ("device", "dtype"):
            return bool(kind == "device" or call.dtype(given["dtype"]) == text)
        if kind in ("string", "layout", "memory_format"):
            known = given["string"] if isinstance(given, Mapping) else given
            return str(known) == str(text).removeprefix("torch.")
        value = call.constant(given)
        return bool(value == (text == "True")) if kind == "bool" else is_same_number(value, text)

    def _is_tensor(
        self, call: OpCall, given: Any, own: TensorLayout, step: Mapping[str, Any]
    ) -> bool:
        name = given["tensor"] if isinstance(given, Mapping) else given
        tensor = call.tensor(name) if isinstance(name, str) else None
        if tensor is None or tensor.dtype != own.dtype:
            return False
        is_launch = "launch" in step
        if is_launch and not step.get("arrays") and not isinstance(given, Mapping):
            return self._is_same_memory(call, tensor, own)
        if tensor.sizes != own.sizes:
            own = expanded_layout(own, tensor.sizes)
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
            text = tensor_text(call.tensor(given)) if given != "None" else "None"
        wanted = tensor_text(recorded(own)) if own is not None and "tensor" in own else own
        if isinstance(wanted, Mapping):
            wanted = next(iter(wanted.values()))
            try:
                text = call.constant(given)
            except (TypeError, NameError, KeyError):
                text = given
        return f"passes {text} as `{name}`, not {wanted}"

    def results(
        self, call: OpCall, places: Sequence[Sequence[str]], names: Sequence[str], values: Any
    ) -> None:
        """Compare the results of an op with those of the function.

        Raises:
            DifferenceError: one is another.
        """
        for (kind, *named), label, value in zip(places, names, values, strict=False):
            own = None if value is None else recorded(value)
            # Python returns the one or the other, as the call decides.
            given = [] if kind == "none" else [call.tensor(name) for name in named[:2]]
            if own is None and (not given or None in given):
                continue
            if own is None or not any(g and self._is_result(call, g, own) for g in given):
                shown = tensor_text(given[0] if given else None)
                raise DifferenceError(f"returns {shown} as `{label}`, not {tensor_text(own)}")

    def _is_result(self, call: OpCall, given: TensorLayout, own: TensorLayout) -> bool:
        """True if a result of the op is that of the function, or a copy of it."""
        source = self.copies.get(given.root, given)
        same = given.sizes == own.sizes and given.dtype == own.dtype
        return same and (self._is_layout(call, source, own) or self._is_layout(call, given, own))


def _name(step: Mapping[str, Any]) -> str:
    """The operator or the kernel of a step of an op, or of the function."""
    return str(step.get("aten") or step.get("function") or step["launch"])


@dataclass
class RandomCalls:
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
        taken = sum(not sample["trace"]["raises"] for sample in samples)
        for sample in samples:
            call = self._call(sample)
            text = self._text(call)
            try:
                reason = self._refusal(call, sample["trace"])
            except DifferenceError as difference:
                message = f"does something else than its op, which {difference}, for {text}"
                raise CaptureError(message, difference.line) from None
            if reason and not sample["trace"]["raises"]:
                refused.setdefault(reason, []).append(text)
        return [
            f"refuses {len(calls)} of {taken} random calls that the function takes: {reason}, "
            f"for example {calls[0]}"
            for reason, calls in refused.items()
        ]

    def _call(self, sample: Mapping[str, Any]) -> OpCall:
        """The forward op in a call."""
        configuration, numbers = sample["configuration"], dict(sample["trace"]["hints"])
        numbers |= answers_of(sample["trace"]["decisions"])
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
        dense = dense_strides(sizes)
        strides = tuple(numbers.get(f"stride({name}, {axis})", s) for axis, s in enumerate(dense))
        return TensorLayout(name, 0, tuple(sizes), strides, dtype)

    def _refusal(self, call: OpCall, trace: Mapping[str, Any]) -> str:
        """Reason why an op refuses the call; empty if all ops do what the function does."""
        if reason := call.unmet():
            return reason
        backward = self.wrapper.backward
        if trace["raises"]:
            # The function may raise it in its backward pass: the backward op has to refuse it.
            if backward is not None and trace["boundary"]:
                reason = self._backward(call, backward, trace).unmet()
            if reason:
                return reason
            raise DifferenceError(f"does not raise {trace['raises']}", trace["place"])
        comparison, outs = Comparison(trace), self.wrapper.outputs
        end = trace["boundary"].get("steps", len(trace["steps"]))
        # The boundary counts these steps, which `Comparison` leaves out.
        copies = sum(s.get("aten") == "contiguous" for s in trace["steps"][:end])
        comparison.follow(call, end - copies)
        comparison.results(call, call.op.outputs[: len(outs)], outs, trace["outputs"])
        if backward is None or not trace["boundary"]:
            return ""
        back = self._backward(call, backward, trace)
        if reason := back.unmet():
            return f"in the backward pass, {reason}"
        comparison.follow(back, len(comparison.steps))
        names = [f"the gradient of {name}" for name in self.parameters]
        comparison.results(back, backward.outputs, names, trace["gradients"])
        return ""

    def _backward(self, call: OpCall, op: CapturedOp, trace: Mapping[str, Any]) -> OpCall:
        """The backward op in the same call."""
        numbers = dict(call.numbers)
        for question, answer in trace["decisions"].items():
            if question.startswith("needs_input_grad"):
                at = int(question.partition("[")[2].rstrip("]"))
                numbers[f"needs_{self.parameters[at]}"] = answer
        tensors: dict[str, TensorLayout | None] = {}
        for name in op.arguments:
            place = name.removeprefix("grad_")
            if name in self.wrapper.tensors or name in call.op.results:
                tensors[name] = call.tensor(name)
            elif place != name and place.isdigit():
                value = trace["outputs"][int(place)]
                tensors[name] = None if value is None else self._gradient(name, value, call)
        return OpCall(op, tensors, numbers)

    def _gradient(self, name: str, value: Mapping[str, Any], call: OpCall) -> TensorLayout:
        """The gradient of a result; a dense one if the result has no gradient in this call."""
        result = recorded(value)
        dense = enumerate(dense_strides(result.sizes))
        strides = tuple(call.numbers.get(f"stride({name}, {axis})", s) for axis, s in dense)
        return replace(result, root=name, offset=0, strides=strides)

    def _text(self, call: OpCall) -> str:
        """Text of a call, for messages."""
        parts = []
        for name in self.wrapper.forward.arguments:
            tensor = call.tensors.get(name)
            number = call.numbers.get(name)
            parts.append(tensor_text(tensor) if tensor else f"{name} = {number}")
        return ", ".join(parts)
