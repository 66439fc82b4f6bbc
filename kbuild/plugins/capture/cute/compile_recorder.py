"""Records calls of `cute.compile` in an author's process; installed as `sitecustomize`.

`launch_recorder.py` and `_launch_describe.py` lie beside it. With `run`, the author's process
compiles and launches; without, it gets functions that do nothing, for an arch that the variable
`CUTE_DSL_ARCH` names.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from _launch_describe import (  # type: ignore[import-not-found]
    CompilationDescriber,
    UndescribedError,
    mark_compact,
)
from _launch_factories import Factories  # type: ignore[import-not-found]
from _launch_tuners import (  # type: ignore[import-not-found]
    Choices,
    described_config,
    described_key,
    replace_caches,
)
from launch_recorder import (  # type: ignore[import-not-found]
    SETTINGS,
    LaunchRecorder,
    Patches,
    device_name,
    in_mode,
    install,
    run_next_sitecustomize,
)

_TVM_FFI = "--enable-tvm-ffi"
_ARCH = "CUTE_DSL_ARCH"


class CompilationRecorder(LaunchRecorder):  # type: ignore[misc]
    """Writes the calls of `cute.compile` in some sources to a file."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.factories = Factories(settings.get("factories", ()))
        self.tuners: Sequence[str] = settings.get("tuners", ())

    @property
    def patches(self) -> Patches:
        """See `LaunchRecorder.patches`."""
        modules = self.factories.modules | {name.partition(":")[0] for name in self.tuners}
        return {**_PATCHES, **dict.fromkeys(modules, ("__dict__", watch))}

    def described(
        self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, is_plain: bool
    ) -> dict[str, Any]:
        """The line for a call; empty if the callable is not of the sources.

        `cute.compile[...]`, with options in brackets, is no plain call.
        """
        owner = _owner_of(function)
        source = self.source_of(sys.modules[owner.__module__].__file__ or "")
        if source is None:
            return {}
        place = {"source": source, "function": owner.__qualname__.partition(".")[0]}
        own, options = {**kwargs}, kwargs.get("options", "")
        own.pop("options", None)
        if not is_plain:
            problem = "is compiled with `cute.compile[...]`, whose options kbuild does not know"
            return {**place, "problem": problem}
        if options != _TVM_FFI:
            problem = f"is compiled with `options={options!r}`, not with `{_TVM_FFI}` alone"
            return {**place, "problem": problem}
        try:
            record = CompilationDescriber(self._author_module, self.factories).call(
                function, args, own
            )
        except UndescribedError as error:
            return {**place, "problem": f"is compiled with {error}"}
        launch = {"arguments": {}, "constants": {"record": record}, "options": {}}
        return {**place, **launch, "archs": [_arch()]}

    def chosen(self, tuner: Any, key: Any, config: Any) -> None:
        """Record the candidate that a tuner has chosen for a key."""
        describe = CompilationDescriber(self._author_module, self.factories).value
        try:
            row = {
                "device": device_name() if self.mode != "record" else "",
                "key": described_key(describe, tuner, _arch(), key),
                "config": described_config(describe, config),
            }
        except UndescribedError as error:
            source = self.source_of(tuner.fn.__code__.co_filename)
            problem = f"is tuned with {error}"
            self.write({"source": source, "function": tuner.fn.__name__, "problem": problem})
        else:
            self.tuned(tuner.fn, row)

    def _author_module(self, module: str) -> str:
        file = getattr(sys.modules.get(module), "__file__", None)
        return module if file is not None and self.source_of(file) is not None else ""


def _owner_of(function: Any) -> Any:
    """The function, or the class of an object, that is compiled."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__self__", function)
    return function if hasattr(function, "__qualname__") else type(function)


def _arch() -> str:
    """The arch that is compiled for, as `build.toml` has it."""
    name = os.environ.get(_ARCH, "")
    if name:
        number = name.removeprefix("sm_")
        digits = number.rstrip("af")
        return f"{digits[:-1]}.{digits[-1]}{number[len(digits) :]}"
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"{major}.{minor}{'a' if major >= 9 else ''}"  # noqa: PLR2004 - the first such arch


class UncompiledFunction:
    """A function that is recorded and not compiled: calls do nothing."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def export_to_c(self, *_: Any, **__: Any) -> None:
        """Refuse: a cache of the author's must not keep this."""
        raise RuntimeError("this process only records: switch off caches of compiled functions")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: self


class MeasuredFunction:
    """A function that was compiled to be measured: it is recorded when it is called otherwise."""

    def __init__(self, recorder: CompilationRecorder, function: Any, line: dict[str, Any]) -> None:
        self._recorder, self._function, self._line = recorder, function, line

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        if self._line and self._recorder.mode != "measure":
            self._recorder.write(self._line)
            self._line = {}
        return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


class RecordedChoices(dict[Any, Any]):
    """The `cache` of a tuner that measures."""

    def __init__(self, recorder: CompilationRecorder, tuner: Any) -> None:
        super().__init__()
        self._recorder, self._tuner = recorder, tuner

    def __setitem__(self, key: Any, config: Any) -> None:
        self._recorder.chosen(self._tuner, key, config)
        super().__setitem__(key, config)


