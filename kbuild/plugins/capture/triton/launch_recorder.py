"""Records launches in an author's process; `kbuild capture` installs it as `sitecustomize`.

It runs with Triton, on a GPU or interpreted. Each new launch is a line of JSON in a file of the
process, so that nothing is lost when the process is killed.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from types import ModuleType
from typing import Any

SETTINGS = "settings.json"
"""File beside this one: `sources` (absolute path -> path in the project), `folder` for the
lines, `options` that launches may have, `all_configs`, and `run` (True if kernels are launched)."""
_DEFAULTS = {"num_ctas": 1, "debug": False, "ir_override": None}
"""Launch options that have no effect with these values."""
_DTYPES = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "int1": "bool",
}
"""Triton's names of dtypes -> Torch's, where they differ."""
_INT32 = (-(2**31), 2**31 - 1)


class UnsupportedValueError(Exception):
    """A value that kbuild cannot compile an image for."""


class LaunchRecorder:
    """Writes launches of the kernels of some sources to a file."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._sources: Mapping[str, str] = settings["sources"]
        # An installed copy of a source has another path and the same content.
        self._digests = {_digest(path): source for path, source in self._sources.items()}
        self._options = frozenset(settings["options"])
        # A process may get the number of one that has ended.
        self._file = Path(settings["folder"]) / f"{os.getpid()}-{os.urandom(4).hex()}.jsonl"
        self._known: set[str] = set()
        self.all_configs = bool(settings["all_configs"])
        self.mode = "launch" if settings["run"] else "record"
        """`launch`: record and launch; `measure`: launch without recording; `record`: do not
        launch."""

    @property
    def patches(self) -> Patches:
        """Patches of modules that the author's process imports."""
        return _PATCHES

    @cache  # noqa: B019 - one recorder for the process
    def source_of(self, file: str) -> str | None:
        """The project's source that a file is, by path or content; None for other files."""
        path = os.path.realpath(file)
        if path in self._sources or not Path(path).is_file():
            return self._sources.get(path)
        return self._digests.get(_digest(path))

    def launched(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Record a launch."""
        source = self.source_of(fn.__code__.co_filename)
        if source is None or self.mode == "measure":
            return
        place = {"source": source, "function": fn.__name__}
        if fn.__qualname__ != fn.__name__:
            outer = fn.__qualname__.rpartition(".")[0]
            self.write({**place, "problem": f"is defined inside of `{outer}`"})
            return
        try:
            self.write({**place, **self._described(fn, args, kwargs)})
        except UnsupportedValueError as error:
            self.write({**place, "problem": str(error)})

    def tuned(self, fn: Any, row: Mapping[str, Any]) -> None:
        """Record the candidate that was fastest for a key."""
        source = self.source_of(fn.__code__.co_filename)
        if source is not None:
            self.write({"source": source, "function": fn.__name__, "tuned": row})

    def _described(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        signature = _signature(fn)
        own = {name: value for name, value in kwargs.items() if name in signature.parameters}
        bound = signature.bind(*args, **own)
        bound.apply_defaults()
        arguments, constants, numbers = {}, {}, {}
        for name, value in bound.arguments.items():
            if is_constexpr(signature.parameters[name]):
                constants[name] = constant(name, value)
            else:
                arguments[name] = kind(name, value)
                if arguments[name] in ("int", "int64"):
                    numbers[name] = int(value)
        options = self._launch_options(signature, kwargs, constants)
        assumed = {
            "divisible": [name for name, value in numbers.items() if value % 16 == 0],
            "ones": [name for name, value in numbers.items() if value == 1],
        }
        return {
            "arguments": arguments,
            "constants": constants,
            "options": options,
            "assumptions": [assumed],
        }

    def _launch_options(
        self, signature: inspect.Signature, kwargs: Mapping[str, Any], constants: Mapping[str, Any]
    ) -> dict[str, Any]:
        given = {name: value for name, value in kwargs.items() if name not in signature.parameters}
        given |= {name: value for name, value in constants.items() if name in self._options}
        options = {}
        for name, value in given.items():
            if value is None or _DEFAULTS.get(name, ...) == value:
                continue
            if name not in self._options:
                raise UnsupportedValueError(f"has the launch option `{name} = {value!r}`")
            options[name] = value
        return options

    def write(self, line: Mapping[str, Any]) -> None:
        """Add a line to the file, once."""
        text = json.dumps(line)
        if text not in self._known:
            self._known.add(text)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(text + "\n")


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@cache
def _signature(fn: Any) -> inspect.Signature:
    return inspect.signature(fn)


def is_constexpr(parameter: inspect.Parameter) -> bool:
    """True if a kernel's parameter is known when the kernel is compiled."""
    annotation = parameter.annotation
    # It is a text where the author postpones the evaluation of annotations.
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return "constexpr" in text


def constant(name: str, value: Any) -> Any:
    """Return the JSON value of a constant.

    Raises:
        UnsupportedValueError: kbuild cannot compile such a constant.
    """
    # Classes are recognized by their names, since Triton must not be imported from here.
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if value is None or type(value) in {bool, int}:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, str):
        return {"string": value}
    if type(value).__name__ == "dtype":
        text = str(value).rpartition(".")[2]
        return {"dtype": _DTYPES.get(text, text)}
    if hasattr(value, "__index__"):
        return int(value)
    raise UnsupportedValueError(f"has the constant `{name} = {value!r}`")


