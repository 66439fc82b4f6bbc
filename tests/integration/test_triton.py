"""Triton compiles: parameters, launch facts, dtypes, errors in words. Fetches 290 MB."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbuild.build.unit_log import read_log
from kbuild.ops.image import UnitImage
from kbuild.system.errors import BuildError
from tests.support.dsl.triton_kernels import VERSION, TritonProject, shop
from tests.support.stores import dsl_store, shared_folder, warm_cache

pytestmark = pytest.mark.network
IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n\n"
ADD = (
    IMPORTS
    + """
@triton.jit
def k(x_ptr, out_ptr, n, alpha, flag, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + i, m)
    tl.store(out_ptr + i, tl.where(flag, x * alpha, x), m)
"""
)
ADD_OP = """
[[kernel.k.op]]
schema = "k(Tensor x, float alpha, bool flag) -> Tensor"
shapes = { x = ["..."], out = "x" }
dtypes = ["float16", "float32"]
let = { n = "numel(x)" }
configs = [{ BLOCK = 512, num_warps = 4 }]
grid = ["cdiv(n, BLOCK)"]
"""
DOT = (
    IMPORTS
    + """
@triton.autotune(
    configs=[
        triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_warps=8, num_stages=16),
    ],
    key=["M"],
)
@triton.heuristics({"EVEN": lambda args: args["BK"] % 32 == 0})
@triton.jit
def k(a_ptr, b_ptr, out_ptr, M, N, K, stride_am, stride_ak,
      BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr,
      WIDE: tl.constexpr = True):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + rm[:, None] * stride_am + (k + rk)[None, :] * stride_ak)
        b = tl.load(b_ptr + (k + rk)[:, None] * N + rn[None, :])
        total = tl.dot(a, b, total)
    if EVEN:
        tl.store(out_ptr + rm[:, None] * N + rn[None, :], total.to(out_ptr.dtype.element_ty))
"""
)
DOT_OP = """
[[kernel.k.op]]
schema = "k(Tensor a, Tensor b) -> Tensor"
shapes = { a = ["M", "K"], b = ["K", "N"], out = ["M", "N"] }
dtypes = ["float16"]
ones = ["stride_ak"]
divisible = ["N", "K"]
configs = "autotune"
grid = ["cdiv(M, BM)", "cdiv(N, BN)"]
"""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with Triton, for all tests in whatever process."""
    store = dsl_store(f"triton-{VERSION}", "triton", tmp_path_factory)
    return warm_cache(shared_folder(tmp_path_factory) / "triton-cache", store, tmp_path_factory)


@pytest.fixture
def bench(cache: Path, tmp_path: Path) -> Iterator[TritonProject]:
    with shop(cache, tmp_path) as found:
        yield found


def kinds(compiled: UnitImage) -> list[tuple[str, str, str]]:
    return [(one.name, one.kind, one.type) for one in compiled.image.parameters]


SCRATCH = [("", "global_scratch", "*i8"), ("", "profile_scratch", "*i8")]


@pytest.mark.quick
def test_an_elementwise_kernel_for_everything(bench: TritonProject) -> None:
    targets = ("sm_75", "sm_80", "compute_80", "sm_90a", "sm_100a", "sm_120a")
    made = bench.compile(ADD_OP, {"k.py": ADD}, *targets)
    made += bench.compile(ADD_OP, {"k.py": ADD}, "gfx942", "gfx1100", flavour="rocm")
    assert len(made) == 8 * 2 * 2
    for one in made:
        type_ = {"float16": "*fp16", "float32": "*fp32"}[dict(one.unit.dtypes)["x"]]
        assert kinds(one) == [
            ("x_ptr", "pointer", type_),
            ("out_ptr", "pointer", type_),
            ("n", "int", "i32"),
            ("alpha", "float", "fp32"),
            ("flag", "int", "u1"),
            *SCRATCH,
        ]
        assert one.image.divisible == ({"x_ptr", "out_ptr"} if one.unit.aligned else set())
        assert one.image.threads == (256 if one.unit.target.arch == "gfx942" else 128)
        assert one.image.constants == {"BLOCK": 512}
        start = {"cubin": b"\x7fELF", "hsaco": b"\x7fELF", "ptx": b"//"}[one.unit.target.kind]
        assert one.code.lstrip().startswith(start)
        has_registers = one.unit.target.kind != "ptx"
        assert (one.image.registers is not None) == has_registers
    ptx = next(one for one in made if one.unit.target.kind == "ptx").code.decode()
    assert re.search(r"^\.version 8\.0\n\.target sm_80$", ptx, re.MULTILINE)
    ages = {str(one.unit.target): one.image.compiler.get("ptxas", "") for one in made}
    assert ages["sm_80"].startswith("12.")
    assert ages["sm_90a"].startswith("12.")
    assert ages["gfx942"] == ""


