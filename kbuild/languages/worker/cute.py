"""CuTe DSL's compiler, asked without a GPU; one process compiles for one arch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_ROOTS = ("nvidia_cutlass_dsl/dsl_packages", "nvidia_cutlass_dsl/python_packages")
"""Where releases keep `cutlass`; a `.pth` file says so, which this interpreter does not read."""
sys.path[1:1] = [
    path for root in _ROOTS if (path := os.path.join(sys.path[0], root)) and os.path.isdir(path)
]

import cutlass  # type: ignore[import-not-found]  # noqa: E402
import cutlass.cute as cute  # type: ignore[import-not-found]  # noqa: E402

from kbuild.languages.worker.cute_arguments import Arguments  # noqa: E402
from kbuild.languages.worker.cute_functions import Function, functions  # noqa: E402
from kbuild.languages.worker.protocol import RefusalError  # noqa: E402
from kbuild.languages.worker.sources import Shelf, Sources  # noqa: E402

_FLOATS = "fp64"
"""How numbers that are no integers are handed over; the object rounds them itself."""


class Compiler:
    """See `protocol.Answering`."""

    def __init__(self) -> None:
        self._shelf = Shelf()

    def describe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.Answering`."""
        sources = self._shelf.get(request)
        found = functions(sources.main(), sources.owns)
        return {"functions": [function.describe() for function in found.values()]}

    def compile(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.Answering`."""
        _judge_version(request["version"])
        sources = self._shelf.get(request)
        found = functions(sources.main(), sources.owns)
        function = found.get(request["function"])
        if function is None:
            raise RefusalError(f"`{sources.first}` has no @cute.jit `{request['function']}`")
        arguments = Arguments(function, request)
        compiled = _compiled(arguments, sources)
        self._export(compiled, request)
        return {
            "kind": "object",
            "convention": "tvm-ffi",
            "entry": f"__tvm_ffi_{request['symbol']}",
            "parameters": arguments.parameters(),
            "shared": 0,
            "threads": 1,
            "cluster": [1, 1, 1],
            "tensor_maps": [],
            "constants": {name: _plain(v) for name, v in request["constants"].items()},
            "divisible": sorted(arguments.divisible),
            "ones": sorted(arguments.ones),
        }

    def _export(self, compiled: Any, request: Mapping[str, Any]) -> None:
        folder = Path(request["output"]).parent
        file = folder / "object.o"
        compiled.export_to_c(str(file), function_name=request["symbol"])
        file.replace(request["output"])


def _judge_version(wanted: str) -> None:
    if cutlass.__version__ != wanted:
        raise RefusalError(
            f"the environment has nvidia-cutlass-dsl {cutlass.__version__}, `toolchain` pins {wanted}",
            hint="`kbuild toolchain prune` removes the environment; the next build makes it again",
        )


def _compiled(arguments: Arguments, sources: Sources) -> Any:
    try:
        return cute.compile(*arguments.given(), options="--enable-tvm-ffi")
    except RefusalError:
        raise
    except Exception as error:
        raise _explained(error, sources) from error


def _explained(error: BaseException, sources: Sources) -> RefusalError:
    """The innermost line of the author's; the DSL wraps what went wrong several times."""
    chain = list(_chain(error))
    refusals = [sources.refusal(one) for one in chain]
    placed = [one for one in refusals if one.line]
    best = placed[-1] if placed else refusals[-1]
    first = str(best.message).strip().splitlines()
    best.message = first[0] if first else type(error).__name__
    best.excerpt = tuple(line for line in first[1:] if line.strip())[:20]
    return best


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _plain(value: Any) -> Any:
    return value["dtype"] if isinstance(value, dict) else value
