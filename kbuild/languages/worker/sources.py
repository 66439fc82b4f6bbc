"""The author's sources as modules: those that the section lists, and no others."""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from kbuild.languages.worker.protocol import RefusalError


class Sources(Loader, MetaPathFinder):
    """One state of a project's sources, below a folder."""

    def __init__(self, folder: str, files: Sequence[str]) -> None:
        self._folder = folder
        self._files = {module_name(file): file for file in files}
        self.first = module_name(files[0])
        self._loaded: dict[str, ModuleType] = {}

    def enter(self) -> None:
        """Make these the sources that are imported; `leave` comes before another's `enter`."""
        os.chdir(self._folder)  # the names of files in images are relative
        linecache.clearcache()
        sys.meta_path.insert(0, self)
        sys.modules.update(self._loaded)

    def leave(self) -> None:
        """Take the modules out of sight."""
        sys.meta_path.remove(self)
        for name in [name for name in sys.modules if self.owns(name)]:
            self._loaded[name] = sys.modules.pop(name)

    def owns(self, name: str) -> bool:
        """Whether a module is one of these, or a package around one."""
        return any(name == one or one.startswith(f"{name}.") for one in self._files)

    def main(self) -> ModuleType:
        """The first source, imported.

        Raises:
            RefusalError: it cannot be.
        """
        try:
            return importlib.import_module(self.first)
        except SyntaxError as error:
            file = self.relative(error.filename or "")
            raise RefusalError(str(error.msg), file=file, line=error.lineno or 0) from error
        except Exception as error:
            raise self.refusal(error) from error

    def refusal(self, error: BaseException) -> RefusalError:
        """What went wrong while the author's code ran, at its last line that did."""
        own = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename in self._files.values()
        ]
        if isinstance(error, RefusalError):
            refusal = error
        elif isinstance(error, ModuleNotFoundError):
            refusal = RefusalError(str(error), hint=self._missing(error.name or ""))
        else:
            refusal = RefusalError(f"{type(error).__name__}: {error}")
        if own and not refusal.file:
            refusal.file, refusal.line = own[-1].filename, own[-1].lineno or 0
        return refusal

    def relative(self, file: str) -> str:
        """A file's name in the project."""
        return os.path.relpath(file, self._folder) if Path(file).is_absolute() else file

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        del path, target
        if not self.owns(name):
            return None
        file = self._files.get(name)
        is_package = file is None or file.endswith("__init__.py")
        spec = ModuleSpec(name, self, origin=file, is_package=is_package)
        spec.has_location = file is not None
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """See `importlib.abc.Loader`."""

    def exec_module(self, module: ModuleType) -> None:
        """See `importlib.abc.Loader`."""
        file = self._files.get(module.__name__)
        if file is not None:
            text = Path(file).read_bytes()
            exec(compile(text, file, "exec", dont_inherit=True), module.__dict__)  # noqa: S102

    def _missing(self, name: str) -> str:
        top = name.partition(".")[0]
        if any(one.partition(".")[0] == top for one in self._files):
            return "add the file to `src`"
        return f"what `{name}` is needed for cannot be compiled; pin it in `toolchain` if it is"


def module_name(file: str) -> str:
    """The name that a source is imported by: `torch-ext/my/ops.py` is `my.ops`."""
    parts = list(PurePosixPath(file).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    plain = [index for index, part in enumerate(parts) if not part.isidentifier()]
    parts = parts[plain[-1] + 1 :] if plain else parts
    if not parts:
        raise RefusalError(f"`{file}` cannot be imported by that name", hint="rename it")
    if parts[0] in sys.stdlib_module_names or _is_installed(parts[0]):
        parts[0] += "_"
    return ".".join(parts)


def _is_installed(name: str) -> bool:
    """Whether the environment has a module of that name."""
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__spec__", None) is not None:
        return not isinstance(known.__spec__ and known.__spec__.loader, Sources)
    return importlib.util.find_spec(name) is not None


class Shelf:
    """All sources that a worker has seen; one at a time is in sight."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Sources] = {}
        self._current: Sources | None = None

    def fresh(self, request: Mapping[str, Any]) -> Sources:
        """The same, imported anew: nothing that an earlier request did to them is left."""
        if self._current is not None:
            self._current.leave()
            self._current = None
        self._known.pop((request["root"], *request["sources"]), None)
        return self.get(request)

    def get(self, request: Mapping[str, Any]) -> Sources:
        """The sources that a request speaks of."""
        key = (request["root"], *request["sources"])
        wanted = self._known.get(key)
        if wanted is None or wanted is not self._current:
            if self._current is not None:
                self._current.leave()
                self._current = None
            wanted = self._known.setdefault(key, wanted or Sources(key[0], key[1:]))
            wanted.enter()
            self._current = wanted
        return wanted
