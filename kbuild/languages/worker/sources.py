"""The author's sources as modules: those that the section lists, and no others."""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import os
import re
import sys
import traceback
from collections.abc import Container, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from kbuild.languages.worker.device import TargetDevice, UnknownValue, set_current
from kbuild.languages.worker.protocol import RefusalError

_RELEASE = re.compile(r"(\d+)\.(\d+)")
_TOP_LEVEL_PARTS = 2
"""Parts of a name such as `src.ops`, which is in no package of its own."""


class SourceModules(Loader, MetaPathFinder):
    """One state of a project's sources, below a folder."""

    def __init__(self, folder: str, files: Sequence[str]) -> None:
        self._folder, self._names = folder, tuple(files)
        names = module_names(files)
        self._files = {name: file for file, name in names.items()}
        whole = ((module_name(file), name) for file, name in names.items())
        self._others = {other: name for other, name in whole if other != name}
        """Names that begin above the package, as seen from the project's folder."""
        self.first = names[files[0]]
        self._loaded: dict[str, ModuleType] = {}
        self._main: ModuleType | None = None
        self.device = TargetDevice()
        """What was asked of it holds for this state of the modules."""

    def told_of(self, facts: Mapping[str, Any] | None) -> bool:
        """Whether the modules are, or would be, the same for a device; it then answers."""
        if self.asked and (facts or {}) != self.device.facts:
            return False
        self.device.facts = facts or {}
        return True

    @property
    def asked(self) -> list[str]:
        """The questions about the device that the author's code has asked so far."""
        return self.device.asked

    def enter(self) -> None:
        """Make these the sources that are imported; `leave` comes before another's `enter`."""
        self.device.files = self._files
        set_current(self.device)
        os.chdir(self._folder)  # the names of files in images are relative
        linecache.clearcache()
        sys.meta_path.insert(0, self)
        sys.modules.update(self._loaded)

    def leave(self) -> None:
        """Take the modules out of sight."""
        sys.meta_path.remove(self)
        set_current(TargetDevice())
        for name in [name for name in sys.modules if self.owns(name)]:
            self._loaded[name] = sys.modules.pop(name)

    def owns(self, name: str) -> bool:
        """Whether a module is one of these, or a package around one."""
        known = (*self._files, *self._others)
        return any(name == module or module.startswith(f"{name}.") for module in known)

    def main(self) -> ModuleType:
        """The first source, imported.

        Raises:
            RefusalError: it cannot be.
        """
        if self._main is None:
            self._main = self._imported()
            self._judge_doubts()
        return self._main

    def imported_with_main(self) -> list[ModuleType]:
        """The other sources that were imported with the first one, in the order of their files."""
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
        if device.refused:  # and the author's code went on as if there were no GPU
            raise device.refused[0]
        return module

    def _judge_doubts(self) -> None:
        """Import anew for each answer that devices of the arch could give as well.

        Raises:
            RefusalError: what comes of it differs.
        """
        for question, doubt in self.device.doubts.items():
            first = doubt.answers[self.device.model.get(question, 0)]
            mine = self._facts(first)
            for at, answer in enumerate(doubt.answers):
                other = SourceModules(self._folder, self._names)
                other.device = TargetDevice(self.device.facts)
                other.device.model = {question: at}
                self.leave()
                other.enter()
                try:
                    other._imported()
                    theirs = other._facts(answer)
                except RefusalError as error:
                    message = f"cannot be imported if `{question}` is {answer!r}: {error.message}"
                    raise RefusalError(
                        message, file=error.file, line=error.line, hint=doubt.hint
                    ) from error
                finally:
                    other.leave()
                    self.enter()
                differing = sorted(
                    name
                    for name in {*mine, *theirs}
                    if mine.get(name) != theirs.get(name)
                    and _without(mine.get(name), first) != _without(theirs.get(name), answer)
                )
                if differing:
                    message = f"`{differing[0]}` depends on `{question}`, which differs among "
                    raise RefusalError(
                        f"{message}{doubt.among}: {first!r}, {answer!r}",
                        file=doubt.file,
                        line=doubt.line,
                        hint=doubt.hint,
                    )

    def _facts(self, answer: str) -> dict[str, str]:
        """What names stand for, as text; the answer to a question by itself counts for nothing."""
        facts = {}
        for name, module in sorted(sys.modules.items()):
            if self.owns(name):
                for key, value in vars(module).items():
                    if not key.startswith("__"):
                        facts[f"{name}.{key}"] = _described(value, answer)
        return facts

    def refusal(self, error: BaseException) -> RefusalError:
        """What went wrong while the author's code ran, at its last line that did."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename in self._files.values()]
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

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if not self.owns(name):
            return None
        if name in self._others:
            return ModuleSpec(name, _AliasLoader(self._others[name]))
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
        if any(module.partition(".")[0] == top for module in self._files):
            return "add the file to `src`"
        return f"if the kernels need `{name}`, pin it in `toolchain`"


class _AliasLoader(Loader):
    """A module by another of its names."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:  # noqa: ARG002
        """See `importlib.abc.Loader`."""
        return importlib.import_module(self._name)

    def exec_module(self, module: ModuleType) -> None:
        """See `importlib.abc.Loader`."""


