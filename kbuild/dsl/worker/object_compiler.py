"""Base class of workers whose images are object files, named by content."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar

from kbuild.dsl.worker.protocol import RefusalError
from kbuild.dsl.worker.sources import SourceCompiler, SourceModules

_PREFIX = "kbuild_aot"
"""Prefix of every symbol of an object; the linker hides names with it."""
_DIGEST_DIGITS = 16
"""Number of hexadecimal digits in a symbol."""
_NOT_IN_DIGEST = (
    *("constants", "record", "symbol", "kernel", "ask", "id", "root", "sources"),
    *("output", "device"),
)
"""Keys of a request that do not change a kernel whose generated code is known."""


class ObjectCompiler(SourceCompiler):
    """Base of compilers, see `protocol.WorkerCompiler`."""

    distribution: ClassVar[str]
    version: ClassVar[str]
    what: ClassVar[str]
    """Description of a kernel function in messages, such as `@cute.jit`."""
    functions: ClassVar[Callable[[ModuleType, Callable[[str], bool]], Mapping[str, Any]]]
    """Returns a module's functions by name; its second argument tells which modules are the
    author's."""

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
            "constants": {
                name: (v["dtype"] if isinstance(v, dict) else v)
                for name, v in request["constants"].items()
            },
            "divisible": [],
            "ones": [],
            **self.compile_function(function, request, sources),
        }

    def sources(self, request: Mapping[str, Any]) -> SourceModules:
        """Return the sources of a compilation."""
        return self._sources.get(request)

    @abstractmethod
    def compile_function(
        self, function: Any, request: Mapping[str, Any], sources: SourceModules
    ) -> Mapping[str, Any]:
        """Compile to the request's `output`, unless `named` returns False.

        Returns:
            `convention`, `entry`, `parameters`, and values of the image that differ from the
            defaults.
        """

    def named(self, request: Mapping[str, Any], text: str) -> tuple[str, bool]:
        """Return the symbol of an object, and True if it has to be compiled.

        Units whose constants lead to the same code share an object, so its symbol is derived from
        the code (`text`, the input of the next compiler) and not from the unit.
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


def image_type(dtype: str) -> str:
    """Name of a Torch dtype in images, such as `fp16`, `i32`."""
    special = {"bfloat16": "bf16", "bool": "i1", "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5"}
    # `uint` first, because it contains `int`.
    short = dtype.replace("float", "fp").replace("uint", "u").replace("int", "i")
    return special.get(dtype, short)
