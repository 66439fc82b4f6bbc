"""Namespaces of C++ registrations: literal, hidden behind macros, in text that is no code."""
# ruff: noqa: E501 - one case is one line

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.checks.base import Finding
from kbuild.checks.cxx_sources import BLOCKS, check_ops_cxx

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").rglob("*.cpp"))
MACRO = "TORCH_EXTENSION_NAME"


def findings(text: str, **others: str) -> list[Finding]:
    return check_ops_cxx({"binding.cpp": text} | others, MACRO)


WRONG = {
    "literal": "TORCH_LIBRARY(relu, m) {}",
    "fragment": "TORCH_LIBRARY_FRAGMENT(relu, m) {}",
    "impl": "TORCH_LIBRARY_IMPL(relu, CPU, m) {}",
    "of aten": 'TORCH_LIBRARY_IMPL(aten, CPU, m) { m.impl("relu", f); }',
    "fallback": "TORCH_LIBRARY_IMPL(_, AutogradCPU, m) {}",
    "stable": "STABLE_TORCH_LIBRARY(relu, m) {}",
    "stable fragment": "STABLE_TORCH_LIBRARY_FRAGMENT(relu, m) {}",
    "stable impl": "STABLE_TORCH_LIBRARY_IMPL(relu, CUDA, m) {}",
    "expand": "TORCH_LIBRARY_EXPAND(relu, m) {}",
    "stable expand": "STABLE_TORCH_LIBRARY_IMPL_EXPAND(relu, CPU, m) {}",
    "with uid": "_TORCH_LIBRARY_IMPL(relu, CPU, m, 1) {}",
    "over lines": "TORCH_LIBRARY(\n    relu,\n    m) {}",
    "spliced": "TORCH_LIB\\\nRARY(relu, m) {}\nTORCH_LIBRARY(relu, m) {}",
    "spaces": "TORCH_LIBRARY (relu , m) {}",
    "comment inside": "TORCH_LIBRARY(/* TORCH_EXTENSION_NAME */ relu, m) {}",
    "macro name": "#define NS relu\nTORCH_LIBRARY_EXPAND(NS, m) {}",
    "macro of macro": "#define A B\n#define B relu\nTORCH_LIBRARY_EXPAND(A, m) {}",
    "macro of itself": "#define A A\nTORCH_LIBRARY_EXPAND(A, m) {}",
    "macro, one branch": "#ifdef USE_CUDA\n#define NS relu\n#else\n#define NS TORCH_EXTENSION_NAME\n#endif\nTORCH_LIBRARY_EXPAND(NS, m) {}",
    "macro from elsewhere": "TORCH_LIBRARY_EXPAND(LIBRARY_NAME, m) {}",
    "pasted": "#define CAT(a, b) a##b\nTORCH_LIBRARY_EXPAND(CAT(re, lu), m) {}",
    "own wrapper": "#define MY_LIBRARY(name, m) TORCH_LIBRARY(name, m)\nMY_LIBRARY(relu, ops) {}",
    "wrapper of a wrapper": "#define A(n, m) TORCH_LIBRARY(n, m)\n#define B(m, n) A(n, m)\nB(ops, relu) {}",
    "wrapper over lines": "#define A(n, \\\n          m) \\\n  TORCH_LIBRARY(n, m)\nA(relu, ops) {}",
    "literal in a wrapper": "#define A(m) TORCH_LIBRARY(relu, m)",
    "else of #if 0": "#if 0\nint x;\n#else\nTORCH_LIBRARY(relu, m) {}\n#endif",
    "#if 1": "#if 1\nTORCH_LIBRARY(relu, m) {}\n#endif",
    "#elif": "#if 0\n#elif defined(CUDA_KERNEL)\nTORCH_LIBRARY(relu, m) {}\n#endif",
    "after #endif": "#if 0\n#if 1\n#endif\n#endif\nTORCH_LIBRARY(relu, m) {}",
    "backend's branch": "#ifdef CUDA_KERNEL\nTORCH_LIBRARY(relu, m) {}\n#endif",
    "after a comment": "/* #if 0 */ TORCH_LIBRARY(relu, m) {}",
    "after a string": 'const char *s = "/*"; TORCH_LIBRARY(relu, m) {} // */',
    "after a raw string": 'auto s = R"x(" // )x"; TORCH_LIBRARY(relu, m) {}',
    "after a digit separator": "int n = 1'000; TORCH_LIBRARY(relu, m) {} int k = 1'0;",
    "in a namespace": "namespace a { namespace { TORCH_LIBRARY(relu, m) {} } }",
    "redefined": "#undef TORCH_EXTENSION_NAME\n#define TORCH_EXTENSION_NAME relu\nTORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}",
    "library object": 'static torch::Library lib(torch::Library::DEF, "relu", std::nullopt, __FILE__, __LINE__);',
    "library in braces": 'auto lib = torch::Library{torch::Library::IMPL, "relu", c10::DispatchKey::CPU, __FILE__, __LINE__};',
    "library of a constant": 'constexpr auto NS = "relu";\ntorch::Library lib(torch::Library::FRAGMENT, NS, std::nullopt, __FILE__, __LINE__);',
    "init object": 'static torch::detail::TorchLibraryInit i(torch::Library::DEF, &init, "relu", std::nullopt, __FILE__, __LINE__);',
    "stable init object": 'static torch::stable::detail::StableTorchLibraryInit i(torch::stable::detail::StableLibrary::Kind::DEF, &init, "relu", nullptr, __FILE__, __LINE__);',
    "RegisterOperators": 'static auto r = torch::RegisterOperators().op("relu::f(Tensor x) -> Tensor", &f);',
    "RegisterOperators, c10": 'static auto r = c10::RegisterOperators("relu::f", &f);',
    "RegisterOperators, jit": 'static torch::jit::RegisterOperators r({Operator("relu::f() -> ()", g)});',
    "class_": 'static auto c = torch::class_<Stack>("relu", "Stack").def(torch::init<>());',
    "shim": 'void f() { torch_library_init_def("relu", __FILE__, __LINE__, &handle); }',
    "aoti shim": 'void f() { aoti_torch_library_init_impl("relu", "CPU", __FILE__, __LINE__, &handle); }',
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_is_found(case: str) -> None:
    found = findings(WRONG[case])
    assert [finding.severity for finding in found] == ["error"], found
    assert found[0].where.startswith("binding.cpp:")
    assert MACRO in found[0].hint


RIGHT = {
    "expand": "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}",
    "impl": "TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) {}",
    "stable": "STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}",
    "fragment": "TORCH_LIBRARY_FRAGMENT(TORCH_EXTENSION_NAME, m) {}",
    "macro name": "#define NS TORCH_EXTENSION_NAME\nTORCH_LIBRARY_EXPAND(NS, m) {}",
    "macro in both branches": "#ifdef X\n#define NS TORCH_EXTENSION_NAME\n#else\n#define NS CONCAT(TORCH_EXTENSION_NAME, _x)\n#endif\nTORCH_LIBRARY_EXPAND(NS, m) {}",
    "wrapper": "#define A(n, m) TORCH_LIBRARY(n, m)\nA(TORCH_EXTENSION_NAME, ops) {}",
    "wrapper of the name": "#define A(m) TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m)\nA(ops) {}",
    "variadic wrapper": "#define A(n, ...) TORCH_LIBRARY(n, __VA_ARGS__)\nA(TORCH_EXTENSION_NAME, ops) {}",
    "line comment": "// TORCH_LIBRARY(relu, m)",
    "spliced comment": "// see \\\nTORCH_LIBRARY(relu, m)",
    "block comment": "/* TORCH_LIBRARY(relu, m)\n*/",
    "string": 'auto s = "TORCH_LIBRARY(relu, m)";',
    "escaped string": 'auto s = "\\"TORCH_LIBRARY(relu, m)";',
    "raw string": 'auto s = R"(TORCH_LIBRARY(relu, m) ")";',
    "raw string over lines": 'auto s = R"x(\n#if 1\nTORCH_LIBRARY(relu, m)\n)x";',
    "#if 0": "#if 0\nTORCH_LIBRARY(relu, m) {}\n#endif",
    "nested in #if 0": "#if 0\n#if 1\nTORCH_LIBRARY(relu, m) {}\n#else\nTORCH_LIBRARY(r, m) {}\n#endif\n#endif",
    "else of #if 1": "#if 1\n#elif X\nTORCH_LIBRARY(relu, m) {}\n#else\nTORCH_LIBRARY(relu, m) {}\n#endif",
    "default name": "#ifndef TORCH_EXTENSION_NAME\n#define TORCH_EXTENSION_NAME relu\n#endif\nTORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}",
    "default name, defined": "#if !defined(TORCH_EXTENSION_NAME)\n#define TORCH_EXTENSION_NAME relu\n#endif",
    "build without kbuild": "#ifdef TORCH_EXTENSION_NAME\nTORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}\n#else\nTORCH_LIBRARY(relu, m) {}\n#endif",
    "library reference": 'void define(torch::Library &m) { m.def("f() -> ()"); }',
    "library parameter": "void define(torch::Library m, const char *kind);",
    "library declaration": "class Library; namespace torch { struct Library {}; }",
    "library object": "static torch::Library lib(torch::Library::DEF, STRINGIFY(TORCH_EXTENSION_NAME), std::nullopt, __FILE__, __LINE__);",
    "library of a constant": "constexpr char NS[] = STRINGIFY(TORCH_EXTENSION_NAME);\ntorch::Library lib(torch::Library::FRAGMENT, NS, std::nullopt, __FILE__, __LINE__);",
    "RegisterOperators": 'static auto r = torch::RegisterOperators().op(STRINGIFY(TORCH_EXTENSION_NAME) "::f(Tensor x) -> Tensor", &f);',
    "class of a library": 'TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) { m.class_<Stack>("Stack"); }',
    "class_ in the namespace": 'static auto c = torch::class_<Stack>(STRINGIFY(TORCH_EXTENSION_NAME), "Stack");',
    "pybind class": 'py::module m; m.attr("x") = class_<S>("x");',
    "another's macro": "MY_TORCH_LIBRARY(relu, m) {}",
    "a name alone": "int TORCH_LIBRARY = 1;",
    "undefined macro": "#undef TORCH_LIBRARY",
    "unbalanced": 'TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m {{{ ((\n#endif\n#else\n"',
}


@pytest.mark.parametrize("case", RIGHT)
def test_right_is_left_alone(case: str) -> None:
    assert findings(RIGHT[case]) == []


@pytest.mark.parametrize("block", sorted(BLOCKS))
def test_every_block_both_ways(block: str) -> None:
    assert [f.where for f in findings(f"\n{block}(relu, CPU, m) {{}}")] == ["binding.cpp:2"]
    assert findings(f"{block}({MACRO}, CPU, m) {{}}") == []


def test_macros_of_one_file_count_in_another() -> None:
    header = "#define NS relu\n#define OPEN(n, m) TORCH_LIBRARY_EXPAND(n, m)\n"
    (found,) = findings("\n\nOPEN(NS, m) {}", **{"names.h": header})
    assert found.where == "binding.cpp:3"
    assert "`OPEN` opens the namespace `NS`" in found.what


def test_lines_are_those_of_the_source() -> None:
    text = '/*\n*/ auto s = R"(\n\n)"; \\\nint x;\n#if 0\n\n#endif\nTORCH_LIBRARY(relu, m) {}'
    assert [found.where for found in findings(text)] == ["binding.cpp:9"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_right(path: Path) -> None:
    assert check_ops_cxx({path.name: path.read_text("utf-8")}, MACRO) == []
