"""The kernel functions of a Triton source, their candidates, and errors about them."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import stat
import traceback
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from kbuild.dsl.worker.protocol import RefusalError
from kbuild.dsl.worker.sources import SourceModules
from kbuild.dsl.worker.triton_hooks import hooks_of

_TUNER = "Autotuner"
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_AMD_OPTIONS = ("waves_per_eu", "matrix_instr_nonkdim", "kpack")
OPTIONS = (*_OPTIONS, *_AMD_OPTIONS)
"""Launch options that candidates and heuristics may set."""
_UNSET: dict[str, Any] = {"num_ctas": 1, "maxnreg": None}
"""Values with which an option has no effect."""


class UnknownArgumentError(Exception):
    """A function of the author needs a value that is known only at run time."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class KnownArguments(dict[str, Any]):
    """Arguments that are known when a function is compiled; others raise an error."""

    def __missing__(self, name: str) -> Any:
        raise UnknownArgumentError(name)

    def get(self, name: str, _: Any = None) -> Any:
        """Raise UnknownArgumentError for an unknown name, unlike a dictionary."""
        return self[name]


class UnknownArgument:
    """Placeholder for an argument of a call; any use of its value raises an error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _raise(self, *_: Any) -> Any:
        raise UnknownArgumentError(self._name)

    # Python looks up special methods on the class only, so each needs a definition of its own.
    __getattr__ = __getitem__ = __call__ = __iter__ = __len__ = __bool__ = _raise
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _raise
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __mod__ = __rmod__ = _raise
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _raise
    __index__ = __int__ = __float__ = __str__ = __format__ = __hash__ = _raise


class UnknownTensor:
    """Placeholder for a tensor; the only thing known is that it is not None."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise UnknownArgumentError(f"{self._name}.{name}")


