"""The languages whose kernels are captured, and what stands in for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.plugins.capture.cute.compilations import compiled_ops
from kbuild.plugins.capture.launches import CapturedFunction, LaunchOps, launch_ops

_TRITON, _CUTE = (Path(__file__).with_name(name) for name in ("triton", "cute"))
_RECORDER = _TRITON / "launch_recorder.py"


@dataclass(frozen=True)
class CapturedLanguage:
    """The way in which kernels of a language are captured."""

    captured_as: str = ""
    """Language of kernels that captured functions launch; empty if no functions are captured."""
    refusal: str = "kbuild does not know how they are launched"
    """Reason why functions cannot be captured, as the end of a sentence."""
    runtime: Path | None = None
    """Folder with the modules `_launch_*.py` that replace the DSL in packages whose Python
    launches kernels. None if launches cannot be captured."""
    calls: str = ""
    """Module with `KernelCalls`, which runs code in the place of the language's kernels; empty if
    these write and launch Triton kernels themselves."""
    worker_pins: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Other languages that the worker imports, with the pins of their distributions."""
    replaced: tuple[str, ...] = ()
    """Modules that the runtime replaces in the author's files, with all below them."""
    recorder: tuple[Path, ...] = ()
    """The `sitecustomize.py` that records launches, and modules that it imports; it reads
    `settings.json` next to it."""
    ops_of: Callable[[str, Sequence[CapturedFunction]], Iterator[LaunchOps]] = launch_ops
    """The ops for recorded launches."""
    compiled_as: str = ""
    """Language of the sections with recorded launches; empty for the kernels' own."""
    arch_variable: str = ""
    """Variable with the arch that a recorded command compiles for without a GPU; empty if launches
    do not depend on it."""
    framework: str = "torch"
    """Framework of packages whose Python launches kernels."""


_LANGUAGES: Mapping[str, CapturedLanguage] = {
    "triton": CapturedLanguage(
        "triton", runtime=_TRITON, replaced=("triton",), recorder=(_RECORDER,)
    ),
    "ninetoothed": CapturedLanguage("triton"),
    "helion": CapturedLanguage("triton", calls="kbuild.plugins.capture.helion.calls"),
    "cute": CapturedLanguage(
        refusal="a kernel is compiled for the memory and the layout of the tensors of a call, and "
        "tensors of a captured call have no memory",
        runtime=_CUTE,
        replaced=("cutlass", "cuda", "triton"),
        recorder=(
            _CUTE / "compile_recorder.py",
            _CUTE / "_launch_describe.py",
            _CUTE / "_launch_factories.py",
            _CUTE / "_launch_tuners.py",
            _RECORDER,
        ),
        ops_of=compiled_ops,
        compiled_as="cute-compiled",
        arch_variable="CUTE_DSL_ARCH",
        framework="tvm-ffi",
    ),
    "cute-compiled": CapturedLanguage(refusal="`kbuild capture` writes such sections alone"),
    "cutile": CapturedLanguage("cutile", worker_pins={"triton": ("triton==3.9.0",)}),
    "flydsl": CapturedLanguage(refusal="its kernels have never run"),
    "tilelang": CapturedLanguage(
        refusal="a kernel is compiled for the numbers of a call, and sizes of a captured call are "
        "symbols"
    ),
}
LAUNCH_LANGUAGE = "triton"
"""The language whose launches are captured in an author's Python package."""


def captured_language(name: str) -> CapturedLanguage:
    """Return how kernels of a language are captured."""
    return _LANGUAGES.get(name, CapturedLanguage())
