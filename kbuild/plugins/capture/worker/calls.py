"""Refuses what an author's code calls and a run cannot follow.

What is not known to be the same at each call, or to be recorded, is refused: see `questions`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch

from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.questions import ARGUMENTS, CONSTANTS, is_setting, refusal
from kbuild.plugins.capture.worker.settings import CALLERS_FILE, is_caller

_KBUILD = f"{Path(__file__).parents[3]}/"
_PURE_MODULES = (
    "abc", "ast", "bisect", "builtins", "cmath", "collections", "contextlib", "copy", "copyreg",
    "dataclasses", "decimal", "enum", "fractions", "functools", "heapq", "importlib._bootstrap",
    "importlib._bootstrap_external", "inspect", "itertools", "keyword", "logging", "math",
    "numbers", "operator", "packaging", "re", "reprlib", "statistics", "string", "struct",
    "textwrap", "types", "typing", "typing_extensions", "warnings", "weakref", "zipimport",
    "_abc", "_bisect", "_collections", "_collections_abc", "_functools", "_heapq", "_operator",
    "_sre", "_struct", "_thread", "_warnings", "_weakref", "_weakrefset",
)  # fmt: skip
"""Modules of Python whose functions depend on their arguments alone, or have no result."""
_IMPURE = {
    f"builtins.{name}"
    for name in ("breakpoint", "compile", "eval", "exec", "globals", "id", "input", "vars")
}
_KERNEL_MODULES = (
    "triton.compiler", "triton.experimental.gluon", "triton.language", "triton.runtime._allocator",
    "triton.runtime.autotuner", "triton.runtime.jit", "triton.tools", "triton._utils",
    "ninetoothed", "cuda.tile",
)  # fmt: skip
"""Modules of DSLs that describe kernels and launch them."""
_TORCH_MODULES = (
    "torch._C._fft", "torch._C._linalg", "torch._C._nested", "torch._C._nn", "torch._C._sparse",
    "torch._C._special", "torch._VF", "torch._higher_order_ops.triton_kernel_wrap",
    "torch._jit_internal", "torch._library", "torch._ops", "torch._prims_common", "torch._utils",
    "torch.amp", "torch.autograd.function", "torch.autograd.grad_mode", "torch.autograd.profiler",
    "torch.cuda.amp", "torch.cuda.nvtx", "torch.functional", "torch.library",
    "torch.nn.functional", "torch.nn.modules", "torch.nn.parameter", "torch.overrides",
    "torch._compile", "torch._subclasses", "torch.fx", "torch.profiler", "torch.types",
    "torch.utils._contextlib", "torch.utils._python_dispatch", "torch.utils._pytree",
    "torch.utils._stats", "torch.utils.weak",
)  # fmt: skip
"""Modules of Torch that call operators, and ask for nothing but what `Settings` answers."""
_TORCH_FUNCTIONS = (
    "triton.runtime._allocation.set_allocator",  # the launcher allocates what a kernel asks for
    "torch.Sym", "torch.sym_", "torch._check", "torch.is_tensor", "torch.typename",
    "torch.are_deterministic_algorithms_enabled", "torch.get_float32_matmul_precision",
    "torch.is_deterministic_algorithms_warn_only_enabled", "torch.backends.ContextProp",
    "torch.backends.cuda.cuBLASModule.allow_tf32", "triton.cdiv", "triton.next_power_of_2",
    "torch._dynamo.eval_frame.DisableContext",
    "torch.fx.experimental.sym_node", "torch.utils._triton.is_", "torch.jit._trace.is_tracing",
)  # fmt: skip
_HELPERS = {
    "can_cast", "data_ptr", "dim", "element_size", "get_device", "is_complex", "is_contiguous",
    "is_cpu", "is_cuda", "is_floating_point", "is_inference", "is_nonzero", "is_same_size",
    "is_signed", "item", "nbytes", "ndimension", "nelement", "numel", "promote_types",
    "result_type", "size", "storage_offset", "stride", "tolist", "type",
    "broadcast_shapes", "has_names", "requires_grad_", "cuda", "byte", "bool", "bfloat16", "char",
    "double", "float", "half", "int", "long", "short", "new", "new_tensor", "apply_", "is_sparse",
    "as_subclass", "unflatten", "dim_order", "untyped_storage",
}  # fmt: skip
"""Methods and functions of Torch that are no operators, and that a run can answer."""
_REFUSED_METHODS = (
    "torch._tensor.Tensor.backward", "torch._tensor.Tensor.register_", "torch._tensor.Tensor.__dl",
    "torch.nn.functional.torch", "torch.amp.autocast_mode.is_", "torch.autograd.grad_mode.set_",
    "torch.autograd.grad_mode.inference_mode", "torch._utils._get_", "cuda.tile.tune.",
)  # fmt: skip


asked_at_import: dict[str, set[int]] = {}
"""File of the author -> lines of the module that asked for settings when it was imported."""


class AuthorFiles(dict[str, bool]):
    """File of code -> True if it is one of the author's."""

    def __init__(self, is_author: Callable[[str], bool]) -> None:
        super().__init__()
        self._is_author = is_author

    def __missing__(self, file: str) -> bool:
        """See `Recorder.is_author`; each file is asked about once."""
        self[file] = self._is_author(file)
        return self[file]


