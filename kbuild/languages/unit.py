"""One compilation of a kernel function: everything that its image depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbuild.languages.spec.dtypes import DTYPES
from kbuild.languages.spec.values import Given, Pairs
from kbuild.languages.target import Target

_FORMAT = 1
"""Rises when the same unit would be compiled to something else."""
_LABELS = ("kernel", "op", "launch")
"""Whose unit it is; the image does not depend on that."""


@dataclass(frozen=True)
class Unit:
    """(function, specialisation, candidate, target) of one launch of an op."""

    language: str
    kernel: str
    """The `[kernel.*]` section."""
    op: str
    launch: int
    """Index into the op's launches."""
    functions: tuple[str, ...]
    """The function's name; several when the first that the source has is meant."""
    target: Target
    dtypes: tuple[tuple[str, str], ...]
    """Tensor -> dtype."""
    absent: tuple[str, ...] = ()
    """Tensors that are None."""
    scalars: tuple[tuple[str, str], ...] = ()
    """Names that are no tensors -> `int`, `float` or `bool`."""
    args: tuple[tuple[str, str], ...] = ()
    """Kernel argument -> what it gets, where the section says so."""
    constants: Given = ()
    dtype_constants: tuple[tuple[str, str], ...] = ()
    """Constants that are dtypes -> Torch's name."""
    options: Pairs = ()
    """Launch options, `num_warps` and the like."""
    aligned: bool = False
    """Whether pointers are assumed to be divisible by 16, and what follows holds."""
    divisible: tuple[str, ...] = ()
    """Integer arguments that are assumed to be divisible by 16."""
    ones: tuple[str, ...] = ()
    """Integer arguments that are assumed to be 1."""
    int64: tuple[str, ...] = ()
    """Integer arguments with 64 bits; others have 32."""

    def __post_init__(self) -> None:
        for tensor, dtype in self.dtypes:
            if dtype not in DTYPES:
                raise ValueError(f"`{tensor}` has the dtype `{dtype}`, which is none")
        for name, dtype in self.dtype_constants:
            if dtype not in DTYPES:
                raise ValueError(f"the constant `{name}` is the dtype `{dtype}`, which is none")
        unknown = set(self.absent) - dict(self.dtypes).keys()
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))}: absent, but not a tensor")
        if not self.aligned and (self.divisible or self.ones):
            raise ValueError("a plain unit assumes nothing")
        if not self.functions:
            raise ValueError("a unit compiles a function")

    def key(self, sources: Mapping[str, str], toolchain: Mapping[str, str]) -> str:
        """The name of the unit's image in a cache: 64 hexadecimal digits.

        Units of different ops that compile the same share it.

        Args:
            sources: path -> digest of every file that the function can see.
            toolchain: distribution or program -> version.
        """
        facts = {name: fact for name, fact in self.to_json().items() if name not in _LABELS}
        content = {
            "format": _FORMAT,
            "unit": facts,
            "sources": dict(sources),
            "toolchain": dict(toolchain),
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The unit as a JSON object; pairs are lists, since the order counts."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**_listed(plain), "target": str(self.target)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Unit:
        """The inverse of `to_json`.

        Raises:
            ValueError: it is no unit.
        """
        if data.keys() != cls.__dataclass_fields__.keys():
            odd = sorted(data.keys() ^ cls.__dataclass_fields__.keys())
            raise ValueError(f"not a unit: {', '.join(odd)} missing or unknown")
        fields = {name: _tupled(value) for name, value in data.items()}
        return cls(**{**fields, "target": Target.parse(str(data["target"]))})


def _listed(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: [list(item) if isinstance(item, tuple) else item for item in value]
        if isinstance(value, tuple)
        else value
        for name, value in fields.items()
    }


def _tupled(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(tuple(item) if isinstance(item, list) else item for item in value)
    return value
