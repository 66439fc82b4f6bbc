"""Runs what Helion writes in the place of its kernels, while a function is captured."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import helion
import torch
import triton

from kbuild.plugins.capture.helion.generator import (
    DefaultValue,
    Generator,
    TensorExample,
    WrittenCode,
)
from kbuild.plugins.capture.helion.source import (
    CONFIG,
    SourceError,
    WrittenModule,
    read_module,
    with_candidates,
)
from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.worker.imports import AskedAtImportError

_MOST_VALUES = 16
"""Most values of a size for which a kernel with static shapes is captured."""
_FUNCTIONS = {
    "Max": max, "Min": min, "FloorDiv": lambda a, b: a // b, "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
}  # fmt: skip
"""Functions in conditions, as sympy writes them."""


@dataclass(frozen=True)
class WrittenProgram:
    """The code for calls of a kernel that meet its conditions."""

    function: Callable[..., Any]
    conditions: Sequence[str]

    def holds(self, values: Mapping[str, Any]) -> bool:
        """True if all conditions hold; each is a condition of the path if values are symbols."""
        return _holds(self.conditions, values)


def _holds(conditions: Sequence[str], values: Mapping[str, Any]) -> bool:
    names = {**_FUNCTIONS, "next_power_of_2": triton.next_power_of_2, **values}
    return all(bool(eval(each, names)) for each in conditions)  # noqa: S307 - Helion's own


class CompileError(Exception):
    """Helion compiles no code for a call."""

    def __init__(self, message: str, place: str) -> None:
        super().__init__(message)
        self.place = place


class KernelCalls:
    """Replaces calls of Helion kernels, for the rest of the process."""

    def __init__(self, targets: Sequence[Mapping[str, Any]]) -> None:
        self._generators = [Generator(facts) for facts in targets]
        self._programs: dict[Any, list[WrittenProgram]] = {}
        self.notes: dict[str, None] = {}
        helion.Kernel.__call__ = lambda kernel, *args, **more: self._call(kernel, args, more)

    @staticmethod
    def function(author: Any) -> Any:
        """The function that is captured in place of a kernel."""
        if not isinstance(author, helion.Kernel):
            return author

        code = author.fn.__code__

        @functools.wraps(author.fn)
        def call(*args: Any, **more: Any) -> Any:
            try:
                return author(*args, **more)
            except CaptureError as error:  # no line of the author's calls the kernel
                error.place = error.place or f"{code.co_filename}:{code.co_firstlineno}"
                raise

        return call

    def _call(self, kernel: Any, args: Sequence[Any], more: Mapping[str, Any]) -> Any:
        named = _named(kernel, kernel.normalize_args(*args, **more))
        kind = (kernel, *(_kind(kernel, name, argument) for name, argument in named.items()))
        known, values = self._programs.setdefault(kind, []), dict(_values(named))
        hints = {name: _hint(value) for name, value in values.items()}
        program = next((program for program in known if program.holds(hints)), None)
        if program is None:
            try:
                examples = {name: _example(kernel, name, each) for name, each in named.items()}
                program = self._written(kernel, examples)
            except CompileError as error:
                if not known:
                    raise CaptureError(str(error), error.place) from None
                # Helion refuses calls that are not like the first ones, and so does the op.
                raise
            known.append(program)
        for name, argument in named.items():
            # Helion's code depends on the layout: `is_contiguous` makes it one of every call.
            if any(f"{name}_stride_" in condition for condition in program.conditions):
                argument.is_contiguous()
        if not program.holds(values):
            raise CaptureError(f"`{kernel.name}` has other code for this call")
        return program.function(*named.values(), _launcher=_launch)

    def _written(self, kernel: Any, examples: Mapping[str, Any]) -> WrittenProgram:
        """Let Helion write the code for a call.

        Raises:
            AskedAtImportError: it writes other code for each arch.
            CaptureError: it writes something that cannot be captured.
            CompileError: it writes none.
        """
        module = sys.modules[kernel.fn.__module__]
        name = next((name for name, value in vars(module).items() if value is kernel), "")
        if not name:
            message = f"calls `{kernel.name}`, which has no name in its module"
            raise CaptureError(f"{message}: define it there, not inside of a function")
        values = [*examples.values()]
        written = [each.written(module.__name__, name, values) for each in self._generators]
        code = written[0]
        for each in written:
            if each.error:
                raise CompileError(f"calls `{kernel.name}`, {each.error}", each.place)
        if any(each != code for each in written):
            raise AskedAtImportError(f"`{kernel.name}` has other code for each arch")
        others = {name: _larger(each, code.conditions) for name, each in examples.items()}
        is_alike = _holds(code.conditions, dict(_values(others)))
        if is_alike and not kernel.settings.static_shapes:
            again = self._generators[0].written(module.__name__, name, [*others.values()])
            if again != code:
                message = (
                    f"`{kernel.name}` has other code for other sizes, and no condition says so"
                )
                raise CaptureError(f"cannot be captured: {message}")
        self.notes |= dict.fromkeys(f"`{kernel.name}` {note}" for note in code.notes)
        try:
            return WrittenProgram(_function(kernel, self._joined(kernel, code)), code.conditions)
        except SourceError as error:
            raise CaptureError(f"`{kernel.name}` cannot be captured: {error}") from None

    def _joined(self, kernel: Any, code: WrittenCode) -> WrittenModule:
        """The code of all configs that are candidates of each other."""
        modules = [read_module(text, kernel.name) for text in code.texts]
        alike = [module for module in modules if module.rest == modules[0].rest]
        if len(alike) == 1 or not modules[0].launches:
            alike = modules[:1]
        if others := len(modules) - len(alike):
            note = f"`{kernel.name}` allocates something else with {others} of its configs"
            self.notes[f"{note}: these are left out"] = None
        return with_candidates(alike)


def _named(kernel: Any, arguments: Sequence[Any]) -> dict[str, Any]:
    """The arguments of a call; what the kernel's code has as constants is decided."""
    named = dict(zip(kernel.signature.parameters, arguments, strict=True))
    if kernel.settings.static_shapes:
        named = {name: _with_sizes(kernel, argument) for name, argument in named.items()}
    for name in _constants(kernel):
        if isinstance(named[name], torch.SymFloat):
            message = f"calls `{kernel.name}`, whose code has `{name}` as a constant"
            raise CaptureError(f"{message}: declare its value, as in `{name} = {{ value = 0.5 }}`")
        if isinstance(named[name], torch.SymInt):
            named[name] = int(named[name])
    return named


