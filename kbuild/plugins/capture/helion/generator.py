"""The process in which Helion writes the code of calls for one GPU.

Captured functions run with replacements of Torch and Triton, and their sizes are symbols of that
run. Helion has symbols of its own, so it runs elsewhere, with the sizes of an example.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import multiprocessing
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import helion
import sympy
import torch
from helion._compiler.compile_environment import CompileEnvironment, shape_env_var_hints
from helion.exc import InvalidConfig
from helion.runtime.kernel import OutputCodeOptions
from torch._dynamo.source import ConstantSource
from torch._inductor import lowering
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from kbuild.plugins.capture.worker.differentiation import provide_device_guard

CONFIGS_FOLDER = "helion_configs"
"""Folder beside an author's module with files that `helion.Config.save` or Helion's cache has
written."""
_MODEL = {
    "multi_processor_count": 132, "total_memory": 80 << 30, "L2_cache_size": 50 << 20,
    "gcnArchName": "", "warp_size": 32,
}  # fmt: skip
"""Properties of a GPU that differ among the models of an arch: they decide defaults alone."""
_LARGEST_INT32 = 2**31 - 1
_defaults: dict[Any, Any] = {}
"""Kernel, with the dtypes and ranks of a call -> the config where its author gives none: that of
the first example. Calls of kernels with static shapes have one for each set of sizes."""
_AUTHOR_LINE = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class TensorExample:
    """A tensor of a call, with the sizes of an example."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def kind(self) -> tuple[torch.dtype, int]:
        """Dtype and rank."""
        return self.dtype, len(self.sizes)

    def tensor(self) -> torch.Tensor:
        """The tensor, in the mode for tensors without data."""
        return torch.empty_strided(self.sizes, self.strides, dtype=self.dtype, device="cuda")


@dataclass(frozen=True)
class DefaultValue:
    """The default of a parameter: a function, which may have no name that a process could load."""

    parameter: str


@dataclass(frozen=True)
class WrittenCode:
    """The code that Helion writes for a kind of calls; an error has none."""

    texts: tuple[str, ...] = ()
    """A module in Triton for each config, the default one first."""
    conditions: tuple[str, ...] = ()
    """Conditions that hold for these calls, of names such as `x_size_0` and `x_stride_1`."""
    notes: tuple[str, ...] = ()
    error: str = ""
    """The rest of a sentence that begins "calls `name`,"."""
    place: str = ""


