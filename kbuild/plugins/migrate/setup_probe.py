"""Runs a `setup.py` and prints, as JSON, what it hands to `setuptools.setup`.

Stand-ins take the place of setuptools, of Torch and of every module that is missing, so nothing is
compiled, and processes are not started: `nvcc` seems to be CUDA 13.0. Runs as a script, in any
Python from 3.9 on: `setup_probe.py FOLDER`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import runpy
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any

NVCC = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.48\n"
EXTENSIONS = ("CUDAExtension", "CppExtension", "SyclExtension", "Extension")
POSITIONAL = (
    "include_dirs", "define_macros", "undef_macros", "library_dirs", "libraries",
    "runtime_library_dirs", "extra_objects", "extra_compile_args", "extra_link_args",
)  # fmt: skip
"""Arguments that setuptools takes after name and sources."""


class Standin(types.ModuleType):
    """A module or a class that has every attribute, and may be called and inherited from."""

    __path__: Any = ()

    def __getattr__(self, name: str) -> Any:
        # Python looks for such names by itself, and would take a stand-in for an answer.
        if name.startswith("__"):
            raise AttributeError(name)
        return Standin(name)

    def __call__(self, *_: Any, **__: Any) -> Any:
        """A call gives the stand-in back."""
        return self

    def __getitem__(self, _: Any) -> Any:
        """An item is the stand-in itself."""
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        # Python asks a base that is no class for the bases to put in its place.
        return (object,)


class Standins(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds stand-ins for modules that nothing else finds."""

    def find_spec(self, fullname: str, *_: Any) -> Any:
        """Find a package under any name."""
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        """Create a stand-in."""
        return Standin(spec.name)

    def exec_module(self, module: Any) -> None:
        """Do nothing: the module is never run."""


class BuildExtension:
    """Torch's command class, of which scripts want options or subclasses."""

    @classmethod
    def with_options(cls, **_: Any) -> Any:
        """The class itself."""
        return cls


def extension(kind: str) -> Any:
    """A function in the place of a class of extensions."""

    def make(name: str, sources: Any, *more: Any, **kwargs: Any) -> Any:
        sources = [os.path.normpath(os.fspath(source)) for source in sources]
        given = dict(zip(POSITIONAL, more)) | kwargs  # noqa: B905 - of Python 3.9
        known = {key: value for key, value in given.items() if value}
        return {**known, "kind": kind, "name": name, "sources": sources, "line": caller_line()}

    return make


def caller_line() -> int:
    """The line of `setup.py` that is running; 0 when it is one of another file."""
    frame: Any = sys._getframe(1)  # noqa: SLF001 - as tracebacks do
    while frame is not None:
        if os.path.basename(frame.f_code.co_filename) == "setup.py":  # noqa: PTH119
            return int(frame.f_lineno)
        frame = frame.f_back
    return 0


def take_setup(calls: list[Any]) -> Any:
    """A function in the place of `setup`, which adds to `calls`."""

    def setup(**facts: Any) -> None:
        commands = facts.get("cmdclass") or {}
        if isinstance(commands, dict):
            own = [name for name, kind in commands.items() if kind is not BuildExtension]
            facts["cmdclass"] = own
        calls.append({**facts, "line": caller_line()})

    return setup


def find_packages(where: str = ".", exclude: Any = (), include: Any = ("*",)) -> list[str]:
    """Find packages as setuptools does."""
    from fnmatch import fnmatchcase

    names = []
    for folder, _, files in os.walk(where):
        name = os.path.relpath(folder, where).replace(os.sep, ".")
        if name != "." and "__init__.py" in files and ".." not in name:
            wanted = any(fnmatchcase(name, pattern) for pattern in include)
            if wanted and not any(fnmatchcase(name, pattern) for pattern in exclude):
                names.append(name)
    return sorted(names)


def install_standins(calls: list[Any]) -> None:
    """Take the places of setuptools and Torch; `setup` adds to `calls`."""
    setuptools: Any = Standin("setuptools")
    setuptools.setup = take_setup(calls)
    setuptools.find_packages = setuptools.find_namespace_packages = find_packages
    setuptools.Extension = extension("Extension")
    torch: Any = Standin("torch")
    torch.__version__ = "2.13.0"
    torch.version = types.SimpleNamespace(cuda="13.0", hip=None, xpu=None, __version__="2.13.0")
    torch.cuda = Standin("torch.cuda")
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 0
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch._C = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True)  # noqa: SLF001
    torch.utils = Standin("torch.utils")
    cpp: Any = Standin("torch.utils.cpp_extension")
    torch.utils.cpp_extension = cpp
    cpp.CUDA_HOME, cpp.ROCM_HOME, cpp.IS_HIP_EXTENSION = "/usr/local/cuda", None, False
    cpp.BuildExtension = BuildExtension
    cpp.include_paths = cpp.library_paths = lambda *_, **__: []
    for kind in EXTENSIONS[:3]:
        setattr(cpp, kind, extension(kind))
    modules = {
        "setuptools": setuptools, "distutils.core": setuptools, "torch": torch,
        "torch.version": torch.version, "torch.cuda": torch.cuda, "torch.utils": torch.utils,
        "torch.utils.cpp_extension": cpp,
    }  # fmt: skip
    sys.modules.update(modules)
    # The last finder, so that modules which are installed are imported as they are.
    sys.meta_path.append(Standins())


def forbid_processes() -> None:
    """Answer for programs without starting them."""

    def output(command: Any, *_: Any, **kwargs: Any) -> Any:
        text = command if isinstance(command, str) else " ".join(map(str, command))
        text = NVCC if "nvcc" in text else ""
        wants_text = {"text", "universal_newlines", "encoding"} & {
            k for k, v in kwargs.items() if v
        }
        return text if wants_text else text.encode()

    def run(command: Any, *_: Any, **kwargs: Any) -> Any:
        answer = output(command, **kwargs)
        return subprocess.CompletedProcess(command, 0, answer, answer[:0])

    def succeed(*_: Any, **__: Any) -> int:
        return 0

    own = {"check_output": output, "run": run, "call": succeed, "check_call": succeed}
    for name, function in own.items():
        setattr(subprocess, name, function)
    setattr(subprocess, "Popen", None)  # noqa: B010 - a type, for type checkers
    os.system = succeed  # noqa: TID251 - so that nothing is started


def main() -> None:
    """Run the script, and print what came of it."""
    # What the script prints goes to the error stream, apart from the answer.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.chdir(sys.argv[1])
    sys.path.insert(0, sys.argv[1])
    calls: list[Any] = []
    install_standins(calls)
    forbid_processes()
    sys.argv = ["setup.py", "bdist_wheel"]
    runpy.run_path("setup.py", run_name="__main__")
    facts = calls[-1] if calls else {}
    document = {key: value for key, value in facts.items() if value}
    modules = list(document.pop("ext_modules", ()))
    document["extensions"] = [part for part in modules if isinstance(part, dict)]
    document["others"] = len(modules) - len(document["extensions"])
    document["archs"] = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
    answer.write("\n" + json.dumps(document, default=str) + "\n")
    answer.close()


main()
