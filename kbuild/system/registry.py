"""Named things found by importing every module of one package, and third-party entry points.

Adding a backend, a framework, a check or a language is one new file in its package (or one entry
point of the same group in another distribution); nothing else names it.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from kbuild.system.plugins import plugin_points


class Named(Protocol):
    """An entry of a registry: anything with a name."""

    @property
    def name(self) -> str:
        """The name it is found by."""


T = TypeVar("T", bound=Named)


class Registry(Generic[T]):
    """Instances by name, in name order.

    Third-party plug-ins are looked up only when a name is not kbuild's own (`get`) or when asked
    for (`load(plugins=True)`): scanning installed distributions is slow.
    """

    def __init__(self, package: str, group: str = "") -> None:
        """Search a package, and a group of entry points, which is called like it by default."""
        self._package = package
        self._group = group or package
        self._items: dict[str, T] = {}
        self._loaded = False
        self._plugins = False
        self._is_loading = False
        self._lock = threading.RLock()

    def add(self, item: type[T]) -> type[T]:
        """Class decorator: instantiate and register."""
        instance = item()
        if instance.name in self._items:
            raise RuntimeError(f"{instance.name!r} is registered twice in {self._package}")
        self._items[instance.name] = instance
        return item

    def load(self, *, plugins: bool = False) -> Registry[T]:
        """Import the package's modules (once), and the plug-ins when asked.

        Another thread that asks meanwhile waits until all of them are there.
        """
        if self._loaded and (self._plugins or not plugins):
            return self
        with self._lock:
            if self._is_loading:  # a module of the package asks while it is imported
                return self
            self._is_loading = True
            try:
                self._load(plugins=plugins)
            finally:
                self._is_loading = False
        return self

    def _load(self, *, plugins: bool) -> None:
        if not self._loaded:
            package = importlib.import_module(self._package)
            for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
                importlib.import_module(f"{self._package}.{info.name}")
            self._loaded = True
        if plugins and not self._plugins:
            for point in plugin_points(self._group):
                point.load()
            self._plugins = True

    def find(self, name: str) -> T | None:
        """The item of that name, asking the plug-ins when it is not kbuild's own.

        Where a module of the package is named as the item is, no other is imported.
        """
        if name not in self._items and not self._loaded:
            module = f"{self._package}.{name}"
            try:
                importlib.import_module(module)
            except ModuleNotFoundError as error:
                # A module that is there and lacks another one must not pass for an unknown name.
                if error.name != module:
                    raise
        if name not in self._items:
            self.load()
        if name not in self._items:
            self.load(plugins=True)
        return self._items.get(name)

    def get(self, name: str) -> T:
        """The item of that name; raises `KeyError`."""
        item = self.find(name)
        if item is None:
            raise KeyError(f"{name!r} is not one of {', '.join(self.names())}")
        return item

    def names(self) -> tuple[str, ...]:
        """All known names, sorted."""
        self.load()
        return tuple(sorted(self._items))

    def __iter__(self) -> Iterator[T]:
        return iter([self._items[name] for name in self.names()])