def kind(name: str, value: Any) -> Any:
    """Return the JSON value of an argument's kind.

    Raises:
        UnsupportedValueError: kbuild cannot pass such an argument.
    """
    base = getattr(value, "base", None)
    if value is None:
        return "none"
    # Before integers: to Python, a boolean is one.
    if isinstance(value, bool):
        return "bool"
    if type(value).__name__ == "TensorDescriptor":
        padding = getattr(value, "padding", "zero")
        more: dict[str, Any] = {} if padding == "zero" else {"padding": padding}
        if hasattr(value, "layout"):  # of Gluon
            more["layout"] = _layout(name, value.layout)
        return {"tensor": _dtype(value.base), "block": [*value.block_shape], **more}
    # Before integers: Torch's tensors have `__index__`, too.
    if hasattr(value, "data_ptr"):
        is_view = type(value).__name__ == "TensorWrapper" and base is not None
        return f"*{_dtype(value) if not is_view else _reinterpreted(value)}"
    if isinstance(value, float):
        return "float"
    if hasattr(value, "__index__"):
        return "int" if _INT32[0] <= int(value) <= _INT32[1] else "int64"
    raise UnsupportedValueError(f"has the argument `{name}`, a {type(value).__name__}")


def _layout(name: str, layout: Any) -> dict[str, Any]:
    """JSON object of the layout of a descriptor's blocks in shared memory."""
    if type(layout).__name__ != "NVMMASharedLayout" or getattr(layout, "cga_layout", None):
        raise UnsupportedValueError(f"has the argument `{name}` with the layout {layout!r}")
    flags = {flag: True for flag in ("transposed", "fp4_padded") if getattr(layout, flag)}
    return {"swizzle_byte_width": layout.swizzle_byte_width, **flags}


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).rpartition(".")[2]


def _reinterpreted(value: Any) -> str:
    name = str(value.dtype).rpartition(".")[2]
    return _DTYPES.get(name, name)


def _python_function(kernel: Any) -> Any:
    while not inspect.isfunction(kernel):
        kernel = kernel.fn
    return kernel


def record_launches(recorder: LaunchRecorder, kernel_class: Any) -> None:
    """Patch a class of Triton's, `JITFunction` or `InterpretedFunction`, to record its launches."""
    launch = kernel_class.run

    @wraps(launch)
    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if not warmup:
            recorder.launched(self.fn, args, kwargs)
            if recorder.mode == "record":
                return None
        return launch(self, *args, grid=grid, warmup=warmup, **kwargs)

    kernel_class.run = run


