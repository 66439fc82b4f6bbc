"""How the package is cut: modules, functions, names, cycles, rooms, and what a build imports.

    python scripts/measure_structure.py [PACKAGE] [--builds] [--paths] [--json]

`PACKAGE` is the folder of any Python package, by default kbuild's own. A room is an entry of that
folder; an arrow is a pair of rooms of which one imports the other, and points up where the contract
of layers in the repository's `pyproject.toml` puts the imported one higher. `--builds` also builds
a Python-only kernel and builds it again, and counts the modules of kbuild that each process
imports.

`--paths` builds one CPU variant of a C++ kernel and one variant of a Triton kernel with new
sources, and lists the modules that somebody meets who follows the build from the command to
`metadata.json`: those on the call stack whenever the build makes a value of the pipeline
(`VALUES`), writes or moves a file of the project, or starts a process, until the variant is in
place. Modules of `kbuild.system` (files, processes, locks) do not count. For Triton, the modules
of the worker count that its compiler imports, since the worker is another process.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

LONG = 40
"""Lines of a function that has more than one thought."""
KBUILD = Path(__file__).resolve().parents[1] / "kbuild"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Graph = Mapping[str, set[str]]
Figures = dict[str, object]

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

TRITON_PROJECT = {
    "build.toml": """\
[general]
name = "scale"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[torch]
stable-abi = "2.11"

[kernel.scale]
backend = "cuda"
language = "triton"
toolchain = "triton==3.9.0"
src = ["scale_triton/scale.py"]
cuda-capabilities = ["9.0"]

[[kernel.scale.op]]
schema = "scale(Tensor x, float factor) -> Tensor"
shapes = { x = ["..."], out = "x" }
dtypes = ["float32"]
contiguous = true
let = { n = "numel(x)" }
configs = [{ BLOCK = 1024, num_warps = 4 }]
grid = ["cdiv(n, BLOCK)"]
""",
    "scale_triton/scale.py": """\
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)
""",
    "torch-ext/scale/__init__.py": '''\
"""Scales."""

from ._ops import ops

__all__ = ["scale"]


def scale(x, factor):
    """Scaled."""
    return ops.scale(x, factor)
''',
}
VALUES = (
    "Project",
    "SourceTree",
    "Variant",
    "VariantPlan",
    "Toolchain",
    "FileSet",
    "Output",
    "OpSpec",
    "BoundLaunch",
    "KernelUnit",
    "ResolvedLaunch",
    "UnitImage",
)
"""Classes of the values that the stages of a build pass on."""


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
    """The modules of the package that a module imports, also inside functions.

    A module with `__getattr__` imports lazily what its names need: those that only type checkers
    see are no imports of it.
    """
    is_lazy = any(isinstance(n, ast.FunctionDef) and n.name == "__getattr__" for n in tree.body)
    hidden = [n for n in tree.body if isinstance(n, ast.If)] if is_lazy else []
    seen_by_checkers = {inner for node in hidden for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if node in seen_by_checkers:
            continue
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


OPTIONAL = ("dsl", "ops", "plugins")
"""Rooms that somebody who works on kernels in C++ need not know."""


def rooms(package: Path, graph: Graph, modules: Mapping[str, tuple[ast.Module, int]]) -> Figures:
    """The entries of the package's folder, the arrows between them, and their sizes."""
    arrows = packages_of(graph, package.name)
    entries = {name.split(".")[1] for name in modules if "." in name}
    above = {room: floor for floor, names in enumerate(_layers(package)) for room in names}
    up = [
        f"{source} -> {target}"
        for source, targets in arrows.items()
        for target in targets
        if above.get(target.split(".")[1], 0) < above.get(source.split(".")[1], 0)
    ]
    optional = sum(
        count for name, (_, count) in modules.items() if {*name.split(".")[1:2]} & {*OPTIONAL}
    )
    return {
        "entries": len(entries),
        "arrows between entries": sum(map(len, arrows.values())),
        "arrows that point up": len(up),
        f"lines without {', '.join(OPTIONAL)}": sum(n for _, n in modules.values()) - optional,
    }


def _layers(package: Path) -> list[list[str]]:
    """The rooms of each layer from the top down; none where no contract says."""
    import tomli

    settings = package.parent / "pyproject.toml"
    tools = tomli.loads(settings.read_text("utf-8")).get("tool", {}) if settings.is_file() else {}
    contracts = tools.get("importlinter", {}).get("contracts", ())
    layers = next((one["layers"] for one in contracts if one["type"] == "layers"), ())
    return [[room.strip() for room in layer.split("|")] for layer in layers]


