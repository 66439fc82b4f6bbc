"""From kernels in DSLs to sources: what is compiled, what is left out, and who is told."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import tomli

from kbuild.dsl.aot_build import build_aot_kernels
from kbuild.dsl.aot_compiler import AotCompiler
from kbuild.ops.manifest import OpManifest
from kbuild.ops.section import read_section
from kbuild.plan.plan import AotKernel
from kbuild.system.budget import Budget, open_run
from kbuild.system.errors import BuildError, ConfigError
from kbuild.system.processes import LocalRunner
from kbuild.system.store import Store
from kbuild.toolchains.wheels.installer import WheelInstaller
from tests.support.fake_dsl import WORKER, Fake, Nowhere

OP = """
schema = "k(Tensor(a!) x, int n) -> ()"
shapes = { x = ["M", "N"] }
dtypes = ["float16", "float32"]
grid = ["{grid}"]
"""
PARAMETERS = [{"name": "x", "constant": False, "default": False}]
BLOCK = {"name": "BLOCK", "constant": True, "default": False}


def own(*stages: int, block: bool = False) -> list[Any]:
    return [
        {"constants": {"BLOCK": 1} if block else {}, "options": {"num_stages": one}}
        for one in stages
    ]


class Asking(Fake):
    """Tells the worker the dtype as well."""

    def request(self, unit, bound):
        return {**super().request(unit, bound), "dtype": dict(unit.dtypes)["x"]}


@dataclass
class AotBuildRun:
    compiler: AotCompiler
    root: Path
    notes: list[str] = field(default_factory=list)

    def produce(self, configs: str, *targets: str, keep_all: bool = False, **facts: Any) -> Any:
        """Of a kernel `k` whose images need `shared` by dtype and `num_stages`."""
        text = OP.replace("{grid}", facts.pop("grid", "M"))
        framework = facts.pop("framework", "torch")
        op = f"[[op]]\n{text}\nconfigs = {configs}\n{facts.pop('more', '')}"
        if "launches" in facts:
            op = "[[op]]\n" + text.partition("grid")[0] + facts.pop("launches")
        section = {"language": "triton", "toolchain": "triton==3.9.0", "src": ["k.py"]}
        function: Mapping[str, Any] = {
            "name": "k", "parameters": PARAMETERS, "candidates": [], "key": [], "computed": [],
            "notes": [], **facts.pop("function", {}),
        }  # fmt: skip
        source = {"functions": [function], "log": str(self.root), **facts}
        (self.root / "build.toml").write_text(op.replace("[[op]]", "[[kernel.k.op]]"))
        (self.root / "k.py").write_text(json.dumps(source))
        read = read_section("k", {**section, **tomli.loads(op)})
        kernel = AotKernel(read, targets or ("sm_80",), "cuda13", keep_all=keep_all)
        named = {"ops_name": "_k", "variant": "torch211-cxx11-cu130-x86_64-linux"}
        plan: Any = SimpleNamespace(
            framework=framework, aot=(kernel,), components=(), generated=(), op_modules=(), **named
        )
        produced = build_aot_kernels(
            plan, self.root, self.compiler, lambda *_: None, self.notes.append
        )
        return [one.unit for one in produced.compiled[0][1]], produced


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[AotBuildRun]:
    installer = WheelInstaller(LocalRunner(), Store(tmp_path / "store"))
    (tmp_path / "project").mkdir()
    with open_run(Budget(2, 4096), tmp_path / "cache", {}) as run:
        language = Asking()
        assert language.worker == str(WORKER)
        compiler = AotCompiler(run, Nowhere(installer), lambda _: language)
        try:
            yield AotBuildRun(compiler, tmp_path / "project")
        finally:
            compiler.close()


def stages(units: Any, target: str = "sm_80") -> list[int]:
    found = (dict(one.options)["num_stages"] for one in units if str(one.target) == target)
    return sorted(set(found), reverse=True)


LISTED = "[{ num_stages = 4 }, { num_stages = 3 }, { num_stages = 2 }]"


def sizes(**more: int) -> dict[str, int]:
    """Bytes of each image: float16 and float32 alike, unless said otherwise."""
    usual = {f"{d}-{s}": b for d in ("float16", "float32") for s, b in ((4, 400), (3, 300), (2, 2))}
    return usual | {name.replace("_", "-"): value for name, value in more.items()}


class TestNotes:
    def test_the_kernels_own_words(self, bench: AotBuildRun):
        function = {"candidates": own(2), "notes": ["`k` has a `perf_model`"]}
        for _ in range(2):  # as two variants would
            bench.produce('"autotune"', function=function)
        assert bench.notes == ["kernel.k: `k` has a `perf_model`"]

    def test_images_left_out(self, bench: AotBuildRun):
        """Said once, not for each variant."""
        for _ in range(2):
            units, _ = bench.produce(LISTED, "sm_90a", shared=sizes(float16_4=300_000))
        assert stages(units, "sm_90a") == [4, 3]
        reason = "left out, it needs 300000 bytes of shared memory, but 232448 are available"
        assert bench.notes == [f"kernel.k: k sm_90a float16 num_stages=4: {reason}"]

    def test_many_of_them(self, bench: AotBuildRun):
        configs = ", ".join(f"{{ num_stages = {n} }}" for n in range(12, 1, -1))
        shared = {f"{d}-{n}": 300_000 for d in ("float16", "float32") for n in range(3, 13)}
        bench.produce(f"[{configs}]", shared=shared)
        assert len(bench.notes) == 9
        assert bench.notes[-1].endswith("more images are left out for the same reason")


class TestManyImages:
    CHOICES = "n = {{ value = 'n', choices = [{}] }}, m = {{ value = 'M', choices = [1, 2] }}"

    def produced(self, bench: AotBuildRun, choices: int, **more: Any) -> list[str]:
        constants = self.CHOICES.format(", ".join(map(str, range(choices))))
        parameters = [*PARAMETERS, *({**BLOCK, "name": name} for name in "nm")]
        text = f"constants = {{ {constants} }}\n"
        bench.produce("[{}]", more=text, function={"parameters": parameters}, **sizes(), **more)
        return [note for note in bench.notes if "images" in note]

    def test_the_longest_list_is_named_once(self, bench: AotBuildRun):
        (note,) = self.produced(bench, 63)
        assert note == (
            "504 images have to be compiled, all of them for `k` of kernel.k, which has 63 values "
            "of the constant `n` (8 images each), 2 values of the constant `m` (252 images each), "
            "2 combinations of `dtypes` (252 images each), 2 assumptions about alignment (252 "
            "images each); shorten these lists to compile fewer"
        )
        assert self.produced(bench, 63) == [note]

    @pytest.mark.full
    def test_tuning_wants_all(self, bench: AotBuildRun):
        assert self.produced(bench, 63, keep_all=True) == []


def test_a_launch_without_an_image_for_one_dtype(bench: AotBuildRun):
    """The other dtype has images; calls with this one would be refused."""
    huge = {f"float32_{n}": 200_000 for n in (4, 3, 2)}
    words = r"kernel\.k: no image of k sm_80 float32 num_stages=4 fits: it needs 200000 bytes"
    with pytest.raises(BuildError, match=words):
        bench.produce(LISTED, "sm_80", "sm_90a", shared=sizes(**huge))


LAUNCH = """
[[op.launch]]
function = "k"
configs = [{{ num_stages = 4 }}]
grid = ["M"]
when = "capability() {sign} 90"
"""


class TestOtherArchs:
    """Launches that no arch of the build is for."""

    def test_an_op_without_any_image(self, bench: AotBuildRun):
        words = r"kernel\.k: `k` has no image: none of its launches is for sm_80"
        with pytest.raises(BuildError, match=words):
            bench.produce("", launches=LAUNCH.format(sign=">="))

    def test_a_launch_without_images(self, bench: AotBuildRun):
        both = LAUNCH.format(sign=">=") + LAUNCH.format(sign="<")
        for _ in range(2):
            units, _ = bench.produce("", launches=both)
        assert {one.launch for one in units} == {1}
        assert bench.notes == ["kernel.k: `k` gets no image of `k`: it is for other archs"]


class TestSmallDevices:
    """Code for sm_80 runs on 8.6 and 8.9, where a block has 101376 bytes."""

    def test_the_first_that_fits_everywhere_ends_the_chain(self, bench: AotBuildRun):
        assert stages(bench.produce(LISTED)[0]) == [4]
        assert stages(bench.produce(LISTED, shared=sizes(float32_4=110_000))[0]) == [4, 3]
        large = sizes(float32_4=110_000, float16_3=102_000)
        assert stages(bench.produce(LISTED, shared=large)[0]) == [4, 3, 2]
        assert bench.notes == []

    def test_archs_with_code_of_their_own(self, bench: AotBuildRun):
        """Then nothing but 8.0 and 8.7 runs that for 8.0."""
        targets = ("sm_80", "sm_86", "sm_89", "sm_90a")
        units, _ = bench.produce(LISTED, *targets, shared=sizes(float32_4=101_000))
        assert [stages(units, target) for target in targets] == [[4]] * 4
        units, _ = bench.produce(LISTED, *targets, shared=sizes(float32_4=110_000))
        assert [stages(units, target) for target in targets] == [[4], [4, 3], [4, 3], [4]]

    def test_a_warning_where_none_does(self, bench: AotBuildRun):
        large = {f"float32_{n}": 110_000 + n for n in (4, 3, 2)}
        units, _ = bench.produce(LISTED, shared=sizes(**large))
        assert stages(units) == [4, 3, 2]
        words = (
            "kernel.k: `k` with float32 has no default candidate for sm_86, which runs the code "
            "for sm_80: it has 101376 bytes of shared memory, the smallest candidate needs 110002; "
            "add a smaller one"
        )
        assert bench.notes == [words]

    def test_conditional_ones_do_not_end_it(self, bench: AotBuildRun):
        configs = "[{ num_stages = 4, aligned = true }, { num_stages = 3 }, { num_stages = 2 }]"
        units, _ = bench.produce(configs, shared=sizes(float32_3=110_000))
        assert stages(units) == [4, 3, 2]


class TestKey:
    FUNCTION: ClassVar = {
        "parameters": [
            *({"name": name, "constant": False, "default": False} for name in ("x", "N", "rows")),
            BLOCK,
        ],
        "candidates": own(4, 2, block=True),
        "key": ["N", "rows", "BLOCK", "x"],
    }
    MORE = 'args = { rows = "numel(x) // N" }\n'

    def key(self, bench: AotBuildRun, more: str = "") -> list[str]:
        _, produced = bench.produce(
            '"autotune"', function=self.FUNCTION, more=self.MORE + more, keep_all=True
        )
        data = json.loads(dict(produced.python())["aot.json"])
        (kernel,) = OpManifest.from_json(data).kernels
        return [str(one) for one in kernel.ops()[0].key]

    def test_the_kernels_own(self, bench: AotBuildRun):
        assert self.key(bench) == ["N", "numel(x) // N"]
        words = "in its key, which is not an integer of the call: left out"
        assert bench.notes == [f"kernel.k: `k` has `x` {words}"]

    def test_constants(self, bench: AotBuildRun):
        """What calls decide counts; what is the same in all, or follows from dtypes, does not."""
        names = ("EVEN", "WIDE", "TYPE", "NONE", "LEFT", "HOW")
        more = [{"name": name, "constant": True, "default": name == "LEFT"} for name in names]
        function = {
            **self.FUNCTION,
            "parameters": [*self.FUNCTION["parameters"], *more],
            "key": ["N", *names],
            "computed": ["HOW"],
        }
        constants = 'EVEN = "N % 16 == 0", WIDE = 3, TYPE = { dtype = "x" }, NONE = "None"'
        _, produced = bench.produce(
            '"autotune"',
            function=function,
            more=f"{self.MORE}constants = {{ {constants} }}\n",
            keep_all=True,
        )
        (kernel,) = OpManifest.from_json(json.loads(dict(produced.python())["aot.json"])).kernels
        assert [str(one) for one in kernel.ops()[0].key] == ["N", "N % 16 == 0"]
        (note,) = bench.notes
        assert note.startswith("kernel.k: `k` has `HOW` in its key")


@pytest.mark.parametrize(("computed", "default"), [(["EVEN"], False), ([], True)])
def test_what_only_the_kernel_knows_is_in_no_expression(bench: AotBuildRun, computed, default):
    """A launcher evaluates the grid, and nobody tells it what a heuristic or a default gives."""
    even = {"name": "EVEN", "constant": True, "default": default}
    function = {
        "parameters": [*PARAMETERS, BLOCK, even],
        "candidates": own(2, block=True),
        "computed": computed,
    }
    bench.produce('"autotune"', function=function, grid="M * BLOCK")
    with pytest.raises(ConfigError) as caught:
        bench.produce('"autotune"', function=function, grid="M * EVEN")
    assert "`M * EVEN`: the constant `EVEN` is set inside `k`" in str(caught.value)
    more = "constants = { EVEN = 2 }"
    bench.produce('"autotune"', function=function, grid="M * EVEN", more=more)


@pytest.mark.parametrize("framework", ["torch", "torch-stable-abi", "tvm-ffi"])
def test_what_a_launcher_is_for(bench: AotBuildRun, framework: str):
    _, produced = bench.produce(LISTED, framework=framework, keep_all=True)
    text, python = produced.files["aot/k.cpp"].decode(), dict(produced.python())
    of_tvm_ffi = framework == "tvm-ffi"
    assert ("KBUILD_FFI_FUNCTION(k)" in text) == of_tvm_ffi
    assert ("aoti_torch" in text) != of_tvm_ffi
    assert set(python) == {"_aot.py", "aot.json", *(["_aot_torch.py"] if of_tvm_ffi else [])}
    if of_tvm_ffi:
        assert b"_kbuild_choose(int launch, int candidate)" in python["_aot_torch.py"]
