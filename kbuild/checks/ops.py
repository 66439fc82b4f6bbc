"""Every op of the Python files is registered under the kernel's own namespace.

Works on the source tree before a build as well as on a built variant. Deeper than a look at
decorators: plain calls, keywords, aliases, nested and conditional definitions, `Library` objects,
re-exports between the package's files, helpers of the package with their callers.

A name that is shown to be in another namespace is an error, and so is a decorator that Hugging
Face's builder refuses: one of the top level without `add_op_namespace_prefix`. A name that nobody
can tell from the source is a warning. That includes one that is foreign on one of two branches, as
in `"relu::f" if DEBUG else ops.name + "::f"`: nobody knows which is taken, unless it is the `else`
of `if TYPE_CHECKING:`. What is never carried out counts for nothing: the body of
`if TYPE_CHECKING:`, and an `except` around `from ._ops import ops`, which cannot fail.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.libraries import metadata_of
from kbuild.progress import report_current_work
from kbuild.sources.op_namespaces import OpNamespaceResolver
from kbuild.sources.python_syntax import cached_by_content, without_garbage_collection
from kbuild.sources.resolution import (
    ANY_ATTRIBUTE,
    LIBRARY,
    LIBRARY_MAKERS,
    TORCH_MODULES,
    UNKNOWN,
    KernelPackage,
)
from kbuild.sources.scopes import OPS_MODULE, Element, NameScope

# The op is the first argument of each; `impl` and `define` also take a Library there.
REGISTRARS = (
    "custom_op", "triton_op", "register_kernel", "register_fake", "register_autograd",
    "register_vmap", "register_torch_dispatch", "register_autocast", "_register_effectful_op",
    "impl", "impl_abstract", "define",
)  # fmt: skip
TAKE_LIBRARY = ("impl", "define")
UNAMBIGUOUS_REGISTRARS = frozenset(REGISTRARS) - frozenset(TAKE_LIBRARY)
"""Names so much Torch's own that another package's function of that name is a wrapper of it."""
LIBRARY_METHODS = tuple(
    f"{LIBRARY}.{name}" for name in ("define", "impl", "_register_fake", "_impl_with_aoti_compile")
)
"""A Library prefixes the names that they are given, unless those name a namespace."""
OPENERS: Mapping[str, int] = {
    **dict.fromkeys(LIBRARY_MAKERS, 0),
    "torch._library.custom_ops.CustomOpDef": 0,
    "torch._C._dispatch_library": 1,
}
"""What opens a namespace, and which argument names it."""
JAX_TARGET = "jax.ffi.register_ffi_target"
LOADERS = ("torch.ops.load_library", "torch.classes.load_library")
NAME_KEYWORDS = ("name", "qualname", "op", "op_name", "ns", "namespace")
MAKE_PARTIALS = ("functools.partial", "functools.partialmethod")
_LOOK_ONLY = ("hasattr", "callable", "isinstance", "issubclass", "print", "repr", "str", "id")
_LOOK_ONLY_MODULES = ("inspect.", "typing.")
"""What does not call the functions that it is given."""


def is_torch_registrar(function: str) -> bool:
    """True for a function of Torch's that names an op, wherever Torch keeps it."""
    module, _, name = function.rpartition(".")
    is_torch = module in TORCH_MODULES or module.endswith(".torch.library")
    return is_torch and name in (*REGISTRARS, ANY_ATTRIBUTE)


def registers_op(function: str, call: ast.Call) -> bool:
    """True when a call of that function names an op, or opens a namespace."""
    if function in OPENERS or function == JAX_TARGET or is_torch_registrar(function):
        return True
    if function.startswith("@"):
        return False
    return function.rpartition(".")[2] in UNAMBIGUOUS_REGISTRARS and _is_qualified(call)


def op_name_argument(function: str, call: ast.Call, *, after: int = 0) -> ast.expr | None:
    """The expression that says which op, or which namespace; None when the call shows none."""
    position = OPENERS.get(function, 0) + after
    if len(call.args) > position:
        return call.args[position]
    expression = next((k.value for k in call.keywords if k.arg in NAME_KEYWORDS), None)
    spread = next((k.value for k in call.keywords if k.arg is None), None)
    if expression is None and spread is not None:
        return ast.Subscript(spread, ast.Constant("name"), ast.Load())
    return expression


def _is_qualified(call: ast.Call) -> bool:
    """True when the call names an op as text with a namespace."""
    first = op_name_argument("", call)
    return isinstance(first, ast.Constant | ast.JoinedStr) and "::" in ast.unparse(first)


_PREFIX = "add_op_namespace_prefix"
_REFERENCE = (
    "custom_op", "triton_op", "register_kernel", "register_fake", "register_vmap",
    "register_torch_dispatch",
)  # fmt: skip
"""The decorators that Hugging Face's builder looks at."""
_WORDS = ("not visibly in the kernel's own namespace", "not in the kernel's own namespace")


