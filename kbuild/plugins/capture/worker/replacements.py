"""Replacements for Triton, the GPU, numbers and gradients while a wrapper runs."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from functools import partial, partialmethod
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch._library.custom_ops import CustomOpDef
from torch._subclasses import fake_tensor
from torch.autograd.function import FunctionCtx
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.questions import refusal
from kbuild.plugins.capture.worker.cutile import CurrentStream, cutile_functions
from kbuild.plugins.capture.worker.differentiation import noted_materialize_grads
from kbuild.plugins.capture.worker.imports import (
    GUARD_METHODS,
    AskedAtImportError,
    answer_vendors,
    device_counts,
)
from kbuild.plugins.capture.worker.number_functions import (
    NUMBERS,
    SIZE_METHODS,
    SizeText,
    cdiv,
    divisions,
    number_functions,
)
from kbuild.plugins.capture.worker.recorded_values import DESCRIPTORS
from kbuild.plugins.capture.worker.recorder import Recorder
from kbuild.plugins.capture.worker.replaced_names import (
    libraries_with,
    names_of,
    replaced_names,
)
from kbuild.plugins.capture.worker.runs import RunDevice
from kbuild.plugins.capture.worker.settings import partial_method

_REMEDY = "decide on the arguments, or in an `autograd.Function` on `ctx.needs_input_grad`"
_REFUSED = ("grad", "grad_fn", "_base", "_backward_hooks", "_version", "retains_grad", "output_nr")
"""Attributes of tensors that no op knows."""


@contextmanager
def in_place_of_triton(
    recorder: Recorder, capabilities: tuple[int, int], device: RunDevice
) -> Iterator[None]:
    """Let the run answer Triton's launches and Torch's questions about the device.

    `capabilities` are the smallest and the largest one of the GPU.
    """
    replaced: list[tuple[Any, str, Any]] = [(torch, "tensor", _tensor)]
    replaced += [*_launches(recorder), *_numbers(recorder), *_profiler_ranges()]
    answers = _device_answers(recorder, capabilities, device)
    replaced += [(torch.cuda, name, answer) for name, answer in answers.items()]
    replaced += [(guard, name, _do_nothing) for guard, name in GUARD_METHODS]
    # A Torch for CUDA would start the driver for fake tensors, and for each of their gradients.
    replaced += [(fake_tensor, "init_gpu_context", _do_nothing)]
    replaced += [(fake_tensor.FakeTensorMode, "avoid_device_init", True)]
    drivers = type(triton.runtime.driver)
    active = partial(
        _active_driver, drivers.active, recorder, answers["get_device_capability"], device
    )
    replaced += [(drivers, "active", property(active))]
    replaced += [(torch.Tensor, name, method) for name, method in recorder.methods().items()]
    replaced += [(FunctionCtx, "set_materialize_grads", noted_materialize_grads)]
    replaced += _tensor_attributes(recorder)
    replaced += recorder.settings.methods()
    symbols = recorder.symbols
    # Functions are replaced in all modules: authors import them under names of their own.
    functions = [
        *cutile_functions(recorder),
        *recorder.settings.functions(),
        (triton.next_power_of_2, symbols.power_of_2),
        (triton.cdiv, partial(cdiv, triton.cdiv)),
        (torch.library.wrap_triton, lambda kernel: kernel),
    ]
    known = {id(original): stand_in for original, stand_in in functions}
    replaced += names_of(known, libraries_with(known, recorder.modules))
    # An author's module may rebind a name without having more names: it is always searched.
    replaced += names_of(known, recorder.modules)
    numbers = {id(original): stand_in for original, stand_in in number_functions()}
    replaced += names_of(numbers, (math, *recorder.modules))
    for kind in DESCRIPTORS:
        replaced += [(kind, "__post_init__", partialmethod(_described, kind.__post_init__))]
    replaced += [(torch.SymInt, name, method) for name, method in SIZE_METHODS.items()]
    # A module has no `int` of its own: one is put there, which hides Python's.
    replaced += _module_names(recorder)
    added = {*NUMBERS, *SIZE_METHODS}
    with answer_vendors(recorder.is_author, device), replaced_names(replaced, added):
        yield


def _module_names(recorder: Recorder) -> Iterator[tuple[Any, str, Any]]:
    """Replacements of names in the author's modules during a run."""
    count = recorder.symbols.integer("sm_count()", 1, 1024)
    for module in recorder.modules:
        names = vars(module)
        # A module's own `int` or `print` is the author's, and stays.
        yield from ((module, name, NUMBERS[name]) for name in NUMBERS.keys() - names.keys())
        yield from ((module, name, count) for name in device_counts(names))