def repository(root: Path) -> Figures:
    """Lines of the tests and benchmarks beside the package, and the commands of its help."""
    lines = {}
    for name in ("tests", "benchmarks"):
        command = ["git", "ls-files", "-z", "--", f"{name}/*.py"]
        files = subprocess.run(  # noqa: TID251 - no part of kbuild
            command, capture_output=True, text=True, check=True, cwd=root
        ).stdout.split("\0")
        texts = ((root / file).read_text("utf-8") for file in files if file)
        lines[f"lines of {name}"] = sum(len(text.splitlines()) for text in texts)
    command = [sys.executable, "-m", "kbuild", "--help"]
    listed = subprocess.run(  # noqa: TID251 - the process is what is measured
        command, capture_output=True, text=True, check=True, cwd=root
    ).stdout
    commands = re.findall(r"^  [a-z][-a-z]+ +[A-Z]", listed, re.MULTILINE)
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    count = sum(len(page.read_text("utf-8").split()) for page in pages)
    return {**lines, "commands in --help": len(commands), "words of documentation": count}


METAPHORS = {
    "bill", "desk", "foreign", "found", "heard", "judge", "made", "paid", "refuses", "said",
    "sheet", "shelf", "shop", "site", "standing", "surface", "told", "turn", "words", "workshop",
}  # fmt: skip
"""Names that say nothing of a value's type; modules call it by that."""
NO_SUBJECT = re.compile(r"(What|Whether|Of|Those|How)\b")


def names_in(tree: ast.Module) -> set[str]:
    """The names that a module gives to values, functions and classes, without underscores."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
    return {name.strip("_").lower() for name in names}


def docstrings(tree: ast.Module) -> Iterator[str]:
    """The docstrings of a module, its classes, functions and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        is_documented = isinstance(
            node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        )
        for before, statement in zip([None, *body], body, strict=False):
            value = statement.value if isinstance(statement, ast.Expr) else None
            text = value.value if isinstance(value, ast.Constant) else None
            is_first = before is None and is_documented
            if isinstance(text, str) and (
                is_first or isinstance(before, (ast.Assign, ast.AnnAssign))
            ):
                yield text


def words(package: Path, modules: Mapping[str, tuple[ast.Module, int]]) -> Figures:
    """How the package reads: names, docstrings and comments."""
    trees = [tree for tree, _ in modules.values()]
    texts = [text for tree in trees for text in docstrings(tree)]
    lines = [line for path in package.rglob("*.py") for line in path.read_text("utf-8").split("\n")]
    return {
        "metaphors among names": sum(len(METAPHORS & names_in(tree)) for tree in trees),
        "docstrings without a subject": sum(bool(NO_SUBJECT.match(text)) for text in texts),
        "comment lines": sum(line.lstrip().startswith("#") for line in lines),
    }


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
        **rooms(package, graph, modules),
        **words(package, modules),
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


def paths() -> dict[str, object]:
    """The modules on the path of a C++ build, and of one of a Triton op."""
    relu = KBUILD.parent / "examples/relu"
    cxx_project = {
        path.relative_to(relu).as_posix(): path.read_text("utf-8")
        for path in relu.rglob("*")
        if path.suffix in (".toml", ".cpp", ".h", ".cu", ".py", ".mm", ".metal")
        and not {"build", ".kbuild"} & set(path.relative_to(relu).parts)
    }
    modules = read(KBUILD)
    worker = "kbuild.dsl.worker."
    pending, compilers = [f"{worker}triton"], {f"{worker}__main__"}
    while pending:
        name = pending.pop()
        compilers.add(name)
        used = {
            target for target in imports(modules[name][0], modules) if target.startswith(worker)
        }
        pending.extend(used - compilers)
    cxx = _followed(cxx_project, "torch213-cxx11-cpu-x86_64-linux")
    triton = _followed(TRITON_PROJECT, "torch-stable-abi211-cu130-x86_64-linux")
    return {
        "modules on the path of a C++ build": cxx,
        "modules on the path of a Triton build": sorted({*triton, *compilers}),
    }


