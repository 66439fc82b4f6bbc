"""Triton: targets from pins and archs, and the worker's request for a unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from kbuild.backends import rocm
from kbuild.backends.capability import Capability
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.dialects import OptionKind
from kbuild.ops.language import (
    LANGUAGES,
    Language,
    ResolvedTargets,
    flavour_of,
    pinned_version,
    release_facts,
)
from kbuild.ops.model import OpSpec
from kbuild.ops.steps import ArgumentSource, Launch
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.system.version import Version

OLDEST = Version.parse("3.4")
"""Oldest supported release: the first whose front end takes arguments in this module's form."""
TYPES = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "bool": "i1",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip
"""Torch's names of dtypes -> Triton's."""
RENAMED_DTYPES = {"float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5", "bool": "int1"}
"""Torch's names of dtypes -> those of `triton.language`, where these differ."""
_LANGUAGE = {dtype: dtype for dtype in TYPES} | RENAMED_DTYPES
_DEFAULT = {"cuda": ("8.0+PTX", "9.0", "10.0", "12.0"), "rocm": rocm.MAIN_ARCHS}
"""Default archs. 8.6 and 8.9 run the code for 8.0, newer devices its PTX."""
_PTXAS = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")
"""Variables with Triton's assemblers: for capabilities below 10.0, and from 10.0 on."""
_VARIABLES = {
    # Line information would put paths of this machine into the images.
    "TRITON_DISABLE_LINE_INFO": "1",
    # Releases have different defaults.
    "TRITON_DEFAULT_FP_FUSION": "1",
    "TRITON_BACKENDS_IN_TREE": "1",
    # Registers and spills are read from it.
    "TRITON_DUMP_PTXAS_LOG": "1",
}
_ONE_CHIP = Version.parse("9.0")
"""First capability from which on Triton compiles for one chip only, PTX included."""
_FALLBACK = ImageTarget("sm_80", "ptx")
_PTX_VERSION = 80
"""PTX ISA 8.0, which every driver for CUDA 12 and later reads."""

_FACTS = Path(__file__).with_name("releases.toml")
_SECOND_ASSEMBLER = (10, 0)
"""First capability for which Triton uses the second assembler, also from 3.9 on, see
`triton_internals`: variants for CUDA 12 and 13 then share the code for 9.0."""


