"""Launches of kernels that were compiled ahead of time: `kernel[grid](...)` calls an op.

kbuild copies this file into packages. It needs Torch and nothing else.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ._launch_values import (
    Constexpr,
    Dtype,
    GluonDescriptor,
    SharedLayout,
    TensorDescriptor,
    TensorWrapper,
    constant_value,
)

_INT32 = (-(2**31), 2**31 - 1)
_MISSING = object()
"""Default value for parameters that a launch must pass."""
OWN_OPTIONS = {"num_ctas": 1, "debug": False, "warmup": False, "ir_override": None}
"""Launch options that have no effect with these values."""


class NotCompiledError(RuntimeError):
    """A launch that no image was compiled for."""


class KernelInterface:
    """Base class of kernels: defines `kernel[grid]`."""

    fn: Any
    arg_names: list[str]

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self.launch, grid)

    def launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch the kernel."""
        raise NotImplementedError

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch with Triton's internal signature; a warm-up does nothing."""
        return None if warmup else self.launch(grid, *args, **kwargs)

    def warmup(self, *_: Any, **__: Any) -> None:
        """Do nothing: the kernel is compiled already."""

    def is_compiled_for(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """True if a launch with these arguments has an image."""
        raise NotImplementedError


class JITFunction(KernelInterface):
    """Function with `@triton.jit` or `@gluon.jit`: a compiled kernel, or a device function."""

    def __init__(self, fn: Callable[..., Any], package: Any) -> None:
        self.fn, self._package = fn, package
        functools.update_wrapper(self, fn)
        self.__name__: str = fn.__name__
        self.signature = inspect.signature(fn)
        self.arg_names = list(self.signature.parameters)
        self.source = fn.__globals__.get("__kbuild_source__", fn.__module__)
        self.table = package.functions.get((self.source, fn.__name__))
        self._key_of: Any = None

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raise an error, as Triton does."""
        raise RuntimeError(
            f"`{self.__name__}` is a kernel: launch it, `{self.__name__}[grid](...)`"
        )

    def launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Generate `launch` on the first launch; it replaces this method."""
        self._prepare()
        return self.launch(grid, *args, **kwargs)

    def is_compiled_for(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """See `KernelInterface.is_compiled_for`."""
        self._prepare()
        bound = self._bound(args, kwargs)
        return self._find(*bound) is not None

    def _prepare(self) -> None:
        if self._key_of is None:
            launcher = LaunchSource(self)
            namespace = launcher.executed()
            self._key_of, self._known = namespace["key_of"], launcher.known
            self.__dict__["launch"] = namespace["launch"]

    def _bound(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The kernel's arguments with defaults, as plain values, and the launch options."""
        names = self.arg_names
        own = {name: value for name, value in kwargs.items() if name in names}
        options = {name: value for name, value in kwargs.items() if name not in names}
        bound = self.signature.bind(*args, **own)
        bound.apply_defaults()
        values = {name: plain(value) for name, value in bound.arguments.items()}
        options |= {name: values[name] for name in self.table_options & values.keys()}
        return values, {
            name: plain(value)
            for name, value in options.items()
            if value is not None and OWN_OPTIONS.get(name, ...) != value
        }

    @functools.cached_property
    def table_options(self) -> set[str]:
        """Launch options that some image was compiled with."""
        launches = self.table["launches"] if self.table else ()
        return {name for launch in launches for name in launch["options"]}

    def _find(self, values: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        if options.keys() - self.table_options:
            return None
        own = {name: value for name, value in options.items() if name not in self.arg_names}
        try:
            return self._known.get(self._key_of(*values.values(), **own))
        except (TypeError, AttributeError):
            return None

    def launch_slowly(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Launch with unusual arguments: normalise them, or use Triton if no image fits.

        Raises:
            NotCompiledError: no image fits, and Triton is not available or not allowed.
        """
        if any(value is _MISSING for value in args):
            raise TypeError(f"`{self.__name__}` is launched without one of its arguments")
        self._prepare()
        values, options = self._bound(args, kwargs)
        if self._find(values, options) is None:
            if self._package.is_covered:
                self._package.report_missing(self._refusal(values, options).partition("\n")[0])
            if self._package.is_jit(self.source) and self._package.has_triton():
                return self._package.jitted(self)[grid](*map(_for_triton, args), **{
                    name: _for_triton(value) for name, value in kwargs.items()
                })  # fmt: skip
            raise NotCompiledError(self._refusal(values, options))
        own = {name: value for name, value in options.items() if name not in self.arg_names}
        return self.launch(grid, *values.values(), **own)

    def _refusal(self, values: Mapping[str, Any], options: Mapping[str, Any]) -> str:
        code = self.fn.__code__
        arguments = [f"{name}: {_described(value)}" for name, value in values.items()]
        arguments += [f"{n}={v!r}" for n, v in options.items() if n not in values]
        jit = self._package.is_jit(self.source)
        return (
            f"`{self.__name__}` ({self.source}:{code.co_firstlineno}) was not compiled for this "
            f"launch: {', '.join(arguments)}\n"
            "hint: run `kbuild capture --record -- COMMAND` with a command that makes this call, "
            f"and build again{'; or install Triton, which then compiles it' if jit else ''}"
        )


def plain(value: Any) -> Any:
    """Normalise a value for looking up images."""
    if isinstance(value, Constexpr):
        return value.value
    if isinstance(value, TensorWrapper):
        return value.tensor
    kind = value.__class__
    if kind in (bool, int, float, str) or value is None or isinstance(value, Dtype):
        return value
    if isinstance(value, bool | int | float):  # numpy's float64 and the like
        return float(value) if isinstance(value, float) else int(value)
    if hasattr(value, "__index__") and not hasattr(value, "data_ptr"):
        return int(value)
    return value


def _described(value: Any) -> str:
    if isinstance(value, TensorDescriptor):
        return f"a descriptor of {str(value.base.dtype).rpartition('.')[2]} {value.block_shape}"
    if hasattr(value, "data_ptr"):
        return str(value.dtype).rpartition(".")[2]
    return f"{value!r}"


def _for_triton(value: Any) -> Any:
    """Convert a stand-in to Triton's own value."""
    if isinstance(value, Constexpr):
        return value.value
    triton = importlib.import_module("triton")
    if isinstance(value, Dtype):
        return triton.language.dtype(value.name)
    if isinstance(value, TensorDescriptor):
        described = (value.base, value.shape, value.strides, value.block_shape)
        if isinstance(value, GluonDescriptor):
            kind = importlib.import_module("triton.experimental.gluon.nvidia.hopper")
            layout = importlib.import_module("triton.experimental.gluon.language")
            own = layout.NVMMASharedLayout(**vars(value.layout))
            return kind.TensorDescriptor(*described, own, value.padding)
        kind = importlib.import_module("triton.tools.tensor_descriptor")
        return kind.TensorDescriptor(*described, value.padding)
    return value.tensor if isinstance(value, TensorWrapper) else value


SCALARS: dict[str, Any] = {"int": int, "float": float, "bool": bool, "none": None}


class LaunchSource:
    """Generates the Python source of a kernel's launches: one lookup, one call of an op.

    A kernel's table has `launches`, each with `arguments` (parameter -> `*float16`, `int`, `int64`,
    `float`, `bool`, `none`, or a descriptor), `constants`, `options`, and the `op` and `form` that
    launch it.
    """

    def __init__(
        self, function: JITFunction, heuristics: Mapping[str, Callable[..., Any]] | None = None
    ) -> None:
        self.function, self.heuristics = function, heuristics or {}
        self.launches = function.table["launches"] if function.table else ()
        self.options = sorted(function.table_options)
        self.constants = [
            name
            for name in function.arg_names
            if any(name in launch["constants"] for launch in self.launches)
        ]
        self.layouts = list(dict.fromkeys(tuple(self._passed(launch)) for launch in self.launches))
        """Argument lists of the ops: names, and True for a descriptor."""
        self.known: dict[Any, tuple[int, Any, int]] = {}

    @staticmethod
    def _passed(launch: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
        for name, kind in launch["arguments"].items():
            if kind != "none":
                yield name, isinstance(kind, Mapping)

    def executed(self) -> dict[str, Any]:
        """Execute the source; return its namespace with `launch` and `key_of`."""
        package = self.function._package  # noqa: SLF001 - of this module
        for launch in self.launches:
            layout = self.layouts.index(tuple(self._passed(launch)))
            op = package.op(launch["op"])
            self.known[self._key(launch)] = (layout, op, launch["form"])
        parameters = self.function.signature.parameters.values()
        defaults = {f"_default_{p.name}": p.default for p in parameters if p.default is not p.empty}
        namespace = {
            "_known": self.known.get,
            "_slow": self.function.launch_slowly,
            "_kind": _argument_kind,
            "_missing": _MISSING,
            **{f"_heuristic_{name}": value for name, value in self.heuristics.items()},
            **defaults,
        }
        code = compile(self.text(), f"<launch of {self.function.__name__}>", "exec")
        exec(code, namespace)  # noqa: S102
        return namespace

    def _key(self, launch: Mapping[str, Any]) -> tuple[Any, ...]:
        """Key of a launch, equal to the one that the source computes."""
        key: list[Any] = []
        for name in self.function.arg_names:
            if name in self.constants:
                value = constant_value(launch["constants"].get(name))
                key.append(value)
                if self._is_ambiguous(name):
                    key.append(value.__class__)
            else:
                key.append(_kind_value(launch["arguments"][name]))
        own = [name for name in self.options if name not in self.function.arg_names]
        return (*key, *(launch["options"].get(name) for name in own))

    def _is_ambiguous(self, name: str) -> bool:
        """True if a constant equals values of other types: `1`, `True` and `1.0`."""
        values = [constant_value(launch["constants"].get(name)) for launch in self.launches]
        return any(isinstance(value, float) or value in (0, 1) for value in values)

    def _key_parts(self) -> Iterator[str]:
        for name in self.function.arg_names:
            if name in self.constants:
                yield name
                if self._is_ambiguous(name):
                    yield f"{name}.__class__"
            else:
                yield self._kind_source(name)
        yield from (name for name in self.options if name not in self.function.arg_names)

    def _kind_source(self, name: str) -> str:
        """Expression for the kind of an argument; the fastest one that tells the images apart."""
        kinds = {
            "descriptor" if isinstance(launch["arguments"][name], Mapping)
            else "*" if launch["arguments"][name].startswith("*")
            else launch["arguments"][name]
            for launch in self.launches
        }  # fmt: skip
        if kinds == {"*"}:
            return f"{name}.dtype"
        if kinds <= {"*", "none"}:
            return f"None if {name} is None else {name}.dtype"
        if kinds <= {"int", "float", "bool"}:
            return f"{name}.__class__"
        return f"_kind({name})"

    def text(self) -> str:
        """Source of `launch(_kb_grid, <parameters>, *, <options>)` and `key_of(...)`."""
        names = self.function.arg_names
        own = [name for name in self.options if name not in names]
        parameters = [*self._parameters()]
        parameters += ["*", *(f"{name}=None" for name in own)] if own else []
        meta = f"{{{_items((*names, *own))}}}"
        computed = [
            f"    {name} = _kb_known[{name!r}] = _heuristic_{name}(_kb_known)\n"
            for name in self.heuristics
        ]
        calls = []
        for at, layout in enumerate(self.layouts):
            passed = "".join(
                f"{name}.tensor(), " if is_descriptor else f"{name}, "
                for name, is_descriptor in layout
            )
            test = f"if _kb_layout == {at}: " if at < len(self.layouts) - 1 else ""
            calls.append(f"    {test}return _kb_op(_kb_form, {passed}_kb_x, _kb_y, _kb_z)\n")
        return _LAUNCH_SOURCE.format(
            parameters="".join(f"{parameter}, " for parameter in parameters),
            key="".join(f"{part}, " for part in self._key_parts()),
            again=f"return _slow(_kb_grid, ({', '.join(names)},), {{{_items(own)}**_kb_others}})",
            heuristics=f"    _kb_known = {meta}\n{''.join(computed)}" if computed else "",
            meta=meta,
            calls="".join(calls),
        )

    def _parameters(self) -> Iterator[str]:
        """Parameters of `launch`; those that heuristics compute are optional, as all after them."""
        is_optional = False
        for parameter in self.function.signature.parameters.values():
            name = parameter.name
            if name in self.heuristics:
                is_optional = True
                yield f"{name}=None"
            elif parameter.default is not parameter.empty:
                yield f"{name}=_default_{name}"
            else:
                yield f"{name}=_missing" if is_optional else name


_LAUNCH_SOURCE = """\
def key_of({parameters}):
    return ({key})


def launch(_kb_grid, /, {parameters}**_kb_others):
{heuristics}    if _kb_others:
        {again}
    try:
        _kb_found = _known(({key}))
    except (AttributeError, TypeError):
        _kb_found = None
    if _kb_found is None:
        {again}
    _kb_layout, _kb_op, _kb_form = _kb_found
    if _kb_grid.__class__ is not tuple:
        if callable(_kb_grid):
            _kb_grid = _kb_grid({meta})
        if _kb_grid.__class__ is not tuple:
            _kb_grid = (_kb_grid,) if _kb_grid.__class__ is int else tuple(_kb_grid)
    _kb_x, _kb_y, _kb_z = (_kb_grid[0], 1, 1) if len(_kb_grid) == 1 else (*_kb_grid, 1, 1)[:3]
{calls}"""


def _items(names: Sequence[str]) -> str:
    """Items of a dict display: `'a': a, ` for each name."""
    return "".join(f"{name!r}: {name}, " for name in names)


def _argument_kind(value: Any) -> Any:
    """Kind of an argument that images are compiled for, if it has several."""
    kind = value.__class__
    if kind is int:
        return int if _INT32[0] <= value <= _INT32[1] else "int64"
    if value is None or kind in (float, bool):
        return None if value is None else kind
    if kind in (TensorDescriptor, GluonDescriptor):
        return value.key()
    return value.dtype


def _kind_value(kind: Any) -> Any:
    """Kind of an argument in a table, as `_argument_kind` returns it."""
    import torch

    if isinstance(kind, Mapping):
        block, layout = tuple(kind["block"]), kind.get("layout")
        key = ("descriptor", getattr(torch, kind["tensor"]), block, kind.get("padding", "zero"))
        return key if layout is None else (*key, *SharedLayout(**layout, element_bitwidth=0).key())
    if kind.startswith("*"):
        return getattr(torch, kind[1:])
    return SCALARS.get(kind, kind)