@CHECKS.add
class OpsCheck(Check):
    """See `check_ops_source`."""

    name = "ops"
    summary = "Ops are registered through `add_op_namespace_prefix`."
    group = "code"

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per registration under a name that is not visibly the kernel's own."""
        metadata = metadata_of(output)
        yield from check_ops_source(output.root, metadata.python_name if metadata else "")


@cached_by_content
def check_ops_source(path: Path, name: str) -> list[Finding]:
    """Check the Python package in the folder `path`; `name` is the kernel's Python name.

    `_ops.py` at the top is taken to be kbuild's, whether it is there yet or not. `where` is
    relative to `path`.
    """
    with without_garbage_collection():
        return _found(KernelPackage(path, name.replace("-", "_")))


def _found(package: KernelPackage) -> list[Finding]:
    unread = [
        Finding("ops", severity, file, f"{reason}, so its ops are not known", "correct the file")
        for file, (reason, severity) in package.unread.items()
    ]
    judged = (module for module in package.modules if module != OPS_MODULE)
    names = OpNamespaceResolver(package)
    return unread + [finding for module in judged for finding in _judge(package, module, names)]


def _judge(
    package: KernelPackage, module: tuple[str, ...], names: OpNamespaceResolver
) -> list[Finding]:
    report_current_work(f"ops: {package.files[module]}")
    try:
        return _Judge(package, module, names).findings()
    except RecursionError:
        what = "is nested too deeply to be read, so its ops are not known"
        return [Finding("ops", "warning", package.files[module], what, "shorten its expressions")]


@dataclass(frozen=True)
class _Registration:
    """One call that gives an op its name."""

    call: ast.Call
    scope: NameScope
    function: str
    """Dotted name, as Torch knows it."""
    named: ast.expr | None
    """The expression that says which op; None when the call does not show it."""

    @property
    def is_torchs(self) -> bool:
        """True when the function is known to be one that names an op, and not only called so."""
        function = self.function
        known = is_torch_registrar(function) or function in OPENERS or function == JAX_TARGET
        return known or function.startswith("Library.")


