"""What `kbuild capture` sees of an author's Python: paths, launches, layouts, gradients."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kbuild.plugins.capture.description import snake_case
from kbuild.plugins.capture.functions import FunctionReader
from kbuild.plugins.capture.programs import PATH_WALKED, CaptureError
from kbuild.plugins.capture.verification import RandomCalls
from kbuild.plugins.capture.wrappers import CapturedWrapper
from tests.support.capture_worker import worker_answers

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs Torch"),
]
AUTHOR = """
import functools

import torch
import triton
import triton.language as tl

@triton.jit
def rows(x_ptr, out_ptr, stride, n, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + tl.program_id(0) * stride + at) * eps)


@triton.jit
def first_row(starts_ptr, group):
    return tl.load(starts_ptr + tl.program_id(0) // group)


@triton.jit(do_not_specialize=["rows"])
def packed(x_ptr, out_ptr, starts_ptr, group, rows, n, stride, ones, BLOCK: tl.constexpr):
    row = first_row(starts_ptr, group)
    place = x_ptr + row * stride + tl.arange(0, BLOCK) * ones
    total = tl.load(place, mask=tl.arange(0, BLOCK) < n)
    for at in range(rows):
        place = out_ptr + row * stride + at
        tl.store(place + tl.arange(0, BLOCK), total)


def launch_packed(x, starts):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, n = x.shape
    packed[(rows,)](x, out, starts, 4, rows, n, n * 2, x.stride(1), BLOCK=128)
    return out


def launch(x, out, **options):
    rows[(x.shape[0],)](x, out, x.stride(0), x.shape[1], 1.0, **options)
    return out


def norm(x, eps=1e-6):
    block = triton.next_power_of_2(x.shape[1])
    if block > 65536:
        raise ValueError("rows are too long")
    warps = 4 if block < 2048 else 8
    out = torch.empty_like(x)
    options = {"num_warps": warps, "num_ctas": 1}
    rows[(x.shape[0],)](x, out, x.stride(0), x.shape[1], eps, BLOCK=block, **options)
    return out


def strided(x):
    return launch(x, torch.empty(x.shape, dtype=x.dtype, device=x.device), BLOCK=128)


def in_place(x):
    return launch(x, x, BLOCK=128)


def filled(x):
    return launch(x, torch.zeros(x.shape, dtype=torch.float32, device=x.device), BLOCK=128)


def summed(x):
    return launch(x, torch.empty_like(x, dtype=torch.float32), BLOCK=128).sum(-1).to(x.dtype)


def optional(x, bias=None, *, flag=False):
    out = torch.empty_like(x)
    if bias is not None and flag:
        x = bias
    return launch(x, out, BLOCK=128)


def declared(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return launch(x, out, BLOCK=128)


def by_arch(x):
    major, minor = torch.cuda.get_device_capability()
    if torch.cuda.get_device_properties(x.device).major >= 10:
        return launch(x, torch.empty_like(x), BLOCK=256)
    return launch(x, torch.empty_like(x), BLOCK=128 if (major, minor) >= (9, 0) else 64)


def joined(x, w):
    return launch(x, torch.empty_like(x), BLOCK=128) * w


def read_bits(x):
    out = torch.empty(x.shape, dtype=torch.int16, device=x.device)
    return launch(x.view(torch.int16), out, BLOCK=128)


def written_bits(x):
    out = torch.empty_like(x)
    launch(x, out.view(torch.int16), BLOCK=128)
    return out


def counted(x):
    rows = int(x.shape[0])
    assert isinstance(x.shape[0], int) and isinstance(float(rows), float)
    return launch(x, torch.empty_like(x), BLOCK=128) * float(rows)


class Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = launch(x, torch.empty_like(x), BLOCK=128 if ctx.needs_input_grad[0] else 64)
        row = launch(x, torch.empty(x.shape[0], dtype=torch.float32, device=x.device), BLOCK=32)
        ctx.mark_non_differentiable(row)
        ctx.set_materialize_grads(False)
        return out, row

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad, _):
        return launch(grad, torch.empty_like(grad), BLOCK=128) if ctx.needs_input_grad[0] else None


def same(shape, x):
    return torch.empty(shape, dtype=x.dtype, device=x.device)


def expanded_rows(x):
    step = 0 if x.stride(0) == 0 else x.stride(0)
    rows[(x.shape[0],)](x, same(x.shape, x), step, x.shape[1], 1.0, BLOCK=64 if step == 0 else 128)
    return x


def without_expanded(x):
    assert 0 not in x.stride(), "expanded rows"
    return launch(x, same(x.shape, x), BLOCK=128)


def copied_if_expanded(x):
    if any(stride == 0 for stride in x.stride()):
        x = x.contiguous()
    return launch(x, same(x.shape, x), BLOCK=128)


def nothing(x):
    if x.numel() == 0:
        return same(x.shape, x)
    if x.shape[0] == 0:
        raise ValueError("never")
    return launch(x, same(x.shape, x), BLOCK=128)


def padded(x):
    pitch = triton.cdiv(x.shape[1], 64) * 64
    out = torch.empty_strided(x.shape, (pitch, 1), dtype=x.dtype, device=x.device)
    return launch(x, out, BLOCK=128)


def transposed(x):
    return launch(x, torch.empty_permuted(x.shape, (1, 0), dtype=x.dtype, device=x.device), BLOCK=8)


def beyond(x):
    out = same(x.shape, x)
    launch(x, out.as_strided(x.shape, (2 * x.shape[1], 1)), BLOCK=128)
    return out


def divided(x, n=4):
    count = x.numel() // x.shape[1] + divmod(x.shape[0], n)[0]
    rows[(count,)](x, same(x.shape, x), 1, triton.cdiv(count, n), 1.0 / n, BLOCK=128)
    return x


def elements(x):
    rows[(x.shape[0],)](x[:, 3], same(x.shape, x)[-1], 1, 1, 1.0, BLOCK=128)
    return x


def copied_rows(x):
    x = x.contiguous()
    return launch(x, same(x.shape, x), BLOCK=128)


def signed(x, n=1):
    if n == -1:
        n = x.shape[1]
    if n < 0 or min(n, x.shape[0]) > 5:
        n = max(n, -5)
    return launch(x, same(x.shape, x), BLOCK=16 if n >= 0 else 32)


def solved(x, a=1, b=2):
    if a + b == 10 and a * b == 21 and a > b:
        return launch(x, same(x.shape, x), BLOCK=64)
    if a < -100 and b > a + x.shape[0]:
        return launch(x, same(x.shape, x), BLOCK=32)
    return launch(x, same(x.shape, x), BLOCK=16)


def parity(x, dim=-1):
    return launch(x, same(x.shape, x), BLOCK=[16, 32][dim % x.dim()])


def with_stream(x):
    if x.shape[1] > 1:
        torch.cuda.Stream(priority=-1)
    return launch(x, same(x.shape, x), BLOCK=128)


def named(x):
    return launch(x, same(x.shape, x), BLOCK={"n4096": 128}[f"n{x.shape[1]}"])


def looked_up(x):
    return launch(x, same(x.shape, x), BLOCK={2: 16, 4: 32}[x.shape[1]])


def hidden(x):
    try:
        return launch(x, same(x.shape, x), BLOCK=int(x.sum().item()))
    except Exception:
        return x


def scaled_size(x):
    return launch(x, same(x.shape, x), BLOCK=int(x.shape[1] * 0.3))


CONFIGS = [triton.Config({"SPAN": 64, "FAST": True}), triton.Config({"SPAN": 256, "FAST": False})]


@triton.autotune(CONFIGS, key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["SPAN"] == 0})
@triton.jit
def spans(x_ptr, out_ptr, n, HOW: tl.constexpr, EVEN: tl.constexpr, SPAN: tl.constexpr,
          FAST: tl.constexpr):
    at = tl.program_id(0) * SPAN + tl.arange(0, SPAN)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * HOW)