def test_code_for_cuda_12_is_from_a_ptxas_of_cuda_12(bench: TritonProject) -> None:
    """Code that a ptxas 13 made needs a driver for CUDA 13."""
    for flavour, major in (("cuda12", "12."), ("cuda13", "13.")):
        one = bench.compile(ADD_OP, {"k.py": ADD}, "sm_100a", flavour=flavour)[0]
        assert one.image.compiler["ptxas"].startswith(major)


SAME = """
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, out_ptr, n, BLOCK: tl.constexpr, UNUSED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < n), at < n)
"""
SAME_OP = """
[[kernel.k.op]]
schema = "k(Tensor x) -> Tensor"
shapes = { x = ["N"], out = "x" }
dtypes = ["float32"]
grid = ["1"]
args = { x_ptr = "x", out_ptr = "out", n = "N" }
configs = [{ BLOCK = 64, UNUSED = 1 }, { BLOCK = 64, UNUSED = 2 }, { BLOCK = 128, UNUSED = 2 }]
"""


def test_units_with_the_same_ir_share_code(bench: TritonProject) -> None:
    """Each image has the constants of its own unit."""
    log = Path(bench.compiler._log.log)
    before = len(read_log(log).units)
    images = bench.compile(SAME_OP, {"k.py": SAME}, "sm_90a")
    assert [unit.cache for unit in read_log(log).units[before:]].count("hit") >= 2
    assert [dict(image.unit.constants) for image in images] == [
        image.image.constants for image in images
    ]
    codes = [image.code for image in images]
    assert (codes[0], codes[1]) == (codes[2], codes[3])
    assert codes[4] not in codes[:4]


def test_autotune_heuristics_defaults_and_ones(bench: TritonProject) -> None:
    described = bench.describe({"k.py": DOT})["k"]
    assert [dict(one.constants) for one in described.candidates] == [
        {"BM": 64, "BN": 64, "BK": 32},
        {"BM": 128, "BN": 128, "BK": 64},
    ]
    assert [dict(one.options)["num_stages"] for one in described.candidates] == [3, 16]
    assert described.key == ("M",)
    assert described.computed == ("EVEN",)
    made = bench.compile(DOT_OP, {"k.py": DOT}, "sm_90a")
    small = [one for one in made if dict(one.unit.constants)["BM"] == 64]
    aligned = next(one for one in small if one.unit.aligned)
    assert "stride_ak" not in [name for name, _, _ in kinds(aligned)]
    assert aligned.image.ones == {"stride_ak"}
    assert aligned.image.divisible == {"a_ptr", "b_ptr", "out_ptr", "N", "K"}
    assert aligned.image.constants == {"BM": 64, "BN": 64, "BK": 32, "EVEN": True, "WIDE": True}
    plain = next(one for one in small if not one.unit.aligned)
    assert "stride_ak" in [name for name, _, _ in kinds(plain)]


def test_a_candidate_that_does_not_fit_is_left_out(bench: TritonProject) -> None:
    """16 stages are more than the 227 KiB of 9.0; what is not aligned is loaded without stages."""
    made = bench.compile(DOT_OP, {"k.py": DOT}, "sm_90a")
    assert {dict(one.unit.constants)["BM"] for one in made if one.unit.aligned} == {64}
    (note,) = bench.notes
    words = r"BM=128 .*: left out, it needs \d+ bytes of shared memory, but 232448 are"
    assert re.search(words, note)


