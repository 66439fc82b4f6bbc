"""Answers what an author asks of the process: each answer is a path, and an argument of the op."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch.amp import autocast_mode
from torch.amp.autocast_mode import autocast
from torch.autograd import function, grad_mode

from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.questions import ARGUMENTS, CONSTANTS, argument_name
from kbuild.plugins.capture.worker.runs import NotFollowedError

_KBUILD = f"{Path(__file__).parents[3]}/"
_CALLERS, CALLERS_FILE = {"_run", "_run_class"}, str(Path(__file__).with_name("trace.py"))
"""The functions that call the author's, maybe through decorators of Torch, and their file."""
_AUTOCAST_OPERATORS = {
    "mm", "bmm", "addmm", "addbmm", "baddbmm", "addmv", "addr", "mv", "matmul", "linear",
    "chain_matmul", "prelu", "einsum", "convolution", "conv1d", "conv2d", "conv3d",
    "scaled_dot_product_attention", "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log",
    "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh", "tan", "pow", "softplus",
    "layer_norm", "native_layer_norm", "group_norm", "norm", "nuclear_norm",
    "cosine_similarity", "dist", "pdist", "cdist", "renorm", "prod", "softmax", "_softmax",
    "log_softmax", "_log_softmax", "cumprod", "cumsum", "sum", "nll_loss", "mse_loss",
    "l1_loss", "smooth_l1_loss", "kl_div", "addcdiv", "addcmul", "atan2", "bilinear", "cross",
    "dot", "grid_sample", "index_put", "scatter_add", "tensordot", "cat", "stack",
}  # fmt: skip
"""Operators that compute in another dtype while autocast is enabled."""
_GRADIENTS = str(function.__file__)
"""`once_differentiable` asks whether there is a second backward pass, which ops do not have."""
_AUTOCAST = str(autocast_mode.__file__)


