"""Compiles recorded calls of `cute.compile`, with the author's objects made again."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

# Some libraries tell the DSL's functions from their own by this folder, where users have it.
_PACKAGES = Path(os.environ["TMPDIR"], "site-packages")
_PACKAGES.symlink_to(sys.path[0])
sys.path[0] = str(_PACKAGES)

from kbuild.dsl.worker.cute import (  # noqa: E402
    CuteCompiler,
    compile_unless_known,
    intercept_compile,
    write_tvm_ffi,
)
from kbuild.dsl.worker.cute_compilation import dynamic_shared, make_portable  # noqa: E402
from kbuild.dsl.worker.protocol import RefusalError  # noqa: E402
from kbuild.dsl.worker.sources import SourceModules  # noqa: E402
from kbuild.plugins.capture.cute._launch_calls import RecordedCall  # noqa: E402

_COMPILED = "compiled"


class RecordedFunction:
    """The one function of every section: `record`, a constant, says what is compiled."""

    def describe(self) -> dict[str, Any]:
        """JSON object of the function."""
        return {
            "name": _COMPILED,
            "parameters": [{"name": "record", "constant": True, "default": False}],
        }


def _functions(
    module: ModuleType,  # noqa: ARG001
    owns: Callable[[str], bool],  # noqa: ARG001
) -> Mapping[str, RecordedFunction]:
    return {_COMPILED: RecordedFunction()}


class CompilationCompiler(CuteCompiler):
    """Compiler for recorded calls, see `protocol.WorkerCompiler`."""

    functions = _functions  # type: ignore[assignment]

    def compile_function(
        self,
        function: Any,  # noqa: ARG002
        request: Mapping[str, Any],
        sources: SourceModules,
    ) -> Mapping[str, Any]:
        """See `ObjectCompiler.compile_function`."""
        record = json.loads(request["record"])
        try:
            given, keywords = RecordedCall(importlib.import_module).arguments(record)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f"the recorded call cannot be made again: {type(error).__name__}: {error}"
            hint = "record it again: `kbuild capture --record --replace -- COMMAND`"
            raise RefusalError(message, hint=hint) from error
        with intercept_compile(lambda text: self.named(request, text)) as kernel:
            compiled = compile_unless_known(
                given, {**keywords, "options": "--enable-tvm-ffi"}, sources
            )
        shared = 0
        if compiled is not None:
            shared = dynamic_shared(compiled)
            make_portable(compiled, is_wrapped=False)
            write_tvm_ffi(compiled, kernel.symbol, Path(request["output"]))
        entry = f"__tvm_ffi_{kernel.symbol}"
        return {"convention": "export", "entry": entry, "parameters": [], "shared": shared}


Compiler = CompilationCompiler
"""The class that `kbuild.dsl.worker` instantiates."""