class Generator:
    """A process that writes code for a GPU; it ends with the one that starts it."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        if not os.fork():
            self._pipe.close()
            _serve(theirs, facts)
            os._exit(0)
        theirs.close()

    def written(self, module: str, name: str, arguments: Sequence[Any]) -> WrittenCode:
        """The code for calls of a kernel that are like this one."""
        self._pipe.send((module, name, arguments))
        code: WrittenCode = self._pipe.recv()
        return code


def _serve(pipe: Any, facts: Mapping[str, Any]) -> None:
    _answer_questions(facts)
    CompileEnvironment._to_fake_tensor = _with_symbols(CompileEnvironment._to_fake_tensor)  # noqa: SLF001
    while True:
        try:
            module, name, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = _written(getattr(importlib.import_module(module), name), arguments)
        except Exception as error:  # noqa: BLE001 - of the author's code, or Helion's refusal
            places = _AUTHOR_LINE.findall(str(error))
            text = str(error).strip().partition("\n")[0]
            answer = WrittenCode(
                error=f"which Helion does not compile: {type(error).__name__}: {text}",
                place=":".join(places[-1]) if places else "",
            )
        pipe.send(answer)


def _answer_questions(facts: Mapping[str, Any]) -> None:
    """Let Torch answer for a GPU of the arch, for the rest of the process."""
    major, minor = facts["capability"]
    properties = SimpleNamespace(**{
        **_MODEL, **facts["properties"], "name": facts["names"][0], "major": major, "minor": minor,
        "shared_memory_per_block_optin": facts["shared"],
    })  # fmt: skip
    # Torch's own modules have copies of `get_device_properties` and others, which call these.
    answers = {
        "_lazy_init": None, "_get_device_properties": properties, "is_available": True,
        "current_device": 0, "device_count": 1,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)
    # Helion knows the properties by their type, which only a build of Torch for CUDA can make.
    torch.cuda._CudaDeviceProperties = SimpleNamespace  # noqa: SLF001
    torch.version.cuda = facts["releases"][-1]
    lowering.promote_constants = _on_cpu(lowering.promote_constants)
    provide_device_guard()


def _on_cpu(original: Any) -> Any:
    """Let Inductor round a number to a dtype in a tensor of the CPU, not of the GPU."""

    def with_cpu(*args: Any, **more: Any) -> Any:
        with torch.device("cpu"):
            return original(*args, **more)

    return with_cpu


def _with_symbols(original: Any) -> Any:
    """Give tensors without data the symbols that Helion gives to others, unless it wants none."""
    tracers: list[ShapeEnv] = []  # Helion knows them by their addresses, which must not be reused

    def to_fake(env: Any, tensor: torch.Tensor, source: Any) -> Any:
        if env.settings.static_shapes:
            return original(env, tensor, source)
        # Helion makes symbols of its own of those of another tracer.
        shape_env = ShapeEnv(specialize_zero_one=False, duck_shape=False)
        tracers.append(shape_env)
        with FakeTensorMode(shape_env=shape_env):
            tensor = torch.empty_strided(
                [_symbol(shape_env, size) for size in tensor.shape],
                # Not the products of sizes: Torch would not end to replace one by the other.
                [_symbol(shape_env, stride) for stride in tensor.stride()],
                dtype=tensor.dtype,
                device=tensor.device,
            )
        return original(env, tensor, source)

    return to_fake


def _symbol(shape_env: ShapeEnv, number: int) -> Any:
    source = ConstantSource(f"n{len(shape_env.var_to_sources)}")
    symbol = shape_env.create_symbol(number, source, dynamic_dim=DimDynamic.DYNAMIC)
    return shape_env.create_symintnode(symbol, hint=number, source=source)


def _written(kernel: Any, arguments: Sequence[Any]) -> WrittenCode:
    if (backend := kernel.settings.backend) != "triton":
        return WrittenCode(error=f"whose backend is `{backend}`, not `triton`")
    kernel.reset()  # calls like this one must not get the code of others
    with FakeTensorMode():
        bound = kernel.bind(tuple(_given(kernel, argument) for argument in arguments))
    texts, notes = list[str](), list[str]()
    configs = [*kernel.configs, *_saved_configs(kernel)]
    if not configs:
        is_static = kernel.settings.static_shapes
        kinds = [each if is_static else getattr(each, "kind", type(each)) for each in arguments]
        configs = [_defaults.setdefault((kernel, str(kinds)), bound.config_spec.default_config())]
        notes.append(f"has neither `config` nor `configs`: Helion's default is `{configs[0]!r}`")
    for number, config in enumerate(configs):
        try:
            text = bound.to_code(
                config,
                options=OutputCodeOptions(allow_helion_deps=False),
                output_origin_lines=True,
            )
        except InvalidConfig as error:
            if len(configs) == 1:
                raise
            notes.append(f"config {number} is left out: {str(error).partition('. ')[0]}")
            continue
        if re.search(r"make_tensor_descriptor|TensorDescriptor", text):
            # Helion chooses such code by the alignment of a call's memory, which no condition says.
            notes.append(f"config {number} is left out: `indexing` with tensor descriptors")
        elif text not in texts:
            texts.append(text)
    if not texts:
        return WrittenCode(error=f"which has no config that can be captured: {'; '.join(notes)}")
    return WrittenCode(tuple(texts), tuple(_conditions(kernel, bound, arguments)), tuple(notes))


def _given(kernel: Any, argument: Any) -> Any:
    if isinstance(argument, DefaultValue):
        return kernel.signature.parameters[argument.parameter].default
    return argument.tensor() if isinstance(argument, TensorExample) else argument


def _saved_configs(kernel: Any) -> Iterator[Any]:
    """Configs that Helion's autotuner has found: in files of the kernel's name, and its cache."""
    folder = Path(inspect.getfile(kernel.fn)).with_name(CONFIGS_FOLDER)
    for pattern in (f"{kernel.name}.json", f"{kernel.name}.*.json"):
        yield from (helion.Config.load(path) for path in sorted(folder.glob(pattern)))
    # Files of the cache have names that say nothing; they name the source of their kernel.
    source = textwrap.dedent(inspect.getsource(kernel.fn))
    digest = hashlib.sha256(source.encode()).hexdigest()
    for path in sorted(folder.glob("*.best_config")):
        entry = json.loads(path.read_text("utf-8"))
        if entry.get("key", {}).get("fields", {}).get("kernel_source_hash") == digest:
            yield helion.Config.from_json(entry["config"])


def _conditions(kernel: Any, bound: Any, arguments: Sequence[Any]) -> Iterator[str]:
    """Conditions that Helion asks of a call before it runs this code; else it writes other code."""
    env, is_static = bound.env, kernel.settings.static_shapes  # such a call has these sizes
    names = {symbol: _name(sources[0]) for symbol, sources in env.shape_env.var_to_sources.items()}
    for extractor in bound._guarded_input_facts():  # noqa: SLF001 - Helion checks these itself
        fact = extractor.extractor
        left, right = (_text(side, names) for side in (fact.lhs, fact.rhs))
        left = f"next_power_of_2({left})" if fact.block else left
        yield f"{left} {'==' if fact.equal else '!='} {right}"
    hints = shape_env_var_hints(env.shape_env)
    for symbol in sorted(env.specialized_vars, key=str):
        yield f"{names[symbol]} == {hints[symbol]}"
    for source in sorted(env.specialized_strides, key=repr):
        name = list(kernel.signature.parameters).index(source.base.local_name)
        yield f"{_name(source)} == {arguments[name].strides[source.idx]}"
    if not is_static:
        yield from _limits(kernel, env.index_dtype, arguments)


def _limits(kernel: Any, index_dtype: torch.dtype, arguments: Sequence[Any]) -> Iterator[str]:
    """Sizes for which offsets are of that dtype."""
    pairs = zip(kernel.signature.parameters, arguments, strict=False)
    counts = [
        " * ".join(f"{name}_size_{axis}" for axis in range(len(example.sizes)))
        for name, example in pairs
        if isinstance(example, TensorExample) and example.sizes
    ]
    if index_dtype == torch.int32:
        yield from (f"{count} <= {_LARGEST_INT32}" for count in dict.fromkeys(counts))
    elif kernel.settings.index_dtype is None:
        yield " or ".join(f"{count} > {_LARGEST_INT32}" for count in dict.fromkeys(counts))


def _name(source: Any) -> str:
    """`x_size_0` for a size of the argument `x`, and `x` for a number."""
    base = getattr(source, "base", None)
    if base is None:
        return str(getattr(source, "local_name", source))
    if not hasattr(base, "local_name"):
        return repr(source)  # no name: a condition on it is an error
    kind = str(source.prop.name).lower()
    return f"{base.local_name}_{kind}_{source.idx}"


def _text(expression: Any, names: Mapping[Any, str]) -> str:
    known = {symbol: sympy.Symbol(name) for symbol, name in names.items()}
    return str(sympy.sympify(expression).xreplace(known))
