"""Answers what an author's code asks of a tensor's gradient while a wrapper runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.worker.recorder import Recorder

_REMEDY = "decide on the arguments, or in an `autograd.Function` on `ctx.needs_input_grad`"
_REFUSED = ("grad", "grad_fn", "_base", "_backward_hooks", "_version", "retains_grad", "output_nr")


def tensor_attributes(recorder: Recorder) -> Iterator[tuple[Any, str, Any]]:
    """Attributes of `torch.Tensor` that are questions when an author's code asks."""

    def answered(name: str, answer: Callable[[torch.Tensor], Any]) -> tuple[Any, str, Any]:
        original = getattr(torch.Tensor, name)

        def asked(tensor: torch.Tensor) -> Any:
            frame = sys._getframe(1)  # noqa: SLF001 - the documented way to a caller
            if recorder.is_author(frame.f_code.co_filename):
                return answer(tensor)
            return original.__get__(tensor)

        return torch.Tensor, name, property(asked, original.__set__)

    def refused(name: str) -> Callable[[torch.Tensor], Any]:
        def refuse(_: torch.Tensor) -> Any:
            raise CaptureError(f"asks for `{name}` of a tensor: {_REMEDY}", recorder.line())

        return refuse

    yield answered("requires_grad", lambda tensor: _requires_grad(recorder, tensor))
    yield answered("is_leaf", lambda tensor: _is_leaf(recorder, tensor))
    for name in _REFUSED:
        yield answered(name, refused(name))
    is_inference = torch.Tensor.is_inference

    def asked_inference(tensor: torch.Tensor) -> Any:
        frame = sys._getframe(1)  # noqa: SLF001 - the documented way to a caller
        if not recorder.is_author(frame.f_code.co_filename):
            return is_inference(tensor)
        return recorder.settings.answer("is_inference_{}", _argument(recorder, tensor, "inference"))

    yield torch.Tensor, "is_inference", asked_inference


def _argument(recorder: Recorder, tensor: torch.Tensor, word: str) -> str:
    name = recorder.argument_of(tensor)
    if not name:
        message = f"asks about {word} of a tensor that is not an argument: {_REMEDY}"
        raise CaptureError(message, recorder.line())
    return name


def _requires_grad(recorder: Recorder, tensor: torch.Tensor) -> bool:
    settings = recorder.settings
    if not (tensor.is_floating_point() or tensor.is_complex()) or recorder.is_allocated(tensor):
        return False
    name = recorder.argument_of(tensor)
    if name:
        return bool(settings.answer("requires_grad_{}", name))
    # A view, or a result of an operator.
    if not settings.answer("grad_enabled"):
        return False
    base = tensor._base  # noqa: SLF001 - the public name of what a view is of
    name = _argument(recorder, tensor if base is None else base, "gradients")
    return bool(settings.answer("requires_grad_{}", name))


def _is_leaf(recorder: Recorder, tensor: torch.Tensor) -> bool:
    if recorder.argument_of(tensor):
        return bool(recorder.settings.answer("is_leaf_{}", recorder.argument_of(tensor)))
    return not _requires_grad(recorder, tensor)