def _launches(recorder: Recorder) -> Iterator[tuple[Any, str, Any]]:
    """Replacements for calls that launch kernels, or that call ops made of Python functions."""

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        if warmup:
            return _CompiledKernel()
        return recorder.launch(kernel, grid, args, kwargs)

    for kind in (JITFunction, Autotuner, Heuristics):
        yield kind, "__getitem__", lambda kernel, grid: partial(run, kernel, grid=grid)
        yield kind, "run", run
    # `_init_fn` is the author's function; there is no public name.
    yield CustomOpDef, "__call__", lambda op, *args, **more: op._init_fn(*args, **more)  # noqa: SLF001


def _numbers(recorder: Recorder) -> Iterator[tuple[Any, str, Any]]:
    """Replacements of methods of symbols."""

    def hashed(number: Any) -> int:
        return recorder.hashed(number, sys._getframe(1))  # noqa: SLF001 - the documented way

    yield torch.SymInt, "__hash__", hashed
    yield torch.SymInt, "__or__", partial_method(recorder.symbols.bitwise_or)
    yield from divisions(recorder.is_author)
    for kind in (torch.SymInt, torch.SymFloat):
        for name in ("__str__", "__repr__", "__format__"):
            yield kind, name, partial_method(_text, getattr(kind, name), recorder)


def _profiler_ranges() -> Iterator[tuple[Any, str, Any]]:
    """Replacements of functions that mark ranges for profilers: an op has no ranges."""
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        yield torch.cuda.nvtx, name, _do_nothing
    yield torch.cuda.nvtx, "range", _NoRange
    for name in ("__init__", "__enter__", "__exit__"):
        yield torch.autograd.profiler.record_function, name, _do_nothing


def _text(original: Any, recorder: Recorder, number: Any, *how: Any) -> str:
    """The text of a symbol, which only messages may use."""
    if not recorder.is_author(sys._getframe(2).f_code.co_filename):  # noqa: SLF001 - documented
        return str(original(number, *how))
    return SizeText(recorder.symbols.text_of(number))


def _described(descriptor: Any, check: Callable[[Any], None]) -> None:
    """Make every block size of a descriptor a path: an image has one block."""
    descriptor.block_shape = [int(size) for size in descriptor.block_shape]
    check(descriptor)


