"""The `ctx` argument of an `autograd.Function` while it is traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Context:
    """The `ctx` argument of `forward` and `backward` of an `autograd.Function`."""

    def __init__(self, needs: Sequence[Any]) -> None:
        self.needs_input_grad = needs
        self.saved_tensors: tuple[Any, ...] = ()
        self.materialize_grads = True
        self.non_differentiable: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for the backward pass."""
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Ignore tensors for forward-mode differentiation, which ops do not have."""

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Mark results as having no gradient."""
        self.non_differentiable = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Mark arguments that the forward pass writes to."""
        self.dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether absent gradients become zeros."""
        self.materialize_grads = value


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
