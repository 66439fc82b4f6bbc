"""Runs a Python wrapper once on tensors without data, and records what it launches and calls.

The sizes of the tensors are symbols, see `symbols`. A run takes one path: the steps of that
path, the values that it returns, and the conditions under which a call takes it.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial, reduce
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.fx.experimental import _config as symbolic_shapes_config
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    _pop_mode_temporarily,
)
from torch.utils._pytree import tree_leaves
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from kbuild.capture.programs import CaptureError
from kbuild.capture.worker.symbols import Symbols

ALLOCATIONS = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
}  # fmt: skip
FILLS = {
    "zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1,
    "full": None, "full_like": None, "new_full": None,
}  # fmt: skip
"""Operators that allocate and fill -> the value, None where it is an argument."""
_QUESTIONS = ("sym_size", "sym_stride", "sym_numel")


class NeedsContiguous(Exception):  # noqa: N818 - no error: the walk begins anew
    """The wrapper does with a tensor what only a contiguous one allows; the argument names it."""


@dataclass
class TensorArgument:
    """A tensor argument of a run."""

    name: str
    sizes: Sequence[str]
    """Expressions of its sizes: names of dimensions, or numbers."""
    dtype: str
    contiguous: bool = False


@dataclass
class Bounds:
    """The smallest and the largest value of a size."""

    least: int = 1
    most: int = 2**31 - 1


@dataclass
class Trace:
    """What one run did."""

    guards: list[str] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    hints: dict[str, int | float] = field(default_factory=dict)
    """The example under which the run took its path."""
    buffers: list[dict[str, Any]] = field(default_factory=list)
    """Tensors that the run allocated or ATen produced."""
    outputs: list[Any] = field(default_factory=list)
    raises: str = ""
    """The author's own error, which ends this path."""
    place: str = ""
    decisions: dict[str, bool] = field(default_factory=dict)
    """Questions other than sizes that the run asked, such as `needs_input_grad`."""
    boundary: dict[str, int] = field(default_factory=dict)
    """Guards, steps and buffers of the forward pass, where a backward pass follows."""
    saved: list[Any] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Records launches and ATen calls of one run."""

    def __init__(self, symbols: Symbols, files: Sequence[Path]) -> None:
        super().__init__()
        self.symbols, self._files = symbols, tuple(str(file) for file in files)
        self.trace = Trace()
        self._roots: dict[int, str] = {}
        self._kept: list[torch.Tensor] = []
        """Storages must not be freed, so that none has the number of an earlier one."""

    # tensors

    def enter(self, name: str, tensor: torch.Tensor) -> None:
        """Know a tensor by a name."""
        self._roots[_storage(tensor)] = name
        self._kept.append(tensor)

    def buffer(self, tensor: torch.Tensor, **more: Any) -> str:
        """Give a tensor a name that the run made; where it is known already, that name."""
        if _storage(tensor) in self._roots:
            return self._roots[_storage(tensor)]
        name = f"b{len(self.trace.buffers)}"
        self.enter(name, tensor)
        self.trace.buffers.append(
            {"name": name, "line": self.line(), **self._shape(tensor), **more}
        )
        return name

    def _shape(self, tensor: torch.Tensor) -> dict[str, Any]:
        text = self.symbols.text_of
        return {
            "sizes": [text(size) for size in tensor.shape],
            "strides": [text(stride) for stride in tensor.stride()],
            "offset": text(tensor.storage_offset()),
            "dtype": str(tensor.dtype).removeprefix("torch."),
        }

    def value(self, value: Any) -> Any:
        """A value as JSON: `{"tensor": ...}`, `{"int": ...}` and so on."""
        if value is None:
            return None
        if isinstance(value, tl.constexpr):
            return self.value(value.value)
        if isinstance(value, torch.Tensor):
            if _storage(value) not in self._roots:
                raise CaptureError("uses a tensor that is not an argument", self.line())
            return {"tensor": self._roots[_storage(value)], **self._shape(value)}
        if isinstance(value, (list, tuple, torch.Size)):
            return {"list": [self.value(item) for item in value]}
        for kind, types, write in self._plain_values():
            if isinstance(value, types):
                return {kind: write(value)}
        raise CaptureError(f"passes a value of the type `{type(value).__name__}`", self.line())

    def _plain_values(self) -> Iterator[tuple[str, Any, Callable[[Any], str]]]:
        """Kind -> its types and how one is written; a `bool` is an `int` as well."""
        number = self.symbols.text_of
        yield "bool", (bool, torch.SymBool), number
        yield "int", (int, torch.SymInt), number
        yield "float", (float, torch.SymFloat), number
        yield "string", str, str
        yield "dtype", (torch.dtype, tl.dtype), _dtype_name
        for kind in ("device", "memory_format", "layout"):
            yield kind, getattr(torch, kind), str

    def paused(self) -> AbstractContextManager[Any]:
        """Operators in this context are not recorded; none is while `__torch_dispatch__` runs."""
        is_active = _get_current_dispatch_mode() is self
        paused: AbstractContextManager[Any] = (
            _pop_mode_temporarily() if is_active else nullcontext()
        )
        return paused

    # layouts

    def is_free(self, tensor: Any) -> bool:
        """Whether a tensor has the strides of a call, which are symbols."""
        if not isinstance(tensor, torch.Tensor):
            return False
        return any("stride(" in self.symbols.text_of(stride) for stride in tensor.stride())

    def require_contiguous(self, tensor: torch.Tensor) -> None:
        """Begin anew with the tensor's root contiguous, if it is not.

        Raises:
            NeedsContiguous: it is not.
        """
        if self.is_free(tensor):
            raise NeedsContiguous(self._roots[_storage(tensor)])

    def contiguous(
        self, tensor: torch.Tensor, memory_format: Any = torch.contiguous_format
    ) -> torch.Tensor:
        """`Tensor.contiguous`: one step, which copies where a call needs it, not two paths."""
        if memory_format is not torch.contiguous_format:
            raise CaptureError(f"asks for the layout `{memory_format}`", self.line())
        if self._is_contiguous(tensor):
            return tensor
        strides = _contiguous_strides(tensor.shape)
        argument = self.value(tensor)
        with self.paused():
            copy = torch.empty_strided(
                tensor.shape, strides, dtype=tensor.dtype, device=tensor.device
            )
        name = self.buffer(copy, produced=True, aliases=argument["tensor"])
        self.trace.steps.append({
            "aten": "contiguous", "arguments": [argument], "results": [name], "written": [],
            "line": self.line(),
        })  # fmt: skip
        return copy

    def _is_contiguous(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is contiguous in every call; Torch writes `max(N, 1)` for a stride."""
        text = self.symbols.text_of
        expected = _contiguous_strides(tensor.shape)
        sizes = _contiguous_strides([torch.sym_max(size, 1) for size in tensor.shape])
        strides = [text(stride) for stride in tensor.stride()]
        return strides in ([text(e) for e in expected], [text(s) for s in sizes])

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Methods of `torch.Tensor` that would ask for strides on more paths than they have."""
        view, reshape, flatten = torch.Tensor.view, torch.Tensor.reshape, torch.Tensor.flatten
        is_contiguous = torch.Tensor.is_contiguous

        def viewed(tensor: torch.Tensor, *shape: Any, **more: Any) -> Any:
            self.require_contiguous(tensor)
            return view(tensor, *shape, **more)

        def reshaped(tensor: torch.Tensor, *shape: Any, **more: Any) -> Any:
            tensor = self.contiguous(tensor) if self.is_free(tensor) else tensor
            return reshape(tensor, *shape, **more)

        def flattened(tensor: torch.Tensor, *args: Any, **more: Any) -> Any:
            tensor = self.contiguous(tensor) if self.is_free(tensor) else tensor
            return flatten(tensor, *args, **more)

        def asked(tensor: torch.Tensor, *args: Any, **more: Any) -> Any:
            self.require_contiguous(tensor)
            return is_contiguous(tensor, *args, **more)

        def copied(tensor: torch.Tensor, memory_format: Any = torch.contiguous_format) -> Any:
            return self.contiguous(tensor, memory_format)

        return {
            "view": viewed, "reshape": reshaped, "flatten": flattened, "is_contiguous": asked,
            "contiguous": copied, "__getitem__": indexed, "__setitem__": assigned,
        }  # fmt: skip

    # places

    def line(self) -> str:
        """`FILE:LINE` of the author's line that is running."""
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to a caller
        while frame is not None:
            if frame.f_code.co_filename.startswith(self._files):
                return f"{frame.f_code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    # ATen

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        operator = _operator(func)
        if operator == "equal" and args[0].dim() != args[1].dim():
            return False  # whatever is in them
        if operator.endswith("_like") or operator in ("clone", "view", "_unsafe_view"):
            self.require_contiguous(args[0])
        elif not _is_view(func) and not operator.startswith(("prim::", "sym_", "empty", "new_")):
            args = [
                self.contiguous(a) if self.is_free(a) and not _writes(func, at) else a
                for at, a in enumerate(args)
            ]
        try:
            result = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise CaptureError(f"asks what is in a tensor (`{func}`)", self.line()) from None
        if operator in ALLOCATIONS:
            self.buffer(result)
        elif operator in FILLS:
            fill = FILLS[operator]
            if fill is None:
                fill = kwargs.get("fill_value", args[-1])
            self.buffer(result, fill=self.value(fill))
        elif not operator.startswith("prim::") and operator not in _QUESTIONS:
            tensors = [t for t in tree_leaves(result) if isinstance(t, FakeTensor)]
            if not self._is_known(func, tensors):
                self._call(func, args, kwargs, tensors)
        return result

    def _is_known(self, func: Any, tensors: Sequence[Any]) -> bool:
        """Whether sizes, strides and the offset say all of what an operator returns."""
        known = all(_storage(tensor) in self._roots for tensor in tensors)
        if tensors and _operator(func) in ("detach", "alias", "lift_fresh"):
            if not known:
                raise CaptureError("makes a tensor from data of Python", self.line())
            return True
        return bool(tensors) and known and _is_view(func)

    def _call(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Any]
    ) -> None:
        schema = _schema(func)
        values = [
            args[at] if at < len(args) else kwargs.get(argument.name, argument.default_value)
            for at, argument in enumerate(schema.arguments)
        ]
        arguments = [self.value(value) for value in values]
        written = [
            self.value(value)["tensor"]
            for at, value in enumerate(values)
            if _writes(func, at) and isinstance(value, torch.Tensor)
        ]
        results = [self.buffer(tensor, produced=True) for tensor in tensors]
        overload = f".{schema.overload_name}" if schema.overload_name else ""
        self.trace.steps.append({
            "aten": _operator(func) + overload,
            "arguments": arguments,
            "results": results,
            "written": written,
            "line": self.line(),
        })  # fmt: skip

    # launches

    def launch(
        self, kernel: Any, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """One `kernel[grid](*args, **kwargs)`."""
        chain = []
        while not isinstance(kernel, JITFunction):
            chain.append(kernel)
            kernel = kernel.fn
        parameters = {parameter.name: parameter for parameter in kernel.params}
        values = LaunchValues(dict(zip(parameters, args, strict=False)) | dict(kwargs))
        guards = len(self.symbols.env.guards)
        with symbolic_extremes():
            constants = self._decorated(chain, args, values)
            for name, parameter in parameters.items():
                if name not in values and parameter.has_default:
                    values[name] = parameter.default
            blocks = grid(values) if callable(grid) else grid
        blocks = blocks if isinstance(blocks, (tuple, list)) else (blocks,)
        step: dict[str, Any] = {
            "launch": kernel.__name__,
            "file": kernel.fn.__code__.co_filename,
            "arguments": {},
            "constants": {},
            "options": {},
            "autotune": sorted(constants),
            "key": [name for tuner in chain if isinstance(tuner, Autotuner) for name in tuner.keys],
            "written": sorted(written_parameters(kernel)),
            "specialized": sorted(specialized_parameters(kernel)),
            "grid": [self.symbols.text_of(block) for block in blocks],
            "line": self.line(),
        }
        for name, value in values.items():
            if name in constants:
                continue
            if name not in parameters:
                # An image has one value of each: every value is a path.
                decided = int(value) if isinstance(value, torch.SymInt) else value
                step["options"][name] = self.value(decided)
            elif parameters[name].is_constexpr:
                step["constants"][name] = self.value(value)
            else:
                step["arguments"][name] = self.value(value)
        self._forget_candidates(constants, guards, kernel.__name__)
        self.trace.steps.append(step)

    def _decorated(
        self, chain: Sequence[Any], args: Sequence[Any], values: LaunchValues
    ) -> set[str]:
        """Add what the kernel's decorators decide to the values; names that candidates decide."""
        names: set[str] = set()
        for decorator in chain:
            if isinstance(decorator, Autotuner):
                names |= self._candidates(decorator, values)
            elif isinstance(decorator, Heuristics):
                given = dict(zip(decorator.arg_names, args, strict=False))
                for name, function in decorator.values.items():
                    values[name] = function(LaunchValues({**given, **values}, values.varied))
        return names

    def _candidates(self, tuner: Any, values: LaunchValues) -> set[str]:
        """Constants of the author's own candidates: integers are symbols of their names.

        Raises:
            CaptureError: a name is one of the call as well.
        """
        settings, kernel = [c.all_kwargs() for c in tuner.configs], tuner.base_fn.__name__
        names = dict.fromkeys(name for setting in settings for name in setting)
        for name in names.keys() & _CANDIDATE_OPTIONS:
            values.varied[name] = (kernel, self.line())
        for name in [name for name in names if name not in _CANDIDATE_OPTIONS]:
            choices = [setting.get(name) for setting in settings]
            if name in self.symbols.named:
                message = f"has the size `{name}`, and a constant of that name in `{kernel}`"
                raise CaptureError(f"{message}: call the size something else", self.line())
            if all(type(choice) is int for choice in choices):
                self.symbols.hints = {**self.symbols.hints, name: choices[0]}
                values[name] = self.symbols.integer(name, min(choices), max(choices))
            elif any(choice != choices[0] for choice in choices):
                values[name] = choices[0]
                values.varied[name] = (kernel, self.line())
            else:
                values[name] = choices[0]
        return {*names} - _CANDIDATE_OPTIONS

    def _forget_candidates(self, names: set[str], guards: int, kernel: str) -> None:
        """The constants of candidates mean nothing behind their launch.

        Raises:
            CaptureError: the function took a path because of one.
        """
        named, known = self.symbols.named, self.symbols.hints
        symbols = {named.pop(name).node.expr for name in names if name in named}
        self.symbols.hints = {name: known[name] for name in known if name not in names}
        for guard in self.symbols.env.guards[guards:]:
            if guard.expr.free_symbols & symbols:
                text = self.symbols.text(guard.expr)
                message = f"decides on a candidate of `{kernel}`: `{text}`"
                raise CaptureError(message, self.line())


_CANDIDATE_OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override"}
"""What a candidate sets that is no constant of the kernel."""


class LaunchValues(dict[str, Any]):
    """Arguments of a launch for the author's grid and heuristics."""

    def __init__(
        self, values: Mapping[str, Any], varied: dict[str, tuple[str, str]] | None = None
    ) -> None:
        super().__init__(values)
        self.varied = {} if varied is None else varied
        """What differs between candidates and is no symbol -> the kernel, and where it launches."""

    def __getitem__(self, name: str) -> Any:
        self._require_known(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As that of a dictionary."""
        self._require_known(name)
        return super().get(name, default)

    def _require_known(self, name: str) -> None:
        if name in self.varied:
            kernel, place = self.varied[name]
            message = f"computes with `{name}`, which candidates of `{kernel}` set"
            raise CaptureError(message, place)


@contextmanager
def symbolic_extremes() -> Iterator[None]:
    """`min` and `max` of symbols are expressions, and no paths."""
    with (
        mock.patch.object(builtins, "min", partial(_extreme, min, torch.sym_min)),
        mock.patch.object(builtins, "max", partial(_extreme, max, torch.sym_max)),
    ):
        yield


def _extreme(plain: Any, symbolic: Any, *values: Any, **options: Any) -> Any:
    if len(values) == 1:
        values = tuple(values[0])
    if options or not any(isinstance(value, torch.SymInt) for value in values):
        return plain(values, **options)
    return reduce(symbolic, values)


_STORES = {"store", "atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or"} | {
    "atomic_xor", "atomic_xchg", "atomic_cas",
}  # fmt: skip
_VALUES = {"load", "sum", "max", "min", "dot"} | _STORES
"""Functions whose results are no pointers, whatever their arguments are."""


@cache
def written_parameters(kernel: Any) -> frozenset[str]:
    """Parameters of a kernel through which it may store; those of functions that it calls as well.

    A name counts as derived from all names in the expression that was last assigned to it, but for
    what is loaded.
    """
    return _flow(kernel)[0]


@cache
def _flow(kernel: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Parameters through which a function may store, and those that its results derive from."""
    names = [parameter.name for parameter in kernel.params]
    flow = _Flow(kernel, {name: {name} for name in names})
    flow.follow(_statements(kernel))
    return frozenset(flow.written & {*names}), frozenset(flow.returned & {*names})


@dataclass
class _Flow(ast.NodeVisitor):
    """Follows the parameters through the statements of a kernel."""

    kernel: Any
    names: dict[str, set[str]]
    """Name -> the parameters that it derives from."""
    written: set[str] = field(default_factory=set)
    returned: set[str] = field(default_factory=set)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._assign(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._assign(node.target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if isinstance(node.target, ast.Name):
            before = self.names.get(node.target.id, set())
            self.names[node.target.id] = before | self._origins(node.value)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        before = dict(self.names)
        self.follow(node.body)
        after, self.names = self.names, before
        self.follow(node.orelse)
        self._join(after)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._assign(node.target, node.iter)
        self._repeat(node)

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._repeat(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.returned |= self._origins(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        for place in self._places(node):
            self.written |= self._origins(place)

    def follow(self, statements: Sequence[ast.stmt]) -> None:
        """Statements, one after the other."""
        for statement in statements:
            self.visit(statement)

    def _join(self, names: Mapping[str, set[str]]) -> None:
        """What holds after either of two branches."""
        for name, origins in names.items():
            self.names[name] = self.names.get(name, set()) | origins

    def _repeat(self, node: ast.For | ast.While) -> None:
        """A loop's body, until it carries nothing more around."""
        before: dict[str, set[str]] = {}
        while before != self.names:
            before = dict(self.names)
            self.follow(node.body)
            self._join(before)
        self.follow(node.orelse)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = self._origins(value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else ()
            has_parts = len(parts) == len(target.elts)
            values = parts if has_parts else [value] * len(target.elts)
            origins = [self._origins(part) for part in values]
            for item, known in zip(target.elts, origins, strict=True):
                for name in ast.walk(item):
                    if isinstance(name, ast.Name):
                        self.names[name.id] = known

    def _origins(self, node: ast.AST) -> set[str]:
        """The parameters that an expression derives from."""
        if isinstance(node, ast.Call):
            if _called(node) in _VALUES:
                return set()
            if inner := _function(self.kernel, node):
                arguments = _arguments(node, inner)
                results = _flow(inner)[1] & arguments.keys()
                return set().union(*(self._origins(arguments[name]) for name in results))
        if isinstance(node, ast.Name):
            return self.names.get(node.id, set())
        return set().union(*(self._origins(child) for child in ast.iter_child_nodes(node)))

    def _places(self, node: ast.Call) -> Iterator[ast.expr]:
        """Expressions of pointers through which a call may store."""
        if _called(node) in _STORES:
            if isinstance(node.func, ast.Attribute) and _is_descriptor_store(node):
                yield node.func.value
            else:
                yield node.args[0] if node.args else node.keywords[0].value
        elif inner := _function(self.kernel, node):
            arguments = _arguments(node, inner)
            for name in written_parameters(inner) & arguments.keys():
                yield arguments[name]


@cache
def specialized_parameters(kernel: Any) -> frozenset[str]:
    """Parameters of a kernel whose divisibility matters.

    Not those that it only divides by or counts to, nor those that its author does not specialize.
    """
    uses = _Uses(kernel)
    for statement in _statements(kernel):
        uses.visit(statement)
    return frozenset(
        parameter.name
        for parameter in kernel.params
        if parameter.name in uses.names
        and not parameter.do_not_specialize
        and not parameter.do_not_specialize_on_alignment
    )


_COUNTS = ("cdiv", "range", "static_range")


@dataclass
class _Uses(ast.NodeVisitor):
    """Names that are more than divisors and the ends of loops."""

    kernel: Any
    names: set[str] = field(default_factory=set)

    def visit_Name(self, node: ast.Name) -> None:
        self.names.add(node.id)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_division = isinstance(node.op, (ast.FloorDiv, ast.Mod))
        for side in (node.left, node.right):
            if not (is_division and isinstance(side, ast.Name)):
                self.visit(side)

    def visit_Call(self, node: ast.Call) -> None:
        inner = _function(self.kernel, node)
        arguments = (
            _arguments(node, inner) if inner else dict(enumerate(ast.iter_child_nodes(node)))
        )
        for name, argument in arguments.items():
            matters = (
                name in specialized_parameters(inner) if inner else _called(node) not in _COUNTS
            )
            if matters or not isinstance(argument, ast.Name):
                self.visit(argument)


def _statements(kernel: Any) -> list[ast.stmt]:
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(kernel.fn))).body
    return function.body if isinstance(function, ast.FunctionDef) else []


def _function(kernel: Any, node: ast.Call) -> Any:
    """The kernel function that a call calls, if it is one: by its name, or in a module."""
    known, function = kernel.fn.__globals__, node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        inner = getattr(known.get(function.value.id), function.attr, None)
    else:
        inner = known.get(_called(node))
    return inner if isinstance(inner, JITFunction) and inner is not kernel else None


def _arguments(node: ast.Call, function: Any) -> dict[str, ast.expr]:
    """Parameters of a kernel function -> what a call passes."""
    positional = dict(zip([p.name for p in function.params], node.args, strict=False))
    return positional | {word.arg: word.value for word in node.keywords if word.arg}


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_descriptor_store(node: ast.Call) -> bool:
    """`descriptor.store(...)`, not `tl.store(...)`."""
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return not (isinstance(owner, ast.Name) and owner.id in ("tl", "triton", "language"))


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - what tells storages apart


def _contiguous_strides(sizes: Sequence[Any]) -> list[Any]:
    """Strides of a contiguous tensor; numbers or symbols."""
    strides: list[Any] = [1] * len(sizes)
    for axis in reversed(range(len(sizes) - 1)):
        strides[axis] = strides[axis + 1] * sizes[axis + 1]
    return strides


def _schema(func: Any) -> Any:
    return func._schema  # noqa: SLF001 - there is no public name


def _operator(func: Any) -> str:
    """`add_` of `aten::add_.Tensor`."""
    return str(_schema(func).name).removeprefix("aten::")


def _is_view(func: Any) -> bool:
    returned = _schema(func).returns
    return bool(returned) and all(
        value.alias_info is not None and not value.alias_info.is_write for value in returned
    )


def _writes(func: Any, position: int) -> bool:
    arguments = _schema(func).arguments
    info = arguments[position].alias_info if position < len(arguments) else None
    return info is not None and info.is_write


def _dtype_name(dtype: Any) -> str:
    names = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
    text = str(dtype).removeprefix("torch.")
    return names.get(text, text)


class Context:
    """What an `autograd.Function` gets as `ctx`."""

    def __init__(self, needs: Sequence[Any]) -> None:
        self.needs_input_grad = needs
        self.saved_tensors: tuple[Any, ...] = ()
        self.materialize_grads = True
        self.non_differentiable: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for the backward pass."""
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Tensors for forward-mode differentiation, which ops do not have."""

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Results without a gradient."""
        self.non_differentiable = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Arguments that the forward pass writes to."""
        self.dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether absent gradients become zeros."""
        self.materialize_grads = value


@contextmanager
def in_place_of_triton(recorder: Recorder, capability: tuple[int, int]) -> Iterator[None]:
    """Triton's launches and Torch's questions about the device are answered by the run."""

    def indexed(kernel: Any, grid: Any) -> Callable[..., None]:
        return lambda *args, **kwargs: recorder.launch(kernel, grid, args, kwargs)

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
        if not warmup:
            recorder.launch(kernel, grid, args, kwargs)

    replaced: list[tuple[Any, str, Any]] = [(torch, "tensor", _tensor)]
    for kind in (JITFunction, Autotuner, Heuristics):
        replaced += [(kind, "__getitem__", indexed), (kind, "run", run)]
    powers, cdiv = triton.next_power_of_2, triton.cdiv
    replaced += [(*place, recorder.symbols.power_of_2) for place in _modules_with(powers)]
    replaced += [(*place, partial(_cdiv, cdiv)) for place in _modules_with(cdiv)]
    answers = _device_answers(recorder.symbols, capability)
    replaced += [(torch.cuda, name, answer) for name, answer in answers.items()]
    replaced += [(torch.Tensor, name, method) for name, method in recorder.methods().items()]
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


def _cdiv(original: Callable[[Any, Any], Any], dividend: Any, divisor: Any) -> Any:
    """`triton.cdiv`, of symbols as well."""
    if isinstance(dividend, torch.SymInt) or isinstance(divisor, torch.SymInt):
        return (dividend + divisor - 1) // divisor
    return original(dividend, divisor)


def _device_answers(symbols: Symbols, capability: tuple[int, int]) -> dict[str, Any]:
    """Functions of `torch.cuda` -> what stands in their place."""
    properties = SimpleNamespace(
        name="GPU", major=capability[0], minor=capability[1], total_memory=80 << 30,
        multi_processor_count=symbols.integer("sm_count()", 1, 1024), warp_size=32,
        max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536,
        shared_memory_per_block_optin=227 << 10, shared_memory_per_block=48 << 10,
        shared_memory_per_multiprocessor=228 << 10, gcnArchName="", L2_cache_size=50 << 20,
        is_integrated=False,
    )  # fmt: skip
    answers = {
        "get_device_properties": properties,
        "get_device_capability": capability,
        "get_device_name": "GPU",
        "current_device": 0,
        "device_count": 1,
        "is_available": True,
        "synchronize": None,
        "set_device": None,
        # Methods that the recorder replaces ask for the device's context first.
        "_lazy_init": None,
    }
    functions = {name: partial(_answered, answer) for name, answer in answers.items()}
    return {**functions, "device": _NoDevice, "device_of": _NoDevice}


def _answered(answer: Any, *_: Any, **__: Any) -> Any:
    return answer


def indexed(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """`tensor[index]` for integers, slices, None and `...`; tensors select elements.

    Torch's own enters the device's context, which is not there.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    dimensions = sum(part is not None and part is not Ellipsis for part in parts)
    if Ellipsis not in parts:
        parts.append(Ellipsis)
    at = parts.index(Ellipsis)
    parts[at : at + 1] = [slice(None)] * (tensor.dim() - dimensions)
    axis, tensors = 0, {}
    for part in parts:
        if part is None:
            tensor = torch.ops.aten.unsqueeze.default(tensor, axis)
        elif isinstance(part, torch.Tensor):
            tensors[axis] = part
        elif isinstance(part, slice):
            if part != slice(None):
                step = 1 if part.step is None else part.step
                tensor = torch.ops.aten.slice.Tensor(tensor, axis, part.start, part.stop, step)
        elif isinstance(part, (int, torch.SymInt)):
            tensor = torch.ops.aten.select.int(tensor, axis, part)
            continue
        else:
            raise CaptureError(f"indexes a tensor with a `{type(part).__name__}`")
        axis += 1
    if tensors:
        indices = [tensors.get(axis) for axis in range(max(tensors) + 1)]
        tensor = torch.ops.aten.index.Tensor(tensor, indices)
    return tensor


def assigned(tensor: torch.Tensor, index: Any, value: Any) -> None:
    """`tensor[index] = value`, for what `indexed` does without tensors."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, torch.Tensor) for part in parts):
        raise CaptureError("assigns to the elements that a tensor selects")
    place = indexed(tensor, index)
    if isinstance(value, torch.Tensor):
        torch.ops.aten.copy_.default(place, value)
    else:
        torch.ops.aten.fill_.Scalar(place, value)


def _tensor(data: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    if not isinstance(data, (bool, int, float, torch.SymInt, torch.SymFloat)):
        raise CaptureError("makes a tensor from data of Python")
    if dtype is None and isinstance(data, (float, torch.SymFloat)):
        dtype = torch.get_default_dtype()
    return torch.full((), data, dtype=dtype, device=device)


class _NoDevice:
    """`torch.cuda.device(...)`."""

    def __init__(self, *_: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def _modules_with(function: Any) -> Iterator[tuple[Any, str]]:
    """Every module that has a function by a name of its own."""
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is function:
                yield module, name


class Needs(Sequence[Any]):
    """`needs_input_grad`: what is asked for becomes a decision of the path."""

    def __init__(self, decide: Callable[[str], bool], count: int, able: Sequence[bool]) -> None:
        self._decide, self._count, self._able = decide, count, able

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(self._count)))
        index = index + self._count if index < 0 else index
        return self._able[index] and self._decide(f"needs_input_grad[{index}]")


@dataclass
class WrapperCall:
    """What a run is made with."""

    function: Any
    """A function, or a class derived from `torch.autograd.Function`."""
    arguments: Sequence[tuple[str, Any]]
    """The author's parameters in order, each with a `TensorArgument` or with a value; a number that
    stays a symbol is the text `int` or `float` in a list of one."""
    bounds: Mapping[str, Bounds]
    files: Sequence[Path]
    """Folders of the author's sources."""
    capability: tuple[int, int] = (9, 0)
    backward: bool = True
    contiguous: set[str] = field(default_factory=set)
    """Tensors that are contiguous in every call: others are refused."""


def traced(
    call: WrapperCall, hints: Mapping[str, int | float], decisions: Mapping[str, bool]
) -> Trace:
    """One run.

    Args:
        call: the function and its arguments.
        hints: an example value for each symbol.
        decisions: answers to questions that are not about sizes.

    Raises:
        CaptureError: the path cannot be captured.
        UnprintableError: an expression has no form in `build.toml`.
    """
    symbols = Symbols(hints)
    recorder = Recorder(symbols, call.files)
    trace = recorder.trace
    forced: set[str] = set()

    def decide(question: str) -> bool:
        if not trace.boundary:
            # The forward op cannot know, and does what it does for tensors with gradients.
            forced.add(question)
        if question in forced:
            return True
        return trace.decisions.setdefault(question, decisions.get(question, True))

    mode = FakeTensorMode(shape_env=symbols.env, allow_non_fake_inputs=True)
    config = symbolic_shapes_config.patch(backed_size_oblivious=True)
    with config, in_place_of_triton(recorder, call.capability), torch.no_grad(), mode:
        values = [_argument(name, value, call, recorder) for name, value in call.arguments]
        try:
            with recorder:
                _run(call, values, recorder, decide)
        except (CaptureError, NeedsContiguous):
            raise
        except GuardOnDataDependentSymNode:
            raise CaptureError("decides on what is in a tensor", recorder.line()) from None
        except Exception as error:  # noqa: BLE001 - the author's code
            place = _place(error, call.files)
            trace.raises, trace.place = f"{type(error).__name__}: {error}", place
    trace.guards, trace.hints = symbols.guards(), dict(symbols.hints)
    return trace


def _run(
    call: WrapperCall, values: list[Any], recorder: Recorder, decide: Callable[[str], bool]
) -> None:
    trace, symbols = recorder.trace, recorder.symbols
    if not (isinstance(call.function, type) and issubclass(call.function, torch.autograd.Function)):
        names = [name for name, _ in call.arguments]
        parameters = inspect.signature(call.function).parameters
        options = {n for n in names if parameters[n].kind is inspect.Parameter.KEYWORD_ONLY}
        known = dict(zip(names, values, strict=True))
        results = call.function(
            *(value for name, value in known.items() if name not in options),
            **{name: value for name, value in known.items() if name in options},
        )
        trace.outputs = _outputs(results, recorder)
        return
    function: Any = call.function
    able = [isinstance(v, torch.Tensor) and v.dtype.is_floating_point for v in values]
    context = Context(Needs(decide, len(values), able))
    if function.setup_context is not torch.autograd.Function.setup_context:
        results = function.forward(*values)
        function.setup_context(context, tuple(values), results)
    else:
        results = function.forward(context, *values)
    trace.outputs = _outputs(results, recorder)
    if not call.backward:
        return
    trace.boundary = {
        "guards": len(symbols.guards()), "steps": len(trace.steps), "buffers": len(trace.buffers),
    }  # fmt: skip
    listed = results if isinstance(results, (tuple, list)) else (results,)
    gradients = [_gradient(at, result, call, recorder) for at, result in enumerate(listed)]
    trace.saved = [recorder.value(tensor) for tensor in context.saved_tensors]
    back = function.backward(context, *gradients)
    trace.gradients = _outputs(back, recorder)
    # Parameters that callers leave out have none.
    trace.gradients += [None] * (len(values) - len(trace.gradients))


def _gradient(
    position: int, result: Any, call: WrapperCall, recorder: Recorder
) -> torch.Tensor | None:
    """The gradient that the backward pass gets for a result."""
    if not isinstance(result, torch.Tensor):
        return None
    name = f"grad_{position}"
    if name in call.contiguous:
        strides = _contiguous_strides(result.shape)
    else:
        strides = [
            recorder.symbols.integer(f"stride({name}, {axis})") for axis in range(result.dim())
        ]
    with recorder.paused():
        gradient = torch.empty_strided(
            tuple(result.shape), strides, dtype=result.dtype, device=result.device
        )
    recorder.enter(name, gradient)
    return gradient


def _outputs(results: Any, recorder: Recorder) -> list[Any]:
    listed = results if isinstance(results, (tuple, list)) else (results,)
    return [recorder.value(result) for result in listed]


def _argument(name: str, value: Any, call: WrapperCall, recorder: Recorder) -> Any:
    symbols = recorder.symbols
    if value == ["int"]:
        return symbols.integer(name, -LARGEST_ARGUMENT, LARGEST_ARGUMENT)
    if value == ["float"]:
        return symbols.number(name)
    if not isinstance(value, TensorArgument):
        return value
    sizes = []
    for text in value.sizes:
        bounds = call.bounds.get(text, Bounds())
        sizes.append(
            int(text) if text.isdigit() else symbols.integer(text, bounds.least, bounds.most)
        )
    if value.contiguous or name in call.contiguous:
        strides = _contiguous_strides(sizes)
    else:
        strides = [
            symbols.integer(f"stride({name}, {axis})", 0, LARGEST_ARGUMENT)
            for axis in reversed(range(len(sizes)))
        ]
        strides.reverse()
    tensor = torch.empty_strided(sizes, strides, dtype=getattr(torch, value.dtype), device="cuda")
    recorder.enter(name, tensor)
    return tensor


LARGEST_ARGUMENT = 2**31 - 1


def _place(error: BaseException, files: Sequence[Path]) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if f.filename.startswith(tuple(str(file) for file in files))]
    last = (mine or list(frames))[-1]
    return f"{last.filename}:{last.lineno}"
