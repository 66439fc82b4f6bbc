"""Calls of `cute.compile` that were recorded: each is compiled to a function of TVM-FFI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from kbuild.dsl.languages.cute import Cute, version_of
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.language import LANGUAGES
from kbuild.ops.model import OpSpec
from kbuild.ops.steps import Candidate
from kbuild.ops.unit import ImageTarget, KernelUnit

COMPILED = "compiled"
"""Name of the function that a section's op launches; its constant `record` is the call."""


@LANGUAGES.add
class CompiledCute(Cute):
    """Recorded calls of `cute.compile`; the plug-in writes sections in this language."""

    name = "cute-compiled"
    worker = str(Path(__file__).with_name("compile_worker.py"))
    exporter_class = ""
    init_backends: ClassVar[tuple[str, ...]] = ()

    def expand(
        self,
        op: OpSpec,
        targets: Sequence[ImageTarget],
        candidates: Mapping[int, Sequence[Candidate]] | None = None,
    ) -> tuple[KernelUnit, ...]:
        """See `Language.expand`; nothing depends on the op's own tensor."""
        return tuple(unit for unit in super().expand(op, targets, candidates) if not unit.aligned)

    def request(self, unit: KernelUnit, bound: BoundLaunch) -> Mapping[str, Any]:
        """See `Language.request`."""
        return {
            "kernel": unit.kernel,
            "function": COMPILED,
            "version": version_of(bound.toolchain) or "",
            "arch": unit.target.arch,
            "constants": {},
            "record": dict(unit.constants)["record"],
        }