def module_names(files: Sequence[str]) -> dict[str, str]:
    """The name that each source is imported by, by file.

    Names begin at the outermost package, a folder whose `__init__.py` is listed, and behind `src/`:
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
    is_taken = above > 0 and (top in sys.stdlib_module_names or _is_installed(top))
    return name if is_taken else ".".join(parts[max(above, 0) :])


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
        return not isinstance(known.__spec__ and known.__spec__.loader, SourceModules)
    return importlib.util.find_spec(name) is not None


_DEEP = 4
"""Containers in containers that are compared."""


def _described(value: Any, answer: str, depth: int = 0) -> str:
    """A plain value as text, another by what it is called and where it begins."""
    if type(value) is str and value == answer:
        return "the answer"
    if value is None or type(value) in {bool, int, float, str, bytes, UnknownValue}:
        return repr(value)
    if type(value) in {list, tuple, set, frozenset, dict} and depth < _DEEP:
        items = [*value.items()] if type(value) is dict else [*value]
        texts = [_described(element, answer, depth + 1) for element in items]
        return f"{type(value).__name__}{texts}"
    if isinstance(value, ModuleType):  # which may go by several names
        return f"module {getattr(value, '__file__', None)}"
    if type(value).__name__ == "constexpr":
        return f"constexpr {_described(value.value, answer, depth + 1)}"
    function = getattr(value, "fn", value)
    code = getattr(getattr(function, "fn", function), "__code__", None)
    line = "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
    descriptions = [_described(vars(config), answer, depth + 1) for config in _configs(value)]
    return f"{type(value).__name__} {getattr(value, '__name__', '')} {line} {descriptions}"


def _without(text: str | None, answer: str) -> str | None:
    """A fact without the numbers of a release: `(2, 13)` and `"213"` say no more than it does."""
    match = _RELEASE.match(answer)
    if text is None or match is None:
        return text
    return re.sub(rf"(?<!\d)(?:{match[1]})?{match[2]}(?!\d)", "_", text)


def _configs(value: Any) -> Sequence[Any]:
    """The candidates of a kernel that has some."""
    configs = getattr(value, "configs", None) if hasattr(value, "fn") else None
    if not isinstance(configs, (list, tuple)):
        return ()  # what stands in for Torch has every name
    return [config for config in configs if hasattr(config, "__dict__")]


class SourceCache:
    """All sources that a worker has seen; one at a time is in sight."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], list[SourceModules]] = {}
        self._current: SourceModules | None = None

    def fresh(self, request: Mapping[str, Any]) -> SourceModules:
        """The same, imported anew: nothing that an earlier request did to them is left."""
        self._put_away()
        self._known.pop((request["root"], *request["sources"]), None)
        return self.get(request)

    def get(self, request: Mapping[str, Any]) -> SourceModules:
        """The sources that a request speaks of, imported for its device where that matters."""
        key = (request["root"], *request["sources"])
        states, facts = self._known.setdefault(key, []), request.get("device")
        wanted = next((state for state in states if state.told_of(facts)), None)
        if wanted is None:
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
