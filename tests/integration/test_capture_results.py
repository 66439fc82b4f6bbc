"""What functions return, and which gradients they have: in ops, and in the Python around them."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kbuild.dsl.candidates import planned_image_texts
from kbuild.plugins.capture.description import CaptureSection, read_declaration
from kbuild.plugins.capture.functions_module import captured_source
from kbuild.plugins.capture.show import gradient_text, shown
from kbuild.plugins.capture.wrappers import captured_kernel
from kbuild.project.config.issue import IssueCollector
from kbuild.system.errors import CheckError
from tests.support.capture_worker import Captures, captures
from tests.support.dsl.triton_kernels import VERSION
from tests.support.stores import dsl_store, shared_folder, warm_cache

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs Torch"),
]
AUTHOR = """
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl


@triton.jit
def times(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def row(x, out, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


def scaled(x, factor, out=None):
    out = torch.empty_like(x) if out is None else out
    times[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), factor, BLOCK=256)
    return out


class Triple(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return scaled(x, 3.0)

    @staticmethod
    def backward(ctx, grad):
        return scaled(grad.contiguous(), 3.0)


class Saved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias=None):
        out, kept = scaled(x, 2.0), scaled(x, 4.0)
        if bias is not None:
            out = scaled(out, 5.0)
        ctx.save_for_backward(*((x, bias, kept) if bias is not None else (x, kept)))
        return out

    @staticmethod
    def backward(ctx, grad):
        kept = ctx.saved_tensors[-1]
        return scaled(kept, 1.0), None


class Untouched(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, training):
        return scaled(x, 2.0) if training else x

    @staticmethod
    def backward(ctx, grad):
        return scaled(grad.contiguous(), 2.0), None


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if x.shape[0] > 4096:
            raise ValueError("too long")
        out = scaled(x, 2.0)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        return scaled(*ctx.saved_tensors, 1.0)


def triple(x): return Triple.apply(x)
alias = Triple.apply
def by_name(x, apply=Triple.apply): return apply(x)
def nested(x): return Triple.apply(Triple.apply(x))
def cast(x): return Triple.apply(x.float()).to(x.dtype)
def viewed(x): return Triple.apply(x.reshape(-1)).view(x.shape)
def residual(x, bias): return Triple.apply(x) + bias
def with_bias(x, bias=None): return Triple.apply(x) if bias is None else Triple.apply(x) + bias
def in_tuple(x): return Triple.apply(x), x
def without(x): return scaled(x, 2.0)
def reduced(x): return scaled(x, 2.0).sum(-1)
def by_aten(x): return scaled(x, 2.0) + x * 2
def by_aten_in_place(x): return scaled(x, 2.0).add_(x)
def detached(x): return Triple.apply(x.detach())
@torch.no_grad()
def not_recorded(x): return Triple.apply(x) + x
def sometimes(x, training=True): return Triple.apply(x) if training else x
def sometimes_kept(x, training=True): return Kept.apply(x) if training else x
def two(x, training=True): return Triple.apply(x), (Triple.apply(x) if training else None)

def into(x, out=None): return scaled(x, 2.0, out)
def maybe_in_place(x, inplace=False): return scaled(x, 2.0, x if inplace else None)
def off(x, training=True): return scaled(x, 2.0) if training else x
def in_place(x): return scaled(x, 2.0, x)
def part(x): return scaled(x, 2.0, x)[:2]
def one_of(x, bias, first=True): return scaled(x, 2.0, x if first else bias)
def same_twice(x):
    out = scaled(x, 2.0)
    return out, out
def again(x, twice=False):
    out = scaled(x, 2.0)
    return scaled(out, 3.0) if twice else out


class Pair(NamedTuple):
    data: torch.Tensor
    scale: torch.Tensor


@dataclass
class Record:
    data: torch.Tensor


def as_dict(x):
    return {"y": [scaled(x, 2.0), None], "s": (Pair(scaled(x, 3.0), scaled(x, 4.0)), (128,))}
def as_record(x): return Record(scaled(x, 2.0))
def as_sizes(x): return scaled(x, 2.0), x.shape

def odd_names(x, dim=2.0, *, min=1.0, out=None): return scaled(x, dim + min, out)
def makes_kernel(x):
    @triton.jit
    def inner(x, out):
        tl.store(out, tl.load(x))
    out = torch.empty_like(x)
    inner[(1,)](x, out)
    return out
def shape_of_size(x):
    out = torch.empty_like(x)
    row[(1,)](x, out, N=x.shape[0])
    return out
def leading(x):
    return scaled(x.new_empty(*x.size()[:-1], x.size(-1) // 8), 2.0)
def by_rows(x):
    flat = x.reshape(-1, x.shape[-1])
    if flat.shape[0] * flat.shape[1] % 7 == 3 and flat.shape[0] >= 32768:
        return scaled(x, 3.0)
    return scaled(x, 2.0)
"""
LINES = {text.strip(): at for at, text in enumerate(AUTHOR.splitlines(), 1)}
X: dict[str, Any] = {"x": {"shape": ["N"], "dtypes": ["float16"]}}
GIVEN = {"shape": ["N"], "dtypes": "x"}
OPTIONAL = {**GIVEN, "optional": True}
SECTION = {"language": "triton", "toolchain": f"triton=={VERSION}", "src": ["author.py"]}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captures]:
    store = dsl_store(f"triton-{VERSION}", "triton", tmp_path_factory)
    cache = warm_cache(shared_folder(tmp_path_factory) / "capture-cache", store, tmp_path_factory)
    root = tmp_path_factory.mktemp("author")
    (root / "author.py").write_text(AUTHOR)
    with captures(root, SECTION, cache) as found:
        yield found


def captured(worker: Captures, function: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The content of the function's file."""
    issues = IssueCollector(())
    table = {"function": f"author:{function}", "arguments": arguments}
    declaration = read_declaration(CaptureSection.model_validate(table), issues)
    assert declaration is not None, issues.issues
    wrapper, notes = worker.declared(declaration)
    assert all(note.startswith("refuses") and "is not contiguous" in note for note in notes), notes
    content: dict[str, Any] = json.loads(json.dumps(wrapper.to_json()))
    compile(captured_source([content]), "captured", "exec")
    kernel = captured_kernel("k", worker.section, content["ops"], content["name"])
    description = {**content, "function": function, "source": "author.py", "notes": []}
    assert [*shown(description, planned_image_texts(kernel, worker.root))]
    for section in content["ops"]:
        assert [*unguarded(section)] == []
    return content


def unguarded(section: dict[str, Any]) -> Iterator[str]:
    """Arguments that may be None and that launches take without asking: their images fail."""
    optional = re.findall(r"Tensor\S*\? (\w+)", section["schema"].partition(" -> ")[0])
    for step in section["launch"]:
        used = {*step["args"].values()} if "args" in step else {*()}
        yield from (n for n in optional if n in used and f"has({n})" not in step.get("when", ""))


@pytest.mark.parametrize(
    ("function", "arguments", "gradients"),
    [
        *((name, X, "gradients of x") for name in ("triple", "alias", "by_name", "nested", "cast")),
        ("Untouched", {**X, "training": True}, "gradients of x"),
        ("viewed", {"x": {"shape": ["...", "N"], "dtypes": ["float16"]}}, "gradients of x"),
        ("residual", {**X, "bias": GIVEN}, "gradients of x, bias"),
        ("with_bias", {**X, "bias": OPTIONAL}, "gradients of x, bias"),
        ("in_tuple", X, "gradients of x"),
        ("sometimes", {**X, "training": True}, "gradients of x"),
        ("sometimes_kept", {**X, "training": True}, "gradients of x"),
        ("two", {**X, "training": True}, "gradients of x"),
        *((name, X, "no gradient") for name in ("without", "reduced", "detached", "not_recorded")),
        ("by_aten", X, "refuses calls that record a gradient of x"),
        ("by_aten_in_place", X, "refuses calls that record a gradient of x"),
    ],
)
def test_gradients_are_those_of_the_function(
    worker: Captures, function: str, arguments: dict[str, Any], gradients: str
) -> None:
    content = captured(worker, function, arguments)
    assert gradient_text(content) == gradients
    assert (content["backward"] is not None) == gradients.startswith("gradients")


@pytest.mark.parametrize(
    ("function", "arguments", "schema", "outputs"),
    [
        (
            "into", {**X, "out": OPTIONAL}, "into(Tensor x, Tensor(a!)? out=None) -> Tensor(a!)",
            [["either", "result", "out", "not (out is not None)"]],
        ),
        (
            "maybe_in_place", {**X, "inplace": False},
            "maybe_in_place(Tensor(a!) x, bool inplace=False) -> Tensor(a!)",
            [["either", "out", "x", "not inplace"]],
        ),
        (
            "off", {**X, "training": True}, "off(Tensor(a) x, bool training=True) -> Tensor(a)",
            [["either", "out", "x"]],
        ),
        ("in_place", X, "in_place(Tensor(a!) x) -> Tensor(a!)", [["argument", "x"]]),
        (
            "same_twice", X, "same_twice(Tensor x) -> (Tensor, Tensor)",
            [["result", "out0"], ["result", "out0"]],
        ),
    ],
)  # fmt: skip
def test_results_may_be_arguments(
    worker: Captures, function: str, arguments: dict[str, Any], schema: str, outputs: list[Any]
) -> None:
    content = captured(worker, function, arguments)
    assert content["schema"] == schema
    assert content["forward"]["outputs"] == outputs
    assert content["forward"]["name"] == f"_{function}_forward"


def test_an_intermediate_tensor_is_not_the_result(worker: Captures) -> None:
    (op,) = captured(worker, "again", {**X, "twice": False})["ops"]
    assert [(step["args"]["x"], step["args"]["out"], step["when"]) for step in op["launch"]] == [
        ("x", "t0", "twice"), ("t0", "out", "twice"), ("x", "out", "not twice"),
    ]  # fmt: skip


def test_saved_tensors_are_the_same_on_all_paths(worker: Captures) -> None:
    content = captured(worker, "Saved", {**X, "bias": OPTIONAL})
    assert gradient_text(content) == "gradients of x"
    assert content["backward"]["arguments"] == ["saved0"]


def test_python_returns_the_structure(worker: Captures) -> None:
    source = captured_source([captured(worker, "as_dict", X)])
    assert "    return {'y': [_0, None], 's': (Pair(_2, _3), (128,))}\n" in source


def test_parameters_have_other_names_in_ops(worker: Captures) -> None:
    content = captured(worker, "odd_names", {**X, "dim": 2.0, "min": 1.0, "out": OPTIONAL})
    start = "odd_names(Tensor x, float dim_=2.0, float min_=1.0, Tensor(a!)? out=None)"
    assert content["schema"].startswith(start)
    assert "def odd_names(x, dim=2.0, min=1.0, out=None):" in captured_source([content])


def test_leading_dimensions_may_be_any(worker: Captures) -> None:
    x = {"shape": ["...", "N"], "dtypes": ["float16"]}
    assert captured(worker, "leading", {"x": x})["ops"][0]["shapes"]["out"] == ["...", "N // 8"]


def test_conditions_on_the_product_of_leading_dimensions(worker: Captures) -> None:
    x = {"shape": ["...", "N"], "dtypes": ["float16"]}
    content = captured(worker, "by_rows", {"x": x})
    assert "rows >= 32768" in json.dumps(content)


@pytest.mark.parametrize(
    ("function", "arguments", "line", "message"),
    [
        ("part", X, "def part(x): return scaled(x, 2.0, x)[:2]", "returns a part"),
        (
            "one_of", {**X, "bias": GIVEN, "first": True},
            "def one_of(x, bias, first=True): return scaled(x, 2.0, x if first else bias)",
            "returns `bias` on some paths and `x` on others",
        ),
        (
            "as_record", X, "def as_record(x): return Record(scaled(x, 2.0))",
            "returns a `Record`",
        ),
        (
            "as_sizes", X, "def as_sizes(x): return scaled(x, 2.0), x.shape",
            "returns a number of the call",
        ),
        ("makes_kernel", X, "inner[(1,)](x, out)", "launches `inner`, which has no name"),
        ("shape_of_size", X, "row[(1,)](x, out, N=x.shape[0])", "has more values of `N` in `row`"),
    ],
)  # fmt: skip
def test_what_cannot_be_returned_or_built_is_refused_at_its_line(
    worker: Captures, function: str, arguments: dict[str, Any], line: str, message: str
) -> None:
    with pytest.raises(CheckError) as error:
        captured(worker, function, arguments)
    assert str(error.value).startswith(f"author.py:{LINES[line]}: `author:{function}` {message}")
