"""Runs an author's CuTe files without CuTe DSL: `cute.compile` returns the package's functions.

kbuild copies this file into packages. It needs Torch and TVM-FFI, and nothing else.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import tvm_ffi

from . import _launch_absent as absent
from . import _launch_cutlass as stand_ins
from ._launch_describe import CompilationDescriber, UndescribedError
from ._launch_factories import Factories
from ._launch_hardware import CurrentDsl
from ._launch_tuners import Choices, Winners, replace_caches

if TYPE_CHECKING:
    from kbuild.plugins.capture._launch_sources import SourcePackage
else:  # in a package, its modules lie in one folder
    from ._launch_sources import SourcePackage

_OPTIONS = "--enable-tvm-ffi"


class CompiledFunction(tvm_ffi.Function):  # type: ignore[misc]
    """A function that was compiled ahead of time: a call is TVM-FFI's own."""

    def __init__(self, function: Any, record: str) -> None:
        # Takes the function over: a call through another object would cost more.
        self.__move_handle_from__(function)
        self._record = record

    def export_to_c(self, object_file_path: str, function_name: str = "func", **_: Any) -> None:
        """Write a file from which `load_module` gets the function again."""
        Path(object_file_path).write_text(json.dumps({function_name: self._record}), "utf-8")


class CompiledPackage(SourcePackage):
    """The compiled functions of a package, and the author's files that call them."""

    submodules = tuple(name for name in stand_ins.NAMES if "." in name)

    def __init__(self, name: str, ops: Any, table: Mapping[str, Any]) -> None:
        super().__init__(name, table)
        self._ops = ops
        self._factories = Factories(table.get("factories", ()))
        launches = [each for function in table["functions"] for each in function["launches"]]
        self._places = {each["record"]: (each["op"], each["form"]) for each in launches}
        self._authors = {f"{name}{own}": str(author) for author, own in self._own.items()}
        """Modules of the package -> the author's names for them."""

    def new_module(self, name: str) -> ModuleType:
        """See `SourcePackage.new_module`."""
        more = {"compile": self.compile, "load_module": self.load_module}
        module = stand_ins.new_module(name, more)
        if name == "cutlass":
            vars(module)["__version__"] = self._table["version"]
        return module

    def execute(self, module: str, source: str) -> None:
        """See `SourcePackage.execute`."""
        absent.importing += 1
        try:
            super().execute(module, source)
        finally:
            absent.importing -= 1
        author, namespace = self._authors[module], vars(sys.modules[module])
        self._factories.watch(author, namespace)
        for tuner in self._table.get("tuners", ()):
            if tuner.startswith(f"{author}:"):
                kind = namespace[tuner.partition(":")[2]]
                replace_caches(kind, lambda tuner: Choices(functools.partial(self._winner, tuner)))

    def compile(self, function: Any, *args: Any, options: str = "", **kwargs: Any) -> Any:
        """Return the compiled function: `cute.compile`.

        Raises:
            RuntimeError: the call was not recorded, so the package lacks it.
        """
        if absent.importing:
            return absent.absent("compile")
        if options != _OPTIONS:
            raise RuntimeError(f"`cute.compile` with `options={options!r}` cannot be recorded")
        try:
            described = CompilationDescriber(self._author_module, self._factories).call(
                function, args, kwargs
            )
        except UndescribedError as error:
            raise RuntimeError(f"`cute.compile` with {error} cannot be recorded") from None
        return self._loaded(json.dumps(described))

    def _winner(self, tuner: Any, key: Any) -> Any:
        import torch

        describe = CompilationDescriber(self._author_module, self._factories).value
        rows = [row for function in self._table["functions"] for row in function["tuned"]]
        arch, device = CurrentDsl.arch_name(), torch.cuda.get_device_name()
        return Winners(rows, describe).choose(tuner, arch, device, key)

    def _loaded(self, record: str) -> Any:
        if record not in self._places:
            self.report_missing(f"`cute.compile` was not recorded for {record}")
            if self._table["jit"] and importlib.util.find_spec("cutlass") is not None:
                return self._compiled_here(record)
            hint = " or install CuTe DSL, which then compiles it" if self._table["jit"] else ""
            raise RuntimeError(
                f"`cute.compile` was not recorded for {record}: this package has no such function. "
                "Record it in the kernel's project: `kbuild capture --record -- COMMAND`" + hint
            )
        import torch

        op, form = self._places[record]
        device = torch.empty(0, dtype=torch.uint8, device="cuda")
        return CompiledFunction(getattr(self._ops, op)(device, form), record)

    def _compiled_here(self, record: str) -> Any:
        """Compile a call with CuTe DSL itself, and with the author's files as they are."""
        from ._launch_calls import RecordedCall

        folder = str(self._folder / "_captured_sources")
        sys.path.insert(0, folder)
        try:
            given, keywords = RecordedCall(self._author_source).arguments(json.loads(record))
            cute = importlib.import_module("cutlass.cute")
            return cute.compile(*given, **keywords, options=_OPTIONS)
        finally:
            sys.path.remove(folder)

    def _author_source(self, name: str) -> ModuleType:
        module = importlib.import_module(name)
        if not str(module.__file__).startswith(str(self._folder)):
            raise RuntimeError(f"`{name}` is imported from elsewhere: {module.__file__}")
        return module

    def load_module(self, path: Any, **_: Any) -> dict[str, CompiledFunction]:
        """Return the functions of a file that `export_to_c` has written."""
        records = json.loads(Path(os.fspath(path)).read_text("utf-8"))
        return {name: self._loaded(record) for name, record in records.items()}

    def _author_module(self, module: str) -> str:
        return self._authors.get(module, "")


Package = CompiledPackage
"""The class that `_launches.py` instantiates."""