DESCRIPTOR = (
    IMPORTS
    + """
@triton.jit
def k(x_desc, pair, out_ptr, B: tl.constexpr, KIND: tl.constexpr):
    x = x_desc.load([0, 0]) + tl.load(pair[0]) + pair[1]
    i = tl.arange(0, B)
    tl.store(out_ptr + i[:, None] * B + i[None, :], x.to(KIND))
"""
)
DESCRIPTOR_OP = """
[[kernel.k.op]]
schema = "k(Tensor x, Tensor w) -> Tensor"
shapes = { x = ["M", "N"], w = ["N"], out = ["M", "N"] }
dtypes = ["float16"]
args = { x_desc = { tensor = "x", block = ["B", "B"] }, pair = ["w", "M"] }
configs = [{ B = 64 }]
constants = { KIND = { dtype = "x" } }
grid = [1]
"""


def test_descriptors_tuples_and_dtypes(bench: TritonProject) -> None:
    made = bench.compile(DESCRIPTOR_OP, {"k.py": DESCRIPTOR}, "sm_80", "sm_90a")
    shape = [("x_desc.shape.0", "int", "i32"), ("x_desc.shape.1", "int", "i32")]
    strides = [("x_desc.stride.0", "int", "i64"), ("x_desc.stride.1", "int", "i64")]
    tail = [
        ("pair.0", "pointer", "*fp16"),
        ("pair.1", "int", "i32"),
        ("out_ptr", "pointer", "*fp16"),
    ]
    for one in made:
        names = kinds(one)
        if one.unit.target.arch == "sm_90a":
            assert names == [
                ("x_desc", "tensor_map", "tensor_map"), *shape, *strides, *tail, *SCRATCH,
            ]  # fmt: skip
            (map_,) = one.image.tensor_maps
            assert (map_.parameter, map_.block, map_.element_size) == ("x_desc", (64, 64), 2)
            assert map_.element_type == 6  # CU_TENSOR_MAP_DATA_TYPE_FLOAT16
        else:
            assert names[0] == ("x_desc", "pointer", "*fp16")
            assert names[-len(tail) - 2 :] == [*tail, *SCRATCH]
            assert one.image.tensor_maps == ()


LOAD = "async_load" if VERSION >= "3.9" else "async_copy_global_to_shared"
GLUON = f"""
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def copy(x_desc, block, ready, row):
    mbarrier.expect(ready, 64 * 64 * 2)
    tma.{LOAD}(x_desc, [row, 0], ready, block)


@gluon.jit
def wait(out_ptr, stride, block, ready, row, B: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    mbarrier.wait(ready, 0)
    rows = row + gl.arange(0, B, gl.SliceLayout(1, layout))
    columns = gl.arange(0, B, gl.SliceLayout(0, layout))
    gl.store(out_ptr + rows[:, None] * stride + columns[None, :], block.load(layout))


@gluon.jit
def k(x_desc, out_ptr, stride_out_0, B: gl.constexpr):
    block = gl.allocate_shared_memory(x_desc.dtype, [B, B], x_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    row = gl.program_id(0) * B
    gl.warp_specialize(
        [
            (wait, (out_ptr, stride_out_0, block, ready, row, B)),
            (copy, (x_desc, block, ready, row)),
        ],
        [1],
        [24],
    )
"""
GLUON_OP = """
[[kernel.k.op]]
schema = "k(Tensor x) -> Tensor"
shapes = { x = ["M", 64], out = "x" }
dtypes = ["bfloat16"]
configs = [{ B = 64 }]
args = { x_desc = { tensor = "x", block = ["B", "B"] } }
grid = ["cdiv(M, B)"]
"""


def gluon_line(text: str) -> int:
    return next(at for at, line in enumerate(GLUON.splitlines(), 1) if text in line)


def test_a_gluon_kernel(bench: TritonProject) -> None:
    """A host's descriptor, and warps that run a function of their own."""
    described = bench.describe({"k.py": GLUON})["k"]
    assert [parameter.is_constant for parameter in described.parameters] == [False] * 3 + [True]
    for one in bench.compile(GLUON_OP, {"k.py": GLUON}, "sm_90a"):
        assert kinds(one)[0] == ("x_desc", "tensor_map", "tensor_map")
        (map_,) = one.image.tensor_maps
        assert (map_.block, map_.element_size, map_.swizzle) == ((64, 64), 2, 3)
        assert one.image.threads == 32 * 8  # four warps, and one more in a group of four
        assert (one.image.reads, one.image.adds) == ({"x_desc"}, set())


