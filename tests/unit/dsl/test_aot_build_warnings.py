"""What compiled images show: memory without a value, spills, kernels that were never tuned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kbuild.dsl.aot_build import default_candidate_warnings, memory_warnings
from kbuild.dsl.launcher.resolved_kernel import ResolvedKernel, ResolvedLaunch, ResolvedOp
from kbuild.dsl.worker.compiler_output import memory_access, memory_access_of_cxx
from kbuild.ops.binding import bind
from kbuild.ops.bound_launch import KernelParameter
from kbuild.ops.candidates import with_candidates
from kbuild.ops.expand import expand
from kbuild.ops.image import KernelImage, UnitImage
from kbuild.ops.language import KernelFunction
from kbuild.ops.steps import Candidate
from kbuild.ops.tuned_tables import TunedRow, TunedTable
from kbuild.ops.unit import ImageTarget
from kbuild.plan.plan import AotKernel
from kbuild.project.config.issue import IssueCollector
from kbuild.system.errors import BuildError
from tests.support.sections import read

HEAD = """
[kernel.k]
language = "triton"
toolchain = "triton==3.9.0"
src = ["k.py"]
[[kernel.k.op]]
schema = "k(Tensor x, Tensor(a!) acc) -> Tensor out"
shapes = { x = ["N"], acc = ["N"], out = ["N"], part = ["N"] }
dtypes = ["float32"]
temporaries = ["part"]
"""
ONE = 'grid = ["cdiv(N, BLOCK)"]\nconfigs = "autotune"\n'
TWO = """
[[kernel.k.op.launch]]
function = "k"
args = { out = "part" }
grid = ["cdiv(N, BLOCK)"]
configs = "autotune"
[[kernel.k.op.launch]]
function = "k"
grid = ["cdiv(N, BLOCK)"]
configs = "autotune"
"""
PARAMETERS = tuple(
    KernelParameter(name.rstrip("!"), name.endswith("!"))
    for name in ("x", "acc", "out", "N", "BLOCK!")
)
OWN = tuple(Candidate((("BLOCK", size),), (("num_warps", 4),)) for size in (64, 128))


def section(
    text: str, *, keep_all: bool = False, targets: Any = ("sm_80", "sm_90a")
) -> ResolvedKernel:
    reading = read(HEAD + text)
    assert reading.issues == ()
    (op,) = reading.ops
    function, place = KernelFunction("k", PARAMETERS, OWN), IssueCollector(("kernel", "k"))
    launches = []
    for launch in op.launches:
        whole = with_candidates(op, launch, OWN, place)
        assert whole is not None
        bound = bind(op, whole, dict.fromkeys(launch.functions, PARAMETERS), place)
        assert bound is not None, place.issues
        launches.append(ResolvedLaunch(op, whole, bound, function))
    kernel = AotKernel(reading, targets, "cuda13", keep_all=keep_all)
    return ResolvedKernel(kernel, (ResolvedOp(op, tuple(launches)),), ())


def compiled(of: ResolvedKernel, at: int = 0, **facts: Any) -> ResolvedKernel:
    """Of all launches, the default candidate's; those of launch `at` have the facts."""
    (op,) = of.specs
    targets = [ImageTarget.parse(one) for one in of.kernel.targets]
    own = dict.fromkeys(range(len(op.launches)), OWN[:1])
    made = []
    for unit in expand(op, targets, own):
        more: Mapping[str, Any] = facts if unit.launch == at else {}
        image = KernelImage("triton", unit.target.arch, unit.target.kind, "k", (), 0, 128, **more)
        made.append(UnitImage(unit, image, b"code"))
    return of.compiled(made)


class TestMemory:
    @pytest.mark.parametrize("more", ["", 'zero = ["part"]\n'])
    def test_adding_to_a_result(self, more):
        of = section(ONE + more)
        with pytest.raises(BuildError) as caught:
            list(memory_warnings(compiled(of, adds=frozenset({"out"}))))
        words = "kernel.k: `k` adds to the result `out`, which is not initialised"
        assert caught.value.message == words
        assert 'zero = ["out"]' in (caught.value.hint or "")

    @pytest.mark.parametrize(("first", "is_wrong"), [(True, False), (False, True)])
    def test_adding_to_what_an_aten_call_has_written(self, first, is_wrong):
        step = '[[kernel.k.op.launch]]\naten = "zero_"\narguments = ["part"]\n'
        views = 'views = { whole = { of = "part", shape = ["N"] } }\n'
        head, *launches = TWO.replace('"part" }', '"whole" }').split("[[kernel.k.op.launch]]\n")
        launches = [f"[[kernel.k.op.launch]]\n{launch}" for launch in launches]
        text = "".join((head, views, step * first, *launches, step * (not first)))
        of = section(text)
        made = compiled(of, adds=frozenset({"out"}))
        if is_wrong:
            with pytest.raises(BuildError, match="adds to the temporary `part`"):
                list(memory_warnings(made))
        else:
            assert list(memory_warnings(made)) == []

    @pytest.mark.parametrize("more", ['zero = ["out"]\n', 'fill = { out = "-inf" }\n'])
    def test_adding_to_what_has_a_value(self, more):
        of = section(ONE + more)
        made = compiled(of, adds=frozenset({"out", "acc"}), reads=frozenset({"x"}))
        assert list(memory_warnings(made)) == []

    def test_reading_is_a_warning(self):
        of = section(ONE)
        (words,) = memory_warnings(compiled(of, reads=frozenset({"out", "x", "acc"})))
        assert words.startswith("kernel.k: `k` reads the result `out` before it writes it")

    def test_an_earlier_launch_may_have_written(self):
        of = section(TWO.replace('args = { out = "part" }', ""))
        assert list(memory_warnings(compiled(of, at=1, adds=frozenset({"out"})))) == []
        with pytest.raises(BuildError):
            list(memory_warnings(compiled(of, at=0, adds=frozenset({"out"}))))


