"""Gradients of a function that Torch differentiates, computed in a run; and its `ctx` argument.

Torch's engine needs a GPU for tensors of one. The graph that it would walk is walked here, so that
the steps of the backward pass are recorded like others.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch


class Context:
    """The `ctx` argument of `forward` and `backward` of an `autograd.Function`."""

    def __init__(self, needs: Sequence[Any]) -> None:
        self.needs_input_grad = needs
        self.saved_tensors: tuple[Any, ...] = ()
        self.non_differentiable: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for the backward pass."""
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Mark results as having no gradient."""
        self.non_differentiable = tensors

    def _ignore(self, *_: Any) -> None:
        """Ignore what no op has, or what the run records anyway."""

    save_for_forward = mark_dirty = set_materialize_grads = _ignore


class Needs(Sequence[Any]):
    """`ctx.needs_input_grad`. A function that reads an element is traced once for each answer."""

    def __init__(self, decide: Callable[[str], bool], is_floating: Sequence[bool]) -> None:
        """`decide` gives this trace's answer, which is False for inputs that are not floating."""
        self._decide, self._is_floating = decide, is_floating

    def __len__(self) -> int:
        return len(self._is_floating)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        index = index + len(self) if index < 0 else index
        return self._is_floating[index] and self._decide(f"needs_input_grad[{index}]")


_DEVICES = torch._C._autograd.DeviceType  # noqa: SLF001 - there is no public name
_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
"""The array of Torch's device guards, by the number of the kind of device."""


class SameValues(torch.autograd.Function):  # type: ignore[misc]
    """A tensor with the values of another one: its gradient is that of the other."""

    @staticmethod
    def forward(_: Any, __: torch.Tensor, result: Sequence[torch.Tensor]) -> torch.Tensor:
        """The result, which is in a list because it is no input."""
        return result[0]

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The same gradient."""
        return gradient, None


@cache
def provide_device_guard() -> None:
    """Let tensors of a GPU be in a graph, or be indexed, where Torch was built without CUDA.

    Torch ends the process when a graph asks for the guard of CUDA's devices and there is none. The
    guard of `meta` tensors does nothing, and these tensors have no data.
    """
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    count = max(int(_DEVICES.CUDA), int(_DEVICES.Meta)) + 1
    guards = (ctypes.c_void_p * count).in_dll(ctypes.CDLL(str(library)), _GUARDS)
    if not guards[int(_DEVICES.CUDA)]:
        guards[int(_DEVICES.CUDA)] = guards[int(_DEVICES.Meta)]


def differentiable(tensor: torch.Tensor) -> torch.Tensor:
    """Create the leaf of an argument, from which Torch builds a graph.

    The author's function gets no leaf, because it may write to the argument.
    """
    provide_device_guard()
    leaf = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    ).requires_grad_()
    # The call is for its effect: Torch makes `tensor` itself a result of the leaf.
    SameValues.apply(leaf, [tensor])
    return leaf


def is_argument(tensor: torch.Tensor) -> bool:
    """True if the tensor is an argument or a view of one, so that they share the gradient."""
    node = tensor.grad_fn
    while node is not None and not _is_python(node) and len(node.next_functions) == 1:
        node = node.next_functions[0][0]
    return isinstance(node, SameValues._backward_cls)  # noqa: SLF001 - as Torch names the node


def defines_functions() -> bool:
    """True if a module other than Torch's defines an `autograd.Function`."""
    known = list(torch.autograd.Function.__subclasses__())
    # The list grows while it is walked, so that it gets subclasses of subclasses, too.
    for kind in known:
        known += kind.__subclasses__()
    names = {kind.__module__ for kind in known} - {__name__}
    return any(name.partition(".")[0] not in ("torch", "triton") for name in names)


def noted_materialize_grads(context: Any, value: bool) -> None:
    """Replace `ctx.set_materialize_grads`, whose value cannot be read, and remember the value."""
    context.keeps_absent_gradients = not value


def gradients(
    outputs: Sequence[tuple[torch.Tensor, torch.Tensor]],
    leaves: Mapping[str, torch.Tensor],
    text: Callable[[Any], str],
) -> dict[str, torch.Tensor]:
    """The gradients of arguments.

    `outputs` are results, each with its gradient; `text` writes a size.
    """
    pending: dict[Any, dict[int, torch.Tensor]] = {}

    def add(node: Any, position: int, gradient: torch.Tensor) -> None:
        metadata, known = _metadata(node)[position], pending.setdefault(node, {})
        if [*map(text, gradient.shape)] != [*map(text, metadata.shape)]:
            # As Torch's engine does for inputs that were broadcast, and below for those that were
            # cast.
            gradient = gradient.sum_to_size(metadata.shape)
        if gradient.dtype != metadata.dtype:
            gradient = gradient.to(metadata.dtype)
        known[position] = known[position] + gradient if position in known else gradient

    for output, gradient in outputs:
        add(output.grad_fn, output.output_nr, gradient)
    by_leaf: dict[int, torch.Tensor] = {}
    for node in _in_order([output.grad_fn for output, _ in outputs]):
        given = pending.pop(node, None)
        if given is None:
            continue
        # Only the node of a leaf has a variable; the graph ends there.
        if hasattr(node, "variable"):
            by_leaf[id(node.variable)] = given[0]
            continue
        for (following, position), gradient in _passed_on(node, given):
            add(following, position, gradient)
    return {name: by_leaf[id(leaf)] for name, leaf in leaves.items() if id(leaf) in by_leaf}


def _passed_on(
    node: Any, given: Mapping[int, torch.Tensor]
) -> Iterator[tuple[tuple[Any, int], torch.Tensor]]:
    """Edges from a node of the graph to the next nodes, each with the gradient passed along it."""
    values = [given.get(at) for at in range(len(_metadata(node)))]
    if not _is_python(node):
        results = node(*values)
        results = results if isinstance(results, tuple) else (results,)
        pairs = zip(node.next_functions, results, strict=True)
    else:
        # Torch fills absent gradients with zeros before it calls `backward`, unless `ctx` says not
        # to.
        if not getattr(node, "keeps_absent_gradients", False):
            values = [
                torch.zeros(tuple(m.shape), dtype=m.dtype, device="cuda")
                if value is None
                else value
                for value, m in zip(values, _metadata(node), strict=True)
            ]
        results = node.apply(*values)
        results = results if isinstance(results, tuple) else (results,)
        # A backward pass returns a gradient for each input; there are edges for tensors alone.
        # Not strict: Torch allows further results, if they are None.
        needed = [r for r, is_needed in zip(results, node.needs_input_grad) if is_needed]  # noqa: B905
        edges = [edge for edge in node.next_functions if edge[0] is not None]
        pairs = zip(edges, needed, strict=True)
    yield from ((edge, g) for edge, g in pairs if edge[0] is not None and g is not None)


def _metadata(node: Any) -> Sequence[Any]:
    """Shapes and dtypes of the gradients that a node takes."""
    metadata: Sequence[Any] = node._input_metadata  # noqa: SLF001 - there is no public name
    return metadata


def _is_python(node: Any) -> bool:
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def _in_order(roots: Sequence[Any]) -> list[Any]:
    """The nodes of a graph, each before those that it passes gradients on to."""
    order: list[Any] = []
    seen: set[Any] = set()
    stack = [(root, False) for root in roots]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(n, False) for n, _ in node.next_functions if n is not None]
    return order[::-1]