@LANGUAGES.add
class Triton(Language):
    """Kernels with `@triton.jit`."""

    name = "triton"
    decorator = "@triton.jit"
    worker = "triton"
    exporter_class = "kbuild.dsl.languages.triton.export.command:TritonExporter"
    distributions: ClassVar[tuple[str, ...]] = ("triton",)
    options: ClassVar[Mapping[str, OptionKind]] = {
        "num_warps": "power of two",
        "num_stages": "number",
        "num_ctas": "power of two",
        "maxnreg": "number",
        "waves_per_eu": "number",
        "matrix_instr_nonkdim": "number",
        "kpack": "number",
        "schedule_hint": "string",
        "enable_fp_fusion": "flag",
        "launch_pdl": "flag",
        "launch_cooperative_grid": "flag",
    }
    own_candidates = True
    structured = True
    init_backends: ClassVar[tuple[str, ...]] = ("cuda", "rocm")
    open_constants = True
    has_jit_fallback = True

    def unsupported_reason(self, pins: Sequence[str]) -> str | None:
        """See `Dialect.unsupported_reason`."""
        version = version_of(pins)
        if version is None:
            return 'pins no exact Triton; write `toolchain = "triton==3.9.0"`'
        if Version.parse(version) < OLDEST:
            return f"pins Triton {version}; kbuild supports {OLDEST} and later"
        return None

    def targets(
        self, backend: str, archs: Sequence[str] | None, toolkit: str | None, pins: Sequence[str]
    ) -> ResolvedTargets:
        """See `Language.targets`."""
        able = _release(pins)[flavour_of(backend, toolkit)]
        targets: dict[ImageTarget, None] = {}
        notes: list[str] = []
        for arch in _DEFAULT[backend] if archs is None else archs:
            wanted, note = _resolve(arch, able, f"Triton {version_of(pins)}")
            targets.update(dict.fromkeys(wanted))
            # A note about a default arch would only confuse: the author did not ask for it.
            notes += [note] if note and archs is not None else []
        return ResolvedTargets(tuple(targets), tuple(notes))

    def variables(self, request: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG002
        """See `Language.variables`."""
        return _VARIABLES

    def programs(self, pins: Sequence[str], flavour: str) -> Mapping[str, str]:
        """See `Language.programs`."""
        names = _release(pins)["assemblers"].get(flavour, ())
        return dict(zip(_PTXAS, names, strict=False))

    def program(self, pins: Sequence[str], flavour: str, target: ImageTarget) -> str | None:
        """See `Language.program`."""
        capability, names = target.capability, _release(pins)["assemblers"].get(flavour)
        if capability is None or not names:
            return None
        return str(names[capability.base >= _SECOND_ASSEMBLER])

    def jit_source(self, op: OpSpec, launches: Sequence[tuple[Launch, BoundLaunch]]) -> str:
        """See `Language.jit_source`."""
        from kbuild.dsl.languages.triton.jit_fallback import jit_source

        return jit_source(op, launches)

    def request(self, unit: KernelUnit, bound: BoundLaunch) -> Mapping[str, Any]:
        """See `Language.request`."""
        # An object, so that the worker can tell a dtype from a string constant.
        dtypes = {name: {"dtype": _LANGUAGE[dtype]} for name, dtype in unit.dtype_constants}
        constants = {**dict(unit.constants), **dtypes}
        types = {name: _type(name, source, unit) for name, source in bound.arguments}
        tensors = ((n, source.name) for n, source in bound.flat() if source.kind == "tensor")
        pointers = [name for name, tensor in tensors if tensor not in unit.absent]
        layouts = {name: dict(source.layout) for name, source in bound.flat() if source.layout}
        return {
            "function": bound.function,
            "types": types,
            "constants": {name: constants[name] for name in bound.constants if name in constants},
            "divisible": [*pointers, *unit.divisible] if unit.aligned else [],
            "ones": list(unit.ones),
            "options": dict(unit.options),
            "target": worker_target(unit.target),
            **({"layouts": layouts} if layouts else {}),
            **({"tuned": True} if bound.tuned else {}),
        }


def version_of(pins: Sequence[str]) -> str | None:
    """The exact Triton release that is pinned; None without one."""
    return pinned_version("triton", pins)


def _release(pins: Sequence[str]) -> Mapping[str, Any]:
    return release_facts(_FACTS, version_of(pins) or "")


def worker_target(target: ImageTarget) -> dict[str, Any]:
    """Target for the worker: backend, arch, warp size and kind of code."""
    capability = target.capability
    if capability is None:
        warp = rocm.wavefront(target.arch)
        return {"backend": "hip", "arch": target.arch, "warp": warp, "kind": target.kind}
    facts = {"backend": "cuda", "arch": capability.major * 10 + capability.minor, "warp": 32}
    isa = {"ptx_version": _PTX_VERSION} if target.kind == "ptx" else {}
    return {**facts, "kind": target.kind, "name": target.arch, **isa}


def _resolve(arch: str, able: Sequence[str], release: str) -> tuple[tuple[ImageTarget, ...], str]:
    """Return the targets of one arch, and a note for the user, which may be empty."""
    wanted = None if rocm.is_arch(arch) else Capability.parse(arch)
    number = f"{wanted.major}.{wanted.minor}" if wanted else arch
    if number not in able:
        return (), f"{arch}: {release} does not compile for it here; left out"
    if wanted is None:
        return (ImageTarget.parse(arch),), ""
    plain = f"sm_{wanted.major}{wanted.minor}"
    if Version.parse(number) < _ONE_CHIP:
        code = ImageTarget(plain, "cubin")
        return ((code, ImageTarget(plain, "ptx")) if wanted.ptx else (code,)), ""
    code = ImageTarget(f"{plain}a", "cubin")
    if wanted.ptx:
        note = f"{arch}: Triton's PTX for {number} fits that chip only; {_FALLBACK} is shipped"
        return (code, _FALLBACK), note
    if wanted.feature == "f":
        return (code,), f"{arch}: Triton compiles for the chip, {code}, not for its family"
    return (code,), ""


def _type(name: str, source: ArgumentSource, unit: KernelUnit) -> str | list[str]:
    """Triton's type of an argument; `none` for a tensor that is None, a list for a tuple."""
    if source.kind == "tuple":
        items = (_type(f"{name}.{index}", item, unit) for index, item in enumerate(source.items))
        return [item for item in items if isinstance(item, str)]
    if source.kind in {"tensor", "descriptor"}:
        return _tensor(source, unit)
    if source.kind == "none":
        return "none"
    if source.kind == "int":
        return "i64" if name in unit.int64 else "i32"
    return {"float": "fp64" if source.double else "fp32", "bool": "u1"}[source.kind]


def _tensor(source: ArgumentSource, unit: KernelUnit) -> str:
    if source.name in unit.absent:
        return "none"
    type_ = TYPES[dict(unit.dtypes)[source.name]]
    if source.kind == "tensor":
        return f"*{type_}"
    return f"tensordesc<{type_}{list(source.block_shape(unit.constants))}>"
