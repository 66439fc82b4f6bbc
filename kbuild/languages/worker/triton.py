"""Triton's compiler, asked without a GPU."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton  # type: ignore[import-not-found]
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found]

from kbuild.languages.worker import device as devices
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
        triton.runtime.driver.set_active(_Driver())
        triton.runtime.JITFunction.run = _refuse_launch
        self._shelf = Shelf()

    def describe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.Answering`."""
        sources = self._shelf.get(request)
        found = self._kernels(sources)
        functions = [kernel.describe() for kernel in found.values()]
        return {"functions": functions, "asked": sources.asked}

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
                if specialised.is_pruned():
                    Path(request["output"]).write_bytes(b"")
                    return {"pruned": True}
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


class _Driver:
    """Triton's driver as far as what it says holds for every device of the arch."""

    def __init__(self) -> None:
        self.utils = _Utils()

    @staticmethod
    def is_active() -> bool:
        return bool(devices.current.ask("driver.active.is_active()").backend)

    def get_current_device(self) -> int:
        return devices.index("driver.active.get_current_device()")

    def get_current_target(self) -> Any:
        facts = devices.current.gpu("driver.active.get_current_target()").facts
        major, minor = facts["capability"]
        arch = facts["arch"] if facts["backend"] == "hip" else major * 10 + minor
        return GPUTarget(facts["backend"], arch, facts["warp"])

    def get_device_interface(self) -> Any:
        devices.current.gpu("driver.active.get_device_interface()")
        return importlib.import_module("torch").cuda

    def get_active_torch_device(self) -> Any:
        devices.current.gpu("driver.active.get_active_torch_device()")
        return importlib.import_module("torch").device("cuda", 0)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return devices.UnknownAnswer(f"driver.active.{name}")


class _Utils:
    """What it has to say of a device."""

    def get_device_properties(self, device: Any = 0) -> Any:
        del device
        return devices.table()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return devices.UnknownAnswer(f"driver.active.utils.{name}")


def _refuse_launch(function: Any, *args: Any, **kwargs: Any) -> Any:
    """In place of what launches a kernel: it is imported where there is no GPU."""
    del args, kwargs
    devices.current.refuse(
        f"`{function.__name__}` is launched, and there is no GPU at build",
        hint="launch it in a function that is not called when the kernels' module is imported",
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