class Settings:
    """Answers the author's questions about the process; the author's own contexts come first."""

    def __init__(self, is_author: Callable[[str], bool], decide: Callable[..., bool]) -> None:
        self._is_author, self._decide = is_author, decide
        self._decided: list[tuple[str, Any]] = []
        """Settings that the author's own contexts set, the innermost last."""
        self._is_paused = False
        self.is_backward = False
        self._names = {
            original: name
            for name, question in ARGUMENTS.items()
            for original in map(_named, question.functions)
            if original is not None
        }

    # answers

    def answer(self, name: str, parameter: str = "") -> Any:
        """The answer to a question of the table on this path.

        `parameter` is the tensor that it is about.
        """
        for known, value in reversed(self._decided):
            if known == name:
                return value
        if name == "grad_enabled" and _is_in_forward():
            return False
        question = ARGUMENTS[name]
        # Whether an argument has a gradient does not change until the backward pass.
        backward = self.is_backward and not parameter
        argument = argument_name(name.format(parameter), backward=backward)
        if not question.choices:
            return self._decide(argument, usual=name in ("grad_enabled", "requires_grad_{}"))
        for choice in question.choices:
            # No other value is left, so this is no decision.
            if question.is_closed and choice == question.choices[-1]:
                return choice
            if self._decide(f"{argument} == {choice!r}", usual=choice == question.choices[0]):
                return choice
        asked = question.expression
        raise NotFollowedError(f"`{asked}` is none of {', '.join(question.choices)}")

    def dtype(self, name: str) -> torch.dtype:
        """The answer of `answer` as a dtype."""
        answer = self.answer(name)
        return answer if isinstance(answer, torch.dtype) else getattr(torch, answer)

    def require_default_dtype(self) -> torch.dtype:
        """The dtype of tensors for which the author names none; another one ends the path."""
        usual = ARGUMENTS["default_dtype"].choices[0]
        argument = argument_name("default_dtype", backward=self.is_backward)
        if not self._decide(f"{argument} == {usual!r}", usual=True):
            raise NotFollowedError(f"the default dtype is not {usual}: name the tensor's `dtype`")
        dtype: torch.dtype = getattr(torch, usual)
        return dtype

    @contextmanager
    def decided(self, name: str, value: Any) -> Iterator[None]:
        """Fix the answer to a question in this context."""
        self._decided.append((name, value))
        try:
            yield
        finally:
            self._decided.remove((name, value))

    def require_no_autocast(self, operator: str) -> None:
        """End the path where autocast would have an operator compute in another dtype."""
        if operator in _AUTOCAST_OPERATORS and dict(self._decided).get("autocast_enabled"):
            raise NotFollowedError(f"calls `{operator}` under autocast, which is not followed")

    # who asks

    def is_asked(self, frame: FrameType | None) -> bool:
        """True if the author's code asks, directly or through functions of Torch."""
        if self._is_paused or (frame is not None and frame.f_code.co_filename == _GRADIENTS):
            return False
        while frame is not None:
            file = frame.f_code.co_filename
            if self._is_author(file) or is_caller(frame.f_code):
                return True
            # kbuild asks, for a purpose of its own.
            if file.startswith(_KBUILD):
                return False
            frame = frame.f_back
        return False

    # replacements

    def functions(self) -> Iterator[tuple[Any, Callable[..., Any]]]:
        """Functions of Torch, each with what stands in its place."""
        for original, name in self._names.items():
            yield original, partial(self._asked, original, name)
        for path, constant in CONSTANTS.items():
            original = _named(path)
            # Those of `torch.cuda` are replaced in that module, see `_device_answers`.
            if original is not None and not path.startswith("torch.cuda."):
                yield original, partial(self._constant, original, constant)

    def _asked(self, original: Callable[..., Any], name: str, *args: Any, **more: Any) -> Any:
        if not self.is_asked(sys._getframe(1)):  # noqa: SLF001 - the documented way to a caller
            return original(*args, **more)
        if name == "autocast_dtype" and sys._getframe(1).f_code.co_filename == _AUTOCAST:  # noqa: SLF001
            return None  # only kept for the backward pass, in which operators are refused
        device = next((str(value) for value in (*args, *more.values())), "cuda")
        if name.startswith("autocast") and not device.startswith("cuda"):
            raise CaptureError(f"asks for autocast on `{device}`")
        return self.dtype(name) if name.endswith("_dtype") else self.answer(name)

    def _constant(self, original: Callable[..., Any], answer: Any, *args: Any, **more: Any) -> Any:
        asked = self.is_asked(sys._getframe(1))  # noqa: SLF001 - the documented way to a caller
        return answer if asked else original(*args, **more)

    def methods(self) -> Iterator[tuple[Any, str, Any]]:
        """Classes of Torch, with methods that set what this answers."""
        for kind, value in ((grad_mode.no_grad, False), (grad_mode.enable_grad, True)):
            decided = ("grad_enabled", value)
            yield kind, "__enter__", partial_method(self._enter, kind.__enter__, decided)
            yield kind, "__exit__", partial_method(self._exit, kind.__exit__, decided)
        yield autocast, "__init__", _autocast_kept
        yield autocast, "__enter__", partial_method(self._enter_autocast)
        yield autocast, "__exit__", partial_method(self._exit_autocast)
        # All settings below `torch.backends` are instances of one descriptor class.
        properties = type(vars(type(torch.backends.cudnn))["allow_tf32"])
        yield properties, "__get__", partial_method(self._property, properties.__get__)

    def _enter(self, original: Any, decided: tuple[str, bool], context: Any) -> Any:
        # The frame between is that of `partial_method`.
        if self.is_asked(sys._getframe(2)):  # noqa: SLF001 - the documented way to a caller
            self._decided.append(decided)
        return self._quietly(original, context)

    def _exit(self, original: Any, decided: tuple[str, bool], context: Any, *error: Any) -> Any:
        if decided in self._decided and self.is_asked(sys._getframe(2)):  # noqa: SLF001
            self._decided.remove(decided)
        return self._quietly(original, context, *error)

    def _quietly(self, original: Callable[..., Any], *args: Any) -> Any:
        """Call a function of Torch whose questions are its own."""
        before, self._is_paused = self._is_paused, True
        try:
            return original(*args)
        finally:
            self._is_paused = before

    def _enter_autocast(self, context: Any) -> Any:
        self._decided.append(("autocast_enabled", bool(context.enabled)))
        if context.dtype is not None:
            self._decided.append(("autocast_dtype", context.dtype))
        return context

    def _exit_autocast(self, context: Any, *_: Any) -> bool:
        if context.dtype is not None:
            self._decided.remove(("autocast_dtype", context.dtype))
        self._decided.remove(("autocast_enabled", bool(context.enabled)))
        return False

    def _property(self, original: Any, descriptor: Any, owner: Any, kind: Any = None) -> Any:
        """A setting below `torch.backends` that is read like an attribute."""
        name = self._names.get(getattr(descriptor, "getter", None), "")
        if name and self.is_asked(sys._getframe(2)):  # noqa: SLF001 - as above
            return self.answer(name)
        return original(descriptor, owner, kind)


def _is_in_forward() -> bool:
    """True if `forward` of an `autograd.Function` runs, which Torch calls without gradients."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to a caller
    apply = torch.autograd.Function.apply.__func__.__code__
    while frame is not None and not is_caller(frame.f_code):
        if frame.f_code is apply:
            return True
        frame = frame.f_back
    return False


def is_caller(code: CodeType) -> bool:
    """True if the code is kbuild's call of the author's function."""
    return code.co_name in _CALLERS and code.co_filename == CALLERS_FILE


def partial_method(function: Callable[..., Any], *given: Any) -> Callable[..., Any]:
    """A function for a class: `given`, then what a method gets."""

    def method(*args: Any, **more: Any) -> Any:
        return function(*given, *args, **more)

    return method


def _autocast_kept(
    context: Any,
    device_type: str,
    dtype: torch.dtype | None = None,
    enabled: bool = True,
    cache_enabled: bool | None = None,
) -> None:
    """`autocast.__init__`, which asks for nothing."""
    del cache_enabled
    context.device, context.dtype = device_type, dtype
    context.enabled = enabled and device_type == "cuda"


def _named(path: str) -> Any:
    """A function of Torch; None where this release has none of the name."""
    value: Any = torch
    for part in path.split(".")[1:]:
        value = getattr(value, part, None)
    return value
