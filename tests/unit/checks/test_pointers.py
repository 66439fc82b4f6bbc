"""The pointers check: pointers into tensors that are gone."""

from __future__ import annotations

import pytest

from kbuild.checks.pointers import pointer_findings


def lines(code: str) -> list[str]:
    text = f"void f(torch::stable::Tensor x, Params *params) {{\n  {code}\n}}\n"
    return [found.where for found in pointer_findings({"b.cpp": text})]


@pytest.mark.parametrize(
    "code",
    [
        "auto *p = torch::stable::contiguous(x).data_ptr();",
        "const float *p = contiguous(x).const_data_ptr<float>();",
        "float* p = static_cast<float*>(torch::stable::clone(x).data_ptr());",
        "float* p = reinterpret_cast<float *>(::torch::stable::contiguous(x).mutable_data_ptr());",
        "float* p = (float *)contiguous(x).data_ptr();",
        "float* p = (contiguous(x).data_ptr());",
        "params->x = new_empty(x, {1, 2}).data_ptr();",
        "p = x.contiguous().data_ptr<float>();",
        "p = x.to(kFloat).contiguous().data_ptr<float>();",
        "Params q{contiguous(x).data_ptr(), 4};",
        "Params q = {4, contiguous(x).data_ptr()};",
        "return contiguous(x).data_ptr();",
        "void *p = torch::stable::pad(contiguous(x), {1}).data_ptr(), *q = nullptr;",
    ],
)
def test_kept_pointers(code: str) -> None:
    assert lines(code) == ["b.cpp:2"]


@pytest.mark.parametrize(
    "code",
    [
        "auto *p = x.data_ptr();",
        "auto *p = xs[0].data_ptr();",
        "auto *p = y.value().data_ptr();",
        "auto *p = std::get<0>(both).data_ptr();",
        "auto *p = transpose(x, 0, 1).data_ptr();",  # a view of `x`
        "auto *p = own_function(x).data_ptr();",
        "launch(contiguous(x).data_ptr(), n);",
        "int n = count(contiguous(x).data_ptr(), 3);",
        "k<<<1, 1>>>(contiguous(x).data_ptr<float>(), n);",
        "float v = *contiguous(x).data_ptr<float>();",
        "float v = contiguous(x).data_ptr<float>()[0];",
        "bool b = contiguous(x).data_ptr() == nullptr;",
        "Tensor y = contiguous(x); auto *p = y.data_ptr();",
        "// auto *p = contiguous(x).data_ptr();",
    ],
)
def test_pointers_that_are_right(code: str) -> None:
    assert lines(code) == []


def test_sources_for_the_full_abi_are_not_read() -> None:
    text = "void f(at::Tensor x) { auto *p = x.contiguous().data_ptr<float>(); }"
    assert list(pointer_findings({"b.cpp": text})) == []
