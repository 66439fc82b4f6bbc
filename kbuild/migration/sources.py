"""Reads a package as its author builds it: `setup.py`, `CMakeLists.txt`, or Python files alone.

A `setup.py` is run with stand-ins for setuptools and Torch (`setup_probe.py`), in a sandbox where
there is one; if it fails, its calls are read without running them.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kbuild.checks.probe_process import bubblewrap_program, probe_environment, sandbox_command
from kbuild.errors import UsageError
from kbuild.migration.cmake import read_cmake
from kbuild.migration.package import ForeignExtension, ForeignPackage
from kbuild.runtime.processes import Runner
from kbuild.runtime.temporary import temporary_folder
from kbuild.sources.arch_list import read_arch_list

SETUP, CMAKE, PYPROJECT = "setup.py", "CMakeLists.txt", "pyproject.toml"
_EXTENSIONS = ("CUDAExtension", "CppExtension", "SyclExtension")
_FAILED = "`setup.py` failed (%s): its calls were read, and what it computes is missing"


def read_package(root: Path, runner: Runner) -> ForeignPackage:
    """Read the package in a folder.

    Raises:
        UsageError: there is nothing in it that kbuild knows how to take over.
    """
    project = _pyproject(root)
    if (root / SETUP).is_file():
        document, notes = _run_setup(root, runner)
        extensions = tuple(_extension(root, entry, document) for entry in document["extensions"])
    elif (root / CMAKE).is_file():
        found, extensions, notes = read_cmake(root)
        document = {"name": found}
    else:
        document, extensions, notes = {}, (), []
    document = {key: value for key, value in document.items() if value} | {
        key: value for key, value in project.items() if value and not document.get(key)
    }
    modules = _modules(root, document)
    if not extensions and not _uses_triton(modules):
        raise UsageError(
            f"`{root}` has no extension for Torch and no Triton kernel",
            hint="give the folder with setup.py, CMakeLists.txt or the Python package",
        )
    name, licence = str(document.get("name") or root.name), document.get("license")
    return ForeignPackage(
        root, name, licence if isinstance(licence, str) else "", extensions, modules, tuple(notes)
    )


def _pyproject(root: Path) -> dict[str, Any]:
    import tomli

    try:
        document = tomli.loads((root / PYPROJECT).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    project = document.get("project")
    return project if isinstance(project, dict) else {}


def _run_setup(root: Path, runner: Runner) -> tuple[dict[str, Any], list[str]]:
    probe = Path(__file__).with_name("setup_probe.py").resolve()
    root = root.resolve()
    with temporary_folder("setup") as folder:
        private = folder.resolve()
        bwrap, python = bubblewrap_program(), Path(sys.executable)
        command = (str(python), "-B", str(probe), str(root))
        environment = probe_environment(private)
        done = None
        if bwrap is not None:
            prefix = sandbox_command(bwrap, python, private, (probe, root))
            done = runner.run((*prefix, *command), cwd=private, env=environment)
        if done is None or (not done.ok and done.output.startswith("bwrap: ")):
            done = runner.run(command, cwd=private, env=environment)
    lines = done.output.strip().splitlines()
    if done.ok:
        for line in reversed(lines):
            if line.startswith("{"):
                document: dict[str, Any] = json.loads(line)
                return document, []
    return _parse_setup(root), [_FAILED % (lines[-1] if lines else "no output")]


def _parse_setup(root: Path) -> dict[str, Any]:
    """What the calls in `setup.py` say in literals and in names of literals."""
    document: dict[str, Any] = {"extensions": []}
    try:
        tree = ast.parse((root / SETUP).read_text("utf-8"))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"`{root / SETUP}` is not Python: {error}") from None
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = _literal(node.value, names)
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else called
        values = {word.arg: _literal(word.value, names) for word in node.keywords if word.arg}
        if called == "setup":
            document |= {
                key: values.get(key) for key in ("name", "license", "packages", "py_modules")
            }
        elif called in _EXTENSIONS:
            positional = dict(
                zip(("name", "sources"), (_literal(a, names) for a in node.args), strict=False)
            )
            entry = {key: value for key, value in (positional | values).items() if value}
            document["extensions"].append({"name": "", "sources": [], **entry})
    return document


def _literal(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """A literal, or None; a list keeps those of its elements that are."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, (ast.List, ast.Tuple)):
        return [value for part in node.elts if (value := _literal(part, names)) is not None]
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _extension(
    root: Path, entry: Mapping[str, Any], document: Mapping[str, Any]
) -> ForeignExtension:
    flags = entry.get("extra_compile_args") or []
    flags = flags if isinstance(flags, dict) else {"cxx": flags, "nvcc": []}
    macros = [
        f"-D{pair[0]}" + (f"={pair[1]}" if len(pair) > 1 and pair[1] is not None else "")
        for pair in entry.get("define_macros") or ()
    ]
    return ForeignExtension(
        str(entry["name"]),
        tuple(_relative(root, source) for source in entry["sources"]),
        tuple(_relative(root, str(folder)) for folder in entry.get("include_dirs") or ()),
        (*map(str, flags.get("cxx") or ()), *macros),
        (*map(str, flags.get("nvcc") or ()), *macros),
        tuple(map(str, entry.get("libraries") or ())),
        tuple(map(str, entry.get("extra_link_args") or ())),
        read_arch_list(str(document.get("archs") or "")),
    )


def _relative(root: Path, path: str) -> str:
    """Relative to the root where it is inside; as it is otherwise."""
    whole = Path(path) if Path(path).is_absolute() else root.resolve() / path
    try:
        return Path(*whole.parts).resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return path


def _modules(root: Path, document: Mapping[str, Any]) -> dict[str, Path]:
    """The Python modules that are installed."""
    packages, single = document.get("packages") or (), document.get("py_modules") or ()
    folders: Mapping[str, str] = document.get("package_dir") or {}
    modules = {name: root / folders.get("", "") / f"{name}.py" for name in single}
    for package in packages or (() if single else _packages(root)):
        base, *rest = package.split(".")
        folder = root / folders.get(
            package, str(Path(folders.get(base) or Path(folders.get("", ""), base), *rest))
        )
        for path in sorted(folder.glob("*.py")):
            modules[f"{package}.{path.stem}"] = path
    return {name: path for name, path in modules.items() if path.is_file()}


def _packages(root: Path) -> Iterator[str]:
    """Packages beside the build file, or below `src` or `python`; those of tests left out."""
    skipped = {"tests", "test", "benchmarks", "examples", "docs", "build"}
    for init in sorted(root.glob("*/__init__.py")):
        if init.parent.name not in skipped:
            below = (path.parent for path in sorted(init.parent.rglob("__init__.py")))
            yield from (".".join(folder.relative_to(root).parts) for folder in below)


def _uses_triton(modules: Mapping[str, Path]) -> bool:
    return any("import triton" in path.read_text("utf-8", "replace") for path in modules.values())