class CallFilter:
    """Checks every call from an author's code to other code."""

    def __init__(
        self, is_author: Callable[[str], bool], explanation: Callable[[BaseException], str]
    ) -> None:
        self._authors, self._explanation = AuthorFiles(is_author), explanation
        self._operators = _operators()
        self.error: CaptureError | None = None
        """The first refusal, which the author's code may have caught."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Watch calls in this context.

        Raises:
            CaptureError: one is refused.
        """
        profile, trace = sys.getprofile(), sys.gettrace()
        sys.settrace(self._enter)
        sys.setprofile(self._look)
        try:
            yield
        finally:
            sys.setprofile(profile)
            sys.settrace(trace)
        self.require_followed()

    def require_followed(self) -> None:
        """Raise the first refusal.

        Raises:
            CaptureError: a call was refused.
        """
        if self.error is not None:
            raise self.error

    def _enter(self, frame: FrameType, _: str, __: Any) -> Callable[..., Any] | None:
        """Watch the errors raised in an author's function, also those that it catches."""
        if not self._authors[frame.f_code.co_filename]:
            return None
        # Only exceptions matter; an event for each line would be slow.
        frame.f_trace_lines = False
        return self._look_at_error

    def _look_at_error(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "exception" or self.error is not None:
            return
        # Python may report an exception before it has made an object of it.
        error = argument[1] if isinstance(argument[1], BaseException) else argument[0](argument[1])
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if isinstance(error, CaptureError):
            error.place = error.place or place
            self.error = error
        elif reason := self._explanation(error):
            self.error = CaptureError(reason, place)

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        # Python calls this for all calls and returns of a run, most of them between libraries.
        if event == "c_call":
            if self._authors[frame.f_code.co_filename] and (
                name := self._unknown_builtin(argument)
            ):
                self._refuse(name, frame)
        elif event == "call" and (caller := frame.f_back) is not None:
            code = caller.f_code
            file = code.co_filename
            if (self._authors[file] or (file == CALLERS_FILE and is_caller(code))) and (
                name := self._unknown_function(frame)
            ):
                self._refuse(name, caller)

    def _refuse(self, name: str, frame: FrameType) -> None:
        error = CaptureError(refusal(name), f"{frame.f_code.co_filename}:{frame.f_lineno}")
        # Kept as well as raised: the author's code may catch it and go on.
        self.error = self.error or error
        raise error

    def _unknown_function(self, frame: FrameType) -> str:
        """The name of a function in Python that is refused; empty for others."""
        file = frame.f_code.co_filename
        # Methods that dataclasses and named tuples generate are of the file `<string>`.
        if self._authors[file] or file.startswith((_KBUILD, "<string>")):
            return ""
        name = _name_of_frame(frame)
        is_known = _begins(name, (*_PURE_MODULES, *_KERNEL_MODULES, *_TORCH_MODULES))
        is_known |= name.startswith((*_TORCH_FUNCTIONS, "torch._tensor.")) or name in CONSTANTS
        # NineToothed writes the functions that launch its kernels into a folder of this name.
        is_known |= name.startswith("kbuild.") or "/.ninetoothed/" in file
        return "" if is_known and not name.startswith(_REFUSED_METHODS) else name

    def _unknown_builtin(self, function: Any) -> str:
        """The name of a function in C that is refused; empty for others."""
        name, own = _name_of_builtin(function), function.__name__
        if name in _IMPURE:
            return name
        if _begins(name, (*_PURE_MODULES, "torch._C._nn", "torch.Size")) or name == "sys.exc_info":
            return ""
        is_torch = name.startswith(("torch._VariableFunctionsClass.", "torch._C.TensorBase."))
        if is_torch or isinstance(function.__self__, torch.Tensor):
            return "" if own in self._operators or own in _HELPERS or own[:2] == "__" else name
        return "" if _begins(name, _TORCH_MODULES) else name


def note_question(frame: FrameType | None) -> None:
    """Note the line of the module that asks, maybe through functions."""
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is not None:
        asked_at_import.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)


