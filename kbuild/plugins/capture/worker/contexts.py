"""The `ctx` argument of an `autograd.Function` in a run."""

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
    """`needs_input_grad`: what is asked for becomes a decision of the path."""

    def __init__(self, decide: Callable[[str], bool], count: int, able: Sequence[bool]) -> None:
        self._decide, self._count, self._able = decide, count, able

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(self._count)))
        index = index + self._count if index < 0 else index
        return self._able[index] and self._decide(f"needs_input_grad[{index}]")