def _device_answers(
    recorder: Recorder, capabilities: tuple[int, int], device: RunDevice
) -> dict[str, Any]:
    """Functions of `torch.cuda` -> their replacements."""
    symbols = recorder.symbols
    number = symbols.integer("capability()", *capabilities)
    capability = (number // 10, number % 10)

    def asked_capability(*_: Any) -> tuple[Any, Any]:
        device.require_nvidia()
        return capability

    properties = _Properties(
        recorder, device, major=capability[0], minor=capability[1],
        multi_processor_count=symbols.integer("sm_count()", 1, 1024), warp_size=32,
        regs_per_multiprocessor=65536, shared_memory_per_block=48 << 10,
    )  # fmt: skip
    answers = {
        "get_device_properties": properties,
        "current_stream": CurrentStream(),
        "current_device": DeviceNumber(),
        "is_available": True,
        "synchronize": None,
        "set_device": None,
        # Methods that the recorder replaces ask for the device's context first.
        "_lazy_init": None,
    }
    functions: dict[str, Any] = {
        name: lambda *_, answer=answer, **__: answer for name, answer in answers.items()
    }
    functions["get_device_capability"] = asked_capability
    for name in ("get_device_name", "device_count"):
        functions[name] = partial(_refused, getattr(torch.cuda, name), name, recorder)
    return functions


class _DriverTarget:
    """The target that Triton's driver reports."""

    warp_size = 32

    def __init__(self, capability: Callable[[], tuple[Any, Any]], device: RunDevice) -> None:
        self._capability, self._device = capability, device

    @property
    def backend(self) -> str:
        """`cuda` or `hip`."""
        self._device.asked = True
        return "hip" if self._device.is_amd else "cuda"

    @property
    def arch(self) -> Any:
        """Number of the arch in Triton: 90."""
        major, minor = self._capability()
        return major * 10 + minor


def _active_driver(
    original: Any,
    recorder: Recorder,
    capability: Callable[[], tuple[Any, Any]],
    device: RunDevice,
    config: Any,
) -> Any:
    """`triton.runtime.driver.active`, for the author's files."""
    if not recorder.is_author(sys._getframe(1).f_code.co_filename):  # noqa: SLF001
        return original.fget(config)
    target = _DriverTarget(capability, device)
    return SimpleNamespace(
        get_current_target=lambda: target,
        get_current_device=lambda: 0,
        get_active_torch_device=lambda: torch.device("cuda", 0),
        get_device_interface=lambda: torch.cuda,
    )


class _Properties:
    """`torch.cuda.get_device_properties(...)`: what is the same for every GPU of an arch."""

    def __init__(self, recorder: Recorder, device: RunDevice, **properties: Any) -> None:
        self._recorder, self._device, self._properties = recorder, device, properties

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        line = self._recorder.line()
        if name == "shared_memory_per_block_optin":
            self._device.require_nvidia()
            if "shared" not in self._device.facts:  # each arch has its own
                raise AskedAtImportError("asks how much shared memory a GPU has", line)
            return self._device.facts["shared"]
        if name not in self._properties:
            message = f"asks for `{name}` of the GPU, which is another one on each GPU of an arch"
            raise CaptureError(f"{message}: make it an argument of the function", line)
        if name != "multi_processor_count":
            self._device.require_nvidia()
        return self._properties[name]


class DeviceNumber(int):
    """The number of the GPU: it may be passed on, and nothing may depend on it."""

    def _refuse(self, *_: Any) -> Any:
        message = "decides on the number of the GPU, which is another one at each call"
        raise CaptureError(f"{message}: leave the device to the tensors")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refuse
    __add__ = __radd__ = __mul__ = __mod__ = __floordiv__ = __str__ = __format__ = _refuse
    # A class that defines `__eq__` has no hash unless it names one.
    __hash__ = int.__hash__


def _refused(
    original: Callable[..., Any], name: str, recorder: Recorder, *args: Any, **more: Any
) -> Any:
    """A function of `torch.cuda` that an author may not call."""
    if recorder.settings.is_asked(sys._getframe(1)):  # noqa: SLF001 - the documented way
        raise CaptureError(refusal(f"torch.cuda.{name}"), recorder.line())
    return original(*args, **more)


def _tensor(data: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    if not isinstance(data, (bool, int, float, torch.SymInt, torch.SymFloat)):
        raise CaptureError("makes a tensor from data of Python")
    if dtype is None and isinstance(data, (float, torch.SymFloat)):
        dtype = torch.get_default_dtype()
    return torch.full((), data, dtype=dtype, device=device)


class _CompiledKernel:
    """The kernel that `warmup` compiles; each image has another one."""

    def __getattr__(self, name: str) -> Any:
        message = f"asks for `{name}` of a compiled kernel, which is another one for each GPU"
        raise CaptureError(f"{message}: launch without it")


def _do_nothing(*_: Any, **__: Any) -> None: ...


class _NoRange(ContextDecorator):
    """`torch.cuda.nvtx.range(...)` without an effect."""

    __init__ = __enter__ = __exit__ = _do_nothing


def _tensor_attributes(recorder: Recorder) -> Iterator[tuple[Any, str, Any]]:
    """Attributes of `torch.Tensor` that are questions when an author's code asks."""

    def asked_by_author(answer: Callable[[Any], Any], original: Callable[[Any], Any]) -> Any:
        def asked(tensor: torch.Tensor) -> Any:
            frame = sys._getframe(1)  # noqa: SLF001 - the documented way to a caller
            is_author = recorder.is_author(frame.f_code.co_filename)
            return answer(tensor) if is_author else original(tensor)

        return asked

    def answered(name: str, answer: Callable[[torch.Tensor], Any]) -> tuple[Any, str, Any]:
        original = getattr(torch.Tensor, name)
        asked = asked_by_author(answer, original.__get__)
        return torch.Tensor, name, property(asked, original.__set__)

    def refuse(name: str, _: torch.Tensor) -> Any:
        raise CaptureError(f"asks for `{name}` of a tensor: {_REMEDY}", recorder.line())

    yield answered("requires_grad", partial(_requires_grad, recorder))
    yield answered("is_leaf", partial(_is_leaf, recorder))
    for name in _REFUSED:
        yield answered(name, partial(refuse, name))
    # A method, and no property as the others are.
    asked = asked_by_author(partial(_is_inference, recorder), torch.Tensor.is_inference)
    yield torch.Tensor, "is_inference", asked


def _argument(recorder: Recorder, tensor: torch.Tensor, word: str) -> str:
    name = recorder.argument_of(tensor)
    if not name:
        message = f"asks about {word} of a tensor that is not an argument: {_REMEDY}"
        raise CaptureError(message, recorder.line())
    return name


def _is_inference(recorder: Recorder, tensor: torch.Tensor) -> Any:
    return recorder.settings.answer("is_inference_{}", _argument(recorder, tensor, "inference"))


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
    if name := recorder.argument_of(tensor):
        return bool(recorder.settings.answer("is_leaf_{}", name))
    return not _requires_grad(recorder, tensor)
