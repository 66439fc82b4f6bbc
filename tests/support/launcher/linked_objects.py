"""Real objects for tests of launchers: compiled from C, they work on the CPU."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli

from kbuild.dsl.compile_environment import json_digest
from kbuild.dsl.launcher.resolved_kernel import ResolvedLaunch, ResolvedOp
from kbuild.ops.binding import bind
from kbuild.ops.bound_launch import BoundLaunch, KernelParameter
from kbuild.ops.expand import expand
from kbuild.ops.image import ImageParameter, KernelImage, UnitImage
from kbuild.ops.language import LANGUAGES, KernelFunction
from kbuild.ops.model import OpSpec
from kbuild.ops.section import read_section
from kbuild.ops.unit import CPU_TARGET, ImageTarget, KernelUnit
from kbuild.project.config.issue import IssueCollector
from tests.support.launcher.launched import FAKES

STREAM = 0x1234
FUNCTIONS = {
    "scale": ("x", "out", "factor", "number", "flag"),
    "rows": ("x", "out", "pair"),
    "maybe": ("x", "extra", "out"),
    "fails": ("x", "out"),
    "fails_in_cuda": ("x", "out"),
    "scale_c": ("x", "out", "n", "big", "factor", "wide", "flag"),
}
TYPES = {"tensor": "*fp32", "flat": "*fp32", "float": "fp64", "bool": "u1"}


def sections() -> dict[str, tuple[OpSpec, ...]]:
    text = Path(__file__).with_name("objects.toml").read_text("utf-8")
    found = {}
    for name, section in tomli.loads(text)["kernel"].items():
        reading = read_section(name, section)
        assert [i for i in reading.issues if i.severity == "error"] == [], reading.issues
        found[name] = reading.ops
    return found


def leaves(arguments: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for one in arguments:
        yield from one.get("items", [one])


def cute_image(unit: KernelUnit, bound: BoundLaunch) -> tuple[KernelImage, dict[str, Any]]:
    """As the worker of CuTe DSL says it."""
    request = LANGUAGES.get("cute").request(unit, bound)
    given = [one for one in leaves(request["arguments"]) if one["kind"] not in {"none", "one"}]
    kinds = {"float": "float", "tensor": "tensor", "flat": "flat"}
    parameters = tuple(
        ImageParameter(
            kinds.get(one["kind"], "int"),
            TYPES.get(one["kind"], f"i{one.get('bits')}"),
            one["name"],
        )
        for one in given
    )
    tensors = {one.name for one in parameters if one.kind in ("tensor", "flat")}
    assumed = (tensors | set(unit.divisible)) if unit.aligned else set()
    entry = f"kbuild_aot_{json_digest(request)[:16]}"
    init, ready = (f"__cute_internal_{entry}_{n}" for n in ("cuda_init", "cuda_load_to_device"))
    image = KernelImage(
        "cute", unit.target.arch, "object", entry, parameters,
        0, 1,
        divisible=frozenset(assumed), ones=frozenset(unit.ones), convention="tvm-ffi",
        compiler={"nvidia-cutlass-dsl": "4.8.1"}, loading="library",
        load_functions=(init, ready),
    )  # fmt: skip
    names = {"INIT": init, "READY": ready}
    names |= {f"{macro}_OWN": f"{name}_own" for macro, name in names.items()}
    dim = 2 if unit.op == "rows" else 1
    fail = {"fails": 1, "fails_in_cuda": 2}.get(unit.op, 0)
    mark = 1000 * unit.aligned + 5000 * bool(unit.absent)
    return image, {"DIM": dim, "FAIL": fail, "MARK": mark, "STREAM": STREAM, **names}


def c_image(unit: KernelUnit, bound: BoundLaunch) -> tuple[KernelImage, dict[str, Any]]:
    on_cpu = unit.target == CPU_TARGET
    speed = "fast" if unit.aligned else "plain"
    entry = f"kbuild_aot_{unit.kernel}_{speed}_{unit.target.arch}_{unit.launch}"
    types = {"x": "*fp32", "out": "*fp32", "n": "i32", "big": "i64", "factor": "fp32",
             "wide": "fp64", "flag": "u1"}  # fmt: skip
    kinds = {"*": "pointer", "f": "float"}
    parameters = tuple(ImageParameter(kinds.get(t[0], "int"), t, name) for name, t in types.items())
    assert tuple(types) == tuple(name for name, _ in bound.arguments)
    image = KernelImage(
        "tilelang", unit.target.arch, "object", entry, parameters, 0, 1,
        divisible=frozenset({"x", "out"} if unit.aligned and not on_cpu else ()), convention="c",
        compiler={"tilelang": "0.1.15"}, loading="" if on_cpu else "function",
    )  # fmt: skip
    symbols = {"ERROR_SYMBOL": f"{entry}_error", "LOAD_SYMBOL": f"{entry}_load"}
    return image, {"MARK": 2000 * unit.aligned, **symbols}


def compiled(unit: KernelUnit, bound: BoundLaunch, folder: Path) -> UnitImage:
    make = {"cute": cute_image, "tilelang": c_image}[unit.language]
    image, macros = make(unit, bound)
    source = {"tvm-ffi": "tvm_ffi_object.c", "c": "c_object.c"}[image.convention]
    target = folder / f"{image.entry}.o"
    defined = [f"-D{name}={value}" for name, value in macros.items()]
    command = (
        *("gcc", "-c", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", str(FAKES / source)),
        *("-o", str(target), f"-DSYMBOL={image.entry}", *defined),
    )
    subprocess.run(command, check=True)  # noqa: TID251
    # Two objects with a name in common, as two kernels of one process are linked.
    rename = f"kbuild_aot_helper={image.entry}_helper"
    subprocess.run(("objcopy", "--redefine-sym", rename, str(target)), check=True)  # noqa: TID251
    return UnitImage(unit, image, target.read_bytes())


def linked_op(op: OpSpec, folder: Path, targets: Sequence[str] = ("sm_80", "sm_90a")) -> ResolvedOp:
    """The op with its objects."""
    units = expand(op, [ImageTarget.parse(target) for target in targets])
    launches = []
    for index, launch in enumerate(op.launches):
        name = launch.functions[0] if launch.functions else op.name
        parameters = [KernelParameter(name) for name in FUNCTIONS[name]]
        issues: list[Any] = []
        bound = bind(op, launch, {name: parameters}, IssueCollector(launch.path, issues))
        assert bound is not None, issues
        own = tuple(compiled(unit, bound, folder) for unit in units if unit.launch == index)
        function = KernelFunction(name, tuple(parameters))
        launches.append(ResolvedLaunch(op, launch, bound, function, own))
    return ResolvedOp(op, tuple(launches))


def linked_ops(folder: Path) -> dict[str, tuple[ResolvedOp, ...]]:
    """The ops of `objects.toml` by kernel."""
    return {name: tuple(linked_op(op, folder) for op in ops) for name, ops in sections().items()}