def tune(x, out, grid):
    how = 2 if x.shape[1] > 512 else 3
    spans[grid](x, out, x.shape[0], HOW=how)
    return out


def tuned(x):
    x = x.contiguous()
    programs = torch.cuda.get_device_properties(x.device).multi_processor_count
    grid = lambda meta: (min(programs, triton.cdiv(x.shape[0], meta["SPAN"])),)
    return tune(x, torch.empty_like(x), grid)


def tuned_by_branch(x):
    return tune(x, torch.empty_like(x), lambda meta: (1 if meta["SPAN"] > 100 else 2,))


def tuned_by_option(x):
    return tune(x, torch.empty_like(x), lambda meta: (meta["num_warps"],))


def tuned_by_flag(x):
    return tune(x, torch.empty_like(x), lambda meta: (1 if meta["FAST"] else 2,))


def tuned_size(x):
    return tune(x, torch.empty_like(x), lambda meta: (meta["SPAN"],))


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (4, 8)], key=[])
@triton.jit
def warps(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr))


def tuned_warps(x):
    out = torch.empty_like(x)
    warps[(1,)](x, out)
    return out


@functools.lru_cache
def generation():
    major, _ = torch.cuda.get_device_capability()
    return "new" if major >= 10 else "old"


def cached(x):
    return launch(x, torch.empty_like(x), BLOCK=256 if generation() == "new" else 128)


