"""Calls of `cute.compile` that were recorded: each is compiled to a function of TVM-FFI."""

from __future__ import annotations

import json
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

    def label(self, unit: KernelUnit) -> Sequence[str]:
        """See `Language.label`: the callable, and the types of the tensors."""
        record = json.loads(str(dict(unit.constants)["record"]))
        tensors = filter(None, map(_tensor_type, record["arguments"]))
        return (_short_name(record["callable"]), str(unit.target), *tensors)

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


def _short_name(described: Any) -> str:
    """Name of a callable or its class, such as `Softmax`; the call for one that a factory makes."""
    if isinstance(described, str):
        return described.rpartition(":")[2]
    for key in ("object", "function", "partial", "of"):
        if key in described:
            return _short_name(described[key])
    values = [*described["items"], *described["keywords"].values()]
    given = [
        _short_name(each) if "call" in each else "" for each in values if isinstance(each, dict)
    ]
    given += [each for each in values if isinstance(each, str)]
    return f"{_short_name(described['call'])}({', '.join(filter(None, given))})"


def _tensor_type(described: Any) -> str:
    """A tensor's dtype and sizes, such as `Float16[?x64]`; empty for other arguments."""
    kinds = [
        key for key in ("tensor", "dlpack") if isinstance(described, dict) and key in described
    ]
    if not kinds:
        return ""
    sizes = (str(size) if isinstance(size, int) else "?" for size in described["shape"])
    return f"{described[kinds[0]]}[{'x'.join(sizes)}]"
