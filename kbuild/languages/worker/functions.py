"""What a Triton source says of its kernel functions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_AMD_OPTIONS = ("waves_per_eu", "matrix_instr_nonkdim", "kpack")
_UNSET: dict[str, Any] = {"num_ctas": 1, "maxnreg": None}
"""Options that say nothing with these values."""


class UnknownError(Exception):
    """A function of the author's asks for what only a call knows."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Known(dict[str, Any]):
    """Arguments as far as they are known when a function is compiled."""

    def __missing__(self, name: str) -> Any:
        raise UnknownError(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Refuse to guess, unlike a dictionary."""
        del default
        return self[name]


class TensorStandin:
    """A tensor where a call is not known: it is there, and that is all."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise UnknownError(f"{self._name}.{name}")


class Kernel:
    """A function with what is wrapped around it."""

    def __init__(self, name: str, outer: Any) -> None:
        self.name = name
        self.tuners: list[Any] = []
        self.heuristics: list[Mapping[str, Any]] = []
        while not is_plain(outer):
            if hasattr(outer, "configs"):
                self.tuners.append(outer)
            elif hasattr(outer, "values"):
                self.heuristics.append(outer.values)
            outer = outer.fn
        self.jit = outer

    @property
    def computed(self) -> list[str]:
        """Constants that `@triton.heuristics` gives."""
        return [name for values in self.heuristics for name in values]

    def describe(self) -> dict[str, Any]:
        """The function as JSON."""
        candidates, notes = self._candidates()
        return {
            "name": self.name,
            "parameters": [_parameter(one) for one in self.jit.params],
            "candidates": candidates,
            "key": [name for tuner in self.tuners for name in tuner.keys],
            "computed": self.computed,
            "notes": notes,
        }

    def _candidates(self) -> tuple[list[dict[str, Any]], list[str]]:
        found: list[dict[str, Any]] = []
        notes: list[str] = []
        for tuner in self.tuners:
            configs, said = _pruned(tuner)
            notes += said
            for config in configs:
                candidate, said = self._candidate(config)
                notes += [note for note in said if note not in notes]
                if candidate not in found:
                    found.append(candidate)
        return found, notes

    def _candidate(self, config: Any) -> tuple[dict[str, Any], list[str]]:
        constants, options, notes = {}, {}, []
        for name, value in config.kwargs.items():
            if not isinstance(value, (bool, int, float, str)):
                notes.append(f"`{self.name}` has a candidate with {name} = {value!r}: left out")
            elif name in _AMD_OPTIONS and name not in self.jit.arg_names:
                options[name] = value
            else:
                constants[name] = value
        for name in _OPTIONS:
            value = getattr(config, name, None)
            if value is not None and value != _UNSET.get(name, ()):
                options[name] = value
        if config.pre_hook is not None:
            notes.append(f"`{self.name}` has candidates with a `pre_hook`, which is not run")
        return {"constants": constants, "options": options}, notes


def kernels(module: ModuleType, owns: Any) -> dict[str, Kernel]:
    """The kernel functions that a module has a name for, by that name."""
    return {
        name: Kernel(name, value)
        for name, value in vars(module).items()
        if _is_kernel(value) and owns(getattr(_innermost(value), "__module__", ""))
    }


def _innermost(value: Any) -> Any:
    while not is_plain(value):
        value = value.fn
    return value


def is_plain(value: Any) -> bool:
    """Whether it is a function of `@triton.jit`, with nothing around it."""
    return type(value).__name__ == "JITFunction"


def _is_kernel(value: Any) -> bool:
    return is_plain(value) or type(value).__name__ in {"Autotuner", "Heuristics"}


def _parameter(parameter: Any) -> dict[str, Any]:
    default = parameter.default
    return {
        "name": parameter.name,
        "constant": bool(parameter.is_constexpr),
        "default": default is not inspect.Parameter.empty,
    }


def _pruned(tuner: Any) -> tuple[Sequence[Any], list[str]]:
    """The configs that are left without knowing a call."""
    name = getattr(tuner.base_fn, "__name__", "the kernel")
    prune = getattr(tuner, "early_config_prune", None)
    notes = []
    if getattr(tuner, "perf_model", None) is not None:
        notes.append(f"the `perf_model` of `{name}` needs a call: all its candidates are kept")
    if prune is None:
        return tuner.configs, notes
    try:
        return list(prune(list(tuner.configs), Known())), notes
    except UnknownError as unknown:
        why = f"asks for `{unknown.name}`"
    except Exception as error:  # noqa: BLE001 - the author's code
        why = f"says {type(error).__name__}: {error}"
    note = f"`early_config_prune` of `{name}` {why}: all its candidates are kept"
    return tuner.configs, [*notes, note]
