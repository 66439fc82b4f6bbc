"""TileLang's compiler, asked for source without a GPU; another compiler does the rest."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

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

from kbuild.languages.worker.linking import ObjectCompiler  # noqa: E402
from kbuild.languages.worker.protocol import RefusalError  # noqa: E402
from kbuild.languages.worker.sources import Sources  # noqa: E402
from kbuild.languages.worker.tilelang_emit import CPU, emitted  # noqa: E402
from kbuild.languages.worker.tilelang_functions import Function, functions  # noqa: E402
from kbuild.languages.worker.tilelang_object import compiled  # noqa: E402
from kbuild.languages.worker.tilelang_parameters import Parameters  # noqa: E402
from kbuild.languages.worker.tilelang_source import completed  # noqa: E402

T = TypeVar("T")
_NAMELESS = "kbuild_nameless"
"""The symbol in a text that has none yet."""
_HINTS = {
    "no attribute 'lazy_jit'": "write `@tilelang.jit`: since 0.1.8 it does both; what is older "
    "cannot be imported without a GPU's driver",
    "Not all tensor from `T.empty` are returned": "return each of them; what is no result can be a "
    "parameter of the kernel and, in build.toml, a temporary of the op",
}
"""Part of what the DSL says -> what to do."""


class Compiler(ObjectCompiler):
    """See `protocol.Answering`."""

    distribution = "tilelang"
    version = tilelang.__version__
    what = "TileLang function"
    functions = functions

    def sources(self, request: Mapping[str, Any]) -> Sources:
        """Imported anew: macros rename what they are given, for good."""
        return self._shelf.fresh(request)

    def _functions(self, sources: Sources) -> Mapping[str, Any]:
        return _hinted(lambda: super(Compiler, self)._functions(sources))

    def made(
        self, function: Function, request: Mapping[str, Any], sources: Sources
    ) -> Mapping[str, Any]:
        """See `ObjectCompiler.made`."""
        made = _hinted(lambda: _explained(sources, lambda: emitted(function, request)))
        parameters = Parameters(function, made, request)
        text = completed(made.text, _NAMELESS, made.kernels, parameters.entry())
        symbol, is_wanted = self.named(request, f"{text}\n{made.flags}")
        if is_wanted:
            source = completed(made.text, symbol, made.kernels, parameters.entry())
            compiled(source, made, request, Path(request["output"]))
        return {
            "convention": "c",
            "loading": "" if request["arch"] == CPU else "function",
            "entry": symbol,
            "parameters": parameters.image(),
            "shared": made.shared,
            "threads": made.threads,
            "pdl": any(kernel.pdl for kernel in made.kernels),
            "divisible": parameters.aligned(),
        }


def _hinted(make: Callable[[], T]) -> T:
    """What `make` gives; with a hint where it fails for a reason that is known."""
    try:
        return make()
    except RefusalError as refusal:
        hints = (hint for said, hint in _HINTS.items() if said in refusal.message)
        refusal.hint = refusal.hint or next(hints, "")
        raise


def _explained(sources: Sources, make: Callable[[], T]) -> T:
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
