"""Stands for `cutlass` in an author's files: has what the host side of kernels needs.

Every other name exists as well. It can be an annotation, a base class and a decorator; calling it
is an error, except while the author's modules are imported.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from ._launch_absent import absent
from ._launch_describe import mark_compact
from ._launch_hardware import Arch, CurrentDsl, HardwareInfo, NamedBarrier, smem_capacity


class NumericMeta(type):
    """Class of dtypes; two are equal if they are the same."""

    width: int

    def __repr__(cls) -> str:
        return cls.__name__


class Numeric(metaclass=NumericMeta):
    """A number of a certain dtype."""

    width = 8
    signed: bool | None = None
    is_integer = is_float = False

    def __init__(self, value: Any = 0) -> None:
        self.value: Any = value.value if isinstance(value, Numeric) else value

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == getattr(other, "value", other))


class Integer(Numeric):
    """An integer."""

    width, is_integer = 32, True

    def __index__(self) -> int:
        return int(self.value)

    # TVM-FFI asks for the attribute alone: floats must not have it.
    __tvm_ffi_int__ = __index__


class Float(Numeric):
    """A float."""

    width, is_float = 32, True

    def __tvm_ffi_float__(self) -> float:
        return float(self.value)


_FLOATS = {
    "BFloat16": 16, "Float16": 16, "Float32": 32, "Float64": 64, "TFloat32": 32,
    "Float4E2M1FN": 4, "Float4E2M1FNx2": 8, "Float6E2M3FN": 6, "Float6E3M2FN": 6, "Float8E4M3": 8,
    "Float8E4M3B11FNUZ": 8, "Float8E4M3FN": 8, "Float8E5M2": 8, "Float8E8M0FNU": 8,
}  # fmt: skip
_INTEGERS = {
    f"{sign}{bits}": bits for sign in ("Int", "Uint") for bits in (4, 8, 16, 32, 64, 128)
} | {"Boolean": 1}


def _dtypes() -> dict[str, NumericMeta]:
    dtypes: dict[str, NumericMeta] = {"Numeric": Numeric, "Integer": Integer, "Float": Float}
    for base, widths in ((Float, _FLOATS), (Integer, _INTEGERS)):
        for name, width in widths.items():
            # Authors pickle dtypes, by the name of this module.
            known = {"width": width, "__module__": __name__}
            if base is Integer:
                known["signed"] = not name.startswith("Uint")
            dtypes[name] = NumericMeta(name, (base,), known)
    return dtypes


DTYPES = _dtypes()
globals().update(DTYPES)


class AddressSpace(enum.Enum):
    """The memory that a pointer is for."""

    generic, gmem, smem, rmem, tmem, dsmem, cmem = 0, 1, 3, 5, 6, 7, 4


class SymInt:
    """An integer that each call has."""

    def __init__(
        self, width: int = 32, *, divisibility: int = 1, symbol: str | None = None
    ) -> None:
        self.width, self.divisibility, self.symbol = width, divisibility, symbol

    def __mul__(self, other: Any) -> SymInt:
        if isinstance(other, SymInt):
            width = max(self.width, other.width)
            return SymInt(width, divisibility=self.divisibility * other.divisibility)
        return SymInt(self.width, divisibility=self.divisibility * other)

    __rmul__ = __mul__

    def __mod__(self, other: Any) -> Any:
        divisor = other.divisibility if isinstance(other, SymInt) else other
        if self.divisibility % divisor == 0:
            return 0
        return SymInt(self.width, divisibility=math.gcd(self.divisibility, divisor))


def sym_int(width: int = 32, **options: Any) -> SymInt:
    """`cute.sym_int`."""
    return SymInt(width, **options)


class Tensor:
    """Base class of tensors, for `isinstance`."""


class _FakeTensor(Tensor):
    """The description of a tensor."""

    def __init__(  # noqa: PLR0917 - CuTe DSL's order
        self,
        dtype: Any,
        shape: Sequence[Any],
        stride: Sequence[Any],
        memspace: AddressSpace = AddressSpace.gmem,
        assumed_align: int | None = None,
        use_32bit_stride: bool = False,
    ) -> None:
        self.element_type = self.dtype = dtype
        self.shape, self.stride, self.memspace = tuple(shape), tuple(stride), memspace
        self._assumed_align = assumed_align or max(1, dtype.width // 8)
        self._use_32bit_stride = use_32bit_stride


_OF_TORCH = {
    "bfloat16": "BFloat16", "bool": "Boolean", "float8_e4m3fn": "Float8E4M3FN",
    "float8_e5m2": "Float8E5M2", "float8_e8m0fnu": "Float8E8M0FNU",
}  # fmt: skip
"""Torch's names of dtypes -> names in `cutlass`, unless these are the same capitalised."""


