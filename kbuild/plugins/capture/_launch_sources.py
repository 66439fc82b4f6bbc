"""Runs an author's files without their DSL: what they import of it is replaced.

kbuild copies this file into packages. It needs nothing else.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar


class ImportlibModule(ModuleType):
    """`importlib` as the author's files see it; `import_module` redirects like their `import`."""

    def __init__(self, import_module: Callable[..., Any]) -> None:
        super().__init__("importlib")
        self.import_module = import_module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)


class SourcePackage(ABC):
    """The author's files of a package, with the modules that they import in the DSL's place."""

    submodules: ClassVar[tuple[str, ...]] = ()
    """Modules that are replaced, and attributes of the modules around them."""

    def __init__(self, name: str, table: Mapping[str, Any]) -> None:
        self._name, self._table = name, table
        self._folder = Path(__file__).parent
        self._modules: dict[str, ModuleType] = {}
        self._own = table["modules"]
        """The author's module names -> their names in the package."""
        self._builtins = {**vars(builtins), "__import__": self._import}
        self._importlib = ImportlibModule(self._import_module)

    @abstractmethod
    def new_module(self, name: str) -> ModuleType:
        """Make the module that stands for one of the DSL's."""

    def execute(self, module: str, source: str) -> None:
        """Run one of the author's files as a module of the package.

        Args:
            module: full name of the module, which is being imported.
            source: path of the file, relative to `_captured_sources`.
        """
        namespace = vars(sys.modules[module])
        path = str(self._folder / "_captured_sources" / source)
        code = importlib.machinery.SourceFileLoader(module, path).get_code(module)
        namespace["__builtins__"] = self._builtins
        namespace["__kbuild_source__"] = self._table["sources"][source]
        exec(code, namespace)  # type: ignore[arg-type]  # noqa: S102

    @property
    def is_covered(self) -> bool:
        """True if calls without an image are listed: `kbuild capture --coverage` runs this."""
        return "KBUILD_COVERAGE" in os.environ

    def report_missing(self, why: str) -> None:
        """List a call without an image, where such calls are listed."""
        if self.is_covered:
            path = Path(os.environ["KBUILD_COVERAGE"]) / str(os.getpid())
            with path.open("a", encoding="utf-8") as file:
                file.write("\t".join((str(self._folder), "missing", why)) + "\n")

    def _is_replaced(self, name: str) -> bool:
        return any(name == top or name.startswith(f"{top}.") for top in self._table["replaced"])

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,  # noqa: A002 - as `__import__` has it
        locals: Mapping[str, Any] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        top = name.partition(".")[0]
        if level == 0 and self._is_replaced(name):
            module = self._module(name)
            for entry in fromlist or ():
                if f"{name}.{entry}" in self.submodules:
                    self._module(f"{name}.{entry}")
            return module if fromlist else self._module(top)
        if level == 0 and name in self._own:
            module = importlib.import_module(self._own[name], self._name)
            for entry in fromlist or ():
                if not hasattr(module, entry) and f"{name}.{entry}" in self._own:
                    importlib.import_module(self._own[f"{name}.{entry}"], self._name)
            return (
                module
                if fromlist
                else importlib.import_module(self._own.get(top, f".{top}"), self._name)
            )
        module = builtins.__import__(name, globals, locals, fromlist, level)
        return self._importlib if module is importlib else module

    def _import_module(self, name: str, package: str | None = None) -> Any:
        if name in self._own or self._is_replaced(name):
            return self._import(name, fromlist=("__name__",))
        return importlib.import_module(name, package)

    def _module(self, name: str) -> ModuleType:
        if name in self._modules:
            return self._modules[name]
        module = self._modules[name] = self.new_module(name)
        module.__path__ = []
        outer, _, last = name.rpartition(".")
        if outer:
            setattr(self._module(outer), last, module)
        else:
            for submodule in self.submodules:
                self._module(submodule)
        return module
