"""Bindings of pybind11 and of Torch, rewritten for a kernel."""

from __future__ import annotations

import pytest

from kbuild.plugins.migrate.cxx import rewrite_bindings

SOURCE = """\
#include <torch/extension.h>
#include <pybind11/stl.h>

{functions}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{
  m.doc() = "demo";
  {definitions}
}}
"""


def bound(function: str, definition: str = 'm.def("f", &f);'):
    text = SOURCE.format(functions=function, definitions=definition)
    return rewrite_bindings({"a.cpp": text})


@pytest.mark.parametrize(
    ("function", "line"),
    [
        ("torch::Tensor f(torch::Tensor x) { return x; }", '"f(Tensor x) -> Tensor", &f'),
        ("at::Tensor f(const at::Tensor& x, bool b);", '"f(Tensor x, bool b) -> Tensor", &f'),
        (
            "std::vector<at::Tensor> f(at::TensorList x, std::vector<int64_t> n);",
            '"f(Tensor[] x, int[] n) -> Tensor[]", &f',
        ),
        (
            "std::tuple<at::Tensor, at::Tensor> f(std::optional<at::Tensor> x, std::string s);",
            '"f(Tensor? x, str s) -> (Tensor, Tensor)", &f',
        ),
        (
            "int f(const at::Tensor &x, int n /* rows */, float eps) { return 1; }",
            (
                '"f(Tensor x, int n, float eps) -> int", '
                "[](const at::Tensor& x, int64_t n, double eps) { return "
                "static_cast<int64_t>(f(x, static_cast<int>(n), static_cast<float>(eps))); }"
            ),
        ),
        ("void f(at::Tensor& out, at::Tensor x);", '"f(Tensor(a!) out, Tensor(b!) x) -> ()", &f'),
        ("at::Tensor f() { return {}; }", '"f() -> Tensor", &f'),
        (
            "void f(std::optional<at::Tensor>& x, const std::optional<at::Tensor>& y);",
            (
                '"f(Tensor(a!)? x, Tensor? y) -> ()", [](std::optional<at::Tensor> x, '
                "const std::optional<at::Tensor>& y) { return f(x, y); }"
            ),
        ),
        (
            "int64_t f(std::vector<at::Tensor> &xs, at::Tensor& y);",
            (
                '"f(Tensor(a!)[] xs, Tensor(b!) y) -> int", [](std::vector<at::Tensor> xs, '
                "at::Tensor& y) { return f(xs, y); }"
            ),
        ),
        ("at::Tensor& f(at::Tensor& x);", '"f(Tensor(a!) x) -> Tensor(a!)", &f'),
    ],
)
def test_schemas_follow_from_signatures(function, line):
    answer = bound(function)
    text = answer.texts["a.cpp"]
    assert f"  ops.def({line});" in text
    assert answer.ops == {"a.cpp": ["f"]}
    assert answer.registering == ["a.cpp"]
    assert not [note for note in answer.notes if "check the schema" not in note]


def test_names_and_defaults_are_those_of_python():
    definition = (
        'm.def("f", &f, "a (b) c", py::arg("a"), py::arg("b") = 1.5,\n py::arg("c") = py::none());'
    )
    answer = bound("at::Tensor f(at::Tensor x, double y, c10::optional<at::Tensor> z);", definition)
    assert '"f(Tensor a, float b=1.5, Tensor? c=None) -> Tensor", &f' in answer.texts["a.cpp"]


@pytest.mark.parametrize(
    ("definition", "parameters"),
    [
        ('m.def("f", &f, py::arg("x"), py::arg("n") = 3);', "Tensor x, int n=3"),
        ('m.def("f", &f, "x"_a, "n"_a = 3);', "Tensor x, int n=3"),
        ('m.def("f", &f, "doc", py::arg("x"), py::arg_v("n", 4, "four"));', "Tensor x, int n=4"),
        ('m.def("f", &f, py::arg("x").noconvert(), py::arg("n") = 5);', "Tensor x, int n=5"),
        ('m.def("f", &f, "x"_a, "n"_a = 6, py::call_guard<py::gil_scoped_release>());',
         "Tensor x, int n=6"),
        ('m.def("f", &f, py::call_guard<A, B>(), py::arg("x"), py::kw_only(), py::arg("n") = -1);',
         "Tensor x, int n=-1"),
        ('m.def("f", &f, py::return_value_policy::move, py::arg("x"), py::arg("n") = 7L);',
         "Tensor x, int n=7"),
    ],
)  # fmt: skip
def test_defaults_of_pybind(definition, parameters):
    answer = bound("at::Tensor f(at::Tensor x, int64_t n);", definition)
    assert f'ops.def("f({parameters}) -> Tensor", &f);' in answer.texts["a.cpp"]
    assert answer.notes == []


