"""What a case of the fuzz is: an op's arguments, and what it should do with them."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu.semantics.drawing import Draw


@dataclass(frozen=True)
class Call:
    """One call of an op, and the same thing done by its language or by Torch."""

    args: tuple[Any, ...]
    reference: Callable[..., Any]
    """Takes copies of the arguments; returns what the op returns."""
    tolerance: float | None = None
    """How far results may be apart, relative to the expected ones; None compares every bit."""
    any_nan: bool = False
    """Every NaN is the same, where Torch and the device choose different ones."""


CASES: dict[str, Callable[[Draw], Call]] = {}
"""`<language>.<op>` -> how a call of it is drawn."""
HUGE: dict[str, Callable[[], Call]] = {}
"""`<language>.<op>: <what>` -> a call with more elements than 32 bits count."""


def case(language: str) -> Callable[[Callable[[Draw], Call]], Callable[[Draw], Call]]:
    """The function draws calls of the op with its name."""

    def add(function: Callable[[Draw], Call]) -> Callable[[Draw], Call]:
        CASES[f"{language}.{function.__name__}"] = function
        return function

    return add


def huge(name: str) -> Callable[[Callable[[], Call]], Callable[[], Call]]:
    """The function makes one call that needs several GB."""

    def add(function: Callable[[], Call]) -> Callable[[], Call]:
        HUGE[name] = function
        return function

    return add


@functools.cache
def source(language: str) -> Any:
    """The module with a language's kernels, for the DSL itself."""
    name = f"semantics_{language}"
    path = Path(__file__).parent / "projects" / language / name / "kernels.py"
    spec = importlib.util.spec_from_file_location(f"{name}_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def random_bytes(*shape: int) -> Any:
    """A tensor of int8 on the GPU."""
    import torch

    return torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")


def cdiv(a: int, b: int) -> int:
    return -(-a // b)
