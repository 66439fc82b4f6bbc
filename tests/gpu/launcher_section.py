"""The ops of the launcher's test on a GPU, with images that nvcc made.

`python -m tests.gpu.launcher_section IMAGES FOLDER` builds `FOLDER/<NAME>.so` for Torch, and with
TVM-FFI installed `FOLDER/functions/<NAME>.so` as well.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tomli

from kbuild.dsl.launcher.files import launcher_files
from kbuild.dsl.launcher.resolved_kernel import ResolvedLaunch, ResolvedOp
from kbuild.ops.binding import bind
from kbuild.ops.bound_launch import KernelParameter
from kbuild.ops.expand import expand
from kbuild.ops.image import ImageParameter, KernelImage, UnitImage
from kbuild.ops.language import KernelFunction
from kbuild.ops.model import OpSpec
from kbuild.ops.section import read_section
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.project.config.issue import IssueCollector
from kbuild.system.files import FileSet
from tests.gpu.launcher_images import ARCHS, name_of

NAME = "_kbuild_launcher_gpu"
SECTION = """
language = "triton"
toolchain = "triton==3.9.0"
src = ["k.py"]

[[op]]
schema = "add(Tensor x, Tensor y) -> Tensor"
shapes = { x = ["..."], y = "x", out = "x" }
dtypes = ["float32"]
contiguous = true
let = { n = "numel(x)" }
grid = ["cdiv(n, 1024)"]

[[op]]
schema = "scale_(Tensor(a!) x, float factor, bool negate=False) -> ()"
shapes = { x = ["n"] }
dtypes = { x = ["float32"] }
grid = ["cdiv(n, 256)"]

[[op]]
schema = "total(Tensor x) -> Tensor"
shapes = { x = ["n"], sums = ["cdiv(n, 256)"], out = [1] }
dtypes = ["float32"]
temporaries = ["sums"]

[[op.launch]]
function = "part"
grid = ["cdiv(n, 256)"]

[[op.launch]]
function = "whole"
args = { count = "cdiv(n, 256)" }
grid = [1]
"""
PARAMETERS = {
    "add": ("x", "y", "out", "n"),
    "scale_": ("x", "n", "factor", "negate"),
    "part": ("x", "sums", "n"),
    "whole": ("sums", "out", "count"),
}
KINDS = {"factor": ("float", "fp32"), "negate": ("int", "u1")}
SHARED = 20256 * 4


def specs() -> tuple[OpSpec, ...]:
    """The ops."""
    return read_section("gpu", tomli.loads(SECTION)).ops


def files(images: Path, framework: str = "torch") -> FileSet:
    """The launcher with the images of a folder."""
    targets = [ImageTarget.parse(arch) for arch in ARCHS if (images / name_of(arch)).is_file()]
    ops = [_launched(op, targets, images) for op in specs()]
    return launcher_files("gpu", ops, module=True, framework=framework)


def _launched(op: OpSpec, targets: list[ImageTarget], images: Path) -> ResolvedOp:
    launches = []
    for index, launch in enumerate(op.launches):
        name = launch.functions[0]
        parameters = [KernelParameter(parameter) for parameter in PARAMETERS[name]]
        bound = bind(op, launch, {name: parameters}, IssueCollector(launch.path))
        assert bound is not None
        units = [unit for unit in expand(op, targets) if unit.launch == index]
        compiled = tuple(_compiled(unit, name, images) for unit in units)
        function = KernelFunction(name, tuple(parameters))
        launches.append(ResolvedLaunch(op, launch, bound, function, compiled))
    return ResolvedOp(op, tuple(launches))


def _compiled(unit: KernelUnit, function: str, images: Path) -> UnitImage:
    parameters = [_parameter(name) for name in PARAMETERS[function]]
    pointers = [one.name for one in parameters if one.kind == "pointer"]
    entry = function.rstrip("_")
    if function == "add":
        entry = "add_fast" if unit.aligned else "add_plain"
    image = KernelImage(
        unit.language,
        unit.target.arch,
        unit.target.kind,
        entry,
        (
            *parameters,
            ImageParameter("global_scratch", "*i8"),
            ImageParameter("profile_scratch", "*i8"),
        ),
        shared=SHARED if function == "scale_" else 0,
        threads=256,
        scratch=1024 if function == "scale_" else 0,
        scratch_align=128,
        divisible=frozenset(pointers if unit.aligned else ()),
    )
    return UnitImage(unit, image, (images / name_of(str(unit.target))).read_bytes())


def _parameter(name: str) -> ImageParameter:
    if name in KINDS:
        kind, of = KINDS[name]
        return ImageParameter("float" if kind == "float" else "int", of, name)
    if name in ("n", "count"):
        return ImageParameter("int", "i32", name)
    return ImageParameter("pointer", "*fp32", name)


def command(folder: Path, torch: Path) -> tuple[str, ...]:
    """How the extension is compiled."""
    return (
        *("g++", "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"),
        *(f"-DTORCH_EXTENSION_NAME={NAME}", "-DTORCH_TARGET_VERSION=0x0209000000000000"),
        *("-isystem", str(torch / "include"), f"-Wa,-I{folder / 'aot'}"),
        *(str(folder / "aot" / "gpu.cpp"), "-o", str(folder / f"{NAME}.so")),
        *(f"-L{torch / 'lib'}", "-ltorch_cpu"),
    )


if __name__ == "__main__":
    from importlib.util import find_spec

    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    target = Path(sys.argv[2])
    files(Path(sys.argv[1])).write(target, manifest=False)
    subprocess.run(command(target, Path(spec.origin).parent), check=True)  # noqa: TID251
    if find_spec("tvm_ffi"):
        from tests.support.launcher.functions import library

        library(files(Path(sys.argv[1]), "tvm-ffi"), target / "functions", NAME, tested=False)
