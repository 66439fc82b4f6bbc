"""Calls the ops of one loaded kernel on small tensors, and looks at how they are registered.

Used by `load_probe.py`, in the same process. Inputs are made up from each op's schema: a few
shapes, float32 from -1 to 1, small numbers. A kernel owes nothing to made-up inputs but to survive
them: an exception is an answer, the end of the process is not.
"""

from __future__ import annotations

import faulthandler
import importlib
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

torch: Any = importlib.import_module("torch")
FakeTensorMode: Any = importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode

SHAPES = ((4, 4), (8,), (2, 2, 4, 4))
TRACED = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
"""Kernels under these keys run without data."""
Tell = Callable[[str], None]


# No `Exception`: those count as answers of the op that is called.
class UnsupportedOpArgumentError(BaseException):
    """The schema asks for something that cannot be made up."""


def op_names() -> set[str]:
    """Every op of this process, as `namespace::name` or `namespace::name.overload`."""
    return set(torch._C._dispatch_get_all_op_names())


def report(namespace: str, backend: dict[str, Any], limit_s: float, tell: Tell) -> dict[str, Any]:
    """Describe each op of a namespace, and call it.

    Args:
        namespace: the kernel's own.
        backend: the facts of the variant's; ops are called for the CPU only, others' are traced.
        limit_s: seconds after which a call hangs; the process ends then.
        tell: gets a few words about each call before it is made.
    """
    names = sorted(name for name in op_names() if name.startswith(f"{namespace}::"))
    return {name.partition("::")[2]: _about(name, backend, limit_s, tell) for name in names}


def _about(name: str, backend: dict[str, Any], limit_s: float, tell: Tell) -> dict[str, Any]:
    bare = name.partition("::")[2]
    op = _find(name)
    if op is None:
        return {"schema": None}
    key = backend["dispatch_key"]
    has = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    about = {"schema": str(op._schema), "kernel": not key or has(name, key)}
    if not any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in TRACED):
        about["fake"] = {"skipped": "no fake kernel is registered"}
    else:
        tell(f"the fake kernel of `{bare}`")
        with FakeTensorMode():
            about["fake"] = _tried(op, limit_s)
    if backend["runs_on_cpu"] and about["kernel"]:
        tell(f"`{bare}`")
        about["call"] = _tried(op, limit_s)
    return about


def _find(name: str) -> Any:
    """The overload of that name; None when it has kernels but no schema."""
    namespace, _, rest = name.partition("::")
    bare, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), bare), overload or "default")
    except AttributeError:
        return None


def _tried(op: Any, limit_s: float) -> dict[str, Any]:
    """The first answer that is no exception, else the last exception."""
    faulthandler.dump_traceback_later(limit_s, exit=True)
    reason = ""
    try:
        for shape in SHAPES:
            try:
                positional, named = _arguments(op._schema, shape)
                results = op(*positional, **named)
            except Exception as error:  # noqa: BLE001 - a kernel may refuse as it likes
                reason = _first_line(error)
            else:
                arguments = [*positional, *named.values()]
                return {"given": list(shape), "shapes": _shapes([results, arguments])}
    except UnsupportedOpArgumentError as error:
        return {"skipped": f"no test value can be made for {error}"}
    finally:
        faulthandler.cancel_dump_traceback_later()
    return {"refused": reason}


def _arguments(schema: Any, shape: tuple[int, ...]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments; what has a default is left out."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for at, argument in enumerate(schema.arguments):
        if argument.has_default_value():
            continue
        if at == len(positional) and not argument.kwarg_only:
            positional.append(_value(argument, shape))
        else:
            named[argument.name] = _value(argument, shape)
    return positional, named


def _value(argument: Any, shape: tuple[int, ...]) -> Any:
    written = argument.alias_info is not None and argument.alias_info.is_write
    make = torch.zeros if written else _ramp
    value = _of_kind(str(argument.type), lambda: make(shape), argument.name)
    return value * (argument.N or 1) if isinstance(value, list) else value


def _ramp(shape: tuple[int, ...]) -> Any:
    """Numbers of float32 from -1 to 1."""
    return torch.linspace(-1, 1, prod(shape)).reshape(shape)


def _of_kind(kind: str, tensor: Callable[[], Any], name: str) -> Any:
    simple = {"int": 1, "SymInt": 1, "float": 1.0, "number": 1, "Scalar": 1, "bool": False}
    if kind == "Tensor":
        return tensor()
    if kind in simple:
        return simple[kind]
    if kind.startswith("Optional["):
        return None
    if kind.startswith("List["):
        return [_of_kind(kind[len("List[") : -1], tensor, name)]
    if kind == "Device":
        return torch.device("cpu")
    raise UnsupportedOpArgumentError(f"`{kind} {name}`")


def _shapes(values: Any) -> list[list[Any]]:
    """Kind and sizes of all tensors."""
    return [[str(tensor.dtype), *map(_size, tensor.shape)] for tensor in _tensors(values)]


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _size(size: Any) -> int | str:
    return size if type(size) is int else "?"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
