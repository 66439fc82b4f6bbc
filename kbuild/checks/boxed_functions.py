"""Functions that Torch's stable ABI boxes: their types, as names of symbols have them.

The compiler writes `torch::stable::detail::boxer<T, f>::boxed_fn` into an object for each of them,
where T is the function's type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

BOXED_SYMBOL = "6stable6detail5boxerI"
"""Part of the symbols of boxed functions."""
_BOXER, _BOXED_END = "torch::stable::detail::boxer<", ">::boxed_fn("


class BoxedFunction(NamedTuple):
    """A function whose type a compiler wrote into an object."""

    name: str
    """Qualified, without unnamed namespaces and template arguments."""
    parameters: tuple[str, ...]
    results: tuple[str, ...]


def read_boxed(symbol: str) -> BoxedFunction | None:
    """The function of a demangled `boxer<double (Tensor, int), &(scale(Tensor, int))>::boxed_fn`.

    None for other symbols.
    """
    if not symbol.startswith(_BOXER) or not symbol.endswith("long)"):
        return None
    symbol = symbol.replace("(anonymous namespace)::", "")
    inner = symbol[len(_BOXER) : symbol.rindex(_BOXED_END)]
    kind, function, *_ = (*_split(inner), "")
    opening = next(iter(_places(kind, "(")), -1)
    parameters = _split(kind[opening + 1 : kind.rindex(")")]) if opening >= 0 else []
    returned = kind[:opening].strip()
    template, inside = template_parts(returned)
    results = inside if template == "std::tuple" else () if returned == "void" else (returned,)
    name = function.removeprefix("&")
    if name.startswith("("):
        name = name[1 : name.rindex(")")]
    name = name[: next(iter(_places(name, "(")), len(name))]
    name = name[max(_places(name, " "), default=-1) + 1 :]
    return BoxedFunction(template_parts(name)[0], tuple(parameters), tuple(results))


def _places(text: str, sign: str) -> Iterator[int]:
    """The indexes of a sign outside of brackets."""
    depth = 0
    for at, char in enumerate(text):
        if char == sign and depth == 0:
            yield at
        depth += (char in "<([") - (char in ">)]")


def _split(text: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    cuts = [-1, *_places(text, ","), len(text)]
    parts = [text[start + 1 : end].strip() for start, end in pairwise(cuts)]
    return [part for part in parts if part]


def template_parts(text: str) -> tuple[str, tuple[str, ...]]:
    """`std::optional<double>` as its name and arguments; any other text as itself."""
    opening = next(iter(_places(text, "<")), -1)
    if opening < 0 or not text.endswith(">"):
        return text, ()
    return text[:opening], tuple(_split(text[opening + 1 : -1]))


CXX_TYPES: Mapping[str, str] = {
    "Tensor": "torch::stable::Tensor",
    "int": "int64_t",
    "float": "double",
    "bool": "bool",
    "str": "std::string",
    "Device": "torch::stable::Device",
    "ScalarType": "torch::headeronly::ScalarType",
    "Layout": "torch::headeronly::Layout",
    "MemoryFormat": "torch::headeronly::MemoryFormat",
    "Generator": "torch::stable::Generator",
}
"""Types of schemas that the stable ABI hands over, and what they are in C++."""
_KINDS: Mapping[str, str] = {
    **{name.rpartition("::")[2]: schema for schema, name in CXX_TYPES.items() if "::" in name},
    "basic_string": "str",
    "basic_string_view": "str",
    "double": "float",
    "bool": "bool",
    **dict.fromkeys(("long", "long long", "unsigned long", "unsigned long long"), "int"),
}
_NARROW: Mapping[str, str] = {
    **dict.fromkeys(("signed char", "unsigned int", "unsigned short", "unsigned char"), "int"),
    **dict.fromkeys(("int", "short", "char"), "int"),
    "float": "float",
}
"""Types with fewer bits than the stable ABI hands over, and what they are in schemas."""
_LISTS = ("vector", "HeaderOnlyArrayRef")
_NARROW_TYPE = "narrow "


def schema_type(cxx: str) -> str:
    """`int[]` of `std::vector<long, std::allocator<long> > const&`; empty for an unknown type."""
    plain = cxx.replace(" const", "").replace("const ", "").rstrip("& ")
    template, inside = template_parts(plain)
    name = template.rpartition("::")[2]
    if name == "optional" and inside:
        return f"{inner}?" if (inner := schema_type(inside[0])) else ""
    if name in _LISTS and inside:
        return f"{inner}[]" if (inner := schema_type(inside[0])) else ""
    if plain in _NARROW:
        return f"{_NARROW_TYPE}{plain}"
    return _KINDS.get(name, "")


def widened(given: str) -> str:
    """The schema's type, whatever the number of bits is."""
    for narrow, schema in _NARROW.items():
        given = given.replace(f"{_NARROW_TYPE}{narrow}", schema)
    return given


def shown_type(cxx: str) -> str:
    """The type as an author would write it."""
    for long, short in (
        (", std::allocator<char> ", ""),
        ("std::__cxx11::basic_string<char, std::char_traits<char>>", "std::string"),
        ("std::basic_string_view<char, std::char_traits<char> >", "std::string_view"),
    ):
        cxx = cxx.replace(long, short)
    template, inside = template_parts(cxx.removesuffix("&").removesuffix(" const"))
    if template == "std::vector":
        return f"std::vector<{shown_type(inside[0])}>"
    return {"long": "int64_t", "unsigned long": "uint64_t", "int": "int32_t"}.get(cxx, cxx)


def cxx_type(wanted: str) -> str:
    """The type that C++ has for a type of a schema."""
    if wanted.endswith("?"):
        return f"std::optional<{cxx_type(wanted[:-1])}>"
    if wanted.endswith("[]"):
        return f"std::vector<{cxx_type(wanted[:-2])}>"
    return CXX_TYPES.get(wanted, wanted)
