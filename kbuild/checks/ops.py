"""Every op of the Python files is registered under the kernel's own namespace.

The check reads decorators and direct calls of Torch's functions that register ops. A name with
another namespace is an error, and so is a decorator of the top level without
`add_op_namespace_prefix`, which Hugging Face's builder refuses. The check `load` finds all other
registrations outside the namespace, those of C++ included, and reports them as findings of `ops`.
Bodies of `if TYPE_CHECKING:` are not read.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.libraries import metadata_of
from kbuild.sources.python_syntax import (
    cached_by_content,
    is_type_checking,
    parse_source,
    without_garbage_collection,
)
from kbuild.system.progress import report_current_work

REGISTRARS = (
    "custom_op", "triton_op", "register_kernel", "register_fake", "register_autograd",
    "register_vmap", "register_torch_dispatch", "register_autocast", "_register_effectful_op",
    "impl", "impl_abstract", "define",
)  # fmt: skip
"""The op is the first argument of each; `impl` and `define` also take a Library there."""
_REFUSED_WITHOUT_PREFIX = (
    "custom_op", "triton_op", "register_kernel", "register_fake", "register_vmap",
    "register_torch_dispatch",
)  # fmt: skip
"""The decorators that Hugging Face's builder looks at."""
_REGISTRAR_MODULES = (
    "torch.library", "torch._library", "torch._library.custom_ops", "torch._library.triton",
    "torch._custom_ops", "torch._custom_op.impl", "torch._higher_order_ops.effects",
)  # fmt: skip
_JAX_TARGET = "jax.ffi.register_ffi_target"
_OPENERS = {
    "torch.library.Library": 0,
    "torch.library._scoped_library": 0,
    "torch._library.custom_ops.CustomOpDef": 0,
    "torch._C._dispatch_library": 1,
}
"""Functions that open a namespace, and which argument names it."""
_NAME_KEYWORDS = ("name", "qualname", "op", "op_name", "ns", "namespace")
_PREFIXES = (
    "add_op_namespace_prefix", "torch_add_op_namespace_prefix", "jax_add_ffi_target_name_prefix",
)  # fmt: skip
_STARS = {
    "torch.library": (*REGISTRARS, "Library"),
    **dict.fromkeys(("._ops", ".._ops", "..._ops"), (*_PREFIXES, "ops")),
}
"""The names that `from module import *` brings and that matter here."""
_MOST_ALIASES = 10


@CHECKS.add
class OpsCheck(Check):
    """See `check_ops_source`."""

    name = "ops"
    summary = "Ops are registered through `add_op_namespace_prefix`."
    group = "code"

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per registration under a name that is not the kernel's own."""
        metadata = metadata_of(output)
        yield from check_ops_source(output.root, metadata.python_name if metadata else "")


@cached_by_content
def check_ops_source(path: Path, name: str) -> list[Finding]:
    """Check the Python package in the folder `path`; `name` is the kernel's Python name.

    `_ops.py` at the top is kbuild's and is not read. `where` is relative to `path`.
    """
    findings: list[Finding] = []
    with without_garbage_collection():
        for file in filter(Path.is_file, sorted(path.rglob("*.py"))):
            relative = file.relative_to(path).as_posix()
            if relative != "_ops.py":
                report_current_work(f"ops: {relative}")
                findings += _file_findings(file.read_bytes(), relative, name.replace("-", "_"))
    return findings


def _file_findings(source: bytes, file: str, own: str) -> list[Finding]:
    try:
        return list(_OpsFile(parse_source(source), file, own).findings())
    except SyntaxError:
        what = "does not parse, so its ops are not known"
        return [Finding("ops", "error", file, what, "correct the file")]
    except RecursionError:
        what = "is nested too deeply to be read, so its ops are not known"
        return [Finding("ops", "warning", file, what, "shorten its expressions")]