def _constants(kernel: Any) -> list[str]:
    """Parameters with `hl.constexpr`, as Helion reads it."""
    parameters = kernel.signature.parameters.values()
    return [p.name for p in parameters if "constexpr" in str(p.annotation).lower()]


def _with_sizes(kernel: Any, argument: Any) -> Any:
    """Decide on the sizes of a tensor: the code of a kernel with static shapes is for these."""
    if isinstance(argument, torch.Tensor):
        argument.is_contiguous()
        for size in (*argument.shape, *argument.stride()):
            if isinstance(size, torch.SymInt):
                bounds = size.node.shape_env.bound_sympy(size.node.expr)
                if bounds.upper - bounds.lower >= _MOST_VALUES:
                    message = f"calls `{kernel.name}`, whose shapes are static, with many sizes"
                    hint = "write `static_shapes=False`, or declare the sizes of the calls"
                    raise CaptureError(f"{message}: {hint}")
                int(size)
    return argument


def _kind(kernel: Any, name: str, argument: Any) -> Any:
    """The part of an argument that decides on code in any case, such as the dtype and the rank."""
    if name in _constants(kernel) or isinstance(argument, helion.language.constexpr):
        return type(argument), argument
    if isinstance(argument, torch.Tensor):
        if kernel.settings.static_shapes:
            return argument.dtype, *map(int, (*argument.shape, *argument.stride()))
        return argument.dtype, argument.dim()
    if isinstance(argument, (list, tuple)):
        if any(isinstance(each, torch.Tensor) for each in argument):
            # No condition could be about the sizes of one of them.
            message = f"calls `{kernel.name}` with a list of tensors, which is not followed"
            raise CaptureError(f"{message}: pass each tensor by itself")
        return type(argument), *(_kind(kernel, name, each) for each in argument)
    if isinstance(argument, (torch.SymInt, torch.SymFloat)):
        return int if isinstance(argument, torch.SymInt) else float
    # Code has the values of others, such as dtypes, in it; numbers are arguments of it.
    return type(argument) if isinstance(argument, (int, float)) else argument


def _example(kernel: Any, name: str, argument: Any) -> Any:
    """An argument as it is sent to the process in which Helion runs."""
    if isinstance(argument, torch.Tensor):
        sizes, strides = tuple(map(_hint, argument.shape)), tuple(map(_hint, argument.stride()))
        if not kernel.settings.static_shapes:
            # Helion's code takes strides as they are at a call: any will do.
            strides = _dense(sizes)
        return TensorExample(argument.dtype, sizes, strides)
    if isinstance(argument, helion.language.constexpr):
        return argument
    if isinstance(argument, (list, tuple)):
        return type(argument)([_example(kernel, name, each) for each in argument])
    if inspect.isfunction(argument):
        if argument is kernel.signature.parameters[name].default:
            return DefaultValue(name)
        if argument.__qualname__ not in vars(sys.modules[argument.__module__]):
            message = f"calls `{kernel.name}` with a function that is made inside of a function"
            raise CaptureError(f"{message}, `{name}`, which is not followed")
    return _hint(argument)


