"""From a package's folder to its surface."""

from __future__ import annotations

import ast
from pathlib import Path

from kbuild.checks.readers.scopes import Defined, Value
from kbuild.surface.classes import class_of, forward_of
from kbuild.surface.model import LAYERS, Class, Function, Surface, SurfaceError
from kbuild.surface.modules import Module, Modules, Target
from kbuild.surface.signature import function_of, lambda_of

SOURCE_FOLDERS = ("torch-ext", "tvm-ffi-ext")
_INIT = "__init__.py"
_OPS = "ops"
# Expressions whose value may be called; all others are values.
_MAYBE_CALLED = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.IfExp, ast.BoolOp)


def package_of(project_root: Path, python_name: str) -> Path | None:
    """Where a project keeps the kernel's Python package; None when it has none."""
    folders = (project_root / folder / python_name for folder in SOURCE_FOLDERS)
    return next((folder for folder in folders if (folder / _INIT).is_file()), None)


def read_surface(package: Path, own: str = "") -> Surface:
    """What a package makes public.

    Args:
        package: the folder of `__init__.py`: in a project, or a built or published variant. In
            variants of the old layout the package is a folder inside, which is found as well.
        own: the package's name, when that is not the folder's: absolute imports of it are followed.

    Raises:
        SurfaceError: there is no package, or a module that it offers names of does not parse.
    """
    folder = _with_init(package)
    modules = Modules(folder, own or folder.name)
    try:
        top = modules.module(())
        if top is None:
            raise SurfaceError(f"`{package}` has no `{_INIT}`", hint="is it a kernel's package?")
        return _Reading(modules).surface(top)
    except RecursionError as error:
        message = f"`{package}`: what it makes public is nested too deeply to be followed"
        raise SurfaceError(message, hint="shorten its expressions") from error


def _with_init(package: Path) -> Path:
    inner = sorted(package.glob(f"*/{_INIT}"))
    return inner[0].parent if not (package / _INIT).is_file() and len(inner) == 1 else package


class _Reading:
    """One package's public names, each put where it belongs."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules

    def surface(self, top: Module) -> Surface:
        names = self.modules.public_names(top)
        found = {name: self._told(name, top) for name in names}
        layers = self.modules.member(top, LAYERS) if LAYERS in names else None
        return Surface(
            names,
            tuple(told for told in found.values() if isinstance(told, Function)),
            tuple(told for told in found.values() if isinstance(told, Class)),
            self._layers(layers) if isinstance(layers, Module) else (),
            tuple(name for name, told in found.items() if told is None),
            ast.get_docstring(top.tree) or "",
        )

    def _layers(self, module: Module) -> tuple[Class, ...]:
        """Its own public classes, and those that it makes public from elsewhere."""
        own = [node.name for node in module.tree.body if isinstance(node, ast.ClassDef)]
        names = [*(n for n in own if not n.startswith("_")), *self.modules.public_names(module)]
        told = (self._told(name, module) for name in dict.fromkeys(names))
        return tuple(found for layer in told if (found := _as_layer(layer)) is not None)

    def _told(self, name: str, module: Module) -> Function | Class | None:
        """What is known of a public name; None when it is neither called nor a class."""
        target = self.modules.member(module, name)
        if isinstance(target, Module):
            return None
        if isinstance(target, Defined):
            return self._defined(target, name)
        if isinstance(target, Value):
            return self._value(target, name)
        return None if name == _OPS else Function(name, None)

    def _defined(self, target: Defined, name: str) -> Function | Class:
        if isinstance(target.node, ast.ClassDef):
            return class_of(target, name, self.modules)
        if isinstance(target.node, ast.Lambda):
            return lambda_of(target.node, name)
        return function_of(target.node, name)

    def _value(self, target: Value, name: str) -> Function | None:
        node = target.node
        if isinstance(node, ast.Lambda):
            return lambda_of(node, name)
        if not isinstance(node, _MAYBE_CALLED):
            return None
        if isinstance(node, ast.Attribute) and node.attr == "apply":
            return forward_of(self._owner(node.value, target), name) or Function(name, None)
        return Function(name, None)

    def _owner(self, node: ast.expr, target: Value) -> Target | None:
        return self.modules.follow(node.id, target.scope) if isinstance(node, ast.Name) else None


def _as_layer(told: Function | Class | None) -> Class | None:
    """A layer is a class, found or not."""
    if isinstance(told, Function) and told.parameters is None:
        return Class(told.name)
    return told if isinstance(told, Class) else None