class TritonKernel:
    """A kernel function with its autotuners and heuristics."""

    def __init__(self, name: str, outer: Any) -> None:
        self.name = name
        self.tuners: list[Any] = []
        self.heuristics: list[Mapping[str, Any]] = []
        while not is_jit_function(outer):
            if hasattr(outer, "configs"):
                self.tuners.append(outer)
            elif hasattr(outer, "values"):
                self.heuristics.append(outer.values)
            outer = outer.fn
        self.jit = outer

    @property
    def computed(self) -> list[str]:
        """Names of constants that `@triton.heuristics` computes."""
        return [name for values in self.heuristics for name in values]

    def describe(self) -> dict[str, Any]:
        """JSON object of the function."""
        candidates, configs, notes = self._candidates()
        names = {name for c in candidates for name in (*c["constants"], *c["options"])}
        notes += [
            f"`{self.name}` computes `{name}`, but its candidates set it; their value is used"
            for name in dict.fromkeys(self.computed)
            if name in names
        ]
        hooks = hooks_of(self.tuners, configs, self.jit.arg_names)
        return {
            "name": self.name,
            "parameters": [_parameter(parameter) for parameter in self.jit.params],
            "candidates": candidates,
            "key": [name for tuner in self.tuners for name in tuner.keys],
            "computed": self.computed,
            "notes": notes,
            **({"facts": {"hooks": hooks}} if hooks else {}),
        }

    def _candidates(self) -> tuple[list[dict[str, Any]], list[Any], list[str]]:
        """JSON objects of the candidates, Triton's configs of them, and notes about omissions."""
        candidates: list[dict[str, Any]] = []
        taken: list[Any] = []
        notes: list[str] = []
        for tuner in self.tuners:
            configs, own_notes = self._left(tuner)
            notes += own_notes
            for config in configs:
                candidate, own_notes = self._candidate(config)
                notes += [note for note in own_notes if note not in notes]
                if candidate not in candidates:
                    candidates.append(candidate)
                    taken.append(config)
        return candidates, taken, notes

    def all_candidates(self) -> list[dict[str, Any]]:
        """JSON objects of all candidates, including pruned ones."""
        return [self._candidate(config)[0] for tuner in self.tuners for config in tuner.configs]

    def pruned(self, known: KnownArguments) -> list[dict[str, Any]]:
        """Candidates that `early_config_prune` keeps; all if it needs an unknown argument."""
        candidates = []
        for tuner in self.tuners:
            configs, _ = self._asked(tuner, known)
            candidates += [self._candidate(config)[0] for config in configs]
        return candidates

    def _left(self, tuner: Any) -> tuple[Sequence[Any], list[str]]:
        """The configs that remain without the arguments of a call, and notes about pruning."""
        notes = []
        if getattr(tuner, "perf_model", None) is not None:
            message = f"the `perf_model` of `{_name_of(tuner)}` needs the arguments of a call"
            notes.append(f"{message}: all its candidates are kept")
        owner = next((c for c in type(tuner).__mro__ if "prune_configs" in vars(c)), None)
        if owner is not None and owner.__name__ != _TUNER:
            message = (
                f"`{owner.__name__}.prune_configs` of `{_name_of(tuner)}` needs the "
                "arguments of a call"
            )
            return tuner.configs, [*notes, f"{message}: all its candidates are kept"]
        configs, why = self._asked(tuner, KnownArguments())
        constants = {parameter.name for parameter in self.jit.params if parameter.is_constexpr}
        # Constants are known when a unit is compiled: `is_pruned` asks again then.
        if why and why not in {f"asks for `{name}`" for name in constants}:
            message = f"`early_config_prune` of `{_name_of(tuner)}` {why}"
            notes.append(f"{message}: all its candidates are kept")
        return configs, notes

    def _asked(self, tuner: Any, known: KnownArguments) -> tuple[Sequence[Any], str]:
        """Configs that `early_config_prune` keeps, or all of them and the reason."""
        prune = getattr(tuner, "early_config_prune", None)
        if prune is None:
            return tuner.configs, ""
        unknown_arguments = {name: UnknownArgument(name) for name in self.jit.arg_names}
        # A plain dictionary, because `KnownArguments.get` raises for unknown names.
        named = {name: dict(known).get(name, value) for name, value in unknown_arguments.items()}
        try:
            return list(prune([_copied(config) for config in tuner.configs], known, **named)), ""
        except UnknownArgumentError as unknown:
            return tuner.configs, f"asks for `{unknown.name}`"
        except RefusalError:
            raise
        except Exception as error:  # noqa: BLE001 - the author's code
            return tuner.configs, f"says {type(error).__name__}: {error}"

    def _candidate(self, config: Any) -> tuple[dict[str, Any], list[str]]:
        constants, options, notes = {}, {}, []
        for name, value in config.kwargs.items():
            if not isinstance(value, (bool, int, float, str, type(None))):
                notes.append(f"`{self.name}` has a candidate with {name} = {value!r}: left out")
            # Triton has AMD's options among the constants of a config.
            elif name in _AMD_OPTIONS and name not in self.jit.arg_names:
                options[name] = value
            else:
                constants[name] = value
        for name in _OPTIONS:
            value = getattr(config, name, None)
            # An empty tuple equals no option's value, so options that are not in `_UNSET` are kept.
            if value is not None and value != _UNSET.get(name, ()):
                options[name] = value
        return {"constants": constants, "options": options}, notes


def find_kernels(module: ModuleType, owns: Any) -> dict[str, TritonKernel]:
    """The kernel functions of a module by name."""
    return {
        name: TritonKernel(name, value)
        for name, value in vars(module).items()
        if (is_jit_function(value) or (_is_wrapper(value) and is_jit_function(_innermost(value))))
        and owns(getattr(_innermost(value), "__module__", ""))
    }


def _innermost(value: Any) -> Any:
    while _is_wrapper(value):
        value = value.fn
    return value


def is_jit_function(value: Any) -> bool:
    """True for a bare function of `@triton.jit` or `@gluon.jit`."""
    return any(base.__name__ == "JITFunction" for base in type(value).__mro__)


