"""One exported image: what its header says, for C compilers and for `kbuild aot link`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kbuild.errors import UsageError
from kbuild.languages.export.signature import Argument, Signature, Value
from kbuild.languages.spec.values import Pairs
from kbuild.languages.target import Target

FORMAT = 1
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEYWORDS = """
alignas alignof and asm auto bool break case catch char class const constexpr continue default
delete do double else enum explicit export extern false float for friend goto if inline int long
mutable namespace new noexcept not nullptr operator or private protected public register restrict
return short signed sizeof static struct switch template this throw true try typedef typename union
unsigned using virtual void volatile while xor
"""
_TAKEN = frozenset((*_KEYWORDS.split(), "stream", "algo", "result", "fits"))
"""Words of C and C++, and what the generated functions call their own."""


@dataclass(frozen=True)
class Variant:
    """What one pair of files holds."""

    name: str
    """What joined functions are called."""
    target: str
    """`sm_90a`, `compute_80`, `gfx942`."""
    arguments: tuple[Argument, ...]
    constants: tuple[tuple[str, Value], ...] = ()
    options: Pairs = ()
    """`num_warps` and the like."""
    grid: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for word in (self.name, *(argument.name for argument in self.arguments)):
            if not _NAME.fullmatch(word):
                raise UsageError(f"`{word}` is no name in C", hint="give another with --out-name")
        Target.parse(self.target)

    @property
    def backend(self) -> str:
        """`cuda` or `hip`."""
        return "hip" if Target.parse(self.target).kind == "hsaco" else "cuda"

    @property
    def digest(self) -> str:
        """8 hexadecimal digits of everything but the arch."""
        facts = {key: value for key, value in self.to_json().items() if key != "target"}
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def symbol(self) -> str:
        """The launch function; the arch is part of it."""
        return f"{self.name}_{self.target}_{self.digest}"

    @property
    def algo(self) -> tuple[str, ...]:
        """Everything that an author chooses between: constants and options, as `BLOCK=1024`."""
        pairs = (*self.constants, *self.options)
        return tuple(f"{name}={json.dumps(value)}" for name, value in pairs)

    def to_json(self) -> dict[str, Any]:
        """The variant as a JSON object."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Variant:
        """The inverse of `to_json`.

        Raises:
            ValueError: it is no variant.
        """
        try:
            if data["format"] != FORMAT:
                raise ValueError(f"format {data['format']}, and this kbuild reads {FORMAT}")
            return cls(
                name=str(data["name"]),
                target=str(data["target"]),
                arguments=tuple(Argument(**one) for one in data["arguments"]),
                constants=_pairs(data["constants"]),
                options=_pairs(data["options"]),
                grid=tuple(str(axis) for axis in data["grid"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a variant: {error}") from error


def variant_of(
    name: str, target: Target, signature: Signature, options: Pairs, grid: Sequence[str]
) -> Variant:
    """The variant that a command line asks for."""
    return Variant(
        name, str(target), signature.arguments, signature.constants, options, tuple(grid)
    )


def c_name(argument: Argument) -> str:
    """What the argument is called in C."""
    return f"{argument.name}_" if argument.name in _TAKEN else argument.name


def _pairs(data: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((str(name), value) for name, value in data)
