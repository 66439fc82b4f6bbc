"""Takes apart what Helion writes: kernels in Triton, and the Python function that launches them.

A kernel that has several configs becomes one kernel with candidates: its constant `config` selects
the code, so that a table of `kbuild tune` can choose among them.
"""

from __future__ import annotations

import ast
import builtins
import copy
import hashlib
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_IMPORTS = {
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "tl_math": "from triton.language import math as tl_math",
    "math": "from triton.language import math",
    "libdevice": "from triton.language.extra import libdevice",
}
"""Names in kernels -> their import from Triton, also where Helion has them from Torch."""
_HELPERS = {
    "triton_helpers": "torch._inductor.runtime.triton_helpers",
    "helion_triton_helpers": "helion.runtime.triton.helpers",
}
"""Names of modules with functions of kernels, whose source is copied."""
_RUNTIME = {"_make_helion_runtime", "helion", "_default_launcher"}
_SETTING = re.compile(r"_[A-Z][A-Z0-9_]*")
"""Variables of the launching function that a config decides on."""
_SIZE = re.compile(r"\w+\.(?:size\(\d*\)|numel\(\)|shape(?:\[\d+\])?)")
_ORIGIN = re.compile(r"\s*# src\[[^\]:]+:(\d+)")
_LAUNCHER = "_launcher"
CONFIG = "config"


class SourceError(Exception):
    """Helion's code has something that is not known."""


@dataclass(frozen=True)
class WrittenLaunch:
    """A call of the launcher."""

    kernel: str
    grid: ast.expr
    arguments: Sequence[ast.expr]
    options: Mapping[str, str]


@dataclass(frozen=True)
class WrittenModule:
    """The parts of a module that Helion has written for one config."""

    head: Sequence[str]
    """Imports of the kernels."""
    kernels: str
    """Source of the kernels, with names that no other module has."""
    names: Mapping[str, str]
    """Kernel in Helion's code -> its name in `kernels`."""
    parameters: Mapping[str, Sequence[tuple[str, bool]]]
    """Kernel -> its parameters, each with True for a constant."""
    function: ast.FunctionDef
    imports: str
    """Imports of the launching function."""

    @property
    def text(self) -> str:
        """The file of the kernels."""
        return "\n".join(self.head) + f"\n\n\n{self.kernels}\n"

    @property
    def settings(self) -> dict[str, ast.expr]:
        """Values of the variables that the config decides on."""
        return dict(filter(None, map(_setting, self.function.body)))

    @property
    def launches(self) -> list[WrittenLaunch]:
        """The launches in the body of the function."""
        launches = []
        for call in filter(None, map(_launch, self.function.body)):
            kernel, grid, *arguments = call.args
            options = {str(word.arg): ast.unparse(word.value) for word in call.keywords}
            launches.append(WrittenLaunch(ast.unparse(kernel), grid, arguments, options))
        return launches

    @property
    def rest(self) -> str:
        """The function without its launches: configs that share it are candidates of each other."""
        values = _Settings(self.settings)
        # What depends on a config, such as the size of a temporary, is another text.
        others = (
            ast.unparse(values.visit(copy.deepcopy(node)))
            for node in self.function.body
            if not _setting(node) and not _launch(node)
        )
        return "\n".join((*(launch.kernel for launch in self.launches), *others))


def _setting(node: ast.stmt) -> tuple[str, ast.expr] | None:
    """Name and value of a variable that the config decides on."""
    if isinstance(node, ast.Assign) and _SETTING.fullmatch(name := ast.unparse(node.targets[0])):
        return name, node.value
    return None


def _launch(node: ast.stmt) -> ast.Call | None:
    """The call of the launcher that a statement is."""
    call = node.value if isinstance(node, ast.Expr) else None
    is_launch = isinstance(call, ast.Call) and ast.unparse(call.func) == _LAUNCHER
    return call if isinstance(call, ast.Call) and is_launch else None


