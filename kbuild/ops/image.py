"""An image: device code for one target, and the facts that a launcher needs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from kbuild.ops.unit import ImageKind, ImageTarget, KernelUnit

if TYPE_CHECKING:
    from pydantic import TypeAdapter

ParameterKind = Literal[
    "pointer", "int", "float", "tensor_map", "global_scratch", "profile_scratch", "tensor", "flat"
]
Convention = Literal["", "tvm-ffi", "c", "export"]
Loading = Literal["", "function", "library"]
_TYPES = {
    "pointer": re.compile(r"\*(?:fp(?:16|32|64|8e4nv|8e5)|bf16|[iu](?:1|8|16|32|64))"),
    "int": re.compile(r"[iu](?:1|8|16|32|64)"),
    "float": re.compile(r"fp(?:16|32|64)|bf16"),
    "tensor_map": re.compile(r"tensor_map"),
}
_SETS = ("divisible", "ones", "adds", "reads")
_SYMBOL = re.compile(r"[A-Za-z_$][\w$.]*")
_LOAD_FUNCTIONS = 2
_MOST_THREADS = 1024
_MOST_DIMENSIONS = 5
_MOST_BOX = 256
"""Maximum of a box's elements in one dimension."""
_MOST_SWIZZLE = 3
_MOST_BLOCKS = 16
"""Blocks of the largest cluster; more than 8 need a kernel attribute."""


@dataclass(frozen=True)
class ImageParameter:
    """One parameter of the device function, or of an object's function, in order."""

    kind: ParameterKind
    """Kind of value. `tensor` is a whole tensor, `flat` a contiguous tensor as one dimension;
    only objects take these."""
    type: str
    """Type such as `*fp16`, `i32`, `fp32`, `u1`; `*i8` for scratch memory."""
    name: str = ""
    """Name in the kernel function, or of a part: `shape.0`, `a_desc.stride.1`; empty for scratch
    memory."""

    def __post_init__(self) -> None:
        pattern = _TYPES.get(self.kind, _TYPES["pointer"])
        if not pattern.fullmatch(self.type):
            raise ValueError(f"`{self.name or self.kind}` has the type `{self.type}`")
        if bool(self.name) == self.kind.endswith("_scratch"):
            raise ValueError(f"`{self.kind}` {'with the' if self.name else 'without a'} name")


@dataclass(frozen=True)
class TensorMap:
    """Values with which the launcher encodes a `tensor_map` parameter, a `CUtensorMap`.

    The other values are the same for all maps: tiled, no interleave, L2 promotion of 128 bytes,
    element strides of 1. The driver counts dimensions from the last one: sizes, strides and box
    are passed in reverse, strides in bytes and without that of the last dimension, which must be 1.
    """

    parameter: str
    """Name of the `tensor_map` parameter; its sizes and strides are separate parameters."""
    block: tuple[int, ...]
    """Box that one copy loads, which may be smaller than the kernel's block."""
    element_size: int
    element_type: int
    """`CUtensorMapDataType`."""
    swizzle: int
    """`CUtensorMapSwizzle`: 0 none, 1 32 bytes, 2 64 bytes, 3 128 bytes."""
    fp4_padded: bool = False
    """True if two elements share a byte, so that the last size is twice that of the tensor."""

    def __post_init__(self) -> None:
        is_box = all(0 < size <= _MOST_BOX for size in self.block)
        if not is_box or not 0 < len(self.block) <= _MOST_DIMENSIONS:
            raise ValueError(f"`{self.parameter}` is copied in boxes of {self.block}")
        if self.element_size not in (1, 2, 4, 8) or not 0 <= self.swizzle <= _MOST_SWIZZLE:
            raise ValueError(f"`{self.parameter}` is not a tensor map")