def _is_wrapper(value: Any) -> bool:
    """True for Triton's wrappers of kernels, and classes that an author derived from them."""
    return any(base.__name__ in {_TUNER, "Heuristics"} for base in type(value).__mro__)


def _copied(config: Any) -> Any:
    """Return a copy that a pruning function may modify."""
    duplicate = copy.copy(config)
    duplicate.kwargs = dict(config.kwargs)
    return duplicate


def _name_of(tuner: Any) -> str:
    return getattr(tuner.base_fn, "__name__", "the kernel")


def _parameter(parameter: Any) -> dict[str, Any]:
    default = parameter.default
    return {
        "name": parameter.name,
        "constant": bool(parameter.is_constexpr),
        "default": default is not inspect.Parameter.empty,
    }


_AROUND = 3
"""Number of source lines that are shown before the line of an error."""
_MOST = 2000
"""Maximum of characters in a message."""
_MOST_LINES = 12


def explain_error(
    error: BaseException, kernel: TritonKernel, sources: SourceModules
) -> RefusalError:
    """Return the refusal for an exception of Triton's."""
    chain = _chain(error)
    placed = [cause for cause in chain if getattr(cause, "node", None) is not None]
    if placed:
        # Errors of outer functions only show the call that led to the faulty line.
        return _at_node(placed[-1], chain[-1], sources)
    lines = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
    refusal = RefusalError(lines[0])
    refusal.excerpt = tuple(line for line in lines[1:_MOST_LINES] if line)
    refusal.file = sources.relative(kernel.jit.fn.__code__.co_filename)
    refusal.line = _first_line(kernel.jit)
    return refusal


def size_of_stderr() -> int:
    """Offset at which the compiler prints next; 0 if stderr is no file."""
    status = os.fstat(2)
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def diagnostics(start: int) -> tuple[str, ...]:
    """Lines that MLIR has printed since `start`, from its first error; exceptions lack them."""
    if size_of_stderr() <= start:
        return ()
    with open("/dev/fd/2", "rb") as stream:  # noqa: PTH123 - no file of its own
        stream.seek(start)
        lines = stream.read(_MOST).decode("utf-8", "replace").splitlines()
    first = next((at for at, line in enumerate(lines) if "error: " in line), len(lines))
    return tuple(line for line in lines[first:][:_MOST_LINES] if line)


def _chain(error: BaseException | None) -> list[BaseException]:
    """The exception and its causes, the innermost last."""
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__
    return causes


def _at_node(error: Any, innermost: BaseException, sources: SourceModules) -> RefusalError:
    message = getattr(innermost, "error_message", None) or getattr(error, "error_message", None)
    # An ordinary exception says what is wrong, but only the error around it says where.
    if innermost is not error and not hasattr(innermost, "node"):
        message = f"{type(innermost).__name__}: {innermost}"
    row, column = error.node.lineno, error.node.col_offset
    message = str(message or "Triton cannot compile this")[:_MOST]
    refusal = RefusalError(message, hint=getattr(error, "hint", ""))
    owner = _owner(error.src or "")
    if owner is not None:
        refusal.file = sources.relative(owner.fn.__code__.co_filename)
        refusal.line = _first_line(owner) + row - 1
    lines = (error.src or "").splitlines()
    refusal.excerpt = (*lines[max(0, row - 1 - _AROUND) : row], " " * column + "^")
    return refusal


def _owner(source: str) -> Any:
    """The function with that source text; None if there is none."""
    # Triton's error has the text of the function, and not the function.
    for value in gc.get_objects():
        if is_jit_function(value) and getattr(value, "_src", getattr(value, "src", "")) == source:
            return value
    return None


def _first_line(jit: Any) -> int:
    """Line of the function's `def`."""
    # Triton counts lines from `def`, behind the decorators.
    for index, line in enumerate(jit.raw_src):
        if line.strip().startswith("def "):
            return int(jit.starting_line_number) + index
    return int(jit.starting_line_number)
