"""What stands in place of Triton, of the GPU and of Python's numbers while a wrapper runs."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial, partialmethod
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import triton
from torch._subclasses import fake_tensor
from torch.autograd.function import FunctionCtx
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from kbuild.capture.programs import CaptureError
from kbuild.capture.worker.descriptors import DESCRIPTORS
from kbuild.capture.worker.differentiation import noted_materialize_grads
from kbuild.capture.worker.imports import DEVICE_GUARDS, device_counts, told_vendor
from kbuild.capture.worker.recorder import Recorder
from kbuild.capture.worker.runs import RunDevice
from kbuild.capture.worker.symbols import SIZE_METHODS, Symbols, log2


@contextmanager
def in_place_of_triton(
    recorder: Recorder, capabilities: tuple[int, int], device: RunDevice
) -> Iterator[None]:
    """Triton's launches and Torch's questions about the device are answered by the run.

    Args:
        recorder: of the run.
        capabilities: the smallest and the largest one of the GPU.
        device: what else is known of it.
    """

    def indexed(kernel: Any, grid: Any) -> Callable[..., None]:
        return lambda *args, **kwargs: recorder.launch(kernel, grid, args, kwargs)

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
        if not warmup:
            recorder.launch(kernel, grid, args, kwargs)

    def hashed(number: Any) -> int:
        return recorder.hashed(number, sys._getframe(1))  # noqa: SLF001 - the documented way

    replaced: list[tuple[Any, str, Any]] = [(torch, "tensor", _tensor)]
    replaced += [(torch.SymInt, "__hash__", hashed)]
    for kind in (JITFunction, Autotuner, Heuristics):
        replaced += [(kind, "__getitem__", indexed), (kind, "run", run)]
    powers, cdiv, count = triton.next_power_of_2, triton.cdiv, len(sys.modules)
    replaced += [(*place, recorder.symbols.power_of_2) for place in _modules_with(powers, count)]
    replaced += [(*place, partial(_cdiv, cdiv)) for place in _modules_with(cdiv, count)]
    replaced += [(math, "sqrt", partial(_root, math.sqrt))]
    replaced += [(math, "log2", partial(log2, math.log2))]
    answers = _device_answers(recorder.symbols, capabilities, device)
    replaced += [(torch.cuda, name, answer) for name, answer in answers.items()]
    for guard in DEVICE_GUARDS:
        replaced += [(guard, name, partial(_answered, None)) for name in ("__enter__", "__exit__")]
    # A Torch for CUDA would start the driver for fake tensors, and for each of their gradients.
    replaced += [(fake_tensor, "init_gpu_context", partial(_answered, None))]
    replaced += [(fake_tensor.FakeTensorMode, "avoid_device_init", True)]
    drivers = type(triton.runtime.driver)
    active = partial(
        _active_driver, drivers.active, recorder, answers["get_device_capability"], device
    )
    replaced += [(drivers, "active", property(active))]
    replaced += [(torch.Tensor, name, method) for name, method in recorder.methods().items()]
    replaced += [(FunctionCtx, "set_materialize_grads", noted_materialize_grads)]
    for kind in DESCRIPTORS:
        replaced += [(kind, "__post_init__", partialmethod(_described, kind.__post_init__))]
    with ExitStack() as stack, told_vendor(recorder.is_author, device):
        for module in recorder.modules():
            _forget(vars(module))
        stack.enter_context(mock.patch.multiple(torch.SymInt, create=True, **SIZE_METHODS))
        for owner, name, value in (*replaced, *_module_names(recorder)):
            new = mock.patch.object(owner, name, value, create=name in NUMBERS)
            stack.enter_context(new)
        yield


def _module_names(recorder: Recorder) -> Iterator[tuple[Any, str, Any]]:
    """Names in the author's modules that stand for something else during a run."""
    count = recorder.symbols.integer("sm_count()", 1, 1024)
    for module in recorder.modules():
        names = vars(module)
        yield from ((module, name, NUMBERS[name]) for name in NUMBERS.keys() - names.keys())
        yield from ((module, name, count) for name in device_counts(names))