def test_the_layout_of_a_descriptor(bench: TritonProject) -> None:
    narrow = GLUON_OP.replace('"B"] }', '"B"], layout = { swizzle_byte_width = 64 } }')
    (map_,) = bench.compile(narrow, {"k.py": GLUON}, "sm_90a")[0].image.tensor_maps
    assert (map_.block, map_.swizzle) == ((64, 32), 2)
    message = r"`x_desc` of `k` has a `layout`, which `@gluon\.jit` takes"
    with pytest.raises(BuildError, match=message):
        bench.compile(
            DESCRIPTOR_OP.replace('"B"] }', '"B"], layout = { transposed = true } }'),
            {"k.py": DESCRIPTOR}, "sm_90a",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("target", "flavour", "call", "known"),
    [
        ("sm_80", "cuda13", "mbarrier.expect", "9.0 and later"),
        ("gfx942", "rocm", "mbarrier.MBarrierLayout", "8.0 and later"),
    ],
)
def test_what_a_gpu_lacks_of_gluon(
    bench: TritonProject, target: str, flavour: str, call: str, known: str
) -> None:
    """The line and the remedy; the assembler would crash."""
    with pytest.raises(BuildError) as caught:
        bench.compile(GLUON_OP, {"k.py": GLUON}, target, flavour=flavour)
    place, end = f"kernel.k: k.py:{gluon_line(call)}", f"and the kernel is compiled for {target}"
    message = f"{place}: `{call}` is for compute capability {known}, {end}"
    assert caught.value.message.startswith(message)
    first = int(known[0]) * 10
    assert f'this one with `when = "capability() >= {first}"`' in (caught.value.hint or "")


def test_what_the_compiler_prints_of_a_layout(bench: TritonProject) -> None:
    wrong = GLUON.replace("[4, 8], [4, 1]", "[4, 8], [2, 1]")
    with pytest.raises(BuildError) as caught:
        bench.compile(GLUON_OP, {"k.py": wrong}, "sm_90a")
    said = "\n".join(caught.value.excerpt)
    assert "Layout has 2 warps per CTA, but the context requires 4 warps per CTA" in said


MADE_ON_THE_DEVICE = (
    IMPORTS
    + """
@triton.jit
def k(x_ptr, out_ptr, M, N, B: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [B, B])
    out = tl.make_tensor_descriptor(out_ptr, [M, N], [N, 1], [B, B])
    at = [tl.program_id(0) * B, tl.program_id(1) * B]
    out.store(at, x.load(at) * 3)
"""
)
MADE_OP = """
[[kernel.k.op]]
schema = "k(Tensor x) -> Tensor"
shapes = { x = ["M", "N"], out = "x" }
dtypes = ["float32"]
configs = [{ B = 32 }, { B = 32, num_ctas = 2 }, { B = 32, launch_pdl = true }]
grid = ["cdiv(M, B)", "cdiv(N, B)"]
"""


def test_what_a_launch_has_to_bring(bench: TritonProject) -> None:
    """Scratch memory for descriptors made on the device, clusters, early starts."""
    made = bench.compile(MADE_OP, {"k.py": MADE_ON_THE_DEVICE}, "sm_90a")
    for one in made:
        options = dict(one.unit.options)
        assert one.image.scratch > 0
        assert one.image.scratch_align >= 64  # of a CUtensorMap
        assert one.image.cluster == (options.get("num_ctas", 1), 1, 1)
        assert one.image.pdl == options.get("launch_pdl", False)
    assert len(made) == 6


def test_an_optional_tensor(bench: TritonProject) -> None:
    source = ADD.replace("flag, BLOCK", "b_ptr, BLOCK").replace(
        "tl.where(flag, x * alpha, x)", "x if b_ptr is None else x + tl.load(b_ptr + i, m)"
    )
    text = ADD_OP.replace("float alpha, bool flag", "float alpha, Tensor? b").replace(
        '"x" }', '"x", b = "x" }'
    )
    made = bench.compile(text, {"k.py": source}, "sm_90a")
    assert {"b_ptr" in [n for n, _, _ in kinds(one)] for one in made} == {True, False}
    for one in made:
        assert ("b_ptr" in one.image.types) == (one.unit.absent == ())


