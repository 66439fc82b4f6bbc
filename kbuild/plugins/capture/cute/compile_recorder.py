"""Records calls of `cute.compile` in an author's process; installed as `sitecustomize`.

`launch_recorder.py` and `_launch_describe.py` lie beside it. With `run`, the author's process
compiles and launches; without, it gets functions that do nothing, for an arch that the variable
`CUTE_DSL_ARCH` names.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from _launch_describe import (  # type: ignore[import-not-found]
    CompilationDescriber,
    UndescribedError,
    mark_compact,
)
from _launch_factories import Factories  # type: ignore[import-not-found]
from launch_recorder import (  # type: ignore[import-not-found]
    SETTINGS,
    LaunchRecorder,
    Patches,
    install,
    run_next_sitecustomize,
)

_TVM_FFI = "--enable-tvm-ffi"
_ARCH = "CUTE_DSL_ARCH"


class CompilationRecorder(LaunchRecorder):  # type: ignore[misc]
    """Writes the calls of `cute.compile` in some sources to a file."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.factories = Factories(settings["factories"])

    @property
    def patches(self) -> Patches:
        """See `LaunchRecorder.patches`."""
        factories = dict.fromkeys(self.factories.modules, ("__dict__", watch_factories))
        return {**_PATCHES, **factories}

    def compiled(
        self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, is_plain: bool
    ) -> None:
        """Record a call; `cute.compile[...]`, with options in brackets, is not a plain one."""
        owner = _owner_of(function)
        source = self.source_of(sys.modules[owner.__module__].__file__ or "")
        if source is None:
            return
        place = {"source": source, "function": owner.__qualname__.partition(".")[0]}
        own, options = {**kwargs}, kwargs.get("options", "")
        own.pop("options", None)
        if not is_plain:
            problem = "is compiled with `cute.compile[...]`, whose options kbuild does not know"
            self.write({**place, "problem": problem})
            return
        if options != _TVM_FFI:
            problem = f"is compiled with `options={options!r}`, not with `{_TVM_FFI}` alone"
            self.write({**place, "problem": problem})
            return
        try:
            record = CompilationDescriber(self._author_module, self.factories).call(
                function, args, own
            )
        except UndescribedError as error:
            self.write({**place, "problem": f"is compiled with {error}"})
            return
        launch = {"arguments": {}, "constants": {"record": record}, "options": {}}
        self.write({**place, **launch, "archs": [_arch()]})

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
        recorder.compiled(function, args, kwargs, is_plain=self is plain)
        if recorder.mode == "record":
            return UncompiledFunction()
        return compile_(self, function, *args, **kwargs)

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


def watch_factories(recorder: CompilationRecorder, namespace: dict[str, Any]) -> None:
    """Remember what the author's factories in a module make."""
    recorder.factories.watch(namespace["__name__"], namespace)


_PATCHES: Patches = {
    "cutlass.base_dsl.compiler": ("CompileCallable", record_compilations),
    "cutlass.cute.runtime": ("_Tensor", mark_compact_tensors),
    "cutlass.utils.hardware_info": ("HardwareInfo", answer_about_hardware),
    "torch.cuda": ("__dict__", answer_for_arch),
}

if __name__ == "sitecustomize":
    install(Path(__file__).with_name(SETTINGS), CompilationRecorder)
    run_next_sitecustomize(str(Path(__file__).parent))