def read_module(text: str, name: str) -> WrittenModule:
    """Take apart the code that Helion has written for the kernel `name`.

    Raises:
        SourceError: it has something that is not known.
    """
    tree, lines = ast.parse(text), text.splitlines()
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    own = [
        node
        for node in tree.body
        if node not in imports and not {*_bound(node)} & {*_RUNTIME, name}
    ]
    body = "\n\n\n".join("\n".join(lines[_first_line(node) - 1 : node.end_lineno]) for node in own)
    body, helpers = _with_helpers(body)
    head = [*_kernel_imports(f"{helpers}\n{body}", imports)]
    digest = _digest(f"{head}{helpers}{body}")
    names = {bound: f"{bound}_{digest}" for node in own for bound in _bound(node)}
    for bound, renamed in names.items():
        body = re.sub(rf"(?<![\w.]){bound}\b", renamed, body)
    kernels = {n: f for n, f in functions.items() if n in names}
    return WrittenModule(
        head,
        "\n\n\n".join(filter(None, (helpers, body))),
        {kernel: names[kernel] for kernel in kernels},
        {kernel: [*_parameters(node)] for kernel, node in kernels.items()},
        _with_origins(functions[name], lines),
        "\n".join(ast.unparse(node) for node in imports if _module(node) != "__future__"),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return min([node.lineno, *(each.lineno for each in decorators)])


def _module(node: ast.Import | ast.ImportFrom) -> str:
    return node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name


def _bound(node: ast.stmt) -> list[str]:
    """The names that a statement of a module defines."""
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [name] if (name := getattr(node, "name", "")) else []


def _parameters(node: ast.FunctionDef) -> Iterator[tuple[str, bool]]:
    for argument in node.args.args:
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        yield argument.arg, annotation == "tl.constexpr"


def _kernel_imports(text: str, imports: Sequence[Any]) -> Iterator[str]:
    """Imports of the names in kernels: of Triton alone, so that a build needs nothing else."""
    others = {
        name.asname or name.name: ast.unparse(node) for node in imports for name in node.names
    }
    needed = {"triton", "tl", *_free_names(ast.parse(text))}
    yield from (text for name, text in _IMPORTS.items() if name in needed)
    for name in sorted(needed - _IMPORTS.keys()):
        known = others.get(name, "")
        if not known.startswith(("import triton", "from triton")):
            raise SourceError(f"its code needs `{known or name}`, which no package has")
        yield known


def _free_names(tree: ast.Module) -> set[str]:
    """Names that are read, and defined nowhere."""
    nodes = [*ast.walk(tree)]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    defined = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    defined |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    defined |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    return read - defined - {*dir(builtins)}


def _with_helpers(body: str) -> tuple[str, str]:
    """The kernels with names of helper functions, and the source of these functions."""
    known: dict[str, str] = {}
    for alias, path in _HELPERS.items():
        for name in sorted({*re.findall(rf"\b{alias}\.(\w+)", body)}):
            _copy_helper(importlib.import_module(path), name, known)
            body = re.sub(rf"\b{alias}\.{name}\b", name, body)
    return body, "\n\n\n".join(known.values())


def _copy_helper(module: Any, name: str, known: dict[str, str]) -> None:
    """Add a function of kernels to `known`, behind those that it calls."""
    function = getattr(module, name)
    if not hasattr(function, "fn"):
        raise SourceError(f"its code needs `{module.__name__}.{name}`, which is not known")
    text = inspect.getsource(function.fn)
    for inner in re.findall(r"\b[A-Za-z_]\w*\b", text):
        if inner != name and inner not in known and hasattr(getattr(module, inner, None), "fn"):
            _copy_helper(module, inner, known)
    # Helion and Torch have the same licence.
    known.setdefault(name, f"# Copied from {module.__name__}, BSD-3-Clause.\n{text.strip()}")


def _with_origins(function: ast.FunctionDef, lines: Sequence[str]) -> ast.FunctionDef:
    """Give statements the lines of the author's that Helion names in comments above them."""
    origins, line = dict[int, int](), 0
    for number in range(function.lineno, (function.end_lineno or 0) + 1):
        match = _ORIGIN.match(lines[number - 1])
        line = int(match[1]) if match else line
        origins[number] = line or 1
    for node in ast.walk(function):
        if isinstance(node, (ast.stmt, ast.expr, ast.arg, ast.keyword)):
            node.lineno = node.end_lineno = origins[node.lineno]
    return function


def with_candidates(modules: Sequence[WrittenModule]) -> WrittenModule:
    """Several configs as one module: each launch has a kernel that has a candidate for each.

    All modules do the same besides their launches.
    """
    first = modules[0]
    if len(modules) == 1:
        return first
    body = copy.deepcopy(first.function)
    texts, names = [module.kernels for module in modules], dict[str, str]()
    head = dict.fromkeys(line for module in modules for line in module.head)
    sizes = _sizes(body)
    launches = zip(*(module.launches for module in modules), strict=True)
    calls = filter(None, map(_launch, body.body))
    for call, own in zip(calls, launches, strict=True):
        joined = JoinedLaunch(f"{own[0].kernel}_configs")
        for number, (module, launch) in enumerate(zip(modules, own, strict=True)):
            joined.add(number, module, launch)
        digest = _digest("".join((*texts, joined.text(sizes, ""))))
        names[joined.name] = f"{joined.name}_{digest}"
        texts.append(joined.text(sizes, f"_{digest}"))
        grids = ", ".join(map(ast.unparse, joined.grids))
        texts_of_arguments = (joined.name, f"[{grids}]", *joined.values)
        call.args = [ast.parse(each, mode="eval").body for each in texts_of_arguments]
        call.keywords = []
        for node in ast.walk(call):
            ast.copy_location(node, call)
    return WrittenModule([*head], "\n\n\n".join(texts), names, {}, body, first.imports)


def _sizes(function: ast.FunctionDef) -> set[str]:
    """Variables that are a size of a tensor, or several."""
    return {
        name.id
        for node in function.body
        if isinstance(node, ast.Assign) and _SIZE.fullmatch(ast.unparse(node.value))
        for name in ast.walk(node.targets[0])
        if isinstance(name, ast.Name)
    }


class JoinedLaunch:
    """A kernel that calls the one of a config, and its launch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.grids: list[ast.expr] = []
        self._parameters: dict[tuple[str, bool], str] = {}
        self._calls: list[str] = []
        self._options: list[str] = []

    @property
    def values(self) -> list[str]:
        """Arguments of the launch."""
        return [text for text, _ in self._parameters]

    def add(self, number: int, module: WrittenModule, launch: WrittenLaunch) -> None:
        """Add a config: its kernel and the arguments that this has.

        Raises:
            SourceError: it launches with an option that no candidate has.
        """
        if unknown := launch.options.keys() - {"num_warps", "num_stages", "num_ctas", "maxnreg"}:
            raise SourceError(f"config {number} has the option `{min(unknown)}`")
        settings = _Settings(module.settings)
        self.grids.append(settings.visit(copy.deepcopy(launch.grid)))
        passed = []
        parameters = module.parameters[launch.kernel]
        for (name, is_constant), argument in zip(parameters, launch.arguments, strict=True):
            value = settings.visit(copy.deepcopy(argument))
            if isinstance(value, ast.Constant):
                passed.append(ast.unparse(value))
                continue
            known = (ast.unparse(value), is_constant)
            taken = name in self._parameters.values() or name == CONFIG
            passed.append(
                self._parameters.setdefault(known, f"{name}_of_{number}" if taken else name)
            )
        self._calls.append(f"{module.names[launch.kernel]}({', '.join(passed)})")
        options = "".join(f", {name}={value}" for name, value in sorted(launch.options.items()))
        self._options.append(f'triton.Config({{"{CONFIG}": {number}}}{options})')

    def text(self, sizes: set[str], suffix: str) -> str:
        """Source of the kernel; values of `sizes` are the key of its candidates."""
        parameters = [f"{n}{': tl.constexpr' * c}" for (_, c), n in self._parameters.items()]
        key = [
            name
            for (text, is_constant), name in self._parameters.items()
            if not is_constant and (text in sizes or _SIZE.fullmatch(text))
        ]
        branches = (
            f"    {'el' * bool(n)}if {CONFIG} == {n}:\n        {call}"
            for n, call in enumerate(self._calls)
        )
        return "\n".join((
            "@triton.autotune(", "    configs=[", *(f"        {each}," for each in self._options),
            "    ],", f"    key={key!r},", ")", "@triton.jit",
            f"def {self.name}{suffix}({', '.join((*parameters, f'{CONFIG}: tl.constexpr'))}):",
            *branches,
        ))  # fmt: skip


class _Settings(ast.NodeTransformer):
    """Puts the values of a config in the place of its variables."""

    def __init__(self, settings: Mapping[str, ast.expr]) -> None:
        self._settings = settings

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._settings.get(node.id) if isinstance(node.ctx, ast.Load) else None
        return node if value is None else self.visit(copy.deepcopy(value))