def test_sources_that_import_each_other(bench: TritonProject) -> None:
    main = ADD.replace("import torch\n", "import torch\nfrom .inner.half import half\n")
    main = main.replace("x * alpha", "half(x) * alpha")
    half = IMPORTS + "from ..consts import TWO\n@triton.jit\ndef half(x):\n    return x / TWO\n"
    sources = {
        "torch-ext/my_k/k.py": main,
        "torch-ext/my_k/inner/half.py": half,
        "torch-ext/my_k/consts.py": "import triton.language as tl\nTWO = tl.constexpr(2)\n",
    }
    first = bench.compile(ADD_OP, sources, "sm_90a")
    sources["torch-ext/my_k/consts.py"] = "import triton.language as tl\nTWO = tl.constexpr(4)\n"
    second = bench.compile(ADD_OP, sources, "sm_90a")
    assert [one.code for one in first] != [one.code for one in second]


@pytest.mark.quick
def test_an_error_at_its_line(bench: TritonProject) -> None:
    source = ADD.replace("m = i < n", "m = i < missing")
    with pytest.raises(BuildError) as caught:
        bench.compile(ADD_OP, {"my/k.py": source}, "sm_80", "sm_90a")
    line = source.splitlines().index("    m = i < missing") + 1
    text = str(caught.value)
    assert f"kernel.k: my/k.py:{line}: " in text
    assert "missing is not defined" in text
    assert "(8 of 8 units)" in text
    assert any("m = i < missing" in one for one in caught.value.excerpt)
    assert any("^" in one for one in caught.value.excerpt)


def test_an_error_in_a_called_function_is_shown_there(bench: TritonProject) -> None:
    other = IMPORTS + "@triton.jit\ndef half(x):\n    y = x + unknown\n    return y\n"
    main = ADD.replace("import torch\n", "from .other import half\n").replace(
        "x * alpha", "half(x)"
    )
    with pytest.raises(BuildError, match=r"kernel\.k: my/other\.py:7: .*unknown is not defined"):
        bench.compile(ADD_OP, {"my/k.py": main, "my/other.py": other}, "sm_80")


def test_a_heuristic_that_needs_a_call(bench: TritonProject) -> None:
    source = DOT.replace('args["BK"] % 32', 'args["K"] % args["BK"]')
    with pytest.raises(BuildError, match=r"from `K`, which is known only at run time") as caught:
        bench.compile(DOT_OP, {"k.py": source}, "sm_90a")
    assert 'constants = { EVEN = "..." }' in caught.value.hint
    text = DOT_OP + 'constants = { EVEN = "K % BK == 0" }\n'
    assert bench.compile(text, {"k.py": source}, "sm_90a")


WARPS = ADD.replace("@triton.jit", '@triton.heuristics({"num_warps": HOW})\n@triton.jit')


def test_a_launch_option_that_the_kernel_computes(bench: TritonProject) -> None:
    """It counts where no candidate says it."""
    source = WARPS.replace("HOW", 'lambda args: args["BLOCK"] // 64')
    op = ADD_OP.replace(", num_warps = 4", "")
    assert {one.image.threads for one in bench.compile(op, {"k.py": source}, "sm_80")} == {256}
    assert {one.image.threads for one in bench.compile(ADD_OP, {"k.py": source}, "sm_80")} == {128}


def test_a_launch_option_that_nobody_can_compute(bench: TritonProject) -> None:
    op = ADD_OP.replace(", num_warps = 4", "")
    with pytest.raises(BuildError, match=r"from `n`, which is known only at run time") as caught:
        bench.compile(op, {"k.py": WARPS.replace("HOW", 'lambda args: args["n"]')}, "sm_80")
    assert caught.value.hint == "list it in `configs`: `{ num_warps = ... }`"
    source = WARPS.replace("HOW", "lambda args: 4").replace("num_warps", "num_wraps")
    with pytest.raises(BuildError, match=r"computes `num_wraps`, which is neither its parameter"):
        bench.compile(op, {"k.py": source}, "sm_80")


