"""Torch's dtypes, their limits, devices, sizes and versions, for the stub of Torch."""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from kbuild.dsl.worker import device as devices

DTYPES = {
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1,
    "bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4,
    "uint64": 8, "complex32": 4, "complex64": 8, "complex128": 16,
}  # fmt: skip
ALIASES = {"half": "float16", "float": "float32", "double": "float64", "short": "int16"}
ALIASES |= {"int": "int32", "long": "int64", "chalf": "complex32", "cfloat": "complex64"}
ALIASES |= {"cdouble": "complex128"}
_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)(?:(?:a|b|rc|\.?dev|\+)[\w.]*)?")
_FLOATS = {  # largest, smallest step from 1, smallest normal, decimal resolution
    "float16": (65504.0, 2.0**-10, 2.0**-14, 1e-3),
    "bfloat16": ((2 - 2.0**-7) * 2.0**127, 2.0**-7, 2.0**-126, 1e-2),
    "float32": ((2 - 2.0**-23) * 2.0**127, 2.0**-23, 2.0**-126, 1e-6),
    "float64": (sys.float_info.max, sys.float_info.epsilon, sys.float_info.min, 1e-15),
    "float8_e4m3fn": (448.0, 2.0**-3, 2.0**-6, 1.0),
    "float8_e5m2": (57344.0, 2.0**-2, 2.0**-14, 1.0),
    "float8_e4m3fnuz": (240.0, 2.0**-3, 2.0**-7, 1.0),
    "float8_e5m2fnuz": (57344.0, 2.0**-3, 2.0**-15, 1.0),
}


class dtype:  # noqa: N801 - its name in Torch, which Triton looks at
    """`torch.dtype`."""

    __module__ = "torch"

    def __init__(self, name: str) -> None:
        self._name, self.itemsize = name, DTYPES[name]
        self.is_floating_point, self.is_complex = "float" in name, name.startswith("complex")
        # `float8_e8m0fnu` is an exponent alone.
        self.is_signed = not name.startswith(("bool", "uint", "float8_e8m0"))

    def __repr__(self) -> str:
        return f"torch.{self._name}"


class TorchDevice:
    """`torch.device`."""

    def __init__(self, device: Any = None, index: int | None = None, **named: Any) -> None:
        kind: Any = named.get("type", device)
        if isinstance(kind, TorchDevice):
            kind, index = str(kind.type), kind.index
        elif isinstance(kind, int):
            kind, index = "cuda", kind
        if not isinstance(kind, str):
            raise TypeError(f"torch.device() takes a name or a number, not {kind!r}")
        name, _, number = kind.partition(":")
        self.type: str = name
        self.index: int | None = int(number) if number else named.get("index", index)

    @classmethod
    def current(cls, question: str) -> TorchDevice | None:
        """The device that is compiled for; None for the CPU."""
        return cls("cuda") if devices.current.ask(question).backend else None

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TorchDevice) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class TorchSize(tuple):  # type: ignore[type-arg]
    """`torch.Size`."""

    __slots__ = ()

    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self)


class TorchVersion(str):  # noqa: SLOT000 - it has an attribute
    """`torch.__version__`, which compares as a version."""

    releases: Sequence[str] = ()
    """Releases that the code may run with, the visible one first."""

    def _compare(self, other: Any, compare: Callable[[Any, Any], bool]) -> bool:
        """Compare; refuse if the author's code would get different answers with other releases.

        Modules are imported with each release instead, see `SourceModules`.
        """
        text = ".".join(map(str, other)) if isinstance(other, (tuple, list)) else str(other)
        match = _VERSION.fullmatch(text)
        if match is None:
            devices.current.refuse(f"`torch.__version__` cannot be compared with {other!r}")
        answers = [compare(*_aligned(release, match[1])) for release in self.releases]
        # Frame 1 is the operator's method below, which the author's code calls.
        caller = sys._getframe(2).f_code.co_filename  # noqa: SLF001 - the documented way to a caller
        device = devices.current
        if len({*answers}) > 1 and not device.importing and device.is_author(caller):
            message = f"the answer differs among {devices.TORCH_RELEASES}"
            hint = "make the same kernel for all of them"
            device.refuse(f"`torch.__version__` is compared with {text!r}: {message}", hint)
        return answers[0]

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, operator.lt)

    def __le__(self, other: Any) -> bool:
        return self._compare(other, operator.le)

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, operator.gt)

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, operator.ge)

    def __eq__(self, other: object) -> bool:
        # Unlike `<`, equality has an answer for a text that is no version.
        if isinstance(other, str) and not _VERSION.fullmatch(other):
            return str.__eq__(self, other)
        return isinstance(other, (str, tuple, list)) and self._compare(other, operator.eq)

    def __ne__(self, other: object) -> bool:
        if isinstance(other, str) and not _VERSION.fullmatch(other):
            return str.__ne__(self, other)
        return not isinstance(other, (str, tuple, list)) or self._compare(other, operator.ne)

    # A class that defines `__eq__` has no hash otherwise.
    __hash__ = str.__hash__


def _aligned(*versions: str) -> list[tuple[int, ...]]:
    """Versions as tuples of numbers of equal length."""
    numbers = [tuple(map(int, version.split("."))) for version in versions]
    length = max(map(len, numbers))
    return [(*parts, *[0] * (length - len(parts))) for parts in numbers]


class _Limits:
    """`torch.finfo` and `torch.iinfo`."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def limits(kind: Any) -> _Limits:
    """`torch.finfo` or `torch.iinfo` of a dtype."""
    name = getattr(kind, "_name", kind if isinstance(kind, str) else "")
    bits = DTYPES.get(name, 0) * 8
    if name in _FLOATS:
        largest, eps, tiny, resolution = _FLOATS[name]
        return _Limits(
            max=largest, min=-largest, eps=eps, tiny=tiny, smallest_normal=tiny, bits=bits,
            resolution=resolution, dtype=name,
        )  # fmt: skip
    if not bits or "int" not in name:
        devices.current.refuse(f"the limits of `{kind}` are not known without the real module")
    if name.startswith("u"):
        return _Limits(max=2**bits - 1, min=0, bits=bits, dtype=name)
    return _Limits(max=2 ** (bits - 1) - 1, min=-(2 ** (bits - 1)), bits=bits, dtype=name)
