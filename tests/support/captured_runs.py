"""Runs of wrappers as the worker of `kbuild capture` reports them, written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.plugins.capture.conditions import question_of
from kbuild.plugins.capture.programs import Configuration, Path


def tensor(
    name: str,
    sizes: Sequence[str] = ("M", "N"),
    strides: Sequence[str] = (),
    dtype: str = "float16",
    offset: str = "0",
) -> dict[str, Any]:
    """A tensor of a run; contiguous without strides."""
    return {"tensor": name, **shape(sizes, strides, dtype), "offset": offset}


def shape(sizes: Sequence[str], strides: Sequence[str], dtype: str) -> dict[str, Any]:
    rows = [" * ".join(sizes[at + 1 :]) or "1" for at in range(len(sizes))]
    return {"sizes": [*sizes], "strides": [*(strides or rows)], "dtype": dtype}


def argument(name: str, sizes: Sequence[str] = ("M", "N"), dtype: str = "float16") -> Any:
    """A tensor argument with strides of its own."""
    return tensor(name, sizes, [f"stride({name}, {at})" for at in range(len(sizes))], dtype)


def buffer(
    name: str,
    sizes: Sequence[str] = ("M", "N"),
    line: str = "a.py:1",
    dtype: str = "float16",
    **more: Any,
) -> dict[str, Any]:
    return {"name": name, "line": line, **shape(sizes, (), dtype), "offset": "0", **more}


def launch(
    arguments: Mapping[str, Any],
    *,
    constants: Mapping[str, Any] | None = None,
    options: Mapping[str, int] | None = None,
    written: Sequence[str] = ("out_ptr",),
    line: str = "a.py:2",
    autotune: Sequence[str] = (),
    key: Sequence[str] | None = None,
) -> dict[str, Any]:
    """A launch of the kernel `k`; `autotune` are constants that its own candidates set."""
    return {
        "launch": "k",
        "file": "a.py",
        "arguments": dict(arguments),
        "constants": {name: value_of(value) for name, value in (constants or {}).items()},
        "options": {name: value_of(value) for name, value in (options or {}).items()},
        "autotune": [*autotune],
        "key": None if key is None else [*key],
        "written": [*written],
        "grid": ["M"],
        "line": line,
    }


def value_of(value: Any) -> Any:
    """A number, or the text of an expression of integers."""
    if isinstance(value, bool):
        return {"bool": str(value)}
    return value if value is None or isinstance(value, Mapping) else {"int": str(value)}


def path(
    steps: Sequence[Any],
    buffers: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    guards: Sequence[str] = (),
    *,
    answers: Sequence[tuple[str, bool]] = (),
    raises: str = "",
    **dtypes: str,
) -> Path:
    """A path; `dtypes` of its arguments are float16 where they are not stated."""
    known = tuple(answers)
    questions = (*known, *map(question_of, guards))
    configuration = Configuration(dtypes or {"x": "float16"}, known)
    hints = {"M": 5, "N": 7}
    return Path(configuration, questions, steps, buffers, outputs, hints, raises, "a.py:9")
