"""How the package is cut: modules, functions, names, cycles, and what a build imports.

    python scripts/measure_structure.py [PACKAGE] [--builds] [--json]

`PACKAGE` is the folder of any Python package, by default kbuild's own. `--builds` also builds a
Python-only kernel and builds it again, and counts the modules of kbuild that each process imports.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

LONG = 40
"""Lines of a function that has more than one thought."""
KBUILD = Path(__file__).resolve().parents[1] / "kbuild"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Graph = Mapping[str, set[str]]

PROJECT = {
    "build.toml": """\
[general]
name = "pyonly"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
""",
    "torch-ext/pyonly/__init__.py": '"""Doubles."""\n\n\ndef double(x):\n    return x + x\n',
}


def read(package: Path) -> dict[str, tuple[ast.Module, int]]:
    """The package's modules by dotted name: syntax tree and number of lines."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        text = path.read_text("utf-8")
        name = ".".join(parts).removesuffix(".__init__")
        modules[name] = (ast.parse(text), len(text.splitlines()))
    return modules


def imports(tree: ast.Module, modules: Mapping[str, object]) -> Iterator[str]:
    """The modules of the package that a module imports, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                member = f"{node.module}.{alias.name}"
                if member in modules or node.module in modules:
                    yield member if member in modules else node.module


def cycles(graph: Graph) -> list[list[str]]:
    """The strongly connected components with more than one member (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                components.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(components)


def packages_of(graph: Graph, root: str) -> dict[str, set[str]]:
    """The same graph between top-level packages (a module of the root stands for itself)."""
    result: dict[str, set[str]] = defaultdict(set)
    for module, targets in graph.items():
        own = module.split(".")[1:2]
        for target in targets:
            other = target.split(".")[1:2]
            if own and other and own != other:
                result[f"{root}.{own[0]}"].add(f"{root}.{other[0]}")
    return result


def measure(package: Path) -> dict[str, object]:
    """Every figure that needs nothing but the source."""
    modules = read(package)
    sys.setrecursionlimit(10_000)
    graph = {
        name: {target for target in imports(tree, modules) if target != name}
        for name, (tree, _) in modules.items()
    }
    importers: dict[str, set[str]] = defaultdict(set)
    for name, targets in graph.items():
        for target in targets:
            importers[target].add(name)
    functions = [
        node
        for tree, _ in modules.values()
        for node in ast.walk(tree)
        if isinstance(node, Function)
    ]
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
    lines = sum(count for _, count in modules.values())
    single = [name for name, users in importers.items() if len(users) == 1]
    sibling = [
        name
        for name in single
        if name.rpartition(".")[0] == next(iter(importers[name])).rpartition(".")[0]
    ]
    names = Counter(
        node.name
        for tree, _ in modules.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    shared = sorted(name for name, count in names.items() if count > 1)
    return {
        "modules": len(modules),
        "lines": lines,
        "functions": len(functions),
        "mean lines per function": round(statistics.fmean(lengths), 1) if lengths else 0,
        "functions per 1,000 lines": round(1000 * len(functions) / lines),
        "longest function": max(lengths, default=0),
        f"functions over {LONG} lines": sum(length > LONG for length in lengths),
        "private functions used once": _used_once(modules),
        "modules with one importer": len(single),
        "modules imported by one sibling only": len(sibling),
        "public class names used twice": len(shared),
        "cycles of modules": cycles(graph),
        "cycles of packages": cycles(packages_of(graph, package.name)),
    }


def _used_once(modules: Mapping[str, tuple[ast.Module, int]]) -> int:
    once = 0
    for tree, _ in modules.values():
        private = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, Function) and node.name[0] == "_" and node.name[:2] != "__"
        }
        uses = Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Name | ast.Attribute)
        )
        once += sum(uses[name] == 1 for name in private)
    return once


def build() -> dict[str, object]:
    """The modules of kbuild that `--version`, a build, and one with nothing to do import."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        for name, text in PROJECT.items():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text(text, "utf-8")
        return {
            "modules imported by --version": _imported(["--version"], project),
            "modules imported by a Python-only build": _imported(["build", folder], project),
            "modules imported by an unchanged build": _imported(["build", folder], project),
        }


def _imported(arguments: list[str], folder: Path) -> int:
    command = [sys.executable, "-X", "importtime", "-m", "kbuild", *arguments]
    completed = subprocess.run(  # noqa: TID251 - the process is what is measured
        command, capture_output=True, text=True, check=False, cwd=folder
    )
    if completed.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{completed.stderr}")
    names = (line.rpartition("|")[2].strip() for line in completed.stderr.splitlines())
    return len({name for name in names if name.split(".")[0] == "kbuild"})


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", nargs="?", type=Path, default=KBUILD)
    parser.add_argument("--builds", action="store_true", help="also count what builds import")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.package.resolve())
    if options.builds:
        figures |= build()
    if options.json:
        print(json.dumps(figures, indent=1))
    else:
        for name, value in figures.items():
            print(f"{name:40} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