class _Tensor(Tensor):
    """A tensor of Torch as `from_dlpack` describes it: all sizes and strides are fixed at first."""

    def __init__(
        self,
        tensor: Any,
        assumed_align: int | None = None,
        use_32bit_stride: bool = False,
        **_: Any,
    ) -> None:
        name = str(tensor.dtype).rpartition(".")[2]
        self.element_type = DTYPES[_OF_TORCH.get(name, name.capitalize())]
        self.shape, self.stride = tuple(tensor.shape), tuple(tensor.stride())
        self.dynamic_shapes_mask = self.dynamic_strides_mask = (0,) * len(self.shape)
        self._assumed_align, self._use_32bit_stride = assumed_align, use_32bit_stride

    @property
    def dtype(self) -> Any:
        """The dtype, which the author may have changed."""
        return self.element_type

    def mark_compact_shape_dynamic(
        self, mode: int, stride_order: Sequence[int] | None = None, divisibility: int = 1
    ) -> _Tensor:
        """Let the size of a dimension be any multiple, in a tensor without gaps."""
        mark_compact(self, mode, stride_order, divisibility)
        return self

    def mark_layout_dynamic(self, leading_dim: int | None = None) -> _Tensor:
        """Let sizes be any, and strides but that of the leading dimension, which is 1."""
        if leading_dim is None:
            ones = [at for at, stride in enumerate(self.stride) if stride == 1]
            wide = [at for at in ones if self.shape[at] > 1]
            if len(ones) > 1 and len(wide) != 1:
                raise ValueError("the leading dimension of the tensor is not clear")
            leading_dim = (wide if len(ones) > 1 else [*ones, None])[0]
        vars(self).pop("_kbuild_compact", None)
        self.dynamic_shapes_mask = (1,) * len(self.shape)
        self.dynamic_strides_mask = tuple(int(at != leading_dim) for at in range(len(self.shape)))
        return self


def make_fake_compact_tensor(
    dtype: Any,
    shape: Sequence[Any],
    *,
    stride_order: Sequence[int] | None = None,
    use_32bit_stride: bool = False,
    **options: Any,
) -> _FakeTensor:
    """`cute.runtime.make_fake_compact_tensor`."""
    order = [*(stride_order or range(len(shape)))]
    strides: list[Any] = [1] * len(shape)
    product: Any = 1
    for place in range(len(shape)):
        at = order.index(place)
        is_symbol = isinstance(product, SymInt)
        width = 32 if use_32bit_stride else 64
        strides[at] = SymInt(width, divisibility=product.divisibility) if is_symbol else product
        product = shape[at] * product
    return _FakeTensor(dtype, shape, strides, use_32bit_stride=use_32bit_stride, **options)


class _Pointer:
    def __init__(self, dtype: Any, value: int, memspace: AddressSpace, align: int) -> None:
        self.dtype, self.memspace, self._assumed_align, self._value = dtype, memspace, align, value

    def __tvm_ffi_opaque_ptr__(self) -> int:
        return self._value


