"""Started as a script with a language's module, an environment, and the descriptor of a pipe."""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent


def main() -> None:
    """Answer requests until their pipe is closed."""
    language, environment, life = sys.argv[1:]
    _die_with(int(life))
    answers, requests = os.dup(1), os.dup(0)
    os.dup2(2, 1)  # output of the author's code must not mix with answers
    # Nor must it read requests, which come by the other descriptor.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.path[0] = environment  # replaces this script's folder
    # Make the package importable under its name without importing the rest of kbuild.
    for name, folder in (("kbuild", _HERE.parents[1]), ("kbuild.dsl", _HERE.parent)):
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    protocol = importlib.import_module("kbuild.dsl.worker.protocol")
    protocol.serve(_module(language).Compiler(), requests, answers)


def _die_with(life: int) -> None:
    """End this process group when the other end of the pipe `life` is closed.

    The kernel sends the signal, so that a compiler which never returns to Python ends as well.
    """
    # A negative number is a process group, so that programs which the compiler has started end too.
    fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    try:
        # The signal comes only if the pipe is closed from now on; it may have been closed before.
        os.read(life, 1)
    except BlockingIOError:
        return
    sys.exit(0)  # the pipe was closed already


def _module(language: str) -> ModuleType:
    """Import a module of this package, or a file of a distribution that provides a language."""
    if not language.endswith(".py"):
        return importlib.import_module(f"kbuild.dsl.worker.{language}")
    spec = importlib.util.spec_from_file_location("kbuild_language", language)
    if spec is None or spec.loader is None:
        raise ImportError(language)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


main()