def test_a_constant_that_is_called_as_a_launch_option(bench: TritonProject) -> None:
    """Triton's launch takes `num_warps=8` as both; what `constants` says is the kernel's alone."""
    source = ADD.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, num_warps: tl.constexpr")
    op = ADD_OP.replace("num_warps = 4", "num_warps = 8")
    for one in bench.compile(op, {"k.py": source}, "sm_80"):
        assert (one.image.threads, one.image.constants["num_warps"]) == (256, 8)
    apart = op + "constants = { num_warps = 2 }\n"
    for one in bench.compile(apart, {"k.py": source}, "sm_80"):
        assert (one.image.threads, one.image.constants["num_warps"]) == (256, 2)


def test_a_heuristic_that_candidates_go_before(bench: TritonProject) -> None:
    """Whoever reads the kernel would think otherwise, so it is noted."""
    both = '@triton.heuristics({"BK": lambda args: 16, "EVEN": '
    source = DOT.replace('@triton.heuristics({"EVEN": ', both)
    (note,) = bench.describe({"k.py": source})["k"].notes
    assert note == "`k` computes `BK`, but its candidates set it; their value is used"


ASKING = """\
import torch
import triton
import triton.language as tl
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner


class Tuner(Autotuner):
    pass


SHARED = driver.active.utils.get_device_properties(0)["max_shared_mem"]
BLOCKS = (64, 128) if SHARED > 200000 else (32, 64)
COUNT = torch.cuda.get_device_properties("cuda").multi_processor_count


def prune(configs, named, **given):
    return [one for one in configs if one.kwargs["B"] <= given["D"]]


def tuned(function):
    configs = [triton.Config({"B": block}) for block in BLOCKS]
    return Tuner(
        function, function.arg_names, configs, ["n", "D"], None, None,
        prune_configs_by={"early_config_prune": prune},
    )


@tuned
@triton.jit
def k(x, bias, y, n, D: tl.constexpr, B: tl.constexpr, ACT: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n)
    if bias is not None:
        value += tl.load(bias + i, mask=i < n)
    if ACT is not None:
        value *= D
    tl.store(y + i, value, mask=i < n)
"""
ASKING_OP = """
[[kernel.k.op]]
schema = "k(Tensor x) -> Tensor y"
shapes = { x = ["N"], y = ["N"] }
dtypes = ["float32"]
args = { bias = "None", n = "N" }
constants = { D = { value = "next_pow2(N)", choices = [64, 128] }, ACT = "None" }
configs = "autotune"
grid = ["cdiv(N, B)"]
"""


def test_what_a_source_asks_is_answered_for_each_arch(bench: TritonProject) -> None:
    """A kernel's own candidates differ by arch, and are pruned by each image's constants."""
    function = bench.describe({"k.py": ASKING}, "sm_80", "sm_90a", "gfx942")["k"]
    found = [(dict(one.constants)["B"], one.archs) for one in function.candidates]
    small, large = ("8.0", "gfx942"), ("9.0",)
    assert found == [(32, small), (64, small), (64, large), (128, large)]
    assert (function.key, function.notes) == (("n", "D"), ())
    made = bench.compile(ASKING_OP, {"k.py": ASKING}, "sm_80", "sm_90a")
    constants = {(one.unit.target.arch, *dict(one.unit.constants).values()) for one in made}
    assert constants == {
        *(("sm_80", block, size, None) for block in (32, 64) for size in (64, 128)),
        *(("sm_90a", block, size, None) for block, size in ((64, 64), (64, 128), (128, 128))),
    }
    assert {tuple(one.name for one in each.image.parameters if one.name) for each in made} == {
        ("x", "y", "n")
    }
    assert any("`early_config_prune` drops it" in note for note in bench.notes)


def test_the_same_bytes_in_another_folder(cache: Path, tmp_path: Path) -> None:
    """Line tables and assertions would name the place."""
    source = ADD.replace("    m = i < n\n", "    m = i < n\n    tl.device_assert(n > 0, 'empty')\n")
    codes = []
    for name in ("one", "a/longer/place"):
        with shop(cache, tmp_path / name, keeps=False, jobs=1) as found:
            made = found.compile(ADD_OP, {"my/k.py": source}, "sm_80", "sm_90a", "compute_80")
            made += found.compile(ADD_OP, {"my/k.py": source}, "gfx942", flavour="rocm")
            codes.append([(one.image, one.code) for one in made])
    assert codes[0] == codes[1]