def _dense(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[axis + 1 :]) for axis in range(len(sizes)))


def _larger(example: Any, conditions: Sequence[str]) -> Any:
    """A call like the example with other sizes, but for those that conditions name."""
    if not isinstance(example, TensorExample):
        return example
    named = {int(number) for each in conditions for number in re.findall(r"== (\d+)$", each)}
    sizes = tuple(n if n <= 1 or n in named else n + 1 for n in example.sizes)
    return TensorExample(example.dtype, sizes, _dense(sizes))


def _hint(value: Any) -> Any:
    return value.node.hint if isinstance(value, (torch.SymInt, torch.SymFloat)) else value


def _values(named: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The names that conditions have for sizes, strides and numbers."""
    for name, argument in named.items():
        if isinstance(argument, (torch.Tensor, TensorExample)):
            plain: Any = argument
            is_example = isinstance(argument, TensorExample)
            sizes = plain.sizes if is_example else plain.shape
            strides = plain.strides if is_example else plain.stride()
            for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
                yield f"{name}_size_{axis}", size
                yield f"{name}_stride_{axis}", stride
        else:
            yield name, argument


def _function(kernel: Any, module: WrittenModule) -> Callable[..., Any]:
    """The function that launches the kernels of a module, which are written to a file."""
    digest = hashlib.sha256(module.text.encode()).hexdigest()[:8]
    path = Path.home() / f"{kernel.name}_{digest}.py"
    path.write_text(module.text, encoding="utf-8")
    kernels: dict[str, Any] = {"__name__": path.stem}
    exec(compile(module.text, str(path), "exec"), kernels)  # noqa: S102 - Helion has written it
    runtime = SimpleNamespace(get_num_sm=_multiprocessors, set_triton_allocator=lambda: None)
    # Each run has replacements of Triton's functions that take symbols; those of Helion do not.
    own = SimpleNamespace(
        runtime=runtime,
        cdiv=lambda a, b: triton.cdiv(a, b),  # noqa: PLW0108 - of the run
        next_power_of_2=lambda n: triton.next_power_of_2(n),  # noqa: PLW0108
    )
    names = {
        "__name__": kernel.fn.__module__,
        "_default_launcher": None,
        "helion": own,
        **{kernel: kernels[name] for kernel, name in module.names.items()},
    }
    imports = re.sub(r"^.*\bhelion\b.*$", "", module.imports, flags=re.MULTILINE)
    exec(imports, names)  # noqa: S102 - Helion has written it
    # Errors are at the author's lines, and what the author calls is judged as in other functions.
    tree = ast.Module([module.function], [])
    exec(compile(tree, kernel.fn.__code__.co_filename, "exec"), names)  # noqa: S102
    function: Callable[..., Any] = names[module.function.name]
    return function


def _multiprocessors(device: torch.device, *, reserved_sms: int = 0) -> Any:
    count = torch.cuda.get_device_properties(device).multi_processor_count
    return count - reserved_sms if reserved_sms else count


def _launch(kernel: Any, grid: Any, *arguments: Any, **options: Any) -> None:
    """Helion's launcher: `grid` is a list with one of each candidate, if there are several."""
    if unknown := [name for name in options if name.startswith("_")]:
        raise CaptureError(f"launches with `{unknown[0]}`, which is not followed")
    if isinstance(grid, list):
        kernel[functools.partial(_chosen, grid)](*arguments)
    else:
        kernel[grid](*arguments, **options)


def _chosen(grids: Sequence[Sequence[Any]], values: Mapping[str, Any]) -> list[Any]:
    """The grid of the candidate that is chosen."""
    number = values[CONFIG]
    sizes = [*zip(*((*grid, 1, 1)[:3] for grid in grids), strict=True)]
    return [_selected(options, number) for options in sizes]


def _selected(options: Sequence[Any], number: Any) -> Any:
    if (
        len(
            {option.node.expr if isinstance(option, torch.SymInt) else option for option in options}
        )
        == 1
    ):
        return options[0]
    # Both sides of a choice have to be symbols.
    *others, chosen = (option + 0 * number for option in options)
    for at, option in reversed([*enumerate(others)]):
        chosen = torch.sym_ite(number == at, option, chosen)
    return chosen
