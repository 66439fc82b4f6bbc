"""Triton's compiler, asked without a GPU."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton  # type: ignore[import-not-found]
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found]

from kbuild.languages.worker import standin
from kbuild.languages.worker.explain import explained
from kbuild.languages.worker.functions import Kernel, kernels
from kbuild.languages.worker.protocol import RefusalError
from kbuild.languages.worker.sources import Shelf, Sources
from kbuild.languages.worker.specialised import Specialised

_CACHE = "TRITON_CACHE_DIR"
"""Where Triton keeps every step of a compilation; kbuild wants the last one alone."""


class Compiler:
    """See `protocol.Answering`."""

    def __init__(self) -> None:
        standin.stand_in()
        _forget_key()
        triton.runtime.driver.set_active(_NoDevice())
        self._shelf = Shelf()

    def describe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.Answering`."""
        sources = self._shelf.get(request)
        found = self._kernels(sources)
        return {"functions": [kernel.describe() for kernel in found.values()]}

    def compile(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.Answering`."""
        sources = self._shelf.get(request)
        kernel = self._kernels(sources).get(request["function"])
        if kernel is None:
            raise RefusalError(f"there is no kernel function `{request['function']}`")
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                specialised = Specialised(kernel, request)
                compiled = specialised.compiled()
        except RefusalError:
            raise
        except Exception as error:
            raise self._explained(error, kernel, sources) from error
        finally:
            shutil.rmtree(os.environ[_CACHE], ignore_errors=True)
        code, facts = specialised.image(compiled, said.getvalue())
        Path(request["output"]).write_bytes(code)
        return facts

    def _kernels(self, sources: Sources) -> Mapping[str, Kernel]:
        """The sources' kernels by name."""
        return kernels(sources.main(), sources.owns)

    def _explained(self, error: Exception, kernel: Kernel, sources: Sources) -> RefusalError:
        """What Triton said of one, in words for its author."""
        return explained(error, kernel, sources)


class _NoDevice:
    """Stands for a driver where something asks for one."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        del device
        return 0

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", 80, 32)

    def __getattr__(self, name: str) -> Any:
        raise RefusalError(
            f"the source asks the GPU's driver for `{name}`, and there is no GPU at build",
            hint="write the value into build.toml instead",
        )


def _forget_key() -> None:
    """Leave out the hash of all of Triton, which nobody looks at: units have keys of their own."""

    def key() -> str:
        return str(triton.__version__)

    from triton.compiler import compiler  # type: ignore[import-not-found]
    from triton.runtime import autotuner, cache  # type: ignore[import-not-found]

    for module in (compiler, cache, autotuner):
        if hasattr(module, "triton_key"):
            module.triton_key = key