@pytest.mark.parametrize(
    ("function", "definition", "note"),
    [
        ("", 'm.def("f", &f);', "a.cpp:8: there is no function `f`: bind it by hand"),
        ("void f(Options o);", 'm.def("f", &f);', "a.cpp:8: `f` takes `Options o`, which"),
        ("", 'm.def("f", []() { return 1; });', '`m.def("f", []() { return 1; })` has no'),
        ("class A {};", 'py::class_<A>(m, "A");', '`py::class_<A>(m, "A")` has no counterpart'),
        ("py::object f(py::list x);", 'm.def("f", &f);', "which no op can take"),
        ("void f(std::vector<int> n);", 'm.def("f", &f);', "a `std::vector<int>`, which ops"),
        ("void f(int& n);", 'm.def("f", &f);', "a.cpp:8: `f` changes `int& n`, and no op"),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_is_listed(function, definition, note):
    answer = bound(function, definition)
    assert not answer.ops.get("a.cpp")
    assert any(note in text for text in answer.notes)


def test_libraries_get_the_namespace_of_the_build():
    answer = rewrite_bindings(
        {
            "ops.cpp": 'TORCH_LIBRARY(demo, m) { m.def("f() -> int"); }\n',
            "cuda.cu": "#include <torch/library.h>\nTORCH_LIBRARY_IMPL(demo, CUDA, m) {}\n",
            "other.h": "#pragma once\n",
        }
    )
    assert answer.namespaces == {"demo"}
    assert answer.registering == ["ops.cpp", "cuda.cu"]
    assert "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m)" in answer.texts["ops.cpp"]
    assert "TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, m)" in answer.texts["cuda.cu"]
    assert answer.texts["other.h"] == "#pragma once\n"
    assert answer.notes == []


@pytest.mark.parametrize(
    ("texts", "macros"),
    [
        (
            ["TORCH_LIBRARY_FRAGMENT(demo, m) {}", "TORCH_LIBRARY_FRAGMENT(demo, m) {}"],
            ["TORCH_LIBRARY_FRAGMENT_EXPAND(TORCH_EXTENSION_NAME, m)"] * 2,
        ),
        (
            ["TORCH_LIBRARY(demo, m) {}", "TORCH_LIBRARY(other, m) {}"],
            [
                "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m)",
                "TORCH_LIBRARY_FRAGMENT_EXPAND(TORCH_EXTENSION_NAME, m)",
            ],
        ),
        (
            ["TORCH_LIBRARY_FRAGMENT(demo, m) {}", "TORCH_LIBRARY_IMPL(aten, CPU, m) {}"],
            [
                "TORCH_LIBRARY_FRAGMENT_EXPAND(TORCH_EXTENSION_NAME, m)",
                "TORCH_LIBRARY_IMPL(aten, CPU, m)",
            ],
        ),
        (
            ["TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}", "STABLE_TORCH_LIBRARY_FRAGMENT(a, m) {}"],
            [
                "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m)",
                "STABLE_TORCH_LIBRARY_FRAGMENT_EXPAND(TORCH_EXTENSION_NAME, m)",
            ],
        ),
        (
            [
                'PYBIND11_MODULE(a, m) { m.def("f", &f); }\nint64_t f();',
                "TORCH_LIBRARY(demo, m) {}",
            ],
            [
                "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops)",
                "TORCH_LIBRARY_FRAGMENT_EXPAND(TORCH_EXTENSION_NAME, m)",
            ],
        ),
    ],
)
def test_one_library_opens_the_namespace(texts, macros):
    """Two would end the process when the kernel is loaded."""
    answer = rewrite_bindings({f"{at}.cpp": text for at, text in enumerate(texts)}, ["pkg._C"])
    for text, macro in zip(answer.texts.values(), macros, strict=True):
        assert f"{macro} {{" in text


def test_ops_that_name_their_namespace():
    text = (
        'TORCH_LIBRARY(demo, m) {\n  m.def(R"(demo::f(Tensor x) -> Tensor)");\n'
        '  m.set_python_module("demo.fakes");\n}\n'
        'TORCH_LIBRARY_IMPL(demo, CPU, m) { m.impl("demo::f", &f); }\n'
        'auto op = find("demo::f");\n'
    )
    answer = rewrite_bindings({"a.cpp": text})
    assert 'm.def(R"(f(Tensor x) -> Tensor)");' in answer.texts["a.cpp"]
    assert 'm.impl("f", &f);' in answer.texts["a.cpp"]
    assert any(note.startswith("a.cpp:3: `set_python_module(") for note in answer.notes)
    assert any('`"demo::f"` is looked up' in note for note in answer.notes)


@pytest.mark.parametrize(
    ("statement", "definitions"),
    [
        ('static auto r = torch::RegisterOperators().op("d::f", &f);', ['ops.def("f", &f);']),
        ('static auto r = torch::RegisterOperators("d::f() -> int", &f)\n.op("d::g", &n::g);',
         ['ops.def("f() -> int", &f);', 'ops.def("g", &n::g);']),
        ('static c10::RegisterOperators r{"d::f", [](int64_t n) { return n; }};',
         ['ops.def("f", [](int64_t n) { return n; });']),
        ('namespace n {\nconst auto r = c10::RegisterOperators().op("d::f", &f);\n}',
         ['ops.def("f", &f);']),
    ],
)  # fmt: skip
def test_registered_operators_are_fragments(statement, definitions):
    answer = rewrite_bindings({"a.cpp": f"void g() {{ int x; }}\n{statement}\nint after;\n"})
    text = answer.texts["a.cpp"]
    assert "RegisterOperators" not in text
    assert "TORCH_LIBRARY_FRAGMENT_EXPAND(TORCH_EXTENSION_NAME, ops) {" in text
    assert [line.strip() for line in text.splitlines() if "ops.def(" in line] == definitions
    assert "int after;" in text
    assert answer.namespaces == {"d"}
    assert answer.notes == []


def test_registered_operators_with_options_are_listed():
    text = 'auto r = torch::RegisterOperators().op("d::f", torch::RegisterOperators::options());\n'
    answer = rewrite_bindings({"a.cpp": text})
    assert "a.cpp:1: this `RegisterOperators` has options: use TORCH_LIBRARY" in answer.notes


def test_no_bindings():
    answer = rewrite_bindings({"a.cu": "void f();\n"})
    assert answer.notes == [
        (
            "a.cu: neither this file nor those with it have a PYBIND11_MODULE or TORCH_LIBRARY: "
            "write the bindings"
        )
    ]
