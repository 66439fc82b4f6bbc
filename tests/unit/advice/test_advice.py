"""The advice about the stable ABI: single files, and the two relus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from kbuild.advice.header_costs import (
    estimate_unit_cost,
    header_costs,
    measurements,
    observed_header_costs,
    umbrella_header,
)
from kbuild.advice.stable_abi import stable_abi_table
from kbuild.advice.survey import advise_project
from kbuild.project import open_project
from kbuild.sourcetree import SourceTree
from kbuild.version import Version

STABLE, ONLY = "torch/csrc/stable", "torch/headeronly"
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
        (
            "void f(at::Tensor x) { auto y = x.contiguous(); y.mm(y).contiguous(); }",
            [TENSOR, CONTIGUOUS, (".mm()", DISPATCH.format("mm")), CONTIGUOUS],
        ),
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
        (
            "using namespace at; void f(Tensor x) { x.contiguous(); min(1, 2); }",
            [
                ("using namespace at", "using torch::stable::Tensor, and so on"),
                TENSOR,
                CONTIGUOUS,
            ],
        ),
    ],
)
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
            assert {unit.kind.name for unit in found.units if unit.kind} == {"stable ABI"}

    def test_units(self):
        (cuda,) = advice(EXAMPLES / "relu", "cuda")
        kernel = next(unit for unit in cuda.units if unit.file.endswith("relu.cu"))
        assert (kernel.language, kernel.header, kernel.cheaper) == ("CUDA", None, ())
        binding = next(unit for unit in cuda.units if unit.file.endswith("torch_binding.cpp"))
        assert binding.header == "torch/library.h"
        assert binding.included_by == "torch-ext/torch_binding.cpp"


class TestCosts:
    def test_dearest_first(self):
        measured = [kind.measured.host for kind in header_costs().classes if kind.measured]
        assert measured == sorted(measured, reverse=True)

    @pytest.mark.parametrize(
        ("headers", "name", "measured"),
        [
            (["ATen/core/Tensor.h", "torch/extension.h"], "all of Torch", "torch/all.h"),
            (["ATen/ops/mm.h", "ATen/core/Tensor.h"], "one operator", "ATen/ops/empty_like.h"),
            (
                ["torch/csrc/stable/ops.h", "torch/headeronly/util/Half.h"],
                "stable ABI",
                "torch/csrc/stable/library.h",
            ),
            (
                ["torch/headeronly/util/Half.h"],
                "headers only",
                "torch/headeronly/core/ScalarType.h",
            ),
            (["c10/util/Exception.h"], "small parts", "c10/util/Exception.h"),
            (["c10/cuda/CUDAStream.h"], "CUDA stream", "c10/cuda/CUDAStream.h"),
            (["c10/cuda/CUDAMathCompat.h"], "not measured", None),
        ],
    )
    def test_classes(self, headers, name, measured):
        cost = estimate_unit_cost("k.cpp", "CXX", dict.fromkeys(["vector", *headers], "k.cpp"))
        assert cost.kind is not None
        assert cost.kind.name == name
        assert cost.seconds == (measurements()[measured].host if measured else None)

    def test_device_code_is_told_to_move(self):
        full = estimate_unit_cost("k.cu", "CUDA", {"torch/all.h": "k.cu"})
        stable = estimate_unit_cost("k.cu", "CUDA", {"torch/csrc/stable/ops.h": "k.cu"})
        assert full.cheaper[1].advice == header_costs().device[0]
        assert full.saves > stable.saves == 0
        assert stable.cheaper == ()

    def test_a_change_never_costs_more(self):
        for kind in header_costs().classes:
            for language, archs in (("CXX", 1), ("CUDA", 1), ("CUDA", 10)):
                now = kind.seconds(language, archs)
                assert all(0 < change.seconds < now for change in kind.cheaper(language, archs))

    @pytest.mark.parametrize(
        ("headers", "header"),
        [
            ("torch/extension.h torch/all.h ATen/ATen.h torch/library.h", "torch/extension.h"),
            ("torch/all.h ATen/ATen.h ATen/ops/add.h ATen/core/Tensor.h", "torch/all.h"),
            (
                "torch/library.h ATen/core/Tensor.h ATen/ops/add.h c10/util/Half.h",
                "torch/library.h",
            ),
            ("ATen/core/Tensor.h ATen/ops/add.h c10/util/Half.h", "ATen/core/Tensor.h"),
            ("torch/csrc/stable/ops.h torch/headeronly/util/Half.h", "torch/csrc/stable/ops.h"),
            ("c10/cuda/CUDAStream.h c10/core/Stream.h", "c10/cuda/CUDAStream.h"),
        ],
    )
    def test_the_umbrella_is_the_dearest_of_everything_that_was_read(self, headers, header):
        found = umbrella_header(headers.split())
        assert found is not None
        assert found[0] == header

    def test_no_umbrella(self):
        assert umbrella_header(["ATen/NumericUtils.h"]) is None
        assert umbrella_header([]) is None


@dataclass(frozen=True)
class Built:
    unit: str
    cpu: float
    language: str = "CXX"
    archs: int = 1
    reads_less: bool = False


class TestSavings:
    full, stable = ("torch/all.h",), ("torch/csrc/stable/library.h",)

    def test_the_unit_with_the_least_of_its_own_gives_the_pace(self):
        facts = measurements()
        lean = Built("lean.cpp", 2 * facts["torch/csrc/stable/library.h"].host)
        heavy = Built("heavy.cpp", 4 * facts["torch/all.h"].host)
        first, second = observed_header_costs(((lean, self.stable), (heavy, self.full)))
        assert (first.unit, second.unit) == (heavy, lean)
        assert (first.share, second.share) == (pytest.approx(0.5), pytest.approx(1))
        left = facts["torch/csrc/stable/library.h"].host
        assert first.saves == pytest.approx(2 * (facts["torch/all.h"].host - left))
        assert second.changes == ()

    def test_each_arch_counts_for_device_code(self):
        one, ten = (Built("a.cu", 1000, "CUDA", archs) for archs in (1, 10))
        saved = [observed_header_costs([(unit, self.full)])[0].share for unit in (one, ten)]
        assert saved == pytest.approx([1, 1])
        first, second = observed_header_costs([(one, self.full), (ten, self.full)])
        assert first.unit == ten
        assert second.share is not None
        assert second.share < 0.7

    def test_what_came_from_the_cache_or_reads_no_torch(self):
        hit, bare = Built("a.cpp", 0), Built("b.cu", 3, "CUDA")
        (bill,) = observed_header_costs([(hit, self.full), (bare, ())])
        assert (bill.unit, bill.share, bill.saves) == (hit, None, 0.0)

    def test_units_that_read_fewer_headers_tell_nothing(self):
        plain = Built("a.cpp", 2 * measurements()["torch/all.h"].host)
        fast = Built("b.cpp", 0.1, reads_less=True)
        bills = observed_header_costs([(plain, self.full), (fast, self.full)])
        assert [(bill.unit, bill.share) for bill in bills] == [(plain, 1), (fast, None)]


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
