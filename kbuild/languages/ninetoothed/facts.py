"""What the worker says of a NineToothed kernel, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kbuild.languages.spec.values import Pairs


@dataclass(frozen=True)
class Part:
    """A parameter of the Triton function that was made of the kernel."""

    name: str
    """`input_ptr`, `input_size_0`, `alpha`; a constant's own name."""
    kind: Literal["pointer", "size", "stride", "scalar", "fixed", "power", "constant"]
    """`fixed` is a size that the code is made for, `power` its next power of two."""
    tensor: str
    """The application's parameter that it belongs to."""
    axis: int


@dataclass(frozen=True)
class Tensor:
    """A `ninetoothed.Tensor` of the kernel."""

    rank: int
    """0 for a number."""
    constant: bool
    """A number that `premake` fixes."""
    bounds: tuple[int | None, ...]
    """`upper_bound` of each dimension, for tuning."""


@dataclass(frozen=True)
class Config:
    """One entry of `configs`."""

    constants: Pairs
    """What `premake` is given, as far as configs differ in it or tuning chooses it."""
    options: Pairs
    grid: str
    """How many blocks, over `size(<parameter>, <axis>)`."""
    shapes: Mapping[str, tuple[int | None, ...]]
    """Sizes that are written into the kernel; None for those that are asked of the call."""
    dtypes: Mapping[str, str | None]
    """Torch's names; None where the kernel takes any."""
    by_dtype: bool = False
    """Whether the kernel's text depends on them."""


@dataclass(frozen=True)
class Facts:
    """A kernel with all its configs."""

    name: str
    parts: tuple[Part, ...]
    wide: str
    """The constant that says whether sizes and strides need 64 bits."""
    tensors: Mapping[str, Tensor]
    """By the application's parameters, in order."""
    written: tuple[str, ...]
    """Those that the kernel stores to."""
    configs: tuple[Config, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Facts:
        """Read what the worker wrote."""
        return cls(
            data["name"],
            tuple(Part(**part) for part in data["parameters"]),
            data["wide"],
            {name: _tensor(one) for name, one in data["tensors"].items()},
            tuple(data["written"]),
            tuple(_config(one) for one in data["configs"]),
        )


def _tensor(data: Mapping[str, Any]) -> Tensor:
    return Tensor(data["rank"], data["constant"], tuple(data["bounds"]))


def _config(data: Mapping[str, Any]) -> Config:
    shapes = {name: tuple(shape) for name, shape in data["shapes"].items()}
    constants, options = tuple(data["constants"].items()), tuple(data["options"].items())
    return Config(constants, options, data["grid"], shapes, data["dtypes"], data["by_dtype"])