def make_ptr(
    dtype: Any,
    value: int,
    mem_space: AddressSpace = AddressSpace.generic,
    assumed_align: int | None = None,
) -> _Pointer:
    """`cute.runtime.make_ptr`."""
    return _Pointer(dtype, int(value), mem_space, assumed_align or max(1, dtype.width // 8))


class _FakeStream:
    def __init__(self, *, use_tvm_ffi_env_stream: bool = False) -> None:
        self.use_tvm_ffi_env_stream = use_tvm_ffi_env_stream


class CUstream(int):
    """`cuda.bindings.driver.CUstream`: the handle of a stream."""

    def __tvm_ffi_opaque_ptr__(self) -> int:
        return int(self)


def _const_expr(value: Any) -> Any:
    return value


def _ceil_div(numerator: Any, denominator: Any) -> Any:
    return (numerator + denominator - 1) // denominator


def _decorator(*args: Any, **options: Any) -> Any:
    """Return the function: `@cute.jit`, `@cute.jit(preprocess=False)`."""
    return args[0] if args and not options else _decorator


def _fake_tensor(dtype: Any, shape: Any, stride: Any, **options: Any) -> _FakeTensor:
    return _FakeTensor(dtype, shape, stride, **options)


_CUTE: Mapping[str, Any] = {
    "AddressSpace": AddressSpace,
    "SymInt": SymInt,
    "Tensor": Tensor,
    "ceil_div": _ceil_div,
    "jit": _decorator,
    "kernel": _decorator,
    "sym_int": sym_int,
    "sym_int32": sym_int,
    "sym_int64": lambda **options: SymInt(64, **options),
}
_RUNTIME: Mapping[str, Any] = {
    "find_runtime_libraries": lambda **_: [],
    "from_dlpack": _Tensor,
    "make_fake_compact_tensor": make_fake_compact_tensor,
    "make_fake_stream": _FakeStream,
    "make_fake_tensor": _fake_tensor,
    "make_ptr": make_ptr,
    "nullptr": lambda dtype, *args, **options: make_ptr(dtype, 0, *args, **options),
}
_EVERYWHERE: Mapping[str, Any] = {
    **DTYPES,
    "Arch": Arch,
    "BaseDSL": type("BaseDSL", (), {"_get_dsl": staticmethod(CurrentDsl)}),
    "HardwareInfo": HardwareInfo,
    "NamedBarrier": NamedBarrier,
    "NumericMeta": NumericMeta,
    "const_expr": _const_expr,
    "get_smem_capacity_in_bytes": smem_capacity,
}
"""Names that work outside of kernels, in each module: the DSL has them in several."""
NAMES: Mapping[str, Mapping[str, Any]] = {
    "cutlass": {"range_constexpr": range},
    "cutlass.cutlass_dsl": {},
    "cutlass.cute": _CUTE,
    "cutlass.cute.arch": {"WARP_SIZE": 32},
    "cutlass.cute.typing": _CUTE,
    "cutlass.cute.runtime": _RUNTIME,
    "cutlass.base_dsl": {},
    "cutlass.base_dsl.enums": {},
    "cutlass.base_dsl.typing": {},
    "cutlass.pipeline": {},
    "cutlass.utils": {},
    "cuda.bindings.driver": {"CUstream": CUstream},
}
"""Module -> further names in it that work outside of kernels."""


class AbsentModule(ModuleType):
    """A module whose unknown names exist in kernels alone."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module `{self.__name__}` has no attribute `{name}` here")
        value: Any = _EVERYWHERE.get(name) or absent(f"{self.__name__}.{name}")
        if name.endswith(("Error", "Exception")):
            value = type(name, (RuntimeError,), {"__module__": self.__name__})
        setattr(self, name, value)
        return value


def new_module(name: str, more: Mapping[str, Any]) -> AbsentModule:
    """The stand-in for a module; `more` are further names of `cutlass.cute` and its `runtime`."""
    module = AbsentModule(name)
    vars(module).update(NAMES.get(name, {}))
    vars(module).update({key: value for key, value in more.items() if f"{name}.{key}" in _MORE})
    return module


_MORE = ("cutlass.cute.compile", "cutlass.cute.runtime.load_module")