def record_choices(recorder: CompilationRecorder, kind: Any) -> None:
    """Patch a class of tuners: its choices are recorded, and calls that measure are not.

    Without a GPU, the first candidate is chosen.
    """
    call, bench = kind.__call__, kind._bench  # noqa: SLF001 - Triton's name

    @functools.wraps(call)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        self._kbuild_call = args, kwargs
        return call(self, *args, **kwargs)

    @functools.wraps(bench)
    def _bench(*args: Any, **kwargs: Any) -> Any:
        return in_mode(recorder, "measure", bench, *args, **kwargs)

    def first(tuner: Any, key: Any) -> Any:
        args, kwargs = tuner._kbuild_call  # noqa: SLF001
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        config = tuner.prune_configs(kwargs)[0]
        recorder.chosen(tuner, key, config)
        return config

    def new_cache(tuner: Any) -> dict[Any, Any]:
        if recorder.mode != "record":
            return RecordedChoices(recorder, tuner)
        choices: dict[Any, Any] = Choices(functools.partial(first, tuner))
        return choices

    kind.__call__, kind._bench = __call__, _bench  # noqa: SLF001
    replace_caches(kind, new_cache)


def mark_compact_tensors(_: CompilationRecorder, kind: Any) -> None:
    """Let tensors remember a change that their attributes do not show."""
    mark = kind.mark_compact_shape_dynamic

    @functools.wraps(mark)
    def marking(self: Any, *args: Any, **kwargs: Any) -> Any:
        mark_compact(self, *args, **kwargs)
        return mark(self, *args, **kwargs)

    layout = kind.mark_layout_dynamic

    @functools.wraps(layout)
    def marking_layout(self: Any, *args: Any, **kwargs: Any) -> Any:
        vars(self).pop("_kbuild_compact", None)  # the DSL forgets it, too
        return layout(self, *args, **kwargs)

    kind.mark_compact_shape_dynamic, kind.mark_layout_dynamic = marking, marking_layout


def record_compilations(recorder: CompilationRecorder, kind: Any) -> None:
    """Patch the class of `cute.compile`."""
    compile_ = kind._compile  # noqa: SLF001 - CuTe DSL's

    @functools.wraps(compile_)
    def recording(self: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        plain = getattr(sys.modules.get("cutlass.cute"), "compile", self)
        line = recorder.described(function, args, kwargs, is_plain=self is plain)
        if line and recorder.mode != "measure":
            recorder.write(line)
        if recorder.mode == "record":
            return UncompiledFunction()
        compiled = compile_(self, function, *args, **kwargs)
        return (
            MeasuredFunction(recorder, compiled, line) if recorder.mode == "measure" else compiled
        )

    kind._compile = recording  # noqa: SLF001


_MULTIPROCESSORS = {8: 108, 9: 132, 10: 148, 12: 170}
"""Major capability -> number of multiprocessors of its usual large model."""


def answer_for_arch(recorder: CompilationRecorder, cuda: dict[str, Any]) -> None:
    """Let `torch.cuda` answer for a GPU of the arch, where kernels do not run."""
    if recorder.mode != "record":
        return
    digits = os.environ[_ARCH].removeprefix("sm_").rstrip("af")
    major, minor = int(digits[:-1]), int(digits[-1])
    count = _MULTIPROCESSORS.get(major, _MULTIPROCESSORS[10])
    properties = SimpleNamespace(major=major, minor=minor, multi_processor_count=count)
    cuda["get_device_capability"] = lambda *_: (major, minor)
    cuda["get_device_properties"] = lambda *_: properties
    cuda["current_device"] = lambda: 0


def answer_about_hardware(recorder: CompilationRecorder, kind: Any) -> None:
    """Let `HardwareInfo` answer for that GPU, too."""
    if recorder.mode != "record":
        return

    def multiprocessors(_: Any = None) -> int:
        import torch

        return int(torch.cuda.get_device_properties().multi_processor_count)

    kind.__init__ = lambda *_: None
    kind.get_device_multiprocessor_count = multiprocessors
    kind.get_max_active_clusters = lambda _, cluster_size, **__: multiprocessors() // cluster_size


def watch(recorder: CompilationRecorder, namespace: dict[str, Any]) -> None:
    """Remember what the author's factories in a module make, and what its tuners choose."""
    module = namespace["__name__"]
    recorder.factories.watch(module, namespace)
    for tuner in recorder.tuners:
        if tuner.startswith(f"{module}:"):
            record_choices(recorder, namespace[tuner.partition(":")[2]])


_PATCHES: Patches = {
    "cutlass.base_dsl.compiler": ("CompileCallable", record_compilations),
    "cutlass.cute.runtime": ("_Tensor", mark_compact_tensors),
    "cutlass.utils.hardware_info": ("HardwareInfo", answer_about_hardware),
    "torch.cuda": ("__dict__", answer_for_arch),
}

if __name__ == "sitecustomize":
    install(Path(__file__).with_name(SETTINGS), CompilationRecorder)
    run_next_sitecustomize(str(Path(__file__).parent))
