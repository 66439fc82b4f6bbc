"""Describes a call of `cute.compile` as JSON: the callable, and what it is compiled for.

The recorder describes calls with CuTe DSL, the package with its own stand-ins, and equal
descriptions mean the same compiled function. Values are therefore recognised by their classes'
names and attributes alone.
"""

# ruff: noqa: SLF001 - attributes of the DSL's values
from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbuild.plugins.capture.cute._launch_factories import Factories

_CONSTANT = "Constexpr"


class UndescribedError(Exception):
    """A value that no later process could make again."""


class CompilationDescriber:
    """Describes one call of `cute.compile`."""

    def __init__(self, author_module: Callable[[str], str], factories: Factories) -> None:
        """`author_module` gives the author's name of a module; empty for others."""
        self._author_module, self._factories = author_module, factories
        self._symbols: list[Any] = []
        """The symbolic integers so far: one that occurs twice is the same number."""

    def call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the description of a call.

        Raises:
            UndescribedError: it cannot be described.
        """
        parameters = [*inspect.signature(_python_function(function)).parameters.values()]
        if not isinstance(function, (FunctionType, MethodType)):
            parameters = parameters[1:]
        kinds = {parameter.name: parameter.annotation for parameter in parameters}
        positional = [*kinds.values(), *([None] * len(args))]
        described: dict[str, Any] = {"callable": self.value(function)}
        described["arguments"] = [
            self.argument(value, kind) for value, kind in zip(args, positional, strict=False)
        ]
        if kwargs:
            described["keywords"] = {
                name: self.argument(value, kinds.get(name))
                for name, value in sorted(kwargs.items())
            }
        return described

    def argument(self, value: Any, annotation: Any) -> Any:
        """Describe an argument: a number that is no constant only by its type."""
        if _CONSTANT in str(annotation):
            return self.value(value)
        if isinstance(value, (bool, int, float)) and not isinstance(value, enum.Enum):
            return {"number": type(value).__name__}
        if _is_dtype(type(value)):
            return {"number": type(value).__name__}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            kinds = getattr(type(value), "__annotations__", {})
            items = [
                self.argument(each, kinds.get(name))
                for name, each in zip(value._fields, value, strict=True)
            ]
            return {"namedtuple": self._name(type(value)), "items": items}
        if isinstance(value, (tuple, list)):
            items = [self.argument(item, None) for item in value]
            return items if isinstance(value, tuple) else {"list": items}
        return self.value(value)

    def value(self, value: Any) -> Any:
        """Describe a value that is known when the function is compiled.

        Raises:
            UndescribedError: it cannot be described.
        """
        if value is None or type(value) in (bool, int, float, str):
            return value
        if call := self._factory_call(value):
            return call
        ways = (self._name_of_module, self._container, self._argument_value, self._function)
        for describe in (*ways, self._object):
            described = describe(value)
            if described is not None:
                return described
        raise UndescribedError(f"a {type(value).__module__}.{type(value).__qualname__}")

    def _factory_call(self, value: Any) -> dict[str, Any] | None:
        """Describe the call of an author's factory that returned the value; None for others."""
        call = self._factories.call_of(value)
        if call is None:
            return None
        keywords = {name: self.value(each) for name, each in sorted(call.kwargs.items())}
        items = [self.value(item) for item in call.args]
        return {"call": call.function, "items": items, "keywords": keywords}

    def _name_of_module(self, value: Any) -> Any:
        """Describe a class, a dtype or a member of an enumeration; None for other values."""
        if isinstance(value, enum.Enum):
            module = self._author_module(type(value).__module__)
            owner = f"{module}:{type(value).__qualname__}" if module else type(value).__name__
            return {"enum": f"{owner}.{value.name}"}
        if isinstance(value, type):
            if "_kbuild_path" in vars(value):  # the package's stand-in for a name of the DSL
                return {"enum": vars(value)["_kbuild_path"]}
            return {"dtype": value.__name__} if _is_dtype(value) else {"class": self._name(value)}
        is_dtype = type(value).__name__ == "dtype" and str(value).startswith("torch.")
        return {"torch": str(value).partition(".")[2]} if is_dtype else None

    def _object(self, value: Any) -> Any:
        kind = type(value)
        if self._author_module(kind.__module__):
            name = {"object": self._name(kind)}
        elif dataclasses.is_dataclass(kind) and kind.__module__.partition(".")[0] == "cutlass":
            name = {"dsl": kind.__name__}
        else:
            return None
        attributes = {name: self.value(each) for name, each in _attributes(value)}
        return {**name, "attributes": attributes}

    def _container(self, value: Any) -> Any:
        if isinstance(value, tuple):
            items = [self.value(item) for item in value]
            named = hasattr(value, "_fields")
            return {"namedtuple": self._name(type(value)), "items": items} if named else items
        if isinstance(value, list):
            return {"list": [self.value(item) for item in value]}
        if isinstance(value, dict):
            return {"dict": [[self.value(key), self.value(each)] for key, each in value.items()]}
        return None

    def _argument_value(self, value: Any) -> Any:
        """Describe a value of the DSL's that an argument can be; None for others."""
        kind = type(value).__name__
        if _is_dtype(type(value)):
            return {"number": kind, "value": value.value}
        own = {
            "SymInt": self._symbol,
            "_FakeTensor": self._fake_tensor,
            "_Tensor": self._dynamic_tensor,
        }
        if kind in own:
            return own[kind](value)
        if kind == "_Pointer":
            align, space = value._assumed_align, value.memspace.name
            return {"pointer": value.dtype.__name__, "memory": space, "align": align}
        if kind not in ("_FakeStream", "CUstream"):
            return None
        is_current = kind == "_FakeStream" and value.use_tvm_ffi_env_stream
        return {"stream": "current" if is_current else "argument"}

    def _fake_tensor(self, value: Any) -> dict[str, Any]:
        described = {
            "tensor": value.element_type.__name__,
            "shape": [self.value(size) for size in value.shape],
            "strides": [self.value(stride) for stride in value.stride],
            "align": value._assumed_align or max(1, value.element_type.width // 8),
        }
        more = {"memory": value.memspace.name} if value.memspace.name != "gmem" else {}
        narrow = {"stride_bits": 32} if value._use_32bit_stride else {}
        return {**described, **more, **narrow}

    def _dynamic_tensor(self, value: Any) -> dict[str, Any]:
        """Describe a tensor from `from_dlpack`: its sizes and strides are numbers, or any."""
        masks = value.dynamic_shapes_mask, value.dynamic_strides_mask
        shape, strides = (
            [None if is_any else int(number) for number, is_any in zip(numbers, mask, strict=True)]
            for numbers, mask in zip((value.shape, value.stride), masks, strict=True)
        )
        if hasattr(value, "_kbuild_compact"):
            shape, strides = _compact_layout(value, shape)
        align = value._assumed_align or max(1, value.element_type.width // 8)
        bits = {"stride_bits": 32} if value._use_32bit_stride else {}
        described = {"dlpack": value.element_type.__name__, "shape": shape, "strides": strides}
        return {**described, "align": align, **bits}

    def _symbol(self, value: Any) -> dict[str, Any]:
        known = [at for at, symbol in enumerate(self._symbols) if symbol is value]
        if known:
            return {"symbol": known[0]}
        self._symbols.append(value)
        bits = {"bits": value.width} if value.width != 32 else {}  # noqa: PLR2004
        divisor = {"divisor": value.divisibility} if value.divisibility != 1 else {}
        return {"symbol": len(self._symbols) - 1, **bits, **divisor}

    def _function(self, value: Any) -> Any:
        if isinstance(value, functools.partial):
            keywords = {name: self.value(each) for name, each in sorted(value.keywords.items())}
            items = [self.value(item) for item in value.args]
            return {"partial": self.value(value.func), "items": items, "keywords": keywords}
        if isinstance(value, MethodType):
            return {"method": value.__name__, "of": self.value(value.__self__)}
        return {"function": self._name(value)} if isinstance(value, FunctionType) else None

    def _name(self, value: Any) -> Any:
        """Name of a class or function of the author's, such as `my.ops:Softmax`, or its factory."""
        module = self._author_module(value.__module__)
        if not module:
            raise UndescribedError(f"`{value.__module__}.{value.__qualname__}`, not of these files")
        if call := self._factory_call(value):
            return call
        if owner := self._factories.owner_of(value):
            return {"attribute": owner[1], "of": self.value(owner[0])}
        if not _is_at_its_name(value):
            raise UndescribedError(f"`{value.__qualname__}`, which none of the `factories` made")
        return f"{module}:{value.__qualname__}"


def mark_compact(
    tensor: Any, mode: int, stride_order: Sequence[int] | None = None, divisibility: int = 1
) -> None:
    """Remember `mark_compact_shape_dynamic`, which attributes of the DSL's tensors do not show."""
    known = getattr(tensor, "_kbuild_compact", {})
    tensor._kbuild_compact, tensor._kbuild_order = {**known, mode: divisibility}, stride_order


def _compact_layout(tensor: Any, shape: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The sizes of a tensor without gaps, and strides as they follow from sizes that may be any."""
    divisors: Mapping[int, int] = tensor._kbuild_compact
    inner_first = sorted(range(len(shape)), key=lambda at: (tensor.stride[at], tensor.shape[at]))
    if tensor._kbuild_order is not None:
        inner_first = [*reversed(tensor._kbuild_order)]
    sizes, strides = [*shape], [*tensor.stride]
    product, is_any = 1, False
    for at in inner_first:
        strides[at] = _any(product) if is_any else product
        if at in divisors or shape[at] is None:
            sizes[at], is_any = _any(divisors.get(at, 1)), True
        product *= divisors.get(at, shape[at] or 1)
    return sizes, strides


def _any(divisor: int) -> Any:
    """Describe a number that may be any multiple of another one."""
    return {"divisibility": divisor} if divisor != 1 else None


def _is_at_its_name(value: Any) -> bool:
    """True if the module of a class or function has it under its name."""
    named: Any = sys.modules[value.__module__]
    for name in value.__qualname__.split("."):
        named = getattr(named, name, None)
    return named is not None


def _is_dtype(kind: type) -> bool:
    """True for `cutlass.Float16` and the like."""
    return any(base.__name__ == "NumericMeta" for base in type.mro(type(kind)))


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object, sorted; those that a cached property has computed are none."""
    for name, each in sorted(vars(value).items()):
        computed = inspect.getattr_static(type(value), name, None)
        if not isinstance(computed, functools.cached_property):
            yield name, each


def _python_function(function: Any) -> Any:
    """The function whose parameters are those of a call, `self` included for an object's class."""
    if isinstance(function, (FunctionType, MethodType, functools.partial)):
        return function
    return type(function).__call__
