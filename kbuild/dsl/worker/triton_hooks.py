"""Runs the hooks of `@triton.autotune` on recording arguments, to learn what they fill and set."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

_BLOCK = "block_shape"


class HookError(Exception):
    """A hook does something that an op cannot do."""


class ClonedArgument:
    """Result of `clone()`, which a hook may copy back."""

    def __init__(self, argument: HookArgument) -> None:
        self.argument = argument


class HookRecord:
    """The changes that a hook made to arguments."""

    def __init__(self, *, restores: bool) -> None:
        self.fills: dict[str, Any] = {}
        self.blocks: dict[str, list[Any]] = {}
        self.restored: list[str] = []
        self.restores = restores

    def fill(self, name: str, value: Any) -> None:
        """Record that all elements get a value; the last call counts."""
        if isinstance(value, HookArgument):
            raise HookError(f"fills `{name}` with `{value}`, which is known only at run time")
        if not isinstance(value, (bool, int, float)):
            raise HookError(f"fills `{name}` with {value!r}")
        self.fills[name] = value

    def to_json(self) -> dict[str, Any]:
        """JSON object of the record."""
        fills = [[name, _plain(value)] for name, value in self.fills.items()]
        return {"fills": fills, "blocks": [[name, dims] for name, dims in self.blocks.items()]}


class HookArgument:
    """Placeholder for an argument of the kernel: a tensor, a descriptor or a number."""

    def __init__(self, name: str, record: HookRecord, kind: type | None) -> None:
        # Past `__setattr__` of this class, which records what a hook sets.
        object.__setattr__(self, "_own", (name, record, kind))

    def __str__(self) -> str:
        return str(object.__getattribute__(self, "_own")[0])

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Class that `isinstance` sees."""
        return object.__getattribute__(self, "_own")[2] or HookArgument

    def zero_(self) -> HookArgument:
        """See `torch.Tensor.zero_`."""
        return self.fill_(0)

    def fill_(self, value: Any) -> HookArgument:
        """See `torch.Tensor.fill_`."""
        name, record, _ = object.__getattribute__(self, "_own")
        record.fill(name, value)
        return self

    def clone(self) -> ClonedArgument:
        """See `torch.Tensor.clone`."""
        return ClonedArgument(self)

    def copy_(self, source: Any, *_: Any, **__: Any) -> HookArgument:
        """See `torch.Tensor.copy_`; a hook may only restore a clone, as tuning does anyway."""
        name, record, _kind = object.__getattribute__(self, "_own")
        is_own = isinstance(source, ClonedArgument) and str(source.argument) == name
        if not record.restores or not is_own:
            raise HookError(f"copies into `{name}`")
        record.restored.append(name)
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is not Ellipsis and key != slice(None):
            raise HookError(f"writes to parts of `{self}`")
        self.fill_(value)

    def __setattr__(self, attribute: str, value: Any) -> None:
        name, record, _ = object.__getattribute__(self, "_own")
        if attribute != _BLOCK:
            raise HookError(f"sets `{name}.{attribute}`")
        record.blocks[name] = [_size(name, size) for size in value]

    def __getattr__(self, attribute: str) -> Any:
        if attribute == "base":  # a descriptor's tensor
            return self
        raise HookError(f"asks for `{self}.{attribute}`, which is known only at run time")

    def _unknown(self, *_: Any) -> Any:
        raise HookError(f"asks for `{self}`, which is known only at run time")

    # Python looks up special methods on the class only, so `__getattr__` does not see them.
    __bool__ = __len__ = __iter__ = __getitem__ = __call__ = __index__ = __int__ = _unknown
    __float__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _unknown
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _unknown
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __mod__ = __rmod__ = _unknown


def _size(name: str, size: Any) -> Any:
    """A number, or the name of a constant."""
    if type(size) is HookArgument:
        return str(size)
    if isinstance(size, int):
        return int(size)
    raise HookError(f"sets `{name}.{_BLOCK}` to {size!r}")


