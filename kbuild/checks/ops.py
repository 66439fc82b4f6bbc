"""Every op is registered under the kernel's own namespace, so that two kernels never clash.

Works on the source tree before a build as well as on a built variant. Deeper than a look at
decorators: plain calls, keywords, aliases, nested and conditional definitions, `Library` objects,
re-exports between the package's files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.readers.libraries import metadata_of
from kbuild.checks.readers.meaning import (
    LIBRARY,
    LIBRARY_MAKERS,
    OPS_MODULE,
    TORCH_MODULES,
    UNKNOWN,
    Package,
)
from kbuild.checks.readers.opname import OpNames
from kbuild.checks.readers.scopes import Scope

# The op is the first argument of each; `impl` and `define` also take a Library there.
REGISTRARS = (
    "custom_op",
    "triton_op",
    "register_kernel",
    "register_fake",
    "register_autograd",
    "register_vmap",
    "register_torch_dispatch",
    "register_autocast",
    "_register_effectful_op",
    "impl",
    "impl_abstract",
    "define",
)
TAKE_LIBRARY = ("impl", "define")
DISTINCT = frozenset(REGISTRARS) - frozenset(TAKE_LIBRARY)
"""Names so much Torch's own that another package's function of that name is a wrapper of it."""
OTHERS = {"jax.ffi.register_ffi_target": "jax_add_ffi_target_name_prefix"}
NAME_KEYWORDS = ("name", "qualname", "op", "op_name", "ns")


@CHECKS.add
class Ops(Check):
    """See `check_ops_source`."""

    name = "ops"
    summary = "Ops are registered through `add_op_namespace_prefix`."
    group = "code"

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per registration under a name that is not visibly the kernel's own."""
        metadata = metadata_of(output)
        yield from check_ops_source(output.root, metadata.python_name if metadata else "")


def check_ops_source(path: Path, name: str) -> list[Finding]:
    """Check the Python package in the folder `path`; `name` is the kernel's Python name.

    `_ops.py` at the top is taken to be kbuild's, whether it is there yet or not. `where` is
    relative to `path`.
    """
    package = Package(path, name.replace("-", "_"))
    unread = [
        Finding("ops", "error", file, f"{reason}, so its ops are not known", "correct the file")
        for file, reason in package.unread.items()
    ]
    judged = (module for module in package.modules if module != OPS_MODULE)
    return unread + [finding for module in judged for finding in _judge(package, module)]


def _judge(package: Package, module: tuple[str, ...]) -> list[Finding]:
    try:
        return _Judge(package, module).findings()
    except RecursionError:
        what = "is nested too deeply to be read, so its ops are not known"
        return [Finding("ops", "error", package.files[module], what, "shorten its expressions")]


@dataclass(frozen=True)
class _Registration:
    """One call that gives an op its name."""

    call: ast.Call
    scope: Scope
    function: str
    """Dotted name, as Torch knows it."""
    named: ast.expr | None
    """The expression that says which op; None when the call does not show it."""


