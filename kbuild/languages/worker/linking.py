"""What workers share whose images are objects: finding functions, judging releases, facts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar, Protocol

from kbuild.languages.worker.protocol import RefusalError
from kbuild.languages.worker.sources import Shelf, Sources


class Described(Protocol):
    """A function of a source."""

    def describe(self) -> dict[str, Any]:
        """The function as JSON."""
        ...


class ObjectCompiler(ABC):
    """See `protocol.Answering`."""

    distribution: ClassVar[str]
    version: ClassVar[str]
    """Of the distribution that is imported."""
    what: ClassVar[str]
    """What a source is searched for: `@cute.jit`."""
    functions: ClassVar[Callable[[ModuleType, Callable[[str], bool]], Mapping[str, Any]]]
    """A module's functions by name; the second argument says which modules are the author's."""

    def __init__(self) -> None:
        self._shelf = Shelf()

    def describe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.Answering`."""
        found = self._functions(self._shelf.get(request))
        return {"functions": [function.describe() for function in found.values()]}

    def compile(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.Answering`."""
        self._judge_version(request["version"])
        sources = self.sources(request)
        function = self._functions(sources).get(request["function"])
        if function is None:
            words = f"`{sources.first}` has no {self.what} `{request['function']}`"
            raise RefusalError(words)
        return {
            "kind": "object",
            "entry": request["symbol"],
            "shared": 0,
            "threads": 1,
            "cluster": [1, 1, 1],
            "tensor_maps": [],
            "constants": {name: _plain(v) for name, v in request["constants"].items()},
            "divisible": [],
            "ones": [],
            **self.made(function, request, sources),
        }

    def sources(self, request: Mapping[str, Any]) -> Sources:
        """Those that a compilation is made of."""
        return self._shelf.get(request)

    @abstractmethod
    def made(
        self, function: Any, request: Mapping[str, Any], sources: Sources
    ) -> Mapping[str, Any]:
        """Compile to the file that the request names.

        Returns:
            `convention`, `parameters`, and what of an image differs from the usual.
        """

    def _functions(self, sources: Sources) -> Mapping[str, Any]:
        return type(self).functions(sources.main(), sources.owns)

    def _judge_version(self, wanted: str) -> None:
        if self.version != wanted:
            raise RefusalError(
                f"the environment has {self.distribution} {self.version}, `toolchain` pins "
                f"{wanted}",
                hint="`kbuild toolchain prune` removes the environment; the next build makes it "
                "again",
            )


def _plain(value: Any) -> Any:
    return value["dtype"] if isinstance(value, dict) else value