class TestDefaults:
    LISTED = 'grid = ["cdiv(N, BLOCK)"]\nconfigs = [{ BLOCK = 64, num_warps = 4 }]\n'

    def row(self) -> TunedRow:
        return TunedRow("k", "k", 0, (("x", "float32"),), (1,), *_pairs(OWN[0]), 1.0, 1.0)

    def test_spills(self):
        of = section(self.LISTED)
        words = list(default_candidate_warnings(compiled(of, spills=2080, registers=255), ()))
        assert words == [
            f"kernel.k: `k`: the default candidate (BLOCK=64 num_warps=4) for {target} spills "
            "2,080 bytes of registers, with 255 registers per thread; list a smaller one first, "
            "or run `kbuild tune`"
            for target in ("sm_80", "sm_90a")
        ]
        assert list(default_candidate_warnings(compiled(of, spills=0, registers=255), ())) == []
        assert list(default_candidate_warnings(compiled(of), ())) == []

    def test_on_amd(self):
        of = section(self.LISTED, targets=("gfx942",))
        (words,) = default_candidate_warnings(compiled(of, spills=3), ())
        assert "for gfx942 spills 3 registers;" in words

    def test_a_winner_may_spill(self):
        of = section(self.LISTED)
        (words,) = default_candidate_warnings(
            compiled(of, spills=8), [TunedTable("H", "sm_90", (self.row(),))]
        )
        assert "for sm_80 spills" in words

    def test_never_tuned(self):
        of = section(ONE)
        (words,) = default_candidate_warnings(compiled(of), ())
        assert words == (
            "kernel.k: `k` has 2 candidates and was not tuned for sm_80, sm_90a: the first "
            "(BLOCK=64 num_warps=4) is used; run `kbuild tune` to measure them"
        )
        tables = [TunedTable("H", "sm_90", (self.row(),)), TunedTable("A", "sm_80", (self.row(),))]
        (words,) = default_candidate_warnings(compiled(of), tables[:1])
        assert "was not tuned for sm_80: the first" in words
        assert list(default_candidate_warnings(compiled(of), tables)) == []


def _pairs(candidate: Candidate) -> tuple[Any, Any]:
    return candidate.constants, candidate.options


TTIR = """\
module {
  tt.func private @other(%a: !tt.ptr<f32> loc("a")) attributes {noinline = true} {
    tt.store %a, %a : !tt.ptr<f32>
  }
  tt.func public @k(%x: !tt.ptr<f32> loc("x_ptr"(#loc)), %out: !tt.ptr<f32> loc("out_ptr")) {
    %0 = tt.splat %out : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %1 = arith.select %c, %0, %0 : tensor<64x!tt.ptr<f32>>
    %2:2 = scf.for %i = %a to %b step %c iter_args(%s = %z, %p = %1) -> (tensor<64xf32>, tensor<64x!tt.ptr<f32>>) : i32 {
      BODY
    }
    END
  }
}
"""  # noqa: E501
ADD = "%9 = tt.atomic_rmw fadd, acq_rel, gpu, {}, %2#0, %m : (tensor<64x!tt.ptr<f32>>)"


@pytest.mark.parametrize(
    ("body", "end", "adds", "reads"),
    [
        ("", ADD.format("%1"), ["out_ptr"], []),
        (ADD.format("%p"), "", ["out_ptr"], []),
        ("", ADD.format("%2#1"), ["out_ptr"], []),
        ("", ADD.format("%2#0"), [], []),
        ("tt.store %p, %v", ADD.format("%0"), [], []),
        (ADD.format("%0"), "tt.store %2#1, %v", [], ["out_ptr"]),
        ("%5 = tt.load %p : tensor", "", [], ["out_ptr"]),
        ("", ADD.format("%1").replace("fadd", "exch"), [], []),
        ("tt.call @other(%p) : (x)", ADD.format("%1"), [], []),
        ("%0 = arith.addi %3, %4 : i32", ADD.format("%0"), [], []),
        ("%7 = tt.load %x : f32", "tt.store %out, %7", [], ["x_ptr"]),
    ],
)
def test_ttir(body, end, adds, reads):
    found = memory_access(TTIR.replace("BODY", body).replace("END", end))
    assert found == {"adds": adds, "reads": reads}


SOURCE = """\
extern "C" __global__ void main_kernel(float* __restrict__ out, const float* __restrict__ x);
extern "C" __global__ void main_kernel(float* __restrict__ out, const float* __restrict__ x) {
  float acc = x[threadIdx.x];
  AtomicAdd((&(out[(int)threadIdx.x])), acc);
}
extern "C" int call(float* out, float* x) {
  cudaLaunchKernelEx(&config, main_kernel, out, x);
}
"""


def test_kernels_in_cxx():
    names = ["out", "x", "n"]
    assert memory_access_of_cxx(SOURCE, names) == {"adds": ["out"], "reads": []}
    stored = SOURCE.replace("float acc", "out[1] = 0; float acc")
    assert memory_access_of_cxx(stored, names)["adds"] == []
    assert memory_access_of_cxx(SOURCE.replace("AtomicAdd((&", "f(("), names)["adds"] == []
