"""TileLang's compiler, asked for source without a GPU; another compiler does the rest."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbuild.languages.worker import standin


class _NoTorch:
    """While TVM-FFI is imported: it copes without Torch, but not with what stands for it."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """See `importlib.abc.MetaPathFinder`."""
        del path, target
        if name.partition(".")[0] in {"torch", "torch_c_dlpack_ext"}:
            raise ModuleNotFoundError(name)


if importlib.util.find_spec("torch") is None:
    _none = _NoTorch()
    sys.meta_path.insert(0, _none)
    import tvm_ffi  # type: ignore[import-not-found]  # noqa: F401

    sys.meta_path.remove(_none)
    sys.meta_path.append(standin.Standins(("torch", "torch_c_dlpack_ext")))

import tilelang  # type: ignore[import-not-found]  # noqa: E402

from kbuild.languages.worker.protocol import RefusalError  # noqa: E402
from kbuild.languages.worker.sources import Shelf, Sources  # noqa: E402
from kbuild.languages.worker.tilelang_emit import emitted  # noqa: E402
from kbuild.languages.worker.tilelang_functions import functions  # noqa: E402
from kbuild.languages.worker.tilelang_object import compiled  # noqa: E402
from kbuild.languages.worker.tilelang_parameters import Parameters  # noqa: E402
from kbuild.languages.worker.tilelang_source import completed  # noqa: E402

CPU = "cpu"
"""The arch of the host's own processor."""
_ALIGNED = 16


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
        sources = self._shelf.fresh(request)  # macros rename what they are given, for good
        found = functions(sources.main(), sources.owns)
        function = found.get(request["function"])
        if function is None:
            raise RefusalError(
                f"`{sources.first}` has no TileLang function `{request['function']}`"
            )
        made = _explained(sources, lambda: emitted(function, request))
        parameters = Parameters(function, made, request)
        source = completed(made.text, request["symbol"], made.kernels, parameters.entry())
        compiled(source, made, request, Path(request["output"]))
        return {
            "kind": "object",
            "convention": "c",
            "entry": request["symbol"],
            "parameters": parameters.image(),
            "shared": made.shared,
            "threads": made.threads,
            "cluster": [1, 1, 1],
            "tensor_maps": [],
            "pdl": any(kernel.pdl for kernel in made.kernels),
            "constants": dict(request["constants"]),
            "divisible": parameters.aligned(),
            "ones": [],
        }


def _judge_version(wanted: str) -> None:
    if tilelang.__version__ != wanted:
        raise RefusalError(
            f"the environment has tilelang {tilelang.__version__}, `toolchain` pins {wanted}",
            hint="`kbuild toolchain prune` removes the environment; the next build makes it again",
        )


def _explained(sources: Sources, make: Any) -> Any:
    """What `make` gives; the author's own line where it fails."""
    try:
        return make()
    except RefusalError:
        raise
    except Exception as error:
        refusal = sources.refusal(error)
        first, *rest = [line for line in refusal.message.splitlines() if line.strip()] or [""]
        refusal.message, refusal.excerpt = first, tuple(rest[:20])
        raise refusal from error
