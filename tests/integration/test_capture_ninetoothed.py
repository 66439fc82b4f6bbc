"""`kbuild capture` of functions whose kernels NineToothed writes."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator

import pytest

from kbuild.plugins.capture.wrappers import CapturedWrapper
from tests.support.capture_worker import Captures, captures
from tests.support.stores import cache_with_store, dsl_store

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs Torch"),
]
AUTHOR = """
import ninetoothed
import ninetoothed.language as ntl
import torch
from ninetoothed import Symbol, Tensor

BLOCK_SIZE = Symbol("BLOCK_SIZE", meta=True)


@ninetoothed.jit
def add_kernel(
    x: Tensor(1).tile((BLOCK_SIZE,)),
    y: Tensor(1).tile((BLOCK_SIZE,)),
    out: Tensor(1).tile((BLOCK_SIZE,)),
):
    out = x + y


def arrangement(input, output):
    return input.tile((1, 1024)), output.tile((1, 1024))


def application(input, output):
    output = ntl.exp(input) * 2.0


exponentials = ninetoothed.make(
    arrangement, application, (Tensor(2), Tensor(2)), kernel_name="exponentials"
)


def exponential_sums(x, y):
    total = torch.empty_like(x)
    add_kernel(x.view(-1), y.view(-1), total.view(-1))
    out = torch.empty_like(x)
    exponentials(total, out)
    return out


def strided(x):
    out = torch.empty_like(x)
    exponentials(x, out)
    return out


def narrow(input, output):
    return input.tile((1, 128)), output.tile((1, 128))


once = ninetoothed.make(arrangement, application, (Tensor(2), Tensor(2)))
again = ninetoothed.make(narrow, application, (Tensor(2), Tensor(2)))


def exponential_twice(x):
    out, last = torch.empty_like(x), torch.empty_like(x)
    once(x, out)
    again(out, last)
    return last
"""
TENSOR = {"shape": ["M", "N"], "dtypes": ["float16"]}


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captures]:
    store = dsl_store("ninetoothed-0.26.0", "ninetoothed", tmp_path_factory)
    root = tmp_path_factory.mktemp("generated")
    (root / "author.py").write_text(AUTHOR)
    pins = ["ninetoothed==0.26.0", "triton==3.9.0"]
    section = {"language": "ninetoothed", "toolchain": pins, "src": ["author.py"]}
    with captures(
        root, section, cache_with_store(tmp_path_factory.mktemp("cache"), store)
    ) as found:
        yield found


@pytest.fixture(scope="module")
def wrapper(captured: Captures) -> CapturedWrapper:
    arguments = {"x": TENSOR, "y": {**TENSOR, "dtypes": "x"}}
    wrapper, notes = captured("author:exponential_sums", arguments)
    assert all(note.startswith("refuses") for note in notes), notes
    return wrapper


def test_two_kernels_of_one_application_have_names_of_their_own(
    captured: Captures,
) -> None:
    found, _ = captured("author:exponential_twice", {"x": TENSOR})
    launches = [step["function"] for step in found.forward.section["launch"]]
    assert launches == ["application", "application_1"]
    compile(found.kernels, "kernels", "exec")
    for name in launches:
        assert found.kernels.count(f"def {name}(") == 1


def test_launches_are_those_of_the_written_kernels(wrapper: CapturedWrapper) -> None:
    section = wrapper.forward.section
    assert section["schema"] == "f(Tensor x, Tensor y) -> (Tensor out)"
    assert section["temporaries"] == ["t0"]
    add, exponentials = section["launch"]
    assert (add["function"], add["configs"]) == ("add_kernel_with_auto_tuning", "autotune")
    block = "ninetoothed_meta_prefix_BLOCK_SIZE"
    assert add["grid"][0].endswith(f"// {block} + 1")
    assert set(add["args"].values()) >= {"x", "y", "t0"}
    assert exponentials["function"] == "exponentials"
    assert exponentials["configs"] == [{"num_warps": 8, "num_stages": 3}]
    assert section["tune"]["sizes"].keys() == {"M", "N"}


def test_strides_of_a_call_are_those_of_what_empty_like_makes(
    captured: Captures,
) -> None:
    """No call is refused for its layout; the dense result has the same order of dimensions."""
    section = captured("author:strided", {"x": TENSOR})[0].forward.section
    assert "contiguous" not in section
    rows, columns = section["views"]["out"]["strides"]
    assert re.fullmatch(r"\(1 if .* else max\(N, 1\)\)", rows)
    assert re.fullmatch(r"\(max\(M, 1\) if .* else 1\)", columns)
    (launch,) = section["launch"]
    assert {"stride(x, 0)", "stride(x, 1)", rows, columns} <= {*launch["args"].values()}
    strides = [name for name in launch["args"] if name.endswith("stride_1")]
    assert {*strides} <= {*launch["ones"]}
