"""Prints what one Python interpreter has to build against: headers, Torch, TVM-FFI, the client.

A script of its own: run by any interpreter from 3.9 on, standard library only. Nothing is
imported; packages are located and their version files read as text. Generated projects carry a
copy as `cmake/probe.py`.

    python probe.py                  one JSON object on stdout
    python probe.py --format cmake   the same facts as CMake `set()` lines
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import sys
import sysconfig
from typing import Any


def main(arguments: list[str]) -> int:
    """Print the facts; returns the exit code."""
    facts = probe()
    if "--format" in arguments and arguments[arguments.index("--format") + 1] == "cmake":
        sys.stdout.write(as_cmake(facts))
    else:
        json.dump(facts, sys.stdout, indent=1, sort_keys=True)
        sys.stdout.write("\n")
    return 0


def probe() -> dict[str, Any]:
    """The facts as a JSON-serialisable mapping."""
    include = sysconfig.get_path("include")
    return {
        "python": {
            "executable": sys.executable,
            "version": ".".join(str(part) for part in sys.version_info[:3]),
            "include_dir": include if os.path.isfile(os.path.join(include, "Python.h")) else "",
            "purelib": sysconfig.get_path("purelib"),
        },
        "torch": torch_facts(),
        "tvm_ffi": tvm_ffi_facts(),
        "kernels": distribution_version("kernels"),
    }


def torch_facts() -> dict[str, Any] | None:
    """Version, folders and build flavour of the installed Torch; None without one."""
    root = package_folder("torch")
    if root is None or not os.path.isfile(os.path.join(root, "version.py")):
        return None
    values = assignments(os.path.join(root, "version.py"))
    include = os.path.join(root, "include")
    return {
        "root": root,
        "version": values.get("__version__"),
        "built_for": built_for(values),
        "include_dirs": [include, os.path.join(include, "torch", "csrc", "api", "include")],
        "library_dir": os.path.join(root, "lib"),
        "cxx11_abi": cxx11_abi(root),
    }


def built_for(values: dict[str, Any]) -> dict[str, str]:
    """Device -> release, of the assignments of `version.py`: `{"cuda": "13.0"}`, `{}` for CPUs."""
    fields = {key: value for key, value in values.items() if not key.startswith(("_", "git"))}
    return {key: value for key, value in fields.items() if value and isinstance(value, str)}


def cxx11_abi(root: str) -> bool:
    """False only when Torch's CMake package says that it was built with the old string ABI."""
    config = os.path.join(root, "share", "cmake", "Torch", "TorchConfig.cmake")
    try:
        with open(config, encoding="utf-8") as file:
            return "_GLIBCXX_USE_CXX11_ABI=0" not in file.read()
    except OSError:
        return True


def tvm_ffi_facts() -> dict[str, Any] | None:
    """Version and folders of the installed TVM-FFI; None without one."""
    root = package_folder("tvm_ffi")
    if root is None:
        return None
    include = os.path.join(root, "include")
    return {
        "root": root,
        "version": distribution_version("apache-tvm-ffi"),
        "include_dirs": [include],
        "library_dir": os.path.join(root, "lib"),
    }


def package_folder(name: str) -> str | None:
    """The folder of a top-level package, which is not imported."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return os.path.abspath(next(iter(spec.submodule_search_locations)))


def distribution_version(name: str) -> str | None:
    """The installed version of a distribution; None without one."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def assignments(path: str) -> dict[str, Any]:
    """Module-level `name = literal` statements of a Python file."""
    try:
        with open(path, encoding="utf-8") as file:
            module = ast.parse(file.read())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return {}  # a damaged installation: what it is cannot be known
    literals: dict[str, Any] = {}
    for node in module.body:
        names: list[ast.expr]
        if isinstance(node, ast.Assign):
            names, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            names, value = [node.target], node.value
        else:
            continue
        try:
            literal = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
        literals.update({name.id: literal for name in names if isinstance(name, ast.Name)})
    return literals


def as_cmake(facts: dict[str, Any]) -> str:
    """The facts that generated projects use, as `set()` lines."""
    torch, tvm = facts["torch"] or {}, facts["tvm_ffi"] or {}
    values = {
        "KBUILD_PYTHON_INCLUDE_DIR": facts["python"]["include_dir"],
        "KBUILD_TORCH_VERSION": torch.get("version") or "",
        "KBUILD_TORCH_INCLUDE_DIRS": ";".join(torch.get("include_dirs", [])),
        "KBUILD_TORCH_LIBRARY_DIR": torch.get("library_dir", ""),
        "KBUILD_TORCH_CXX11_ABI": "1" if torch.get("cxx11_abi", True) else "0",
        "KBUILD_TVM_FFI_INCLUDE_DIRS": ";".join(tvm.get("include_dirs", [])),
        "KBUILD_TVM_FFI_LIBRARY_DIR": tvm.get("library_dir", ""),
    }
    return "".join(f'set({key} "{value}")\n'.replace("\\", "/") for key, value in values.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
