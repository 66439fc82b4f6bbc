"""Imports the author's sources: the files that the section lists, and no others."""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import os
import re
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from kbuild.dsl.worker.device import TargetDevice, set_current
from kbuild.dsl.worker.doubts import fresh_process, judge_doubts, module_facts
from kbuild.dsl.worker.protocol import RefusalError

_TOP_LEVEL_PARTS = 2
"""Minimum of parts for dropping a leading `src`: in `src.ops`, it is the package."""


REMOVED_MODULES: dict[str, str] = {}
"""Modules that earlier releases of the DSL had -> advice for the author."""
_NAME_FROM = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


class SourceModules(Loader, MetaPathFinder):
    """The sources of a project below a folder, imported for one device."""

    def __init__(self, folder: str, files: Sequence[str]) -> None:
        self._folder, self._names = folder, tuple(files)
        names = module_names(files)
        self._files = {name: file for file, name in names.items()}
        whole = ((module_name(file), name) for file, name in names.items())
        self._others = {other: name for other, name in whole if other != name}
        """Names relative to the project's folder, for modules whose package begins further down."""
        self.first = names[files[0]]
        self._loaded: dict[str, ModuleType] = {}
        self._main: ModuleType | None = None
        self.device = TargetDevice()

    def told_of(self, facts: Mapping[str, Any] | None) -> bool:
        """Set the device; False if modules that asked about another one must be reimported."""
        if self.asked and (facts or {}) != self.device.facts:
            return False
        self.device.facts = facts or {}
        return True

    @property
    def asked(self) -> list[str]:
        """Questions about the device that the author's code has asked so far."""
        return self.device.asked

    def enter(self) -> None:
        """Make these sources importable; `leave` must be called before another `enter`."""
        self.device.is_author = self._is_source
        set_current(self.device)
        os.chdir(self._folder)  # file names in images are relative to it
        # Another project may have had a file with the same relative name.
        linecache.clearcache()
        sys.meta_path.insert(0, self)
        # Requests about the same sources share modules, which must not be imported a second time.
        sys.modules.update(self._loaded)

    def leave(self) -> None:
        """Remove the modules from the interpreter's view."""
        sys.meta_path.remove(self)
        set_current(TargetDevice())
        for name in [name for name in sys.modules if self.owns(name)]:
            self._loaded[name] = sys.modules.pop(name)

    def owns(self, name: str) -> bool:
        """True for the sources' modules and the packages around them."""
        known = (*self._files, *self._others)
        return any(name == module or module.startswith(f"{name}.") for module in known)

    def _is_source(self, file: str) -> bool:
        return file in self._files.values()

    def main(self) -> ModuleType:
        """Import the first source.

        Raises:
            RefusalError: it cannot be imported.
        """
        if self._main is None:
            # Forked before the import, which cannot be repeated in a process that has done it.
            with fresh_process(self._imported_with) as fresh:
                main = self._imported()
                judge_doubts(self.device, self._facts, fresh)
            self._main = main
        return self._main

    def imported_with_main(self) -> list[ModuleType]:
        """The other sources that the first one imported, in the order of the files."""
        main = self.main()
        loaded = [sys.modules.get(name) for name in self._files]
        return [module for module in loaded if module is not None and module is not main]

    def _imported(self) -> ModuleType:
        device = self.device
        device.importing, device.refused = True, []
        try:
            module = importlib.import_module(self.first)
        except SyntaxError as error:
            file = self.relative(error.filename or "")
            raise RefusalError(str(error.msg), file=file, line=error.lineno or 0) from error
        except Exception as error:
            raise self.refusal(error) from error
        finally:
            device.importing = False
        if device.refused:  # but the author's code caught the error
            raise device.refused[0]
        return module

    def _imported_with(self, model: Mapping[str, int], answer: str) -> dict[str, Any]:
        """Import with other answers; return the facts of the modules, or a refusal.

        The process must not have imported any of the modules, see `doubts`.
        """
        facts = self.device.facts
        self.device = TargetDevice(facts)
        self.device.model = dict(model)
        self.device.is_author = self._is_source
        set_current(self.device)
        try:
            self._imported()
        except RefusalError as refusal:
            return {"refusal": refusal.to_json()}
        return {"facts": self._facts(answer)}

    def _facts(self, answer: str) -> dict[str, str]:
        modules = {name: sys.modules[name] for name in sorted(sys.modules) if self.owns(name)}
        return module_facts(modules, answer)

    def refusal(self, error: BaseException) -> RefusalError:
        """Return the refusal for an exception in the author's code, at its last line there."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename in self._files.values()]
        if isinstance(error, RefusalError):
            refusal = error
        elif isinstance(error, ModuleNotFoundError):
            refusal = RefusalError(str(error), hint=self._missing(error.name or ""))
        elif (match := _NAME_FROM.match(str(error))) and not self.owns(match[2]):
            refusal = RefusalError(match[0], hint=self._missing(f"{match[2]}.{match[1]}"))
        else:
            refusal = RefusalError(f"{type(error).__name__}: {error}")
        if own and not refusal.file:
            refusal.file, refusal.line = own[-1].filename, own[-1].lineno or 0
        return refusal

    def relative(self, file: str) -> str:
        """Path of a file relative to the project."""
        return os.path.relpath(file, self._folder) if Path(file).is_absolute() else file

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if not self.owns(name):
            return None
        if name in self._others:
            return ModuleSpec(name, _AliasLoader(self._others[name]))
        file = self._files.get(name)
        is_package = file is None or file.endswith("__init__.py")
        spec = ModuleSpec(name, self, origin=file, is_package=is_package)
        # The import system sets `__file__` only for a spec that has a location.
        spec.has_location = file is not None
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """See `importlib.abc.Loader`."""

    def exec_module(self, module: ModuleType) -> None:
        """See `importlib.abc.Loader`."""
        file = self._files.get(module.__name__)
        if file is not None:
            text = Path(file).read_bytes()
            # `dont_inherit`: this module's own `from __future__` import must not apply to the
            # author's.
            exec(compile(text, file, "exec", dont_inherit=True), module.__dict__)  # noqa: S102

    def _missing(self, name: str) -> str:
        """Advice for a module, or a name in one, that an import did not find."""
        top, _, rest = name.partition(".")
        if any(module.partition(".")[0] == top for module in self._files):
            return "add the file to `src`"
        if not rest or not _is_installed(top):
            return f"if the kernels need `{top}`, pin it in `toolchain`"
        version = getattr(sys.modules.get(top), "__version__", None)
        release = f"{top} {version}" if isinstance(version, str) else f"the installed {top}"
        instead = REMOVED_MODULES.get(name, "import what it has instead")
        return f"{release} has no `{name}`: {instead}"


class _AliasLoader(Loader):
    """Loads a module that already has another name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:  # noqa: ARG002
        """See `importlib.abc.Loader`."""
        return importlib.import_module(self._name)

    def exec_module(self, module: ModuleType) -> None:
        """See `importlib.abc.Loader`."""


