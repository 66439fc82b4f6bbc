"""Where a C++ symbol belongs, read off its mangled name (Itanium C++ ABI, 5.1)."""

from __future__ import annotations

import re

# What a special name is of (`TV`: virtual table, `Th`: thunk, `Z`: local to a function), then `N`
# and the qualifiers of a nested name.
_ENTITY = re.compile(
    r"_Z(?:T[VTISHW]|Th[n\d]+_|Tv[n\d]+_[n\d]+_|GV|GR)?Z?(?:N[rVK]*[RO]?)?(?P<begin>.*)"
)
_STANDARD = re.compile(r"_Z(?:T[VTISHW]|GV|GR)?Z?(?:N[rVK]*[RO]?)?(?:St|S[absiod])")
_LENGTH = re.compile(r"(\d+)")


def entity(name: str) -> str | None:
    """The mangled name from its outermost scope on (`2at4_ops...`); None for C names."""
    found = _ENTITY.fullmatch(name)
    return found["begin"] if found else None


def is_standard(name: str) -> bool:
    """True for what lives in `std`."""
    return _STANDARD.match(name) is not None


def namespace(name: str) -> str:
    """The outermost scope: `c10`, `std`; empty for C and for types that are in none.

    A function in no namespace is its own scope.
    """
    if is_standard(name):
        return "std"
    begin = entity(name) or ""
    length = _LENGTH.match(begin)
    return begin[length.end() :][: int(length[1])] if length else ""
