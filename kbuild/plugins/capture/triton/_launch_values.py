"""Triton's names that work outside of kernels, for an author's files without Triton.

kbuild copies this file into packages. It needs Torch and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

DTYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8e4nv": "fp8e4nv",
    "float8e5": "fp8e5",
    "int1": "int1",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""Names in `triton.language` -> names of the dtypes themselves."""
_TORCH_DTYPES = {"float8e4nv": "float8_e4m3fn", "float8e5": "float8_e5m2", "int1": "bool"}


class KernelOnlyName:
    """A name of Triton's that is usable only inside of kernels."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"`{self.__name__}` has no attribute `{name}` without Triton")
        return KernelOnlyName(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a decorated function or class unchanged; any other call requires Triton."""
        if len(args) == 1 and not kwargs and isinstance(args[0], (FunctionType, type)):
            return args[0]
        raise RuntimeError(
            f"`{self.__name__}` can be called only inside of a kernel: this package was compiled "
            "ahead of time, and runs without Triton"
        )

    def __instancecheck__(self, value: Any) -> bool:
        return False

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def __getitem__(self, item: Any) -> Any:
        return self

    def __repr__(self) -> str:
        return self.__name__


class Dtype:
    """A dtype of `triton.language`; `str()` returns Triton's short name, such as `fp16`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.torch_name = next(
            (_TORCH_DTYPES.get(key, key) for key, value in DTYPES.items() if value == name), name
        )
        digits = "".join(character for character in name.partition("e")[0] if character.isdigit())
        self.primitive_bitwidth = int(digits or 8)
        self.itemsize = max(1, self.primitive_bitwidth // 8)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"triton.language.{self.name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dtype) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def is_floating(self) -> bool:
        """True for floating-point dtypes."""
        return self.name.startswith(("fp", "bf"))

    is_fp8 = property(lambda self: self.name.startswith("fp8"))


class Constexpr:
    """`tl.constexpr`: a value that is known when a kernel is compiled."""

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, Constexpr) else value

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, Constexpr) else other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return int(self.value)

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        return f"constexpr[{self.value!r}]"


class TensorDescriptor:
    """`triton.tools.tensor_descriptor.TensorDescriptor`: blocks of a tensor."""

    def __init__(  # noqa: PLR0917 - Triton's
        self,
        base: Any,
        shape: Sequence[int],
        strides: Sequence[int],
        block_shape: Sequence[int],
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ) -> None:
        self.base, self.padding, self.round_f32_to_tf32 = base, padding, round_f32_to_tf32
        self.shape, self.strides, self.block_shape = list(shape), list(strides), list(block_shape)
        if not len(self.shape) == len(self.strides) == len(self.block_shape):
            raise ValueError(f"rank mismatch: {self.shape}, {self.strides}, {self.block_shape}")

    @staticmethod
    def from_tensor(
        tensor: Any, block_shape: Sequence[int], padding: str = "zero", **options: Any
    ) -> TensorDescriptor:
        """Return the descriptor of a whole tensor."""
        return TensorDescriptor(
            tensor, tensor.shape, tensor.stride(), block_shape, padding, **options
        )

    def key(self) -> tuple[Any, ...]:
        """Properties that a kernel is compiled for."""
        return ("descriptor", self.base.dtype, tuple(self.block_shape), self.padding)

    def tensor(self) -> Any:
        """Return the tensor with the descriptor's shape and strides."""
        base, shape, strides = self.base, self.shape, self.strides
        if tuple(base.shape) == tuple(shape) and base.stride() == tuple(strides):
            return base
        return base.as_strided(shape, strides)


@dataclass(frozen=True)
class SharedLayout:
    """Gluon's `NVMMASharedLayout`: the layout of a block in shared memory."""

    swizzle_byte_width: int
    element_bitwidth: int
    rank: int = 2
    transposed: bool = False
    fp4_padded: bool = False
    cga_layout: Any = None

    @staticmethod
    def get_default_for(
        block_shape: Sequence[int],
        dtype: Dtype,
        transposed: bool = False,
        fp4_padded: bool = False,
        cga_layout: Any = None,
    ) -> SharedLayout:
        """Return the layout with the widest swizzle that the block allows."""
        if cga_layout is not None:
            raise RuntimeError("a block that is divided among a cluster was not compiled")
        shape = [*block_shape[1:], block_shape[0]] if transposed else [*block_shape]
        row = shape[-1] * (2 if fp4_padded else 1) * dtype.primitive_bitwidth // 8
        swizzle = next((width for width in (128, 64, 32) if row and row % width == 0), 0)
        if len(shape) < 2 or math.prod(shape[:-1]) < 8:  # noqa: PLR2004 - rows of a swizzle
            swizzle = 0
        bits = dtype.primitive_bitwidth
        return SharedLayout(swizzle, bits, len(shape), transposed, fp4_padded)

    def key(self) -> tuple[Any, ...]:
        """Properties that a kernel is compiled for."""
        return (self.swizzle_byte_width, self.transposed, self.fp4_padded)


class GluonDescriptor(TensorDescriptor):
    """`triton.experimental.gluon.nvidia.hopper.TensorDescriptor`, which has a layout."""

    def __init__(  # noqa: PLR0917 - Gluon's
        self,
        base: Any,
        shape: Sequence[int],
        strides: Sequence[int],
        block_shape: Sequence[int],
        layout: SharedLayout,
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ) -> None:
        super().__init__(base, shape, strides, block_shape, padding, round_f32_to_tf32)
        self.layout = layout

    @staticmethod
    def from_tensor(  # type: ignore[override]
        tensor: Any,
        block_shape: Sequence[int],
        layout: SharedLayout,
        padding: str = "zero",
        **options: Any,
    ) -> GluonDescriptor:
        """Return the descriptor of a whole tensor."""
        return GluonDescriptor(
            tensor, tensor.shape, tensor.stride(), block_shape, layout, padding, **options
        )

    def key(self) -> tuple[Any, ...]:
        """See `TensorDescriptor.key`."""
        return (*super().key(), *self.layout.key())


class TensorWrapper:
    """Result of `triton.reinterpret(tensor, dtype)`."""

    def __init__(self, base: Any, dtype: Any) -> None:
        import torch

        self.base = base
        name = dtype.torch_name if isinstance(dtype, Dtype) else str(dtype).rpartition(".")[2]
        self.tensor = base.view(getattr(torch, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)


class Config:
    """`triton.Config`: a candidate of `@triton.autotune`."""

    def __init__(  # noqa: PLR0917 - Triton's
        self,
        kwargs: Mapping[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[..., Any] | None = None,
        ir_override: str | None = None,
    ) -> None:
        self.kwargs = dict(kwargs)
        self.num_warps, self.num_stages, self.num_ctas = num_warps, num_stages, num_ctas
        self.maxnreg, self.pre_hook, self.ir_override = maxnreg, pre_hook, ir_override

    def all_kwargs(self) -> dict[str, Any]:
        """Constants and launch options, by name."""
        options = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")
        pairs = ((name, getattr(self, name)) for name in options)
        return {**self.kwargs, **{name: value for name, value in pairs if value is not None}}

    def __str__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.all_kwargs().items())

    __repr__ = __str__


def constant_value(value: Any) -> Any:
    """Constant in a table as a Python value."""
    if isinstance(value, Mapping):
        return _dtype(value["dtype"]) if "dtype" in value else value["string"]
    return value


def _dtype(torch_name: str) -> Dtype:
    dtypes = (Dtype(name) for name in DTYPES.values())
    return next(dtype for dtype in dtypes if dtype.torch_name == torch_name)
