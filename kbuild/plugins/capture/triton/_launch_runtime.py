"""Runs an author's Triton files without Triton: launches call the package's compiled ops.

kbuild copies this file into packages. It needs Torch and nothing else.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._launch_kernels import JITFunction, KernelInterface
from ._launch_tuned import Autotuner, Heuristics
from ._launch_values import (
    DTYPES,
    Config,
    Constexpr,
    Dtype,
    GluonDescriptor,
    KernelOnlyName,
    SharedLayout,
    TensorDescriptor,
    TensorWrapper,
)

if TYPE_CHECKING:
    from kbuild.plugins.capture._launch_sources import SourcePackage
else:  # in a package, its modules lie in one folder
    from ._launch_sources import SourcePackage

_KERNELS = ("JITFunction", "InterpretedFunction")
"""Names of Triton's kernel classes; Gluon's are derived from the first."""
_LANGUAGES = ("triton.language", "triton.experimental.gluon.language")


class TritonModule(ModuleType):
    """Stand-in for a module of Triton; names that it lacks are usable only in kernels."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module `{self.__name__}` has no attribute `{name}` here")
        if name.endswith(("Error", "Exception")) or name == "OutOfResources":
            value: Any = type(name, (RuntimeError,), {"__module__": self.__name__})
        elif self.__name__.startswith(_LANGUAGES) and name in DTYPES:
            value = Dtype(DTYPES[name])
        else:
            value = KernelOnlyName(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class ActiveDriver:
    """`triton.runtime.driver.active`, with Torch's answers."""

    class utils:  # noqa: N801 - Triton's
        """Functions of the driver."""

        @staticmethod
        def get_device_properties(device: Any = 0) -> dict[str, Any]:
            """Torch's properties of a device, under Triton's names."""
            import torch

            properties = torch.cuda.get_device_properties(device)
            return {
                "multiprocessor_count": properties.multi_processor_count,
                "max_shared_mem": getattr(properties, "shared_memory_per_block_optin", 0),
                "max_num_regs": getattr(properties, "regs_per_multiprocessor", 0),
                "warpSize": getattr(properties, "warp_size", 32),
                "sm_clock_rate": getattr(properties, "clock_rate", 0),
                "mem_clock_rate": getattr(properties, "memory_clock_rate", 0),
                "mem_bus_width": getattr(properties, "memory_bus_width", 0),
            }

    def get_current_device(self) -> int:
        """The index of the current device."""
        import torch

        return int(torch.cuda.current_device())

    def get_active_torch_device(self) -> Any:
        """The current device as a `torch.device`."""
        import torch

        return torch.device("cuda", torch.cuda.current_device())

    def get_current_stream(self, device: Any = None) -> int:
        """The handle of the current stream."""
        import torch

        return int(torch.cuda.current_stream(device).cuda_stream)

    def get_device_interface(self) -> Any:
        """`torch.cuda`."""
        import torch

        return torch.cuda

    def get_current_target(self) -> Any:
        """Backend, arch and warp size."""
        import types

        import torch

        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        if torch.version.hip:
            arch: Any = properties.gcnArchName.partition(":")[0]
            backend = "hip"
        else:
            arch, backend = properties.major * 10 + properties.minor, "cuda"
        return types.SimpleNamespace(
            backend=backend, arch=arch, warp_size=getattr(properties, "warp_size", 32)
        )


class Package(SourcePackage):
    """The kernels of a package, and the author's files that launch them."""

    submodules = (
        "triton.language",
        "triton.language.core",
        "triton.language.math",
        "triton.language.extra",
        "triton.language.extra.libdevice",
        "triton.language.extra.cuda",
        "triton.language.extra.cuda.libdevice",
        "triton.language.extra.hip",
        "triton.language.extra.hip.libdevice",
        "triton.runtime",
        "triton.runtime.jit",
        "triton.runtime.autotuner",
        "triton.runtime.driver",
        "triton.experimental",
        "triton.experimental.gluon",
        "triton.experimental.gluon.language",
        "triton.experimental.gluon.nvidia",
        "triton.experimental.gluon.nvidia.hopper",
        "triton.tools",
        "triton.tools.tensor_descriptor",
        "triton.testing",
        "triton.compiler",
    )

    def __init__(self, name: str, ops: Any, table: Mapping[str, Any]) -> None:
        super().__init__(name, table)
        self._ops = ops
        self.functions = {
            (function["source"], function["function"]): function for function in table["functions"]
        }

    def op(self, name: str) -> Any:
        """Return the native launch of that name."""
        overload = getattr(self._ops, name).default
        return getattr(overload, "_op", overload)  # the function that the overload calls

    def is_jit(self, source: str) -> bool:
        """True if Triton compiles launches that have no image."""
        return source in self._table["jit"]

    @staticmethod
    def has_triton() -> bool:
        """True if Triton is installed."""
        return importlib.util.find_spec("triton") is not None

    def jitted(self, function: JITFunction) -> Any:
        """Return Triton's own kernel from the same file."""
        sources = self._table["sources"]
        file = next(file for file, source in sources.items() if source == function.source)
        parts = list(Path(file).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        folder = str(self._folder / "_captured_sources")
        sys.path.insert(0, folder)
        try:
            module = importlib.import_module(
                ".".join(("", "_captured_sources", *parts)), self._name
            )
        finally:
            sys.path.remove(folder)
        kernel = getattr(module, function.__name__)
        while not any(base.__name__ in _KERNELS for base in type(kernel).__mro__):
            kernel = kernel.fn
        return kernel

    def new_module(self, name: str) -> ModuleType:
        """See `SourcePackage.new_module`."""
        module = TritonModule(name)
        vars(module).update(self._names(name))
        return module

    def _names(self, module: str) -> dict[str, Any]:
        """Names of a module that work outside of kernels."""
        names: dict[str, Any] = {}
        if module in ("triton", "triton.runtime", "triton.runtime.jit", "triton.runtime.autotuner"):
            names = {
                "jit": self._jit,
                "autotune": _autotune,
                "heuristics": _heuristics,
                "Config": Config,
                "JITFunction": JITFunction,
                "Autotuner": Autotuner,
                "Heuristics": Heuristics,
                "KernelInterface": KernelInterface,
                "reinterpret": TensorWrapper,
                "TensorWrapper": TensorWrapper,
            }
        if module == "triton":
            names |= {
                "__version__": self._table["version"],
                "cdiv": _cdiv,
                "next_power_of_2": _next_power_of_2,
                "constexpr_function": lambda fn: fn,
                "set_allocator": lambda _: None,
            }
        elif module.startswith(_LANGUAGES):
            names = {"constexpr": Constexpr, "dtype": Dtype, "NVMMASharedLayout": SharedLayout}
        elif module == "triton.experimental.gluon":
            names = {"jit": self._jit, "constexpr_function": lambda fn: fn}
        elif module == "triton.experimental.gluon.nvidia.hopper":
            names = {"TensorDescriptor": GluonDescriptor}
        elif module == "triton.tools.tensor_descriptor":
            names = {"TensorDescriptor": TensorDescriptor}
        elif module == "triton.runtime.driver":
            names = {"active": ActiveDriver()}
        elif module == "triton.testing":
            names = {"Benchmark": dict, "perf_report": lambda _: lambda fn: fn}
        return names

    def _jit(self, fn: Callable[..., Any] | None = None, **options: Any) -> Any:
        del options
        return (lambda own: JITFunction(own, self)) if fn is None else JITFunction(fn, self)


def _autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    **options: Any,
) -> Callable[[Any], Autotuner]:
    del options  # how candidates are measured
    return lambda fn: Autotuner(fn, configs, key, prune_configs_by)


def _heuristics(values: Mapping[str, Callable[..., Any]]) -> Callable[[Any], Heuristics]:
    return lambda fn: Heuristics(fn, values)


def _cdiv(x: int, y: int) -> int:
    return (x + y - 1) // y


def _next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length() if n > 0 else 0