class _NumberType(type):
    """A type of numbers of Python, which symbols are of as well."""

    plain: type
    symbol: type
    converted: Callable[[Any], Any]

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, (cls.plain, cls.symbol))

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, (cls.plain, cls.symbol))

    def __call__(cls, *args: Any, **more: Any) -> Any:
        if args and isinstance(args[0], (torch.SymInt, torch.SymFloat)):
            return cls.converted(args[0])
        return cls.plain(*args, **more)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.plain, name)


class _Integer(metaclass=_NumberType):
    plain, symbol, converted = int, torch.SymInt, torch.sym_int


class _Float(metaclass=_NumberType):
    plain, symbol, converted = float, torch.SymFloat, torch.sym_float


def _forget(names: Mapping[str, Any]) -> None:
    """Empty the caches of a module: their answers are those of another run."""
    for value in names.values():
        if isinstance(value, _CACHED):
            value.cache_clear()


_CACHED = type(cache(len))

NUMBERS = {"int": _Integer, "float": _Float}
"""Names in an author's modules: Python's own would decide on the value of a symbol, and say that
a size is no `int`."""


def _root(original: Callable[[Any], float], number: Any) -> Any:
    """`math.sqrt`, of symbols as well."""
    is_symbol = isinstance(number, (torch.SymInt, torch.SymFloat))
    return torch.sym_sqrt(number) if is_symbol else original(number)


def _cdiv(original: Callable[[Any, Any], Any], dividend: Any, divisor: Any) -> Any:
    """`triton.cdiv`, of symbols as well."""
    if isinstance(dividend, torch.SymInt) or isinstance(divisor, torch.SymInt):
        return (dividend + divisor - 1) // divisor
    return original(dividend, divisor)


def _described(descriptor: Any, check: Callable[[Any], None]) -> None:
    """A descriptor of Triton's: an image has one block, so every size of it is a path."""
    descriptor.block_shape = [int(size) for size in descriptor.block_shape]
    check(descriptor)


def _device_answers(
    symbols: Symbols, capabilities: tuple[int, int], device: RunDevice
) -> dict[str, Any]:
    """Functions of `torch.cuda` -> what stands in their place."""
    number = symbols.integer("capability()", *capabilities)
    capability = (number // 10, number % 10)

    def asked_capability(*_: Any) -> tuple[Any, Any]:
        device.require_nvidia()
        return capability

    properties = _Properties(
        device, name="GPU", major=capability[0], minor=capability[1], total_memory=80 << 30,
        multi_processor_count=symbols.integer("sm_count()", 1, 1024), warp_size=32,
        max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536,
        shared_memory_per_block_optin=227 << 10, shared_memory_per_block=48 << 10,
        shared_memory_per_multiprocessor=228 << 10, gcnArchName="", L2_cache_size=50 << 20,
        is_integrated=False,
    )  # fmt: skip
    answers = {
        "get_device_properties": properties,
        "get_device_name": "GPU",
        "current_device": 0,
        "device_count": 1,
        "is_available": True,
        "synchronize": None,
        "set_device": None,
        # Methods that the recorder replaces ask for the device's context first.
        "_lazy_init": None,
    }
    functions: dict[str, Any] = {n: partial(_answered, answer) for n, answer in answers.items()}
    functions["get_device_capability"] = asked_capability
    return functions


class _DriverTarget:
    """What Triton's driver compiles for."""

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
        """As Triton numbers it: 90."""
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
    """`torch.cuda.get_device_properties(...)`."""

    def __init__(self, device: RunDevice, **properties: Any) -> None:
        self._device, self._properties = device, properties

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._properties:
            raise AttributeError(name)
        if name not in ("name", "multi_processor_count"):
            self._device.require_nvidia()
        return self._properties[name]


def _answered(answer: Any, *_: Any, **__: Any) -> Any:
    return answer


def _tensor(data: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    if not isinstance(data, (bool, int, float, torch.SymInt, torch.SymFloat)):
        raise CaptureError("makes a tensor from data of Python")
    if dtype is None and isinstance(data, (float, torch.SymFloat)):
        dtype = torch.get_default_dtype()
    return torch.full((), data, dtype=dtype, device=device)


@cache
def _modules_with(function: Any, _count: int) -> Sequence[tuple[Any, str]]:
    """Every module that has a function by a name of its own; anew with each number of modules."""
    return [
        (module, name)
        for module in list(sys.modules.values())
        for name, value in list(getattr(module, "__dict__", {}).items())
        if value is function
    ]
