"""Kernels in CuTe DSL as C: for each target a header, an object, and what headers leave out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.errors import UsageError
from kbuild.fileset import FileSet
from kbuild.languages.base import Flavour
from kbuild.languages.compiled import Compiled
from kbuild.languages.cute import Cute
from kbuild.languages.cute.releases import release_of, version_of
from kbuild.languages.cute.signature import described, read_arguments
from kbuild.languages.inputs import digest
from kbuild.languages.spec.arguments import Bound
from kbuild.languages.spec.dtypes import DTYPES
from kbuild.languages.target import Target
from kbuild.languages.unit import Unit

_CUDA = re.compile(r"cuda:(\d{2,3})(?::32)?")
"""As Triton's tools write targets."""
_FORMAT = 1
_NAMED = 8
"""Hexadecimal digits that make a prefix unique."""


@dataclass(frozen=True)
class Order:
    """What a command line asks for."""

    function: str
    sources: tuple[str, ...]
    """File names in one folder, the one with the function first."""
    arguments: tuple[str, ...]
    """As `kbuild.languages.cute.signature` reads them."""
    targets: tuple[Target, ...]
    toolchain: tuple[str, ...]
    flavour: Flavour
    out_name: str
    prefix: str | None = None
    """What the functions' names begin with; made unique from `out_name` when None."""
    language: str = "cute"

    @property
    def name(self) -> str:
        """What errors call it."""
        return self.function

    def requests(self) -> dict[Unit, dict[str, Any]]:
        """A unit for each target, with what the worker is asked.

        Raises:
            UsageError: an argument or the prefix is not written as it must be.
        """
        self._judge_prefix()
        arguments, constants = read_arguments(self.arguments)
        asked = {
            "function": self.function,
            "version": version_of(self.toolchain),
            "arguments": arguments,
            "constants": constants,
            "options": {},
            "emit": "c",
        }
        return {self._unit(target): self._request(asked, target) for target in self.targets}

    def _request(self, asked: Mapping[str, Any], target: Target) -> dict[str, Any]:
        asked = {**asked, "arch": target.arch}
        symbol = (
            self.prefix or f"{self.out_name}_{target.arch}_{digest([self.flavour, asked])[:_NAMED]}"
        )
        return {**asked, "symbol": symbol}

    def _judge_prefix(self) -> None:
        if self.prefix is None:
            return
        if not (self.prefix.isidentifier() and self.prefix.isascii()):
            raise UsageError(f"`{self.prefix}` cannot begin the name of a C function")
        if len(self.targets) > 1:
            words = "one --function-prefix cannot name the functions of several targets"
            raise UsageError(words, hint="export each target by a command of its own")

    def _unit(self, target: Target) -> Unit:
        return Unit(self.language, self.name, self.name, 0, (self.function,), target, ())


def able(texts: Sequence[str], toolchain: Sequence[str]) -> tuple[Target, ...]:
    """The targets, in the order given; `cuda:90` is `sm_90a` where code is made for that.

    Raises:
        UsageError: one is no target, or the compiler does not make code for it.
    """
    reason = Cute().refuses(toolchain)
    if reason:
        raise UsageError(f"--toolchain {reason}")
    return tuple(dict.fromkeys(_able(text, toolchain) for text in texts))


def _able(text: str, toolchain: Sequence[str]) -> Target:
    known = release_of(version_of(toolchain) or "").archs
    if match := _CUDA.fullmatch(text):
        made = [f"sm_{match[1]}a", f"sm_{match[1]}"]
        text = next((arch for arch in made if _capability(arch) in known), made[1])
    try:
        target = Target.parse(text)
    except ValueError:
        raise UsageError(f"`{text}` is not a target", hint="e.g. `sm_80`, `sm_90a`") from None
    if target.kind != "cubin" or str(target.capability) not in known:
        hint = f"it makes code for {', '.join(known)}"
        raise UsageError(f"`{text}` is nothing that {toolchain[0]} compiles for", hint=hint)
    return target


def _capability(arch: str) -> str:
    return str(Target.parse(arch).capability)


class Spelled(Cute):
    """CuTe DSL, asked for units in the words of a command line."""

    def __init__(self, requests: Mapping[Unit, Mapping[str, Any]]) -> None:
        """Remember what each unit asks."""
        self._requests = requests

    def request(self, unit: Unit, bound: Bound) -> Mapping[str, Any]:
        """See `Language.request`; units know nothing of arguments one by one."""
        del bound
        return self._requests[unit]


def written(made: Sequence[tuple[Compiled, Mapping[str, Any]]], stem: str) -> FileSet:
    """`<stem>.<arch>.h`, `.o` and `.json` for each.

    Args:
        made: objects with what was asked for.
        stem: the path without arch and suffix.
    """
    files: dict[str, str | bytes] = {}
    for one, request in made:
        length, _, rest = one.code.partition(b"\n")
        header, code = rest[: int(length)], rest[int(length) :]
        path = f"{stem}.{one.image.arch}"
        files[f"{path}.h"], files[f"{path}.o"] = header, code
        files[f"{path}.json"] = json.dumps(_facts(one, request), indent=2) + "\n"
    return FileSet(files)


def _facts(one: Compiled, request: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "function": request["function"],
        "prefix": request["symbol"],
        "call": one.image.entry,
        "arch": one.image.arch,
        "arguments": [
            {**fact, "itemsize": DTYPES[fact["dtype"]]} if "dtype" in fact else fact
            for fact in described(request["arguments"])
        ],
        "constants": dict(request["constants"]),
        "compiler": dict(one.image.compiler),
    }