class _Judge:
    """Looks at one file."""

    def __init__(self, package: Package, module: tuple[str, ...]) -> None:
        self.package = package
        self.source = package.modules[module]
        self.file = package.files[module]
        self.names = OpNames(package)

    def findings(self) -> list[Finding]:
        found = [self._finding(fault) for fault in self._registrations() if self._is_wrong(fault)]
        return sorted([*found, *self._uses()], key=lambda finding: _line_of(finding.where))

    def _registrations(self) -> Iterator[_Registration]:
        """At most one for each call."""
        for call, scope in self.source.calls:
            meanings = self._functions(call.func, scope)
            if registrars := [m for m in meanings if _registers(m, call)]:
                yield _Registration(call, scope, registrars[0], _named(call, 0))
            elif "functools.partial" in meanings and len(call.args) > 1:
                yield from self._partial(call, scope)

    def _partial(self, call: ast.Call, scope: Scope) -> Iterator[_Registration]:
        """`partial(custom_op, "ns::op")`: the name is given where the partial is made."""
        for function in self._functions(call.args[0], scope):
            if _registers(function, call):
                yield _Registration(call, scope, function, _named(call, 1))
                return

    def _functions(self, node: ast.expr, scope: Scope) -> list[str]:
        """What a call may call; as written when the source does not say."""
        meanings = self.package.denote(node, scope)
        return sorted({_text(node) if m.startswith(UNKNOWN) else m for m in meanings})

    def _is_wrong(self, registration: _Registration) -> bool:
        if registration.named is None:
            return True
        given = self.package.denote(registration.named, registration.scope)
        if registration.function.rpartition(".")[2] in TAKE_LIBRARY and LIBRARY in given:
            return False  # its namespace was looked at where the Library was made
        return not self.names.is_namespaced(registration.named, registration.scope)

    def _finding(self, registration: _Registration) -> Finding:
        where = f"{self.file}:{registration.call.lineno}"
        what = f"`{registration.function}` {_fault(registration)}"
        return Finding("ops", "error", where, what, self._hint(registration))

    def _hint(self, registration: _Registration) -> str:
        dots = "." * (self.file.count("/") + 1)
        if registration.function in LIBRARY_MAKERS:
            return f"open `ops.name`, with `ops` imported from `{dots}_ops`"
        prefix = OTHERS.get(registration.function, "add_op_namespace_prefix")
        return f"write `{prefix}({_op_of(registration.named)})`, imported from `{dots}_ops`"

    def _uses(self) -> Iterator[Finding]:
        """Ops of a namespace that is the kernel's bare name: it has no such namespace."""
        own = f"torch.ops.{self.package.own}"
        for node, scope in self.source.attributes:
            if node.attr == self.package.own and own in self.package.denote(node, scope):
                where = f"{self.file}:{node.lineno}"
                dots = "." * (self.file.count("/") + 1)
                what = f"`{own}` is not where this kernel's ops are"
                hint = f"use `ops`, imported from `{dots}_ops`"
                yield Finding("ops", "warning", where, what, hint)


def _registers(function: str, call: ast.Call) -> bool:
    """True when a call of that function names an op, or opens a namespace."""
    if function in LIBRARY_MAKERS or function in OTHERS:
        return True
    module, _, name = function.rpartition(".")
    if name not in REGISTRARS or function.startswith("@"):
        return False
    is_torch = module in TORCH_MODULES or module.endswith(".torch.library")
    return is_torch or (name in DISTINCT and _is_qualified(call))


def _named(call: ast.Call, position: int) -> ast.expr | None:
    if len(call.args) > position:
        return call.args[position]
    return next((k.value for k in call.keywords if k.arg in NAME_KEYWORDS), None)


def _is_qualified(call: ast.Call) -> bool:
    """True when the call names an op as text with a namespace."""
    named = _named(call, 0)
    return isinstance(named, ast.Constant | ast.JoinedStr) and "::" in _text(named)


def _fault(registration: _Registration) -> str:
    if registration.named is None:
        return "does not show which op it names"
    text = _text(registration.named)
    if registration.function in LIBRARY_MAKERS:
        return f"opens the namespace {text}, which is not visibly the kernel's own"
    return f"takes the op's name from {text}, which is not visibly in the kernel's own namespace"


def _op_of(named: ast.expr | None) -> str:
    """The op's bare name as source text, for the hint."""
    if isinstance(named, ast.Constant) and isinstance(named.value, str):
        return f'"{named.value.rpartition("::")[2].partition("(")[0]}"'
    if isinstance(named, ast.Attribute):
        return f'"{named.attr}"'
    return "..."


def _text(node: ast.expr) -> str:
    return ast.unparse(node)


def _line_of(where: str) -> int:
    return int(where.rpartition(":")[2])