def _followed(files: Mapping[str, str], variant: str) -> list[str]:
    """The modules on the path of one build, whose sources no cache knows."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, "project", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            comment = {".cpp": "//", ".h": "//", ".cu": "//", ".py": "#"}.get(path.suffix)
            path.write_text(f"{text}{comment} {uuid.uuid4()}\n" if comment else text, "utf-8")
        result = Path(folder, "modules.json")
        build = ["build", "--driver", "local", "--variant", variant, str(Path(folder, "project"))]
        command = [sys.executable, __file__, _FOLLOW, str(result), *build]
        environment = {**os.environ, "PYTHONPATH": str(KBUILD.parent)}
        completed = subprocess.run(  # noqa: TID251 - the process is what is measured
            command, capture_output=True, text=True, check=False, env=environment
        )
        if completed.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{completed.stderr}")
        return [str(name) for name in json.loads(result.read_text("utf-8"))]


_FOLLOW = "--follow"


class PathRecorder:
    """The files of kbuild on the call stack, whenever something on the path happens."""

    def __init__(self, project: str) -> None:
        """Everything below `project` belongs to the build."""
        self.project = project
        self.root = str(KBUILD.parent) + os.sep
        self.files: set[str] = set()
        self.is_packaged = False

    def record(self, frame: FrameType | None) -> None:
        """Add the files of a stack."""
        while frame is not None:
            if frame.f_code.co_filename.startswith(str(KBUILD) + os.sep):
                self.files.add(frame.f_code.co_filename)
            frame = frame.f_back

    def on_call(self, frame: FrameType, event: str, _: object) -> None:
        """For `sys.setprofile`: a value is made."""
        if event != "call" or frame.f_code.co_name != "__init__" or self.is_packaged:
            return
        kind = type(frame.f_locals.get("self"))
        # Other packages have classes of these names, such as `Output` of Jinja's syntax trees.
        if kind.__name__ in VALUES and kind.__module__.startswith("kbuild."):
            self.record(frame.f_back)

    def on_effect(self, event: str, arguments: tuple[object, ...]) -> None:
        """For `sys.addaudithook`: a file is written or moved, or a process starts."""
        if event not in ("open", "os.rename", "subprocess.Popen") or self.is_packaged:
            return
        if event == "open":
            flags = arguments[2]
            if not (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)):
                return
        names = [os.path.realpath(item) for item in arguments[:2] if isinstance(item, str | Path)]
        if event == "subprocess.Popen" or any(name.startswith(self.project) for name in names):
            self.record(inspect.currentframe())
        if event == "os.rename":
            self.is_packaged = names[-1].startswith(f"{self.project}/build/torch")

    def modules(self) -> list[str]:
        """Their dotted names, without `kbuild.system` and this script."""
        paths = (Path(name).relative_to(self.root).with_suffix("") for name in self.files)
        names = sorted(".".join(path.parts).removesuffix(".__init__") for path in paths)
        return [name for name in names if not name.startswith(("kbuild.system.", "scripts."))]


def _follow(result: Path, arguments: list[str]) -> int:
    """Run kbuild in this process, and write the modules on the path to a file."""
    from kbuild.__main__ import main as kbuild_main

    recorder = PathRecorder(os.path.realpath(arguments[-1]))
    sys.addaudithook(recorder.on_effect)
    threading.setprofile(recorder.on_call)
    sys.setprofile(recorder.on_call)
    code = kbuild_main(arguments)
    sys.setprofile(None)
    result.write_text(json.dumps(recorder.modules()), "utf-8")
    return code


def main() -> int:
    """Print the figures."""
    if sys.argv[1:2] == [_FOLLOW]:
        return _follow(Path(sys.argv[2]), sys.argv[3:])
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", nargs="?", type=Path, default=KBUILD)
    parser.add_argument("--builds", action="store_true", help="also count what builds import")
    parser.add_argument("--paths", action="store_true", help="also list the modules on paths")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    package = options.package.resolve()
    figures = measure(package)
    if package.name == KBUILD.name:
        figures |= repository(package.parent)
    if options.builds:
        figures |= build()
    if options.paths:
        figures |= paths()
    if options.json:
        print(json.dumps(figures, indent=1))
    else:
        for name, value in figures.items():
            is_path = isinstance(value, list) and name.startswith("modules")
            print(f"{name:40} {len(value) if is_path else value}")
            if is_path:
                print("".join(f"  {module}\n" for module in value), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