def module_names(files: Sequence[str]) -> dict[str, str]:
    """Return the module name of each source, by file.

    Names begin at the outermost package, a folder whose `__init__.py` is listed, or after `src/`:
    `src/my/ops.py` is `my.ops`.
    """
    packages = {module_name(file) for file in files if file.endswith("__init__.py")}
    return {file: _within(module_name(file), packages) for file in files}


def _within(name: str, packages: Container[str]) -> str:
    parts = name.split(".")
    depths = range(1, len(parts) + 1)
    outermost = next((at for at in depths if ".".join(parts[:at]) in packages), 0)
    above = outermost - 1 if outermost else int(parts[0] == "src" and len(parts) > _TOP_LEVEL_PARTS)
    top = parts[max(above, 0)]
    # Without its folders, the source would take the place of an installed package.
    is_taken = above > 0 and (top in sys.stdlib_module_names or _is_installed(top))
    return name if is_taken else ".".join(parts[max(above, 0) :])


def module_name(file: str) -> str:
    """Module name of a source: `torch-ext/my/ops.py` is `my.ops`."""
    parts = list(PurePosixPath(file).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    plain = [index for index, part in enumerate(parts) if not part.isidentifier()]
    parts = parts[plain[-1] + 1 :] if plain else parts
    if not parts:
        raise RefusalError(f"`{file}` cannot be imported by that name", hint="rename it")
    if parts[0] in sys.stdlib_module_names or _is_installed(parts[0]):
        # A source must not take the place of an installed module with its name.
        parts[0] += "_"
    return ".".join(parts)


def _is_installed(name: str) -> bool:
    """True if the environment has a module of that name."""
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__spec__", None) is not None:
        # `find_spec` would answer from `sys.modules`, which has the author's modules too.
        return not isinstance(known.__spec__ and known.__spec__.loader, SourceModules)
    return importlib.util.find_spec(name) is not None


class SourceCache:
    """All sources that a worker has seen; only one of them is importable at a time."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], list[SourceModules]] = {}
        self._current: SourceModules | None = None

    def fresh(self, request: Mapping[str, Any]) -> SourceModules:
        """Return the sources imported anew, without changes that earlier requests made."""
        self._put_away()
        self._known.pop((request["root"], *request["sources"]), None)
        return self.get(request)

    def get(self, request: Mapping[str, Any]) -> SourceModules:
        """Return the request's sources, imported for its device if they depend on it."""
        key = (request["root"], *request["sources"])
        states, facts = self._known.setdefault(key, []), request.get("device")
        wanted = next((state for state in states if state.told_of(facts)), None)
        if wanted is None:
            self._put_away()  # importable sources would count as installed modules
            wanted = SourceModules(key[0], key[1:])
            wanted.told_of(facts)
            states.append(wanted)
        if wanted is not self._current:
            self._put_away()
            wanted.enter()
            self._current = wanted
        return wanted

    def _put_away(self) -> None:
        if self._current is not None:
            self._current.leave()
            self._current = None


class SourceCompiler(ABC):
    """Base of compilers that read the functions of a request from an author's sources."""

    def __init__(self) -> None:
        self._sources = SourceCache()
        self._ask: Callable[[str], bool] = lambda _: True

    def ask_with(self, ask: Callable[[str], bool]) -> None:
        """Set the function that decides about compiling a kernel, see `protocol.WorkerCompiler`."""
        self._ask = ask

    def describe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.WorkerCompiler`."""
        sources = self._sources.get(request)
        functions = [function.describe() for function in self._functions(sources).values()]
        return {"functions": functions, "asked": sources.asked}

    @abstractmethod
    def _functions(self, sources: SourceModules) -> Mapping[str, Any]:
        """The kernel functions of the sources, by name."""
