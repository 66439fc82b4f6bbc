"""Finds what a kernel registers with Torch outside its own namespace while it is imported.

Used by `load_probe.py`, in the same process. A registration is the kernel's if its library is in
the kernel's folder, or if the kernel's Python opens the namespace. What packages register that the
kernel imports is theirs.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import FrameType
from typing import Any

torch: Any = importlib.import_module("torch")

TORCH_FOLDER = os.path.realpath(torch.__path__[0]) + os.sep
REGISTRARS = ("library.py", f"_library{os.sep}", "_custom_op")
"""The files of Torch through which Python registers ops."""
HELPERS = (contextlib.__file__, functools.__file__)
Registration = dict[str, str]
"""`where`: a file of the kernel, with the line of Python; `what`: the op or the namespace;
`through`: the file of another package that registers it for the kernel, or nothing."""


def dispatcher_state() -> dict[str, int]:
    """Each op of this process with a hash of its schema, its kernels and who registered them."""
    dump, names = torch._C._dispatch_dump, torch._C._dispatch_get_all_op_names()
    return {name: hash(dump(name)) for name in names}


def watch(folder: Path, namespace: str) -> list[Registration]:
    """Fill the list with the registrations of the kernel in `folder` outside its namespace."""
    registrations: list[Registration] = []
    root = os.path.realpath(folder) + os.sep

    def load_library(path: str, load: Callable[[], Any]) -> Any:
        real = os.path.realpath(path)
        if not real.startswith(root):
            return load()
        before = dispatcher_state()
        try:
            return load()
        finally:
            for name, state in sorted(dispatcher_state().items()):
                if before.get(name) != state and not name.startswith(f"{namespace}::"):
                    where = real.removeprefix(root)
                    registrations.append({"where": where, "what": name, "through": ""})

    # `import` loads libraries by the former, `torch.ops.load_library` by the latter.
    create, open_library = ExtensionFileLoader.create_module, ctypes.CDLL.__init__
    open_namespace = torch._C._dispatch_library

    def create_module(loader: ExtensionFileLoader, spec: Any) -> Any:
        return load_library(loader.path, lambda: create(loader, spec))

    def open_cdll(library: Any, name: Any = None, *arguments: Any, **named: Any) -> None:
        load_library(str(name), lambda: open_library(library, name, *arguments, **named))

    def dispatch_library(kind: str, opened: str, *arguments: Any) -> Any:
        caller = calling_kernel(root) if opened != namespace else None
        if caller is not None:
            where, through = caller
            registrations.append({"where": where, "what": opened, "through": through})
        return open_namespace(kind, opened, *arguments)

    setattr(ExtensionFileLoader, "create_module", create_module)  # noqa: B010 - a method, for good
    setattr(ctypes.CDLL, "__init__", open_cdll)  # noqa: B010
    torch._C._dispatch_library = dispatch_library
    return registrations


def calling_kernel(root: str) -> tuple[str, str] | None:
    """The place in the kernel below `root` that opens a namespace just now, and through which file.

    None when Torch does so itself, or a module of another package while it is imported.
    """
    through = ""
    for frame in callers():
        file = os.path.realpath(frame.f_code.co_filename)
        if file.startswith(root):
            return f"{file.removeprefix(root)}:{frame.f_lineno}", through
        if "importlib._bootstrap" in frame.f_code.co_filename:
            return None
        if file.startswith(TORCH_FOLDER):
            if not file.removeprefix(TORCH_FOLDER).startswith(REGISTRARS):
                return None
        elif frame.f_code.co_filename not in HELPERS:
            through = through or file
    return None


def callers() -> Iterator[FrameType]:
    """The frames outside this file, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename != __file__:
            yield frame
        frame = frame.f_back