def record_candidates(recorder: LaunchRecorder, tuner_class: Any) -> None:
    """Patch the tuner to record the first and the fastest candidate; if none is measured, one."""
    tune, bench = tuner_class.run, tuner_class._bench  # noqa: SLF001 - Triton's
    known: set[Any] = set()

    @wraps(bench)
    def _bench(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Launches that only measure a candidate are not recorded.
        return in_mode(recorder, "measure", bench, self, *args, **kwargs)

    @wraps(tune)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        fn = _python_function(self.fn)
        if len(self.configs) == 1 or recorder.source_of(fn.__code__.co_filename) is None:
            return tune(self, *args, **kwargs)
        # `prune_configs` reads them; Triton's `run` sets them later.
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        named = {**self.nargs, **kwargs}
        row = [named.get(name) for name in self.keys]
        key = (id(self), *map(str, row), *(str(getattr(v, "dtype", "")) for v in named.values()))
        interpreted = recorder.mode == "record" or _is_interpreted(self)
        if interpreted or key not in known:
            known.add(key)
            configs = self.prune_configs(kwargs)
            # Interpreted, the launch below records the first candidate.
            for config in configs[interpreted : None if recorder.all_configs else 1]:
                own = {**kwargs, **config.all_kwargs()}
                if config.pre_hook is not None:
                    config.pre_hook({**named, **own})
                in_mode(recorder, "record", self.fn.run, *args, **own)
            if interpreted:
                self.best_config = config = configs[0]
                if config.pre_hook is not None:
                    config.pre_hook({**named, **config.all_kwargs()})
                return self.fn.run(*args, **kwargs, **config.all_kwargs())
        result = tune(self, *args, **kwargs)
        pairs = self.best_config.all_kwargs().items()
        chosen = {name: value for name, value in pairs if _DEFAULTS.get(name, ...) != value}
        if all(isinstance(value, (bool, int, float, str, type(None))) for value in row):
            recorder.tuned(fn, {"device": device_name(), "key": row, "config": chosen})
        return result

    tuner_class.run, tuner_class._bench = run, _bench  # noqa: SLF001


def in_mode(
    recorder: LaunchRecorder, mode: str, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Call a function while the recorder has another mode."""
    before, recorder.mode = recorder.mode, mode
    try:
        return function(*args, **kwargs)
    finally:
        recorder.mode = before


def _is_interpreted(kernel: Any) -> bool:
    while hasattr(kernel, "fn") and type(kernel).__name__ != "InterpretedFunction":
        kernel = kernel.fn
    return type(kernel).__name__ == "InterpretedFunction"


def device_name() -> str:
    """Name of the current GPU."""
    import torch

    return str(torch.cuda.get_device_name())


Patches = Mapping[str, tuple[str, Callable[[Any, Any], None]]]
"""Module -> name of a class or object in it, and the function that patches it for a recorder."""
_PATCHES: Patches = {
    "triton.runtime.jit": ("JITFunction", record_launches),
    "triton.runtime.interpreter": ("InterpretedFunction", record_launches),
    "triton.runtime.autotuner": ("Autotuner", record_candidates),
}


class RecordingFinder(importlib.abc.MetaPathFinder):
    """Import hook that patches modules of a DSL when they are imported."""

    def __init__(self, recorder: LaunchRecorder) -> None:
        self._recorder, self._patches = recorder, recorder.patches

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """See `importlib.abc.MetaPathFinder`."""
        if name not in self._patches:
            return None
        # `importlib.util.find_spec` would ask this finder again.
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute, recorder = spec.loader.exec_module, self._recorder
        class_name, patch = self._patches[name]

        def exec_module(module: ModuleType) -> None:
            execute(module)
            patch(recorder, getattr(module, class_name))

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install(settings: Path, kind: type[LaunchRecorder] = LaunchRecorder) -> None:
    """Record what follows, with the settings in a file."""
    recorder = kind(json.loads(settings.read_text("utf-8")))
    sys.meta_path.insert(0, RecordingFinder(recorder))


def run_next_sitecustomize(own: str) -> None:
    """Run the environment's own `sitecustomize`, which this one hides."""
    paths = [path for path in sys.path if os.path.realpath(path or ".") != os.path.realpath(own)]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(ModuleType("sitecustomize"))


if __name__ == "sitecustomize":
    install(Path(__file__).with_name(SETTINGS))
    run_next_sitecustomize(str(Path(__file__).parent))
