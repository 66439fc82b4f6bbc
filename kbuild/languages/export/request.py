"""Compile requests of an export: one unit per target, with the types of the signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.errors import UsageError
from kbuild.languages.base import Flavour
from kbuild.languages.export.signature import DIVISOR, ExportSignature
from kbuild.languages.triton import Triton, worker_target
from kbuild.languages.unit import ImageTarget, KernelUnit
from kbuild.ops.binding import BoundLaunch
from kbuild.ops.model import Pairs


@dataclass(frozen=True)
class ExportRequest:
    """What a command line asks for, before the kernel's own parameters are known."""

    function: str
    sources: tuple[str, ...]
    """File names in one folder, the one with the function first."""
    signature: str
    grid: str
    targets: tuple[ImageTarget, ...]
    options: Pairs
    toolchain: tuple[str, ...]
    flavour: Flavour
    language: str = "triton"

    @property
    def name(self) -> str:
        """What errors call it."""
        return self.function


def compilable_targets(
    targets: Sequence[ImageTarget], toolchain: Sequence[str], cuda: str
) -> tuple[ImageTarget, ...]:
    """The targets as the compiler makes them: `sm_90` becomes `sm_90a`.

    Args:
        targets: as they are asked for.
        toolchain: exact pins.
        cuda: the release whose drivers load the code.

    Raises:
        UsageError: the compiler cannot make one of them.
    """
    return tuple(dict.fromkeys(_compilable_target(target, toolchain, cuda) for target in targets))


def _compilable_target(target: ImageTarget, toolchain: Sequence[str], cuda: str) -> ImageTarget:
    capability = target.capability
    if capability is None:
        found = Triton().targets("rocm", (target.arch,), None, toolchain)
    else:
        number = f"{capability.major}.{capability.minor}{capability.feature}"
        arch = f"{number}+PTX" if target.kind == "ptx" else number
        found = Triton().targets("cuda", (arch,), cuda, toolchain)
    meant = [target]
    if target.kind == "cubin" and target.arch[-1].isdigit():
        meant.append(ImageTarget(f"{target.arch}a", target.kind))
    for made in found.targets:
        if made in meant:
            return made
    said = "; ".join(found.notes)
    raise UsageError(f"`{target}` is nothing that {toolchain[0]} compiles for: {said}")


def units_of(order: ExportRequest, signature: ExportSignature) -> dict[KernelUnit, dict[str, Any]]:
    """A unit for each target, with what the worker is asked."""
    return {
        _unit_of(order, signature, one): request_of(order, signature, one) for one in order.targets
    }


def request_of(
    order: ExportRequest, signature: ExportSignature, target: ImageTarget
) -> dict[str, Any]:
    """What the worker is asked; see `Language.request`."""
    arguments = signature.arguments
    return {
        "function": order.function,
        "types": {one.name: one.type for one in arguments},
        "constants": dict(signature.constants),
        "divisible": [one.name for one in arguments if one.hint == DIVISOR],
        "ones": [one.name for one in arguments if one.hint == 1],
        "options": dict(order.options),
        "target": worker_target(target),
    }


def _unit_of(order: ExportRequest, signature: ExportSignature, target: ImageTarget) -> KernelUnit:
    return KernelUnit(
        language=order.language,
        kernel=order.function,
        op=order.function,
        launch=0,
        functions=(order.function,),
        target=target,
        dtypes=(),
        constants=tuple((name, value) for name, value in signature.constants if value is not None),
        options=order.options,
    )


class TritonWithRequests(Triton):
    """Triton, asked for units in the words of a signature."""

    def __init__(self, requests: Mapping[KernelUnit, Mapping[str, Any]]) -> None:
        """`requests` may be filled later."""
        self._requests = requests

    def request(self, unit: KernelUnit, bound: BoundLaunch) -> Mapping[str, Any]:
        """See `Language.request`; units know nothing of arguments one by one."""
        del bound
        return self._requests[unit]