def passed_address(x):
    out = torch.empty_like(x)
    rows[(1,)](x, out, x.data_ptr(), x.shape[1], 1.0, BLOCK=128)
    return out


def by_vendor(x):
    if torch.version.hip is not None:
        return launch(x, torch.empty_like(x), BLOCK=256)
    assert torch.version.cuda is not None
    fast = torch.cuda.get_device_capability(x.device) >= (9, 0)
    target = triton.runtime.driver.active.get_current_target()
    return launch(x, torch.empty_like(x), BLOCK=128 if fast and target.arch < 100 else 64)


def by_release(x):
    fast = torch.version.cuda and torch.version.cuda >= "12.8"
    return launch(x, torch.empty_like(x), BLOCK=128 if fast else 64)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return launch(x, torch.empty_like(x), BLOCK=128)

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = launch(grad, torch.empty_like(x), BLOCK=128)
        if ctx.needs_input_grad[1]:
            dw = launch(grad, torch.zeros_like(w), BLOCK=64)
        return dx, dw


class Separate(torch.autograd.Function):
    @staticmethod
    def forward(x, factor):
        return launch(x, torch.empty_like(x), BLOCK=128)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        return grad.contiguous() * out * ctx.factor, None
"""
# A module of its own: each fork of the worker imports what its function needs.
GLUON = """
from author import launch

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


@gluon.jit
def read_block(x_desc, block, ready):
    tma.async_load(x_desc, [0, 0], ready, block)


@gluon.jit
def write_block(out_ptr, block):
    places = out_ptr + gl.arange(0, 64)
    gl.store(places, block.load(gl.AutoLayout()))


@gluon.jit
def described(x_desc, out_ptr, n, B: gl.constexpr):
    block = gl.allocate_shared_memory(x_desc.dtype, [B, B], x_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    loads = (x_desc, block, ready)
    gl.warp_specialize([(write_block, (out_ptr, block)), (read_block, loads)], [1], [24])


def descriptor(x, rows, swizzle=None):
    block = [rows, int(x.shape[1])]
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.float16)
    if swizzle is not None:
        layout = gl.NVMMASharedLayout(swizzle, 16)
    return TensorDescriptor.from_tensor(x, block, layout)


