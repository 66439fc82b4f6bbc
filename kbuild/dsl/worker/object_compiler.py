"""The base class of workers whose images are objects, which it names by content."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar

from kbuild.dsl.worker.protocol import RefusalError
from kbuild.dsl.worker.sources import SourceCache, SourceModules

_PREFIX = "kbuild_aot"
"""Part of every symbol of an object; the linker hides such names."""
_DIGEST_DIGITS = 16
"""Hexadecimal digits that make a symbol unique."""
_NOT_IN_DIGEST = (
    *("constants", "symbol", "kernel", "ask", "id", "root", "sources", "output", "device"),
)
"""What of a request says nothing of a kernel whose text is known."""


class ObjectCompiler(ABC):
    """See `protocol.WorkerCompiler`."""

    distribution: ClassVar[str]
    version: ClassVar[str]
    """Of the distribution that is imported."""
    what: ClassVar[str]
    """What a source is searched for: `@cute.jit`."""
    functions: ClassVar[Callable[[ModuleType, Callable[[str], bool]], Mapping[str, Any]]]
    """A module's functions by name; the second argument says which modules are the author's."""

    def __init__(self) -> None:
        self._shelf = SourceCache()
        self._ask: Callable[[str], bool] = lambda _: True

    def ask_with(self, ask: Callable[[str], bool]) -> None:
        """See `protocol.Asking`."""
        self._ask = ask

    def describe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.WorkerCompiler`."""
        sources = self._shelf.get(request)
        functions = [function.describe() for function in self._functions(sources).values()]
        return {"functions": functions, "asked": sources.asked}

    def compile(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.WorkerCompiler`."""
        if self.version != request["version"]:
            own, wanted = f"{self.distribution} {self.version}", request["version"]
            hint = "`kbuild toolchain prune` removes the environment; the next build makes it again"
            raise RefusalError(f"the environment has {own}, `toolchain` pins {wanted}", hint=hint)
        sources = self.sources(request)
        function = self._functions(sources).get(request["function"])
        if function is None:
            raise RefusalError(f"`{sources.first}` has no {self.what} `{request['function']}`")
        return {
            "kind": "object",
            "shared": 0,
            "threads": 1,
            "cluster": [1, 1, 1],
            "tensor_maps": [],
            "constants": {name: _plain(v) for name, v in request["constants"].items()},
            "divisible": [],
            "ones": [],
            **self.compile_function(function, request, sources),
        }

    def sources(self, request: Mapping[str, Any]) -> SourceModules:
        """Those that a compilation is made of."""
        return self._shelf.get(request)

    @abstractmethod
    def compile_function(
        self, function: Any, request: Mapping[str, Any], sources: SourceModules
    ) -> Mapping[str, Any]:
        """Compile to the file that the request names, unless `named` says that it is there.

        Returns:
            `convention`, `entry`, `parameters`, and what of an image differs from the usual.
        """

    def named(self, request: Mapping[str, Any], text: str) -> tuple[str, bool]:
        """The symbol of an object, and whether it is to be made.

        Units whose constants come to the same code share an object, so its symbol says what is in
        it (`text`, as the next compiler reads it), and not for whom.
        """
        if "symbol" in request:
            return request["symbol"], True
        rest = {name: value for name, value in request.items() if name not in _NOT_IN_DIGEST}
        kernel = request["kernel"]
        content = json.dumps([kernel, rest, text], sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()
        word = "".join(char if char.isalnum() else "_" for char in kernel)
        return f"{_PREFIX}_{word}_{digest[:_DIGEST_DIGITS]}", self._ask(digest)

    def _functions(self, sources: SourceModules) -> Mapping[str, Any]:
        return type(self).functions(sources.main(), sources.owns)


def _plain(value: Any) -> Any:
    return value["dtype"] if isinstance(value, dict) else value


def image_type(dtype: str) -> str:
    """`fp16`, `i32`: how images name Torch's dtypes."""
    special = {"bfloat16": "bf16", "bool": "i1", "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5"}
    short = dtype.replace("float", "fp").replace("uint", "u").replace("int", "i")
    return special.get(dtype, short)