class _Judge:
    """Looks at one file."""

    def __init__(
        self, package: KernelPackage, module: tuple[str, ...], names: OpNamespaceResolver
    ) -> None:
        self.package = package
        self.source = package.modules[module]
        self.file = package.files[module]
        self.names = names

    def findings(self) -> list[Finding]:
        judged = [
            (registration, self._severity(registration)) for registration in self._registrations()
        ]
        findings = [
            self._finding(registration, severity) for registration, severity in judged if severity
        ]
        others = (*self._uses(), *self._loads())
        return sorted([*findings, *others], key=lambda finding: _line_of(finding.where))

    def _registrations(self) -> Iterator[_Registration]:
        """At most one for each call."""
        for call, scope in self.source.calls:
            meanings = self._functions(call.func, scope)
            if registrars := [m for m in meanings if registers_op(m, call)]:
                expression = op_name_argument(registrars[0], call)
                yield _Registration(call, scope, registrars[0], expression)
            elif method := next((m for m in meanings if m in LIBRARY_METHODS), None):
                yield from self._through_library(method, call, scope)
            elif any(m in MAKE_PARTIALS for m in meanings):
                yield from self._partial(call, scope)
            elif not any(m in _LOOK_ONLY or m.startswith(_LOOK_ONLY_MODULES) for m in meanings):
                yield from self._handed_on(call, scope)

    def _through_library(
        self, method: str, call: ast.Call, scope: NameScope
    ) -> Iterator[_Registration]:
        """`lib.impl("aten::relu", f)`: a name that brings a namespace of its own."""
        expression = op_name_argument(method, call)
        if expression is None:
            return
        texts = self.package.contents.texts(expression, scope) or ()
        meanings = self.package.denote(expression, scope)
        is_op = any(meaning.startswith("torch.ops.") for meaning in meanings)
        if is_op or any("::" in text.partition("(")[0] for text in texts):
            yield _Registration(call, scope, method.replace(LIBRARY, "Library"), expression)

    def _partial(self, call: ast.Call, scope: NameScope) -> Iterator[_Registration]:
        """`partial(custom_op, "ns::op")`: the name is given where the partial is made."""
        for function in self._functions(call.args[0], scope) if call.args else ():
            if registers_op(function, call):
                expression = op_name_argument(function, call, after=1)
                if expression is not None:
                    yield _Registration(call, scope, function, expression)
                return

    def _handed_on(self, call: ast.Call, scope: NameScope) -> Iterator[_Registration]:
        """`apply(custom_op, ...)`: fine when a name in the namespace is handed on with it."""
        texts = self.package.contents.texts
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        for argument in arguments:
            if not isinstance(argument, ast.Name | ast.Attribute):
                continue
            function = next(filter(is_torch_registrar, self.package.denote(argument, scope)), None)
            if function is not None:
                others = [other for other in arguments if other is not argument]
                if not any(self.names.namespace_of(other, scope) == "own" for other in others):
                    elements = {
                        id(other): other
                        for other in others
                        for text in texts(Element(of=other), scope) or texts(other, scope) or ()
                        if "::" in text
                    }
                    named = next(iter(elements.values()), None)
                    yield _Registration(call, scope, function, named)
                return

    def _functions(self, node: ast.expr, scope: NameScope) -> list[str]:
        """What a call may call; as written when the source does not say."""
        meanings = self.package.denote(node, scope)
        known = {meaning for meaning in meanings if not meaning.startswith(UNKNOWN)}
        return sorted(known if len(known) == len(meanings) else {*known, ast.unparse(node)})

    def _severity(self, registration: _Registration) -> Literal["error", "warning"] | None:
        """An error where the name is shown to be another's, or the reference refuses it as well."""
        expression, scope = registration.named, registration.scope
        worst: Literal["error", "warning"] = (
            "error" if self._is_refused_by_the_reference(registration.call) else "warning"
        )
        if expression is None:
            return worst
        meanings = self.package.denote(expression, scope)
        if registration.function.rpartition(".")[2] in TAKE_LIBRARY and LIBRARY in meanings:
            return None  # its namespace was looked at where the Library was made
        namespace = self.names.namespace_of(expression, scope)
        if namespace == "other" and registration.is_torchs:
            return "error"
        return None if namespace == "own" else worst

    def _is_refused_by_the_reference(self, call: ast.Call) -> bool:
        """Whether Hugging Face's builder refuses the decorator that the call is.

        It looks at those of the top level, for the name `add_op_namespace_prefix` itself.
        """
        if id(call) not in self.source.decorators or not call.args:
            return False
        first = call.args[0]
        is_prefixed = isinstance(first, ast.Call) and _last_name(first.func) == _PREFIX
        return _last_name(call.func) in _REFERENCE and not is_prefixed

    def _finding(
        self, registration: _Registration, severity: Literal["error", "warning"]
    ) -> Finding:
        where = f"{self.file}:{registration.call.lineno}"
        fault = _fault(registration)
        if registration.named is not None:
            namespace = self.names.namespace_of(registration.named, registration.scope)
            fault += ", which is " + _WORDS[namespace == "other"]
        what = f"`{registration.function}` {fault}"
        return Finding("ops", severity, where, what, self._hint(registration))

    def _hint(self, registration: _Registration) -> str:
        dots = "." * (self.file.count("/") + 1)
        if registration.function in OPENERS:
            return f"open `ops.name`, with `ops` imported from `{dots}_ops`"
        is_jax = registration.function == JAX_TARGET
        prefix = "jax_add_ffi_target_name_prefix" if is_jax else "add_op_namespace_prefix"
        return f"write `{prefix}({_op_of(registration.named)})`, imported from `{dots}_ops`"

    def _loads(self) -> Iterator[Finding]:
        """Libraries that the kernel loads itself: nobody knows what they register."""
        for call, scope in self.source.calls:
            loaders = [m for m in self._functions(call.func, scope) if m in LOADERS]
            if loaders:
                what = f"`{loaders[0]}` loads a library that registers ops under names of its own"
                hint = "importing `_ops` loads the extension that kbuild builds"
                yield Finding("ops", "warning", f"{self.file}:{call.lineno}", what, hint)

    def _uses(self) -> Iterator[Finding]:
        """Ops of a namespace that is the kernel's bare name: it has no such namespace."""
        own = f"torch.ops.{self.package.own}"
        for node, scope in self.source.attributes:
            if node.attr == self.package.own and own in self.package.denote(node, scope):
                where = f"{self.file}:{node.lineno}"
                dots = "." * (self.file.count("/") + 1)
                what = f"`{own}` is not the namespace of this kernel's ops"
                hint = f"use `ops`, imported from `{dots}_ops`"
                yield Finding("ops", "warning", where, what, hint)


def _fault(registration: _Registration) -> str:
    if registration.named is None:
        return "does not show which op it names"
    text = ast.unparse(registration.named)
    if registration.function in OPENERS:
        return f"opens the namespace {text}"
    return f"takes the op's name from {text}"


def _op_of(named: ast.expr | None) -> str:
    """The op's bare name as source text, for the hint."""
    if isinstance(named, ast.Constant) and isinstance(named.value, str):
        return f'"{named.value.rpartition("::")[2].partition("(")[0]}"'
    if isinstance(named, ast.Attribute):
        return f'"{named.attr}"'
    return "..."


def _last_name(node: ast.expr) -> str:
    return str(getattr(node, "attr", None) or getattr(node, "id", ""))


def _line_of(where: str) -> int:
    return int(where.rpartition(":")[2])