@contextmanager
def noted_questions(is_author: Callable[[str], bool]) -> Iterator[None]:
    """Record the lines of the author's modules that ask for settings in this context."""

    def look(frame: FrameType, event: str, argument: Any) -> None:
        caller = frame if event == "c_call" else frame.f_back if event == "call" else None
        if caller is None or not is_author(caller.f_code.co_filename):
            return
        name = _name_of_builtin(argument) if event == "c_call" else _name_of_frame(frame)
        if is_setting(name):
            note_question(caller)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def _begins(name: str, modules: tuple[str, ...]) -> bool:
    """True if a function belongs to one of the modules, or to one below them."""
    return name.startswith(tuple(f"{module}." for module in modules))


def _name_of_frame(frame: FrameType) -> str:
    """Qualified name of a function; for `__getattr__`, of the attribute."""
    code, names = frame.f_code, frame.f_locals
    first = names.get(code.co_varnames[0]) if code.co_argcount else None
    # All variables are read by one method: only the mapping tells what is asked.
    if first is os.environ:
        return f"os.environ.{code.co_name}"
    qualified = getattr(code, "co_qualname", "")
    if not qualified:
        # Before Python 3.11, code does not know its qualified name.
        owner = type(first).__qualname__ if code.co_varnames[:1] == ("self",) else ""
        qualified = f"{owner}.{code.co_name}" if owner else code.co_name
    name = f"{frame.f_globals.get('__name__', '')}.{qualified}"
    if code.co_name == "__getattr__" and isinstance(names.get("name"), str):
        name = f"{name.removesuffix('__getattr__')}{names['name']}"
    wrapped = names.get("fn")
    # Torch wraps many functions in this one: the wrapped function is the one that is called.
    if qualified.startswith("_disable_dynamo.") and callable(wrapped):
        return f"{wrapped.__module__}.{wrapped.__qualname__}"
    getter = getattr(first, "getter", None)
    if name == "torch.backends.ContextProp.__get__" and not _is_answered(getter):
        return f"torch.backends.{getattr(getter, '__name__', '')}"
    return name


def _is_answered(getter: Any) -> bool:
    name = f"torch._C.{getattr(getter, '__name__', '')}"
    return any(name in question.functions for question in ARGUMENTS.values())


def _name_of_builtin(function: Any) -> str:
    """The module or the class of a function in C, and its name."""
    owner, name = function.__self__, function.__name__
    if owner is None or isinstance(owner, ModuleType):
        qualified = getattr(function, "__qualname__", name)
        return f"{function.__module__ or getattr(owner, '__name__', '')}.{qualified}"
    kind = owner if isinstance(owner, type) else type(owner)
    # The class that defines the method counts: a subclass may be of any module.
    for base in kind.__mro__:
        if name in vars(base):
            return f"{base.__module__}.{base.__qualname__}.{name}"
    return f"{kind.__module__}.{kind.__qualname__}.{name}"


@cache
def _operators() -> frozenset[str]:
    """Names of ATen's operators, in-place ones included."""
    names = torch._C._dispatch_get_all_op_names()  # noqa: SLF001 - there is no public name
    short = {name.partition("::")[2].partition(".")[0] for name in names if name[:6] == "aten::"}
    return frozenset(short | {f"{name}_" for name in short})