@dataclass(frozen=True)
class KernelImage:
    """Facts of an image; the code is stored in a separate file."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    language: str
    arch: str
    """`sm_80`, `sm_90a`, `sm_100f`, `gfx942`; for PTX, the oldest arch that can run it."""
    kind: ImageKind
    entry: str
    """Symbol of the device function; of an object, the C function that launches it."""
    parameters: tuple[ImageParameter, ...]
    shared: int
    """Bytes of dynamic shared memory."""
    threads: int
    cluster: tuple[int, int, int] = (1, 1, 1)
    scratch: int = 0
    """Bytes of global scratch memory for each block."""
    scratch_align: int = 1
    tensor_maps: tuple[TensorMap, ...] = ()
    """One for each `tensor_map` parameter, in order."""
    pdl: bool = False
    """True if it is launched with programmatic dependent launch."""
    cooperative: bool = False
    registers: int | None = None
    """Registers per thread, if the compiler reports them."""
    spills: int | None = None
    constants: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Constants that were fixed when it was compiled."""
    divisible: frozenset[str] = frozenset()
    """Parameters that were assumed to be divisible by 16."""
    ones: frozenset[str] = frozenset()
    """Arguments that were assumed to be 1; most compilers drop the parameter."""
    adds: frozenset[str] = frozenset()
    """Parameters whose memory is only changed by atomic additions."""
    reads: frozenset[str] = frozenset()
    """Parameters whose memory is read before it is written, as far as known."""
    types: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Kernel argument -> type that it was compiled for."""
    compiler: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Program -> version: `triton` -> `3.9.0`, `ptxas` -> `13.4`."""
    driver: int = 0
    """Oldest CUDA driver that can launch it, as `cuDriverGetVersion` counts; 0 if any can."""
    convention: Convention = ""
    """Calling convention of an object, see `kbuild.dsl.launcher.objects`."""
    loading: Loading = ""
    """Way to make an object load its code; empty if it loads with the first call."""
    load_functions: tuple[str, ...] = ()
    """Object's functions, with `loading = "library"`, that create its library and load it on
    a device. The launcher replaces them and calls the originals."""

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ValueError(f"the image `{self.entry}` for {self.arch}: {problem}")

    @property
    def target(self) -> ImageTarget:
        """The arch and the kind of code."""
        return ImageTarget(self.arch, self.kind)

    def _problems(self) -> list[str]:
        _ = self.target  # raises ValueError for an unknown arch
        names = [parameter.name for parameter in self.parameters if parameter.name]
        maps = [parameter.name for parameter in self.parameters if parameter.kind == "tensor_map"]
        described = [tensor_map.parameter for tensor_map in self.tensor_maps]
        is_object, align = self.kind == "object", self.scratch_align
        # A part may be passed twice, with 32 and with 64 bits.
        full_names = [name for name in names if "." not in name]
        checks = {
            "its entry is not a symbol": not _SYMBOL.fullmatch(self.entry),
            f"{self.threads} threads": not 0 < self.threads <= _MOST_THREADS,
            f"{self.shared} bytes of shared memory": self.shared < 0,
            f"{self.scratch} bytes of scratch memory": self.scratch < 0,
            f"scratch memory aligned to {align}": align <= 0 or bool(align & (align - 1)),
            f"a cluster of {self.cluster}": min(self.cluster) <= 0
            or math.prod(self.cluster) > _MOST_BLOCKS,
            "two parameters with one name": len(set(full_names)) < len(full_names),
            "tensor maps and parameters differ": described != maps,
            "it makes an assumption about an unknown parameter": not is_object
            and not self.divisible <= set(names),
            "an object without a calling convention": is_object != bool(self.convention),
            "a library needs two functions that load it": (self.loading == "library")
            != (len(self.load_functions) == _LOAD_FUNCTIONS),
            "scratch memory, but no parameter for it": bool(self.scratch)
            and not any(parameter.kind == "global_scratch" for parameter in self.parameters),
        }
        return [problem for problem, wrong in checks.items() if wrong]

    def to_json(self) -> dict[str, Any]:
        """The image as a JSON object."""
        return {**asdict(self), **{key: sorted(getattr(self, key)) for key in _SETS}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KernelImage:
        """Parse the JSON object of `to_json`.

        Raises:
            ValueError: it is not an image.
        """
        from pydantic import ValidationError

        try:
            return _image_adapter().validate_python(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(
                f"not an image: {place}: {first['msg']}".replace(": :", ":")
            ) from error


@cache
def _image_adapter() -> TypeAdapter[KernelImage]:
    from pydantic import TypeAdapter

    return TypeAdapter(KernelImage)


@dataclass(frozen=True)
class UnitImage:
    """A unit with its compiled image and code."""

    unit: KernelUnit
    image: KernelImage
    code: bytes
    """A cubin, PTX text, an hsaco, or an object that contains a cubin."""
    seconds: float = field(default=0.0, compare=False)
    """Seconds that the compilation took, in whichever run."""
    cached: bool = field(default=False, compare=False)
    """True if the image came from the cache."""

    def __post_init__(self) -> None:
        if not self.code:
            raise ValueError(f"the image `{self.image.entry}` for {self.image.arch} is empty")
        target = self.unit.target
        kinds = {target.kind} if target.kind == "ptx" else {target.kind, "object"}
        if self.image.arch != target.arch or self.image.kind not in kinds:
            raise ValueError(f"an image for {self.image.target} of a unit for {target}")
