"""A unit: one compilation of a kernel function for one target, such as `sm_90a` or `gfx942`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kbuild.backends import rocm
from kbuild.backends.capability import Capability
from kbuild.ops.steps import ConstantPairs, Pairs

ImageKind = Literal["cubin", "ptx", "hsaco", "object"]

_SM = re.compile(r"(?P<kind>sm|compute)_(?P<major>[1-9]\d?)(?P<minor>\d)(?P<feature>[af]?)")
_CPU = "cpu"


@dataclass(frozen=True, order=True)
class ImageTarget:
    """An arch, and a kind of code for it."""

    arch: str
    """`sm_80`, `sm_90a` (this chip), `sm_100f` (its family), `gfx942`."""
    kind: ImageKind
    """The driver compiles PTX, for the arch and later ones. An object is host code that contains
    and launches machine code."""

    def __post_init__(self) -> None:
        if (self.arch, self.kind) == (_CPU, "object"):
            return
        kinds = ("hsaco", "object") if self.is_amd else ("cubin", "ptx", "object")
        if self.kind not in kinds or not (self.is_amd or _SM.fullmatch(self.arch)):
            raise ValueError(f"`{self.arch}` is not an arch of {self.kind} images")
        if self.arch.startswith("compute_"):
            raise ValueError(f"the arch of `{self.arch}` is `{self.arch.replace('compute', 'sm')}`")

    @classmethod
    def parse(cls, text: str) -> ImageTarget:
        """Read `sm_90a`, `compute_80` or `gfx942`.

        Raises:
            ValueError: the text is none of these.
        """
        if text == _CPU:
            return CPU_TARGET
        if rocm.is_arch(text):
            return cls(text, "hsaco")
        match = _SM.fullmatch(text)
        if match is None:
            examples = "`sm_90a`, `compute_80`, `gfx942`"
            raise ValueError(f"`{text}` is not an arch; write e.g. {examples}")
        arch = text.replace("compute_", "sm_")
        return cls(arch, "ptx" if match["kind"] == "compute" else "cubin")

    def __str__(self) -> str:
        return self.arch.replace("sm_", "compute_") if self.kind == "ptx" else self.arch

    @property
    def is_amd(self) -> bool:
        """True for archs that run through HIP."""
        return rocm.is_arch(self.arch)

    @property
    def capability(self) -> Capability | None:
        """The compute capability; None for AMD's archs and the CPU."""
        match = _SM.fullmatch(self.arch)
        if match is None:
            return None
        return Capability(int(match["major"]), int(match["minor"]), match["feature"])

    def is_one_of(self, archs: tuple[str, ...]) -> bool:
        """True if one of `archs`, in the form of `build.toml`, includes this one.

        `9.0` includes `sm_90` and `sm_90a`, `9.0a` only the latter.

        Raises:
            ValueError: one of them is not an arch.
        """
        return any(self._is(arch) for arch in archs)

    def _is(self, arch: str) -> bool:
        capability = self.capability
        if capability is None or rocm.is_arch(arch):
            return arch == self.arch
        wanted = Capability.parse(arch).target
        return capability == wanted or (not wanted.feature and capability.base == wanted.base)


CPU_TARGET = ImageTarget(_CPU, "object")
"""The host's processor, without further details."""


def targets_of_arch(arch: str) -> tuple[ImageTarget, ...]:
    """The targets of an arch of `build.toml`: `8.0+PTX` means `sm_80` and `compute_80`.

    Raises:
        ValueError: it is not an arch.
    """
    if rocm.is_arch(arch):
        return (ImageTarget.parse(arch),)
    wanted = Capability.parse(arch)
    code = ImageTarget(f"sm_{wanted.number}", "cubin")
    return (code, ImageTarget(code.arch, "ptx")) if wanted.ptx else (code,)


_UNIT_FORMAT = 1
"""Version of the unit's meaning; increased when the same unit compiles to something else."""
_LABELS = ("kernel", "op", "launch")
"""Fields that identify the owner of a unit; the image does not depend on them."""


@dataclass(frozen=True)
class KernelUnit:
    """(function, specialisation, candidate, target) of one launch of an op."""

    language: str
    kernel: str
    op: str
    launch: int
    functions: tuple[str, ...]
    """Name of the function; of several names, the first that the source defines."""
    target: ImageTarget
    dtypes: tuple[tuple[str, str], ...]
    """Tensor -> dtype."""
    absent: tuple[str, ...] = ()
    scalars: tuple[tuple[str, str], ...] = ()
    """Names that are not tensors -> `int`, `float` or `bool`."""
    args: tuple[tuple[str, str], ...] = ()
    """Kernel argument -> its source as text, as far as the section has it."""
    constants: ConstantPairs = ()
    dtype_constants: tuple[tuple[str, str], ...] = ()
    """Constants that are dtypes -> Torch's name."""
    options: Pairs = ()
    aligned: bool = False
    """True if pointers are assumed to be divisible by 16, and `divisible` and `ones` apply."""
    divisible: tuple[str, ...] = ()
    """Integer arguments that are assumed to be divisible by 16."""
    ones: tuple[str, ...] = ()
    """Integer arguments that are assumed to be 1."""
    int64: tuple[str, ...] = ()
    """Integer arguments with 64 bits; others have 32."""

    def key(self, sources: Mapping[str, str], toolchain: Mapping[str, str]) -> str:
        """Return the cache key of the unit's image: 64 hexadecimal digits.

        Units of different ops that compile the same share it. `sources` has the digest of every
        file that the function can see, `toolchain` versions of distributions and programs.
        """
        facts = {name: fact for name, fact in self.to_json().items() if name not in _LABELS}
        identity = {"format": _UNIT_FORMAT, "unit": facts}
        content = {**identity, "sources": dict(sources), "toolchain": dict(toolchain)}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The unit as a JSON object; pairs are lists, since the order counts."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        lists = {name: _to_lists(value) for name, value in plain.items()}
        return {**lists, "target": str(self.target)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KernelUnit:
        """The inverse of `to_json`.

        Raises:
            ValueError: it is not a unit.
        """
        if data.keys() != cls.__dataclass_fields__.keys():
            mismatched = sorted(data.keys() ^ cls.__dataclass_fields__.keys())
            raise ValueError(f"not a unit: {', '.join(mismatched)} missing or unknown")
        fields = {name: _to_tuples(value) for name, value in data.items()}
        return cls(**{**fields, "target": ImageTarget.parse(str(data["target"]))})


def _to_lists(value: Any) -> Any:
    return [*map(_to_lists, value)] if isinstance(value, tuple) else value


def _to_tuples(value: Any) -> Any:
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value
