"""The schema check: types of boxed functions beside the schemas of their ops."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kbuild.checks.base import Finding, Output
from kbuild.checks.readers.symbols import can_demangle
from kbuild.checks.schema import SchemaCheck
from tests.support.boxed import SOURCE, compile_boxed, registration

Make = Callable[..., Output]
Check = Callable[..., list[Finding]]
VARIANT = "torch-stable-abi211-cpu-x86_64-linux"
pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine"),
    pytest.mark.skipif(not can_demangle(), reason="no C++ library on this machine"),
]


@pytest.fixture
def check(make: Make, tmp_path: Path) -> Check:
    """What the check finds in a source."""

    def found(source: str) -> list[Finding]:
        compile_boxed(tmp_path, VARIANT, source)
        return list(SchemaCheck().run(make(variant=VARIANT)))

    return found


def numbered(cases: Sequence[tuple[str, str]]) -> tuple[str, int]:
    """A source with the op and the function of each case, and the line of the first definition.

    What a case calls `f` is `f0` in the first one, `f1` in the second one, and so on: one
    compilation is enough for all.
    """
    functions, lines = "", []
    for at, (schema, function) in enumerate(cases):
        functions += re.sub(r"\bf\(", f"f{at}(", function) + "\n"
        lines += [f'm.def("{schema.replace("f(", f"f{at}(", 1)}");']
        lines += [f'm.impl("f{at}", TORCH_BOX(&f{at}));']
    return functions + registration(*lines), functions.count("\n") + 2


def by_case(found: list[Finding], number: int) -> list[list[Finding]]:
    """The findings on each case of a numbered source."""
    return [[one for one in found if f"schema of `f{at}`" in one.what] for at in range(number)]


PLAIN = """\
Tensor f(Tensor x, std::optional<double> y, int64_t n, bool b, std::string s,
         const std::vector<int64_t> &v, std::optional<Tensor> w) { return x; }"""
LISTS = """\
std::tuple<Tensor, int64_t> f(
    std::vector<Tensor> a, HeaderOnlyArrayRef<double> r,
    std::optional<HeaderOnlyArrayRef<int64_t>> q, std::vector<std::optional<Tensor>> w,
    torch::stable::Device d, c10::ScalarType t, std::string_view s) { return {a[0], 1}; }"""
GOOD = (
    ("Tensor x, float? y, int n, bool b, str s, int[] v, Tensor? w=None", "Tensor", PLAIN),
    ("Tensor[] a, float[] r, int[2]? q, Tensor?[] w, Device d, ScalarType t, str s",
     "(Tensor, int)", LISTS),
    ("Tensor(a!) o, *, SymInt n=1", "()", "void f(Tensor &o, int64_t n) {}"),
    ("Tensor(a!) o, Tensor x", "Tensor(a!)", "Tensor f(const Tensor &o, Tensor y) { return y; }"),
    ("", "float", "static double f() { return 1; }"),
    ("", "Tensor[]", "namespace { std::vector<Tensor> f() { return {}; } }"),
)  # fmt: skip


def test_types_that_agree(check: Check) -> None:
    source, _ = numbered([(f"f({args}) -> {results}", code) for args, results, code in GOOD])
    assert check(source) == []


WRONG = (
    ("Tensor x, int n", "()", "void f(Tensor x, double n) {}", "takes `double`"),
    ("Tensor x, float n", "()", "void f(Tensor x, int64_t n) {}", "takes `int64_t`"),
    ("Tensor x, float n", "()", "void f(Tensor x, float n) {}", "(`double` in C++)"),
    ("Tensor x, str s", "()", "void f(Tensor x, int64_t s) {}", "`std::string` in C++"),
    ("int dtype", "()", "void f(c10::ScalarType d) {}", "takes `c10::ScalarType`"),
    ("int flag", "()", "void f(bool flag) {}", "takes `bool`"),
    ("Tensor x, int n, int m", "()", "void f(Tensor x, int64_t n) {}", "3 arguments, but `f`"),
    ("Tensor x", "()", "void f(Tensor x, int64_t n) {}", "1 argument, but `f` takes 2"),
    ("int n, Tensor x", "()", "void f(Tensor x, int64_t n) {}", "`n` is `int`"),
    ("int rows, int cols", "()", "void f(int64_t cols, int64_t rows) {}", "another order"),
    ("Tensor x, float? y", "()", "void f(Tensor x, double y) {}", "`std::optional<double>` in C++"),
    ("Tensor x, Tensor y", "()", "void f(Tensor x, std::optional<Tensor> y) {}", "`y` is `Tensor`"),
    ("Tensor x", "()", "void f(std::vector<Tensor> x) {}", "takes `std::vector<torch::stable"),
    ("int[] v", "()", "void f(std::vector<double> v) {}", "takes `std::vector<double>`"),
    ("Tensor?[] v", "()", "void f(std::vector<Tensor> v) {}", "`v` is `Tensor?[]`"),
    ("Tensor x", "Tensor", "void f(Tensor x) {}", "1 result, but `f` returns 0"),
    ("Tensor x", "()", "Tensor f(Tensor x) { return x; }", "0 results, but `f` returns 1"),
    ("Tensor x", "(Tensor, Tensor)", "std::vector<Tensor> f(Tensor x) { return {}; }", "2 results"),
    ("Tensor x", "(Tensor, int)", "std::tuple<Tensor, double> f(Tensor x) { return {x, 1}; }",
     "result 1 is `int`"),
    ("Tensor x", "int", "int f(Tensor x) { return -1; }", "returns `int32_t`"),
    ("Tensor(a!) out, Tensor x", "()", "void f(const Tensor &x, Tensor &out) {}", "non-const"),
)  # fmt: skip


def test_types_that_differ(check: Check) -> None:
    source, line = numbered([(f"f({args}) -> {results}", code) for args, results, code, _ in WRONG])
    found = by_case(check(source), len(WRONG))
    for at, (*_, words) in enumerate(WRONG):
        assert {finding.severity for finding in found[at]} == {"error"}, words
        assert words in found[at][0].what.replace(f"`f{at}`", "`f`")
        assert found[at][0].where == f"{SOURCE}:{line + 2 * at}"
        assert f"(`impl` at {SOURCE}:{line + 2 * at + 1})" in found[at][0].what


DOUBTFUL = (
    ("f(Tensor x, int n) -> ()", "void f(Tensor x, int n) {}", "keeps the low bits"),
    ("f(bool n) -> ()", "void f(int64_t n) {}", "takes `int64_t`"),
    ("f(Tensor out) -> ()", "void f(Tensor &out) {}", "non-const reference"),
    ("f(int mode) -> ()", "enum class Mode { A }; void f(Mode mode) {}", "were not compared"),
    ("f(Scalar n) -> ()", "void f(int64_t n) {}", "were not compared"),
)


def test_what_need_not_be_wrong_is_a_warning(check: Check) -> None:
    source, _ = numbered([(schema, function) for schema, function, _ in DOUBTFUL])
    for (*_, words), findings in zip(DOUBTFUL, by_case(check(source), len(DOUBTFUL)), strict=True):
        assert [finding.severity for finding in findings] == ["warning"], words
        assert words in findings[0].what


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (('m.impl("f", TORCH_BOX(&f));',), "`f`"),  # defined in Python, say
        (("m.def(SCHEMA);", 'm.impl("f", TORCH_BOX(&f));'), "`f`"),
        (('m.def("f(int n) -> ()");', "REGISTER(f);"), "`f`"),
        (('m.def("f(int n) -> ()");', 'm.impl("f", TORCH_BOX(kFunction));'), "`f`"),
        (('m.def("g(int n) -> ()");', 'm.impl("g", &raw);'), "`g`"),
    ],
)  # fmt: skip
def test_what_the_source_does_not_show_is_said(
    check: Check, lines: tuple[str, ...], shown: str
) -> None:
    head = (
        '#define SCHEMA "f(int n) -> ()"\n#define REGISTER(name) m.impl(#name, TORCH_BOX(&name))\n'
        "void f(double n) {}\nconstexpr auto kFunction = &f;\n"
        "void raw(unsigned long *, unsigned long, unsigned long) {}\n"
    )
    found = check(head + registration(*lines))
    assert {finding.severity for finding in found} == {"warning"}
    assert any(f"the types of {shown} were not compared" in finding.what for finding in found)


def test_overloads_and_templates_are_found_by_their_types(check: Check) -> None:
    source = "namespace ns { template <class T> void f(Tensor x, T v) {} }\n"
    lines = (
        'm.def("f(Tensor x, int v) -> ()");',
        'm.def("f.scaled(Tensor x, float v) -> ()");',
        'm.impl("f", TORCH_BOX(&ns::f<int64_t>));',
        'm.impl("f.scaled", TORCH_BOX(&ns::f<double>));',
    )
    assert check(source + registration(*lines)) == []


def test_schemas_of_several_literals_and_raw_ones(check: Check) -> None:
    lines = (
        'm.def("f(Tensor x, "  // a comment',
        '      "int n) -> ()");',
        'm.def(R"(g(int n) -> ())");',
        'm.impl("f", TORCH_BOX(&f)); m.impl("g", TORCH_BOX(&g));',
    )
    source = "void f(Tensor x, double n) {}\nvoid g(double n) {}\n"
    assert len(check(source + registration(*lines))) == 2


def test_objects_of_sources_that_are_gone_do_not_count(check: Check, tmp_path: Path) -> None:
    source, _ = numbered([("f(int n) -> ()", "void f(double n) {}")])
    (tmp_path / ".kbuild" / VARIANT / "tree").mkdir(parents=True)
    ninja = tmp_path / ".kbuild" / VARIANT / "tree" / "build.ninja"
    ninja.write_text("build other.o: CXX other.cpp\n")
    assert check(source) == []
