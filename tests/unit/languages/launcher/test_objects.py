"""Objects that are linked instead of loaded: real ones, compiled from C, which work on the CPU."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tomli
from launched import FAKES, Driver, extension

from kbuild.languages.base import LANGUAGES, Linked
from kbuild.languages.compiled import Compiled
from kbuild.languages.expand import expand
from kbuild.languages.image import Image, Parameter
from kbuild.languages.launcher import LaunchedLaunch, LaunchedOp, launcher, linked_file
from kbuild.languages.spec import Bound, KernelParameter, OpSpec, bind, read_section
from kbuild.languages.spec.place import Place
from kbuild.languages.target import Target
from kbuild.languages.unit import Unit

pytestmark = [pytest.mark.compile, pytest.mark.torch]
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


def cute_image(unit: Unit, bound: Bound) -> tuple[Image, dict[str, Any]]:
    """As the worker of CuTe DSL says it."""
    request = LANGUAGES.get("cute").request(unit, bound)
    given = [one for one in leaves(request["arguments"]) if one["kind"] not in {"none", "one"}]
    kinds = {"float": "float", "tensor": "tensor", "flat": "flat"}
    parameters = tuple(
        Parameter(
            kinds.get(one["kind"], "int"),
            TYPES.get(one["kind"], f"i{one.get('bits')}"),
            one["name"],
        )
        for one in given
    )
    tensors = {one.name for one in parameters if one.kind in ("tensor", "flat")}
    assumed = (tensors | set(unit.divisible)) if unit.aligned else set()
    image = Image(
        "cute", unit.target.arch, "object", request["symbol"], parameters, 0, 1,
        divisible=frozenset(assumed), ones=frozenset(unit.ones), convention="tvm-ffi",
        compiler={"nvidia-cutlass-dsl": "4.8.1"},
    )  # fmt: skip
    dim = 2 if unit.op == "rows" else 1
    fail = {"fails": 1, "fails_in_cuda": 2}.get(unit.op, 0)
    mark = 1000 * unit.aligned + 5000 * bool(unit.absent)
    return image, {"DIM": dim, "FAIL": fail, "MARK": mark, "STREAM": STREAM}


def c_image(unit: Unit, bound: Bound) -> tuple[Image, dict[str, Any]]:
    entry = f"kbuild_aot_{unit.kernel}_{'fast' if unit.aligned else 'plain'}_{unit.target.arch}"
    types = {"x": "*fp32", "out": "*fp32", "n": "i32", "big": "i64", "factor": "fp32",
             "wide": "fp64", "flag": "u1"}  # fmt: skip
    kinds = {"*": "pointer", "f": "float"}
    parameters = tuple(Parameter(kinds.get(t[0], "int"), t, name) for name, t in types.items())
    assert tuple(types) == tuple(name for name, _ in bound.arguments)
    image = Image(
        "tilelang", unit.target.arch, "object", entry, parameters, 0, 1,
        divisible=frozenset({"x", "out"} if unit.aligned else ()), convention="c",
        compiler={"tilelang": "0.1.15"},
    )  # fmt: skip
    return image, {"MARK": 2000 * unit.aligned, "ERROR_SYMBOL": f"{entry}_error"}


def compiled(unit: Unit, bound: Bound, folder: Path) -> Compiled:
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
    return Compiled(unit, image, target.read_bytes())


def launched(op: OpSpec, folder: Path) -> LaunchedOp:
    parameters = [KernelParameter(name) for name in FUNCTIONS[op.name]]
    issues: list[Any] = []
    (launch,) = op.launches
    bound = bind(op, launch, {op.name: parameters}, Place(launch.path, issues))
    assert bound is not None, issues
    units = expand(op, [Target.parse("sm_80"), Target.parse("sm_90a")])
    own = tuple(compiled(unit, bound, folder) for unit in units)
    return LaunchedOp(op, (LaunchedLaunch(launch, bound, own),))


@pytest.fixture(scope="module")
def linked(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("objects")
    made = {name: tuple(launched(op, folder) for op in ops) for name, ops in sections().items()}
    files = launcher("cute", made["cute"], module=True).merge(
        launcher("plain", made["plain"], module=False)
    )
    objects = [str(folder / path) for path, _ in files.items() if path.endswith(".o")]
    exports = folder / "exports.map"
    exports.write_text("{ global: *; local: _Z*; *kbuild_aot_*; };\n")
    flags = (f"-Wl,--version-script={exports}", *objects)
    path = extension(files, folder, "_objects_tests", *flags)
    torch.ops.load_library(str(path))
    return SimpleNamespace(ops=torch.ops._objects_tests, path=path, files=files, made=made)


@pytest.fixture
def ops(linked: Any, driver: Driver) -> Iterator[Any]:
    driver.torch.fake_use_stream(0, STREAM)
    yield linked.ops
    driver.torch.fake_use_stream(0, 0)
    driver.library.fake_forget()


def torch_() -> Any:
    import torch

    return torch


def test_arguments_reach_the_object(ops):
    x = torch_().arange(24.0).reshape(2, 3, 4)
    out = ops.scale(x, 0.5, 7, True)
    assert out.shape == x.shape
    torch_().testing.assert_close(out, x * 0.5 + 7 + 100 + 1000)


def test_unaligned_tensors_take_the_plain_object(ops):
    x = torch_().arange(25.0)[1:]
    torch_().testing.assert_close(ops.scale(x, 2.0, -3), x * 2 - 3)


def test_an_empty_grid_launches_nothing(ops):
    assert ops.scale(torch_().empty(0, 5)).shape == (0, 5)


def test_other_tensors_are_refused_before_the_call(ops):
    with pytest.raises(RuntimeError, match="must be contiguous"):
        ops.scale(torch_().zeros(4, 4).t())
    with pytest.raises(RuntimeError, match="float64"):
        ops.scale(torch_().zeros(4, dtype=torch_().float64))
    with pytest.raises(RuntimeError, match="does not fit i32"):
        ops.scale(torch_().zeros(4), 1.0, 2**31)


@pytest.mark.parametrize(
    ("columns", "step", "begin", "fast"),
    [(16, 32, 0, True), (15, 32, 0, False), (16, 33, 0, False), (16, 32, 1, False)],
)
def test_sizes_and_strides_decide_between_objects(ops, columns, step, begin, fast):
    whole, out = torch_().randn(4, 64), torch_().zeros(4, columns)
    x = whole.flatten().as_strided((3, columns), (step, 1), begin)
    ops.rows(x, out[:3])
    pair = columns + 1  # its last number
    torch_().testing.assert_close(out[:3], x + pair + 1000 * fast)


def test_a_stride_that_is_not_one_takes_the_plain_object(ops):
    x, out = torch_().randn(32, 64)[:, ::2], torch_().zeros(32, 32)
    ops.rows(x, out)
    torch_().testing.assert_close(out, x + 33)


def test_what_is_none_is_no_argument(ops):
    x = torch_().ones(32)
    torch_().testing.assert_close(ops.maybe(x), x + 6000)
    torch_().testing.assert_close(ops.maybe(x, x), x + 1000)


def test_failures_are_told(ops):
    with pytest.raises(RuntimeError, match=r"`fails`.*it is meant to.*nvidia-cutlass-dsl 4\.8\.1"):
        ops.fails(torch_().ones(4))
    with pytest.raises(RuntimeError, match=r"the CUDA runtime fails \(error 700\)"):
        ops.fails_in_cuda(torch_().ones(4))


def test_the_stream_is_torchs(ops, driver):
    driver.torch.fake_use_stream(0, 0x99)
    with pytest.raises(RuntimeError, match="it is on another stream"):
        ops.scale(torch_().ones(4))


def test_no_image_for_the_device(ops, driver):
    x = torch_().ones(64)
    driver.place(x, 4)
    with pytest.raises(RuntimeError, match="no image for sm_100; there are images for sm_80 and"):
        ops.scale(x)


def test_functions_of_c(ops):
    x = torch_().arange(8.0)
    out = ops.scale_c(x, 8, 3 << 32, 0.5, 0.25, True)
    torch_().testing.assert_close(out, x * 0.5 + 0.25 + 3 + 100 + 2000)
    with pytest.raises(RuntimeError, match="`scale_c`: `scale_c`: n is negative"):
        ops.scale_c(x, -1, 0, 1.0, 0.0, False)


def test_nothing_of_the_objects_is_exported(linked):
    done = subprocess.run(  # noqa: TID251
        ("nm", "-D", "--defined-only", str(linked.path)), capture_output=True, text=True, check=True
    )
    names = [line.split()[-1] for line in done.stdout.splitlines()]
    assert [n for n in names if "kbuild_aot" in n or "TVMFFI" in n or "CuteDSL" in n] == []


def test_files(linked):
    paths = [path for path, _ in linked.files.items()]
    assert "aot/cute.bin" not in paths
    text = dict(linked.files.items())["aot/cute.cmake"].decode()
    listed = [
        line.strip(" )") for line in text.splitlines() if line.strip().endswith((".o", ".o)"))
    ]
    assert sorted(f"aot/{one}" for one in listed) == sorted(
        path for path in paths if path.startswith("aot/cute/")
    )


def test_the_same_input_gives_the_same_files(linked):
    again = launcher("cute", linked.made["cute"], module=True)
    assert all(dict(linked.files.items())[path] == data for path, data in again.items())


def test_libraries_are_told_to_cmake(tmp_path):
    files = dict(linked_file("k", Linked((tmp_path / "a b.a",), cudart="13")).items())
    text = files["aot/k.libraries.cmake"].decode()
    assert f"[==[{tmp_path / 'a b.a'}]==]" in text
    assert 'set(cudart "13")' in text