def described_rows(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.data_ptr() % 16 != 0 or out.data_ptr() % 16 != 0:
        return launch(x, out, BLOCK=128)
    described[(x.shape[0],)](descriptor(x, 8), out, x.shape[0], B=8, num_warps=4)
    described[(x.shape[0],)](descriptor(x[:, :], 16, 64), out, x.shape[0], B=16, num_warps=4)
    return out
"""
LINES = {text.strip(): at for at, text in enumerate(AUTHOR.splitlines(), 1)}
X = {"shape": ["M", "N"], "dtypes": ["float16"]}
ONLY_X = {"x": X}
WITH_X = """
    strided in_place filled summed read_bits written_bits counted Marked tuned tuned_by_branch
    tuned_by_option tuned_by_flag tuned_warps described_rows passed_address by_release cached
    by_vendor expanded_rows without_expanded copied_if_expanded nothing padded transposed beyond
    with_stream named looked_up hidden scaled_size elements copied_rows
"""
ARGUMENTS: dict[str, dict[str, Any]] = {
    **dict.fromkeys((*WITH_X.split(), "strided again"), ONLY_X),
    **dict.fromkeys(("by_vendor on AMD", "by_arch on AMD"), ONLY_X),
    "norm": {**ONLY_X, "eps": {"kind": "float", "example": 0.5}},
    "declared": {"x": {**X, "contiguous": True}},
    "joined": {**ONLY_X, "w": {"shape": ["K"], "dtypes": "x"}},
    "launch_packed": {"x": X, "starts": {"shape": ["M"], "dtypes": ["int32"]}},
    "divided": {**ONLY_X, "n": {"kind": "int", "example": 4}},
    "signed": {**ONLY_X, "n": {"kind": "int", "example": 1}},
    "solved": {**ONLY_X, "a": {"kind": "int", "example": 1}, "b": {"kind": "int", "example": 2}},
    "parity": {**ONLY_X, "dim": {"kind": "int", "example": -1}},
    "tuned_size": {"x": {**X, "shape": ["M", "SPAN"]}},
    "optional": {
        "x": {**X, "dtypes": ["float16", "float32"]},
        "bias": {**X, "dtypes": "x", "optional": True},
        "flag": {"choices": [True, False]},
    },
    "Separate": {**ONLY_X, "factor": {"kind": "float", "example": 2.0}},
    "Scale": {**ONLY_X, "w": {"shape": ["N"], "dtypes": "x"}},
}
FROM_ZERO = ("divided", "elements", "copied_rows", "nothing", "padded", "transposed", "beyond")
SIZES = {"described_rows": [64, 64], "looked_up": [0, 5], **{name: [0, 4096] for name in FROM_ZERO}}
"""Bounds of `N` for some of them."""
MODULES = {"described_rows": "gluon_author"}
REFUSED = {
    "tuned_by_branch", "tuned_by_option", "tuned_by_flag", "tuned_size", "passed_address",
    "written_bits", "by_release", "by_arch on AMD", "with_stream", "named", "hidden", "scaled_size",
}  # fmt: skip


@pytest.fixture(scope="session")
def lines() -> list[str]:
    """What the worker prints."""
    return []


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> dict[str, Any]:
    """The worker's answer for each function of the author's file."""
    requests = {
        name: {
            "function": f"{MODULES.get(name, 'author')}:{name.partition(' ')[0]}",
            "device": {"hip": 1} if name.endswith(" on AMD") else {},
            "arguments": arguments,
            "backward": name[0].isupper(),  # of functions, `test_capture_results` has gradients
            "sizes": {"N": SIZES.get(name, [1, 1 << 20])},
            "examples": {"M": 4096, "N": SIZES.get(name, [4096])[0]},
        }
        for name, arguments in ARGUMENTS.items()
    }
    modules = {"author.py": AUTHOR, "gluon_author.py": GLUON}
    return worker_answers(modules, requests, tmp_path_factory, lines.append)


def traces(answer: dict[str, Any]) -> list[dict[str, Any]]:
    assert "error" not in answer, answer
    return [trace for run in answer["runs"] for trace in run["traces"]]


def only(answer: dict[str, Any]) -> dict[str, Any]:
    (trace,) = traces(answer)
    assert trace["raises"] == ""
    return trace


def place(answer: dict[str, Any], line: str) -> str:
    return f"{Path(answer['source']).with_name('author.py')}:{LINES[line]}"


def test_an_error_of_the_author_ends_a_path(answers: dict[str, Any]) -> None:
    (trace,) = [trace for trace in traces(answers["norm"]) if trace["raises"]]
    assert trace["raises"] == "ValueError: rows are too long"
    assert trace["place"] == place(answers["norm"], 'raise ValueError("rows are too long")')
    assert trace["steps"] == []


def test_candidates_are_symbols_of_their_launch(answers: dict[str, Any]) -> None:
    paths = traces(answers["tuned"])
    how = [(path["guards"], path["steps"][-1]["constants"]["HOW"]["int"]) for path in paths]
    assert sorted(how) == [(["N <= 512"], "3"), (["N > 512"], "2")]
    for path in paths:
        _, step = path["steps"]
        assert (step["autotune"], step["key"]) == (["FAST", "SPAN"], ["n"])
        assert step["grid"] == ["min(cdiv(M, SPAN), sm_count())"]
        assert step["constants"]["EVEN"] == {"bool": "M % SPAN == 0"}
        assert "SPAN" not in path["hints"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("tuned_by_branch", "decides on a candidate of `spans`: `SPAN <= 100`"),
        ("tuned_by_option", "computes with `num_warps`, which candidates of `spans` set"),
        ("tuned_by_flag", "computes with `FAST`, which candidates of `spans` set"),
        ("tuned_size", "has the size `SPAN`, and a constant of that name in `spans`"),
    ],
)
def test_what_depends_on_a_candidate_is_refused(
    answers: dict[str, Any], function: str, message: str
) -> None:
    answer = answers[function]
    assert message in answer["error"]
    assert answer["place"].endswith(
        f"author.py:{LINES['spans[grid](x, out, x.shape[0], HOW=how)']}"
    )


def test_the_vendor_is_that_of_the_run(answers: dict[str, Any]) -> None:
    """NVIDIA's GPUs and AMD's have a run each, if the author asks whose it is."""
    assert not answers["norm"]["asked_vendor"]
    nvidia, amd = answers["by_vendor"], answers["by_vendor on AMD"]
    assert nvidia["asked_vendor"]
    blocks = {
        trace["steps"][0]["constants"]["BLOCK"]["int"]: trace["guards"] for trace in traces(nvidia)
    }
    assert {*blocks} == {"128", "64"}
    assert blocks["128"][0] == "capability() // 10 == 9"
    (step,) = only(amd)["steps"]
    assert step["constants"]["BLOCK"] == {"int": "256"}
    assert amd["runs"][0]["configuration"]["capability"] == 0


def test_what_gpus_of_amd_do_not_answer(answers: dict[str, Any]) -> None:
    answer = answers["by_arch on AMD"]
    assert "ask first whether `torch.version.hip` is None" in answer["error"]
    refused = "decides on `torch.version.cuda`, which has several answers"
    assert answers["by_release"]["error"] == refused


def test_descriptors_of_gluon(answers: dict[str, Any]) -> None:
    """Their blocks are numbers; addresses and strides are conditions of the path."""
    paths = {trace["guards"][0]: trace for trace in traces(answers["described_rows"])}
    assert {*paths} == {"address(x) % 16 != 0", "address(x) % 16 == 0"}
    path = next(trace for trace in traces(answers["described_rows"]) if len(trace["steps"]) == 2)
    assert "stride(x, 1) == 1" in path["guards"]
    assert {"2 * stride(x, 0) % 16 == 0", "address(x) % 16 == 0"} <= {*path["guards"]}
    first, second = (step["arguments"]["x_desc"] for step in path["steps"])
    assert (first["tensor"], first["sizes"]) == ("x", ["M", "N"])
    assert first["descriptor"] == {"block": [8, 64]}
    assert second["descriptor"] == {"block": [16, 64], "layout": {"swizzle_byte_width": 64}}
    written = {name for step in path["steps"] for name in step["written"]}
    assert written & {"x_desc", "out_ptr"} == {"out_ptr"}


def test_an_address_is_no_number_for_a_kernel(answers: dict[str, Any]) -> None:
    assert answers["passed_address"]["error"] == "passes an address as a number: pass the tensor"


def test_a_view_of_another_dtype_is_a_tensor_that_is_only_read(answers: dict[str, Any]) -> None:
    view, launch = only(answers["read_bits"])["steps"]
    assert view["aten"] == "view.dtype"
    assert launch["arguments"]["x_ptr"]["tensor"] == view["results"][0]
    assert answers["written_bits"]["error"] == "writes through a view of another dtype"


def test_a_forward_pass_is_that_of_tensors_with_gradients(answers: dict[str, Any]) -> None:
    trace = only(answers["Marked"])
    assert trace["decisions"] == {}
    assert trace["steps"][0]["constants"]["BLOCK"] == {"int": "128"}
    assert trace["without_gradient"] == [1]
    assert trace["gradients"][0] is not None


def test_stores_follow_the_statements_of_a_kernel(answers: dict[str, Any]) -> None:
    """A pointer's name may be used again, and what another function loads is no pointer."""
    (step,) = only(answers["launch_packed"])["steps"]
    assert {name for name in step["written"] if name.endswith("_ptr")} == {"out_ptr"}


def test_divisibility_matters_where_addresses_are_computed(answers: dict[str, Any]) -> None:
    (step,) = only(answers["launch_packed"])["steps"]
    assert {"n", "stride", "ones"} <= {*step["specialized"]}
    assert not {"group", "rows"} & {*step["specialized"]}


def test_a_tensor_that_is_declared_contiguous_is_required_to_be(answers: dict[str, Any]) -> None:
    assert answers["declared"]["contiguous"] == ["x"]
    (step,) = only(answers["declared"])["steps"]
    assert step["arguments"]["stride"] == {"int": "N"}


@pytest.mark.parametrize(
    "path",
    [
        r"x float16\[M, N\], bias None, flag True",
        r"x float16\[M, N\]: .*, raises ValueError: rows are too long",
    ],
)
def test_each_path_is_a_line(answers: dict[str, Any], lines: list[str], path: str) -> None:
    assert any(re.fullmatch(f"{PATH_WALKED}{path}", line) for line in lines)
    assert len(lines) >= sum(
        len(run["traces"]) for a in answers.values() for run in a.get("runs", ())
    )


# random calls


Wrapped = tuple[CapturedWrapper, FunctionReader]


@pytest.fixture(scope="session")
def wrapper_of(answers: dict[str, Any]) -> Callable[[str], Wrapped]:
    """The wrapper of a function, which is read once, and its reader."""

    @cache
    def read(name: str) -> Wrapped:
        answer, arguments = answers[name], ARGUMENTS[name]
        defaults = {n: d for n, d in answer["defaults"].items() if "shape" not in arguments[n]}
        sizes = {"N": tuple(SIZES.get(name, (1, 1 << 20)))}
        reader = FunctionReader(
            snake_case(name.partition(" ")[0]), answer, arguments, sizes, defaults
        )
        return reader.read(), reader

    return read


def refusals(wrapper: CapturedWrapper, reader: FunctionReader) -> str:
    calls = RandomCalls(wrapper, reader.described, reader.answer["parameters"])
    return "\n".join(calls.refusals(reader.answer["samples"]))


def test_ops_do_what_the_functions_do_in_random_calls(
    answers: dict[str, Any], wrapper_of: Callable[[str], Wrapped]
) -> None:
    assert {name for name, answer in answers.items() if "error" in answer} == REFUSED
    for name, answer in answers.items():
        if name not in REFUSED:
            assert len(answer["samples"]) > 20, name
            text = refusals(*wrapper_of(name))
            reasons = set(re.findall(r"takes: (.*?), for example", text))
            known = {"`x` is not contiguous", "`w` is not contiguous", "not `capability() == 0`"}
            assert reasons <= known | {"in the backward pass, `grad_0` is not contiguous"}, name


def test_calls_are_the_same_in_every_capture(answers: dict[str, Any]) -> None:
    first, again = (answers[name]["samples"] for name in ("strided", "strided again"))
    assert [s["trace"]["hints"] for s in first] == [s["trace"]["hints"] for s in again]


def test_calls_that_only_the_function_takes_are_named(wrapper_of: Callable[[str], Wrapped]) -> None:
    text = refusals(*wrapper_of("norm"))
    assert re.match(r"refuses \d+ of \d+ random calls that the function takes: `x` is not", text)
    assert re.search(r"for example `x` of \[\d+, \d+\] with strides \[\d+, \d+\] \(float16\)", text)


FAULTS: list[tuple[str, str, Any, str]] = [
    ("norm", "launch.0.args.n", "N + 1", "as `n`, not"),
    ("norm", "launch.0.args.stride", "stride(x, 1)", "as `stride`, not"),
    ("norm", "launch.0.args.eps", 0.5, "as `eps`, not"),
    ("norm", "launch.0.args.x_ptr", "out", "as `x_ptr`, not `x`"),
    ("norm", "launch.0.grid", ["M", 1], "blocks, not"),
    ("norm", "launch.0.configs", [{"num_warps": 8}], "passes 8 as `num_warps`, not 4"),
    ("norm", "launch.0.constants.BLOCK.choices", [1, 2, 4, 8], "has no image with the constant"),
    ("norm", "launch.0.when", "N > 3", "does not call `rows`"),
    ("norm", "require", [], "does not raise ValueError: rows are too long"),
    ("norm", "shapes.out", ["M", 1], "allocates"),
    ("norm", "dtypes.out", "float32", "(float32) as `out_ptr`, not `b0`"),
    ("filled", "fill.out", 1, "fills with 1, not"),
    ("filled", "fill", {}, "fills with None"),
    ("summed", "launch.1.aten", "mean.dim", "calls `mean.dim` in place of `sum.dim_IntList`"),
    ("summed", "launch.1.arguments.1", ["0"], "as `argument 1 of `sum.dim_IntList``, not"),
    ("optional", "launch.0.when", "flag", "as `x_ptr`, not"),
    ("declared", "contiguous", [], ""),
    ("tuned", "launch.1.grid", ["cdiv(M, SPAN)"], "blocks, not"),
    ("Scale", "launch.0.args.out_ptr", "x", "passes `x`"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "place", "value", "message"), FAULTS)
def test_a_fault_of_an_op_is_found(
    wrapper_of: Callable[[str], Wrapped], name: str, place: str, value: Any, message: str
) -> None:
    """Each changes one value of the op's table."""
    wrapper, reader = wrapper_of(name)
    section = json.loads(json.dumps(wrapper.forward.section))
    *keys, last = place.split(".")
    owner = section
    for key in keys:
        owner = owner[int(key) if key.isdigit() else key]
    owner[int(last) if last.isdigit() else last] = value
    changed = replace(wrapper, forward=replace(wrapper.forward, section=section))
    if not message:
        assert refusals(changed, reader) == ""
        return
    with pytest.raises(CaptureError) as caught:
        refusals(changed, reader)
    assert "does something else than its op" in caught.value.message
    assert message in caught.value.message


def test_a_fault_of_a_backward_op_is_found(wrapper_of: Callable[[str], Wrapped]) -> None:
    wrapper, reader = wrapper_of("Scale")
    assert wrapper.backward is not None
    swapped = replace(wrapper.backward, outputs=wrapper.backward.outputs[::-1])
    with pytest.raises(CaptureError, match="the gradient of x"):
        refusals(replace(wrapper, backward=swapped), reader)


def test_caches_of_the_author_do_not_outlive_a_run(answers: dict[str, Any]) -> None:
    paths = {trace["steps"][0]["constants"]["BLOCK"]["int"] for trace in traces(answers["cached"])}
    assert paths == {"128", "256"}
    assert all(any("capability()" in g for g in t["guards"]) for t in traces(answers["cached"]))


@pytest.mark.parametrize(
    ("function", "message", "line"),
    [
        ("with_stream", "asks for the state of the GPU", "torch.cuda.Stream(priority=-1)"),
        (
            "named",
            "what cannot be followed (KeyError: 'n",
            'return launch(x, same(x.shape, x), BLOCK={"n4096": 128}[f"n{x.shape[1]}"])',
        ),
        (
            "hidden",
            "asks what is in a tensor",
            "return launch(x, same(x.shape, x), BLOCK=int(x.sum().item()))",
        ),
        (
            "scaled_size",
            "computes `Trunc(0.3*(N))`, which has no form in an expression",
            "rows[(x.shape[0],)](x, out, x.stride(0), x.shape[1], 1.0, **options)",
        ),
    ],
)
def test_errors_that_are_not_the_authors_are_refused(
    answers: dict[str, Any], function: str, message: str, line: str
) -> None:
    answer = answers[function]
    assert message in answer["error"]
    assert answer["place"].endswith(f"author.py:{LINES[line]}")