class _OpsFile:
    """One file: what its names stand for, and the registrations in it.

    A name counts for the whole file, and only if imports alone bind it, or one assignment.
    """

    def __init__(self, tree: ast.Module, file: str, own: str) -> None:
        self.tree = tree
        self.own = own
        self.file = file
        self.ops_module = "." * (file.count("/") + 1) + "_ops"
        self.nodes = list(_executed_nodes(tree))
        self.imported: dict[str, set[str]] = {}
        """Name -> dotted names that imports bind it to."""
        self.assigned: dict[str, ast.expr] = {}
        self.bindings: Counter[str] = Counter()
        """Name -> how often something else than an import binds it."""
        self.functions: set[str] = set()
        for node in self.nodes:
            self._bind(node)

    def findings(self) -> Iterator[Finding]:
        """The findings of the file, in the order of its lines."""
        top_level = {
            id(decorator)
            for statement in self.tree.body
            for decorator in getattr(statement, "decorator_list", ())
        }
        places = (node for node in self.nodes if isinstance(node, ast.Call | ast.Attribute))
        for node in sorted(places, key=lambda node: node.lineno):
            if isinstance(node, ast.Call):
                yield from self._call_findings(node, is_decorator=id(node) in top_level)
            elif node.attr == self.own and f"torch.ops.{self.own}" in self._dotted(node):
                what = f"`torch.ops.{self.own}` is not the namespace of this kernel's ops"
                hint = f"use `ops`, imported from `{self.ops_module}`"
                yield Finding("ops", "warning", f"{self.file}:{node.lineno}", what, hint)

    def _bind(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    first = alias.name.partition(".")[0]
                    target = alias.name if alias.asname else first
                    self.imported.setdefault(alias.asname or first, set()).add(target)
            case ast.ImportFrom(module=module, names=names, level=level):
                source = "." * level + (module or "")
                for alias in names:
                    for name in _STARS.get(source, ()) if alias.name == "*" else (alias.name,):
                        self.imported.setdefault(alias.asname or name, set()).add(
                            f"{source}.{name}"
                        )
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self.functions.add(name)
                self.bindings[name] += 1
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                self.bindings[name] += 1
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.assigned[name] = value
            case _:
                pass

    def _call_findings(self, call: ast.Call, *, is_decorator: bool) -> Iterator[Finding]:
        function = next(filter(_takes_op_name, self._dotted(call.func)), None)
        argument = _name_argument(call, _OPENERS.get(function or "", 0))
        if function is None or argument is None:
            return
        opens = function in _OPENERS
        value = self._value(argument)
        text = _leading_text(value)
        if text and (opens or function == _JAX_TARGET or text.find("::") > 0):
            fault, shown = "which is not in the kernel's own namespace", ast.unparse(value)
        elif is_decorator and call.args and self._is_refused(function, argument):
            fault, shown = (
                "which is not visibly in the kernel's own namespace",
                ast.unparse(argument),
            )
        else:
            return
        verb = "opens the namespace" if opens else "takes the op's name from"
        what = f"`{function}` {verb} {shown}, {fault}"
        yield Finding(
            "ops", "error", f"{self.file}:{call.lineno}", what, self._hint(function, text)
        )

    def _hint(self, function: str, text: str) -> str:
        if function in _OPENERS:
            return f"open `ops.name`, with `ops` imported from `{self.ops_module}`"
        prefix = _PREFIXES[2 if function == _JAX_TARGET else 0]
        op = text.rpartition("::")[2].partition("(")[0] or "..."
        return f'write `{prefix}("{op}")`, imported from `{self.ops_module}`'

    def _is_refused(self, function: str, argument: ast.expr) -> bool:
        """True for a name that Hugging Face's builder refuses, unless it is visibly our own."""
        is_op = isinstance(argument, ast.Name) and argument.id in self.functions
        is_looked_at = function.rpartition(".")[2] in _REFUSED_WITHOUT_PREFIX
        return is_looked_at and not is_op and not self._is_own(argument)

    def _is_own(self, node: ast.expr) -> bool:
        """True for `add_op_namespace_prefix(...)`, and for what begins with a part of `ops`."""
        match self._value(node):
            case ast.Call(func=function):
                names = {name.rpartition(".")[2] for name in self._dotted(function)}
                return not names.isdisjoint(_PREFIXES)
            case ast.JoinedStr(values=[ast.FormattedValue(value=first), *_]):
                return self._is_own(first)
            case ast.BinOp(left=left, op=ast.Add()):
                return self._is_own(left)
            case ast.Attribute() | ast.Name() as part:
                return any("._ops.ops." in f".{name}." for name in self._dotted(part))
            case _:
                return False

    def _value(self, node: ast.expr) -> ast.expr:
        """The expression, or that which the only assignment of a name gives it."""
        if isinstance(node, ast.Name) and (self.bindings[node.id], node.id in self.imported) == (
            1,
            False,
        ):
            return self.assigned.get(node.id, node)
        return node

    def _dotted(self, node: ast.expr, depth: int = 0) -> set[str]:
        """The dotted names that an expression may stand for; empty when nobody can tell."""
        attributes = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        value = self._value(node)
        if value is not node and depth < _MOST_ALIASES:
            starts = self._dotted(value, depth + 1)
        elif isinstance(node, ast.Name) and not self.bindings[node.id]:
            starts = self.imported.get(node.id, set())
        else:
            starts = set()
        return {".".join([start, *reversed(attributes)]) for start in starts}


def _executed_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes but those that only type checkers see, and handlers of what cannot fail."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and is_type_checking(node):
            waiting += node.orelse
        elif isinstance(node, ast.Try) and all(map(_imports_ops, node.body)):
            waiting += [*node.body, *node.orelse, *node.finalbody]
        else:
            waiting += ast.iter_child_nodes(node)


def _imports_ops(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.level > 0 and node.module == "_ops"


def _takes_op_name(function: str) -> bool:
    """True for functions that name an op or open a namespace."""
    module, _, name = function.rpartition(".")
    is_registrar = module in _REGISTRAR_MODULES and name in REGISTRARS
    return is_registrar or function in _OPENERS or function == _JAX_TARGET


def _name_argument(call: ast.Call, position: int) -> ast.expr | None:
    """The expression that names the op or the namespace; None when the call shows none."""
    if len(call.args) > position:
        return call.args[position]
    return next((k.value for k in call.keywords if k.arg in _NAME_KEYWORDS), None)


def _leading_text(node: ast.expr | None) -> str:
    """The text that an expression begins with as far as the source shows it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=[first, *_]):
            return _leading_text(first)
        case ast.BinOp(left=left, op=ast.Add()):
            return _leading_text(left)
        case _:
            return ""
