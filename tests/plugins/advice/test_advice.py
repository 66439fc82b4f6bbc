"""The advice about the stable ABI: single files, and the two relus."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kbuild.plan.project import open_project
from kbuild.plugins.advice.stable_abi import stable_abi_table
from kbuild.plugins.advice.survey import advise_project
from kbuild.plugins.advice.uses import join_qualified_names
from kbuild.sources.cxx import cxx_tokens
from kbuild.system.sourcetree import SourceTree
from kbuild.system.version import Version

EXAMPLES = Path(__file__).parents[3] / "examples"


def advice(root: Path, *backends: str):
    project = open_project(root)
    return advise_project(project, SourceTree(root), backends or project.file.general.backends)


@pytest.fixture
def found(project):
    """The uses in `src/k.cpp` with the given text, as `(use, stable)`."""

    def read(text: str) -> list[tuple[str, str | None]]:
        made = project('[torch]\nsrc = ["src/k.cpp"]\n[kernel.k]\nbackend = "cpu"\n'
                       'depends = ["torch"]\nsrc = ["src/k.cpp"]\n')  # fmt: skip
        (made.root / "src/k.cpp").write_text(text)
        (backend,) = advise_project(made, SourceTree(made.root), ["cpu"])
        return [(use.text, use.entry.stable) for use in backend.uses]

    return read


DISPATCH = 'torch_call_dispatcher("aten::{}", ...)'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#include <torch/library.h>", [("<torch/library.h>", "<torch/csrc/stable/library.h>")]),
        ("#include <torch/csrc/stable/ops.h>", []),
        ("#include <torch/headeronly/core/ScalarType.h>", []),
        ("#include <torch/csrc/inductor/aoti_torch/c/shim.h>", []),
        ("#include <c10/new/thing.h>", [("<c10/new/thing.h>", None)]),
        (
            "#include <c10/util/Float8_e5m2.h>",
            [("<c10/util/Float8_e5m2.h>", "<torch/headeronly/util/Float8_e5m2.h>")],
        ),
        ("#include <vector>", []),
        ("at::Tensor f();", [("at::Tensor", "torch::stable::Tensor")]),
        ("torch::stable::Tensor f(); std::at::x y; mine::at::z w;", []),
        ('// at::Tensor\n/* at::Half */ auto s = "at::Half" R"(at::Half)";', []),
        ("auto t = torch::kInt64;", [("torch::kInt64", "torch::headeronly::ScalarType::Long")]),
        (
            "auto t = at::ScalarType::Float;",
            [("at::ScalarType::Float", "torch::headeronly::ScalarType::Float")],
        ),
        ("AT_DISPATCH_SWITCH(t, n)", [("AT_DISPATCH_SWITCH", "THO_DISPATCH_SWITCH")]),
        (
            "AT_DISPATCH_FLOATING_TYPES(t, n, f)",
            [("AT_DISPATCH_FLOATING_TYPES", "THO_DISPATCH_V2")],
        ),
        ("auto c = torch::mm(a, b);", [("torch::mm", DISPATCH.format("mm"))]),
        ("at::no_such_thing();", [("at::no_such_thing", None)]),
        ("at::native::mm(a);", [("at::native::mm", None)]),
        ("#define TORCH_CHECK(x) x\nTORCH_CHECK(1)", []),
        ("namespace at { class Mine; }", []),
        ("#if 0\nat::Half x;\n#endif", [("at::Half", "torch::headeronly::Half")]),
    ],
)
def test_headers_and_names(found, text, expected):
    assert found(f"{text}\n") == expected


TENSOR = ("at::Tensor", "torch::stable::Tensor")
CONTIGUOUS = (".contiguous()", "torch::stable::contiguous(self, ...)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("void f(at::Tensor x) { x.sizes(); x.device().index(); }", [TENSOR]),
        ("void f(const at::Tensor &x) { x.contiguous(); }", [TENSOR, CONTIGUOUS]),
        ("void f(at::Tensor *x) { x->contiguous(); }", [TENSOR, CONTIGUOUS]),
        ("void f(torch::stable::Tensor x) { x.contiguous(); }", []),
        ("void f(Mine x) { x.contiguous(); x.view(1); }", []),
        ("struct P { at::Tensor x; }; void f(P p) { p.x.contiguous(); }", [TENSOR, CONTIGUOUS]),
        ("void f(at::Tensor x) { auto y = x.contiguous(); y.mm(y).contiguous(); }",
         [TENSOR, CONTIGUOUS, (".mm()", DISPATCH.format("mm")), CONTIGUOUS]),
        (
            "auto y = at::empty({1}, o.device(d)); y.data_ptr(); y.data_ptr<float>();",
            [
                ("at::empty", "torch::stable::empty"),
                (".data_ptr<>()", "mutable_data_ptr<T>() or const_data_ptr<T>()"),
            ],
        ),
        (
            "void f(at::Tensor x) { x.is_contiguous(); x.is_contiguous(m); x.no_such(); }",
            [
                TENSOR,
                (".is_contiguous()", "is_contiguous() or a comparison of strides()"),
                (".no_such()", None),
            ],
        ),
        ("using at::Tensor; void f(Tensor x) { x.contiguous(); }", [TENSOR, CONTIGUOUS]),
        ("using namespace at; void f(Tensor x) { x.contiguous(); min(1, 2); }",
         [("using namespace at", "using torch::stable::Tensor, and so on"), TENSOR, CONTIGUOUS]),
    ],
)  # fmt: skip
def test_tensors(found, text, expected):
    assert found(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('m.impl("f", &f);', [".impl()"]),
        ('m.impl("f", TORCH_BOX(&f));', []),
        ('m.def("f(Tensor x) -> Tensor");', []),
        ('m.def("f(Tensor x) -> Tensor", {torch::headeronly::Tag::core});', []),
        ('m.def("f", &f);', [".def()"]),
        ("p.impl(1, f);", []),
    ],
)
def test_registration(found, text, expected):
    assert [use for use, _ in found(text)] == expected


class TestRelu:
    def test_every_line_with_torch_is_found(self):
        (cpu,) = advice(EXAMPLES / "relu", "cpu")
        lines = {(use.file, use.line) for use in cpu.uses}
        spelled = re.compile(r"\b(at::|c10::|TORCH_(CHECK|LIBRARY)|include <(ATen|c10|torch/lib))")
        for file in cpu.files:
            for number, line in enumerate((EXAMPLES / "relu" / file).read_text().splitlines(), 1):
                if spelled.search(line.partition("//")[0]):
                    assert (file, number) in lines

    def test_files_uses_and_floor(self):
        (cuda,) = advice(EXAMPLES / "relu", "cuda")
        assert cuda.files == (
            "torch-ext/torch_binding.cpp",
            "torch-ext/torch_binding.h",
            "relu_cuda/relu.cu",
            "relu_cuda/relu_launch.h",
            "relu_cuda/relu_cuda.cpp",
        )
        assert cuda.floor == Version((2, 12))
        assert cuda.raised_by == ("at::Tag::pt2_compliant_tag",)
        assert {use.text for use in cuda.without} == {
            "<ATen/MemoryOverlap.h>",
            "at::assert_no_internal_overlap",
            "at::assert_no_partial_overlap",
        }
        guard = next(use for use in cuda.uses if use.text == "c10::DeviceGuard")
        assert guard.place == "relu_cuda/relu_cuda.cpp:47:9"
        assert guard.entry.stable == "torch::stable::accelerator::DeviceGuard"

    def test_backends_differ(self):
        by_name = {found.backend: found for found in advice(EXAMPLES / "relu")}
        assert list(by_name) == ["cpu", "cuda", "rocm", "xpu", "metal"]
        assert by_name["cuda"].uses == by_name["rocm"].uses
        assert "at::mps::getCurrentMPSStream" in {use.text for use in by_name["metal"].without}
        assert "relu_cpu/relu_cpu.cpp" not in by_name["xpu"].files

    def test_the_stable_one_has_none(self):
        for found in advice(EXAMPLES / "relu-stable-abi"):
            assert found.uses == ()
            assert found.declared == Version((2, 11))
            assert found.floor == Version((2, 10))
            assert "mutable_data_ptr" in found.raised_by


class TestTable:
    def test_every_entry_says_something(self):
        for entry in stable_abi_table().entries:
            assert entry.use
            assert bool(entry.stable) == bool(entry.since) == bool(entry.source), entry.use
            assert entry.since is None or entry.since >= stable_abi_table().base

    @pytest.mark.parametrize(
        ("kind", "use", "stable", "note"),
        [
            ("name", "at::bitwise_and", "torch::stable::bitwise_and", "Torch 2.14"),
            ("name", "torch::sort", "torch::stable::sort", "Torch 2.15"),
            ("name", "at::sum", "torch::stable::sum", ""),
            ("method", "index_select", "torch::stable::index_select(self, ...)", "Torch 2.14"),
            ("method", "is_pinned", "torch::stable::is_pinned(self, ...)", "Torch 2.14"),
            ("header", "c10/util/TypeCast.h", "<torch/headeronly/util/TypeCast.h>", "Torch 2.15"),
            ("header", "ATen/cuda/Atomic.cuh", "<torch/headeronly/cuda/Atomic.h>", "Torch 2.14"),
            ("header", "c10/util/bits.h", "<torch/headeronly/util/bits.h>", ""),
        ],
    )
    def test_what_has_the_same_name(self, kind, use, stable, note):
        entry = getattr(stable_abi_table(), kind)(use)
        assert entry.stable == stable
        assert note in entry.note
        assert bool(note) == bool(entry.note)

    def test_no_use_is_listed_twice(self):
        listed = [(entry.kind, use) for entry in stable_abi_table().entries for use in entry.use]
        assert len(listed) == len(set(listed))

    def test_operators(self):
        assert {"mm", "cat", "topk", "mul_"} <= stable_abi_table().operators
        assert (
            "add" not in stable_abi_table().operators
        )  # its alpha is a Scalar, which has no conversion


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("at::Tensor x", ["at::Tensor", "x"]),
        ("::at::Tensor", ["at::Tensor"]),
        ("at:: /* here */ Tensor", ["at::Tensor"]),
        ("at::\\\n  Tensor", ["at::Tensor"]),
        ("a::b::c d::e", ["a::b::c", "d::e"]),
        ("return ::at::x;", ["return", "at::x", ";"]),
        ("f(::at::x)", ["f", "(", "at::x", ")"]),
    ],
)
def test_qualified_names(source, expected):
    assert [word.text for word in join_qualified_names(cxx_tokens(source))] == expected
