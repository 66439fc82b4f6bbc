"""State of an author's modules that a program can change: a run may not read it.

What functions change is taken away for the time of a run, so that reading it ends the run; what
they only remember is as it was when the module was imported.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field
from importlib.util import resolve_name
from inspect import getattr_static
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch

from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.worker.calls import asked_at_import
from kbuild.plugins.capture.worker.changes import Changes, changes_of, dependent_names

_CONTAINERS = (dict, list, set, deque)
_REMEDY = "make it an argument of the function, or a constant"


@dataclass
class ModuleState:
    """State of the author's modules that calls can change, and that no run may rely on."""

    modules: Sequence[ModuleType]
    removed: dict[tuple[int, str], str] = field(default_factory=dict)
    """Namespace and name that runs do not find -> why."""
    remembered: list[tuple[ModuleType, str, str]] = field(default_factory=list)
    """Module, name of a global that caches a value, and the line that fills it."""

    def __post_init__(self) -> None:
        self._namespaces: dict[int, dict[str, Any]] = {}
        self._containers: dict[int, str] = {}
        self._kept: list[Any] = []
        self._guarded: dict[type, None] = {}
        trees = {module: _tree(module) for module in self.modules}
        changes = {module: changes_of(tree) for module, tree in trees.items()}
        for module, own in changes.items():
            self._add_globals(module, own)
            self._add_attributes(module, own)
        # Other modules may have imported a container under names of their own.
        for module in self.modules:
            for name, value in list(vars(module).items()):
                if id(value) in self._containers:
                    self._remove(vars(module), name, self._containers[id(value)])
        self._add_answers(trees)
        for module in self.modules:
            for value in list(vars(module).values()):
                # An object of the author's may answer anything, or raise an error.
                if callable(getattr_static(value, "cache_clear", None)):
                    self._kept.append(value)

    def _remove(self, namespace: dict[str, Any], name: str, why: str) -> None:
        if name in namespace:
            self._namespaces[id(namespace)] = namespace
            self.removed.setdefault((id(namespace), name), why)

    def _add_globals(self, module: ModuleType, changes: Changes) -> None:
        names = vars(module)
        for name, line in (changes.rebound | changes.mutated).items():
            value, is_missing = _value(module, name)
            if is_missing:
                continue
            if name in changes.remembered and (value is None or value in ({}, [], set())):
                self.remembered.append((module, name, f"{module.__file__}:{line}"))
                continue
            why = f"`{name}`, which {Path(module.__file__ or '').name}:{line} changes"
            if name in changes.rebound:
                self._remove(names, name, why)
            elif isinstance(value, _CONTAINERS):
                self._containers[id(value)] = why
                if "." in name:
                    owner, _ = _value(module, name.rpartition(".")[0])
                    self._remove(getattr(owner, "__dict__", {}), name.rpartition(".")[2], why)

    def _add_attributes(self, module: ModuleType, changes: Changes) -> None:
        file = Path(module.__file__ or "").name
        for (root, attribute), line in changes.attributes.items():
            owner, _ = _value(module, root)
            why = f"`{root}.{attribute}`, which {file}:{line} changes"
            if owner in self.modules or self._is_own(owner):
                self._remove_attribute(owner, attribute, why)
        for (root, attribute), line in changes.own.items():
            kind, _ = _value(module, root)
            for other in self.modules:
                for name, value in list(vars(other).items()):
                    is_one = isinstance(kind, type) and isinstance(value, kind)
                    if is_one or value is kind:
                        why = f"`{name}.{attribute}`, which {file}:{line} changes"
                        self._remove_attribute(value, attribute, why)

    def _is_own(self, value: Any) -> bool:
        """True if a value is an object, a class or a function of the author's."""
        kinds = value.__mro__ if isinstance(value, type) else (type(value),)
        own = {module.__name__ for module in self.modules}
        is_plain = isinstance(value, (SimpleNamespace, FunctionType))
        return is_plain or any(getattr(kind, "__module__", "") in own for kind in kinds)

    def _remove_attribute(self, owner: Any, name: str, why: str) -> None:
        if isinstance(owner, type):
            if name in vars(owner):
                self._kept.append(owner)
                self.removed.setdefault((id(owner), name), why)
        elif isinstance(owner, SimpleNamespace):
            # Its class is not the author's: the whole object is taken away.
            self._containers[id(owner)] = why
        elif hasattr(owner, "__dict__"):
            self._remove(vars(owner), name, why)
            if not isinstance(owner, (ModuleType, FunctionType)):
                self._guarded[type(owner)] = None

    def _add_answers(self, trees: Mapping[ModuleType, ast.Module]) -> None:
        """Hide globals whose values depend on an answer that a module got when it was imported."""
        lines_by_module: dict[str, dict[str, int]] = {}
        for module, tree in trees.items():
            lines = asked_at_import.get(module.__file__ or "", set())
            lines_by_module[module.__name__] = dependent_names(tree, lines) if lines else {}
        for module, tree in trees.items():
            for node in ast.walk(tree):
                if not isinstance(node, ast.ImportFrom):
                    continue
                source = "." * node.level + (node.module or "")
                try:
                    source = resolve_name(source, module.__package__)
                except ImportError:
                    continue
                for alias in node.names:
                    if line := lines_by_module.get(source, {}).get(alias.name, 0):
                        lines_by_module[module.__name__].setdefault(
                            alias.asname or alias.name, line
                        )
            file = Path(module.__file__ or "").name
            for name, line in lines_by_module[module.__name__].items():
                why = f"`{name}`, which depends on what {file}:{line} asks when it is imported"
                self._remove(vars(module), name, why)

    # runs

    @contextmanager
    def taken_away(self) -> Iterator[None]:
        """Hide state that calls can change, and clear caches, in this context.

        Raises:
            CaptureError: the run keeps a tensor for the next call.
        """
        # Default arguments cannot be taken away as globals are: they are compared after the run.
        defaults = [(function, value, copy(value)) for function, value in self._defaults()]
        with ExitStack() as stack:
            self._take_away(stack)
            for module, name, _ in self.remembered:
                before = _value(module, name)[0]
                stack.callback(setattr, module, name, before)
                setattr(module, name, None if before is None else type(before)())
            yield
            # Before the stack ends, the caches still hold what the run has kept.
            for module, name, place in self.remembered:
                if _has_tensor(vars(module).get(name)):
                    message = f"keeps a tensor in `{name}` for the next call: make it in each call"
                    raise CaptureError(message, place)
        for function, value, before in defaults:
            if value != before:
                code = function.__code__
                message = f"changes a default argument of `{function.__name__}`"
                place = f"{code.co_filename}:{code.co_firstlineno}"
                raise CaptureError(f"{message}: make it in each call", place)

    def _take_away(self, stack: ExitStack) -> None:
        classes = {id(value): value for value in self._kept if isinstance(value, type)}
        for key, name in self.removed:
            if key in classes:
                stack.callback(setattr, classes[key], name, vars(classes[key])[name])
                delattr(classes[key], name)
            else:
                namespace = self._namespaces[key]
                stack.callback(namespace.__setitem__, name, namespace.pop(name))
        for kind in self._guarded:
            # A subclass inherits that of its base class, and an author's own one is kept.
            if not hasattr(kind, "__getattr__"):
                stack.callback(delattr, kind, "__getattr__")
                kind.__getattr__ = self._refuse_attribute  # type: ignore[attr-defined]
        for value in self._kept:
            if not isinstance(value, type):
                value.cache_clear()

    def _defaults(self) -> Iterator[tuple[FunctionType, Any]]:
        """Default arguments of the author's functions, which calls may change."""
        values = (value for module in self.modules for value in list(vars(module).values()))
        for function in values:
            if isinstance(function, FunctionType):
                keywords = (function.__kwdefaults__ or {}).values()
                for value in (*(function.__defaults__ or ()), *keywords):
                    if isinstance(value, _CONTAINERS):
                        yield function, value

    # It returns a plain function: a bound method would not get the object of the class.
    @property
    def _refuse_attribute(self) -> Any:
        """`__getattr__` of a class: refuse attributes that were hidden from its objects."""

        def refuse(owner: Any, name: str) -> Any:
            error = AttributeError(name, name=name, obj=owner)
            if reason := self.explanation(error):
                raise CaptureError(reason)
            raise error

        return refuse

    def explanation(self, error: BaseException) -> str:
        """The reason for an error that hidden state has caused; empty for others."""
        if not isinstance(error, (NameError, AttributeError)):
            return ""
        owner, name = getattr(error, "obj", None), error.name
        for (key, known), why in self.removed.items():
            keys = (id(owner), id(getattr(owner, "__dict__", None)))
            if known == name and (isinstance(error, NameError) or key in keys):
                return f"reads {why}: {_REMEDY}"
        return ""


def _value(module: ModuleType, name: str) -> tuple[Any, bool]:
    """Value of a dotted name in a module, and True if there is none."""
    value: Any = module
    for part in name.split("."):
        if part not in getattr(value, "__dict__", {}):
            return None, True
        value = vars(value)[part]
    return value, False


def _has_tensor(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_tensor(part) for pair in value.items() for part in pair)
    if isinstance(value, (list, tuple, set)):
        return any(map(_has_tensor, value))
    return isinstance(value, torch.Tensor)


def _tree(module: ModuleType) -> ast.Module:
    try:
        return ast.parse(Path(module.__file__ or "").read_text("utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ast.Module([], [])


_known: dict[tuple[str, ...], ModuleState] = {}


def module_state(modules: Sequence[ModuleType]) -> ModuleState:
    """The state of modules, read once."""
    key = tuple(module.__name__ for module in modules)
    if key not in _known:
        _known[key] = ModuleState(modules)
    return _known[key]