HOOKED = """\
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def clear(nargs):
    if isinstance(nargs["out_ptr"], TensorDescriptor):
        nargs["out_ptr"].block_shape = [nargs["BLOCK"]]
    elif nargs["SPLIT"] != 1:
        nargs["out_ptr"].zero_()


def asks(nargs):
    if nargs["N"] > 3:
        nargs["out_ptr"].zero_()


@triton.autotune(
    configs=[triton.Config({"BLOCK": 64, "SPLIT": split}, pre_hook=clear) for split in (1, 2)],
    key=["N"], reset_to_zero=["seen_ptr"], restore_value=["x_ptr"],
)
@triton.jit
def k(x_ptr, out_ptr, seen_ptr, N, BLOCK: tl.constexpr, SPLIT: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + i, tl.load(x_ptr + i, mask=i < N), mask=i < N)


@triton.autotune(configs=[triton.Config({"BLOCK": 64}, pre_hook=asks)], key=[])
@triton.jit
def asking(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    pass
"""


def test_hooks_of_autotune(bench: TritonProject) -> None:
    found = bench.describe({"k.py": HOOKED})
    hooks = found["k"].facts["hooks"]
    none = {"fills": [], "blocks": []}
    block = {"fills": [], "blocks": [["out_ptr", [64]]]}
    assert hooks["configs"] == [[none, block], [{"fills": [["out_ptr", 0]], "blocks": []}, block]]
    assert hooks["reset"] == [["seen_ptr", 0]]
    assert hooks["problems"] == []
    (problem,) = found["asking"].facts["hooks"]["problems"]
    line = next(at for at, text in enumerate(HOOKED.splitlines(), 1) if 'nargs["N"] > 3' in text)
    assert problem.startswith(f"k.py:{line}: a candidate's `pre_hook` asks for `N`")


ADDING = """\
import triton
import triton.language as tl


@triton.jit
def add(pointer, value, mask):
    tl.atomic_add(pointer, value, mask=mask)


@triton.jit(noinline=True)
def clear(pointer):
    tl.store(pointer, 0.0)


@triton.jit
def k(x_ptr, sums, first, seen, kept, cleared, lock, taken, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    at, old = x_ptr + i, kept + i
    for _ in range(0, N, BLOCK):
        total += tl.load(at, mask=i < N) + tl.load(old)
        at += BLOCK
        old += BLOCK
    add(sums + i, total, i < N)
    tl.store(first + i, total)
    tl.atomic_add(first + i, total)
    if N > 5:
        tl.atomic_max(seen + i, total)
        tl.store(seen + i, total)
    tl.store(kept + i, total)
    clear(cleared)
    tl.atomic_add(cleared, 1.0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.atomic_xchg(taken, 1)
"""
ADDING_OP = """
[[kernel.k.op]]
schema = "k(Tensor x) -> (Tensor sums, Tensor first, Tensor seen, Tensor kept, Tensor cleared, Tensor lock, Tensor taken)"
dtypes = { x = ["float32"], sums = "x", first = "x", seen = "x", kept = "x", cleared = "x", lock = ["int32"], taken = ["int32"] }
configs = [{ BLOCK = 64 }]
grid = ["cdiv(N, BLOCK)"]
[kernel.k.op.shapes]
x = ["N"]
sums = ["N"]
first = ["N"]
seen = ["N"]
kept = ["N"]
cleared = ["N"]
lock = [1]
taken = [1]
"""  # noqa: E501


def test_what_is_read_before_it_is_written(bench: TritonProject) -> None:
    for target in ("sm_90a", "gfx942"):
        flavour = "rocm" if target == "gfx942" else "cuda13"
        for one in bench.compile(ADDING_OP, {"k.py": ADDING}, target, flavour=flavour):
            assert one.image.adds == {"sums", "lock"}
            assert one.image.reads == {"x_ptr", "kept", "seen"}