def _plain(value: Any) -> Any:
    """JSON value of a number; NaN and infinities become text."""
    # The difference is NaN for NaN and infinities, which JSON has no numbers for.
    is_finite = not isinstance(value, float) or value - value == 0
    return value if is_finite else str(value)


def hooks_of(
    tuners: Sequence[Any], configs: Sequence[Any], arguments: Sequence[str]
) -> dict[str, Any]:
    """Describe what the hooks of a function do, as JSON.

    Returns:
        An empty object without hooks; else `configs`, in order, each candidate's hook when
        arguments are tensors, and when they are descriptors; `reset`, fills while tuning;
        `problems`, sentences about hooks that cannot be followed, with their places.
    """
    problems: list[str] = []
    own = [list(_of_config(config, arguments, problems)) for config in configs]
    reset: dict[str, Any] = {}
    for tuner in tuners:
        reset.update(dict.fromkeys(getattr(tuner, "reset_to_zero", None) or (), 0))
        reset.update(_of_tuner(tuner, arguments, problems))
    is_used = any(record["fills"] or record["blocks"] for both in own for record in both)
    if not (is_used or reset or problems):
        return {}
    resets = [[name, _plain(value)] for name, value in reset.items()]
    return {"configs": own, "reset": resets, "problems": list(dict.fromkeys(problems))}


def _of_config(
    config: Any, arguments: Sequence[str], problems: list[str]
) -> Iterator[dict[str, Any]]:
    hook = getattr(config, "pre_hook", None)
    if getattr(config, "ir_override", None):
        problems.append(f"a candidate's `ir_override` is {config.ir_override!r}")
    values = {**config.kwargs, **_options(config)}
    # A hook may ask by `isinstance` whether an argument is a descriptor, so it runs for both cases.
    for kind in (None, _descriptor()):
        record = HookRecord(restores=False)
        if hook is not None:
            hook_arguments = {name: HookArgument(name, record, kind) for name in arguments} | values
            problems += _run("a candidate's `pre_hook`", hook, partial(hook, hook_arguments))
        yield record.to_json()


def _of_tuner(tuner: Any, arguments: Sequence[str], problems: list[str]) -> dict[str, Any]:
    """Fills of the tuner's own hooks."""
    record = HookRecord(restores=True)
    hook_arguments = {name: HookArgument(name, record, None) for name in arguments}
    if getattr(tuner, "user_defined_pre_hook", False):
        problems += _run("`pre_hook`", tuner.pre_hook, partial(tuner.pre_hook, hook_arguments))
    # A copy, since the post-hook gets the same record: it may restore what the pre-hook has cloned.
    filled = dict(record.fills)
    if getattr(tuner, "user_defined_post_hook", False):
        call = partial(tuner.post_hook, hook_arguments, exception=None)
        problems += _run("`post_hook`", tuner.post_hook, call)
        if record.fills != filled:
            problems.append(f"{_place(tuner.post_hook)}: `post_hook` overwrites the result")
    return filled


def _run(what: str, hook: Any, call: Callable[[], object]) -> Iterator[str]:
    """Run a hook; yield a sentence if it cannot be followed."""
    try:
        call()
    except HookError as error:
        yield f"{_place(hook, error)}: {what} {error}"
    except Exception as error:  # noqa: BLE001 - the author's code
        yield f"{_place(hook, error)}: {what} says {type(error).__name__}: {error}"


def _place(hook: Any, error: BaseException | None = None) -> str:
    """Place such as `kernels.py:12`; only the author's files have relative names."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    own = [frame for frame in frames if not Path(frame.filename).is_absolute()]
    if own:
        return f"{own[-1].filename}:{own[-1].lineno}"
    code = getattr(getattr(hook, "func", hook), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "a hook"


def _options(config: Any) -> Mapping[str, Any]:
    all_of = getattr(config, "all_kwargs", None)
    return all_of() if all_of is not None else {}


def _descriptor() -> type | None:
    """Class of descriptors; None in releases that have none."""
    try:
        module = importlib.import_module("triton.tools.tensor_descriptor")
    except ImportError:
        return None
    descriptor_class: type = module.TensorDescriptor
    return descriptor_class
