"""The text of the Triton module that is made of a kernel's configs. Needs nothing but Python."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kbuild.languages.worker.ninetoothed.wide import has_long_loops, widened
from kbuild.languages.worker.protocol import RefusalError

_HEAD = "import triton\nimport triton.language\nimport triton.language as tl\n"
_DECORATOR = "@triton.jit\n"
FIXED = ("fixed", "power")
"""Kinds of parameters that are constants of the code: a size, and its next power of two."""


class Variant(NamedTuple):
    """What one set of constants means for some dtypes."""

    conditions: tuple[str, ...]
    callee: str
    config: Mapping[str, Any]


def named(tensor: str, kind: str, axis: int) -> str:
    """What a parameter is called in the entry."""
    word = {"fixed": "size"}.get(kind, kind)
    return {"pointer": f"{tensor}_ptr", "scalar": tensor}.get(kind, f"{tensor}_{word}_{axis}")


class Entry(NamedTuple):
    """The function that calls the configs' own ones."""

    name: str
    parameters: Sequence[str]
    constants: Sequence[str]
    wide: str
    """The last constant."""
    variants: Sequence[Variant]

    def text(self) -> str:
        """The function: a branch for each variant, decided when it is compiled."""
        words = [*self.parameters]
        words += [f"{one}: tl.constexpr" for one in (*self.constants, self.wide)]
        lines = [f"@triton.jit\ndef {self.name}({', '.join(words)}):"]
        keyword = "if"
        for variant in self.variants:
            conditions = " and ".join(f"({one})" for one in variant.conditions) or "True"
            passed = ", ".join(_passed(variant.config, self.wide, self.constants))
            lines += [f"    {keyword} {conditions}:", f"        {variant.callee}({passed})"]
            keyword = "elif"
        lines += ["    else:", "        tl.static_assert(False, 'no config has these constants')"]
        return "\n".join(lines) + "\n"


def module(entry: Entry, configs: Sequence[Mapping[str, Any]]) -> str:
    """The module: imports, what the applications call, the configs' functions, the entry.

    Raises:
        RefusalError: two of these would have one name.
    """
    imports = dict.fromkeys(line for config in configs for line in config["imports"])
    functions = {one.callee: _function(one.config, one.callee) for one in entry.variants}
    helpers = _helpers({entry.name, *functions}, configs)
    parts = [
        _HEAD + "".join(f"{line}\n" for line in imports if line not in _HEAD),
        *(f"@triton.jit\n{text.removeprefix(_DECORATOR)}\n" for text in helpers.values()),
        *(f"{text}\n" for text in functions.values()),
        entry.text(),
    ]
    return "\n\n".join(parts)


def _helpers(taken: Collection[str], configs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for config in configs:
        for helper, text in sorted(config["helpers"].items()):
            if found.setdefault(helper, text) != text or helper in taken:
                raise RefusalError(f"two functions are called `{helper}`: rename one")
    return found


def _function(config: Mapping[str, Any], callee: str) -> str:
    """A config's own function, which is told as its last argument how many bits it needs."""
    (function,) = ast.parse(config["source"]).body
    if not isinstance(function, ast.FunctionDef):  # pragma: no cover - the generator wrote one
        raise RefusalError(f"`{config['function']}` is no function")
    function.name = callee
    names = {one.id for one in ast.walk(function) if isinstance(one, ast.Name)}
    wide = free("wide", names | {one.arg for one in function.args.args})
    widened(function, wide, loops=has_long_loops(config))
    return ast.unparse(function)


def free(name: str, taken: set[str]) -> str:
    """The name, or one like it that is not taken yet; it is taken afterwards."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _passed(config: Mapping[str, Any], wide: str, constants: Collection[str]) -> Iterator[str]:
    for one in config["parameters"]:
        word = named(one["tensor"], one["kind"], one["axis"])
        if word in constants:
            yield word
        elif one["kind"] in ("size", "stride"):
            yield f"{word} if {wide} else tl.cast({word}, tl.int32)"
        elif one["kind"] == "constant":
            yield repr(config["tensors"][one["tensor"]]["value"])
        else:
            yield word
    yield wide
