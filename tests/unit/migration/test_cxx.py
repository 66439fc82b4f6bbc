"""Bindings of pybind11 and of Torch, rewritten for a kernel."""

from __future__ import annotations

import pytest

from kbuild.migration.cxx import rewrite_bindings

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
    ],
)
def test_schemas_follow_from_signatures(function, line):
    answer = bound(function)
    text = answer.texts["a.cpp"]
    assert f"  ops.def({line});" in text
    assert answer.ops == ["f"]
    assert answer.registering == ["a.cpp"]
    assert not [note for note in answer.notes if "check the schema" not in note]


def test_the_file_is_a_binding_of_kbuild():
    text = bound("at::Tensor f(at::Tensor x);").texts["a.cpp"]
    assert text.startswith('#include <torch/library.h>\n#include "registration.h"\n\n')
    assert "#include <torch/all.h>\n" in text
    assert "pybind11" not in text
    assert "PYBIND" not in text
    assert text.endswith("}\n\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n")


def test_names_and_defaults_are_those_of_python():
    definition = (
        'm.def("f", &f, "a (b) c", py::arg("a"), py::arg("b") = 1.5,\n py::arg("c") = py::none());'
    )
    answer = bound("at::Tensor f(at::Tensor x, double y, c10::optional<at::Tensor> z);", definition)
    assert '"f(Tensor a, float b=1.5, Tensor? c=None) -> Tensor", &f' in answer.texts["a.cpp"]


@pytest.mark.parametrize(
    ("function", "definition", "note"),
    [
        ("", 'm.def("f", &f);', "a.cpp: there is no function `f`: bind it by hand"),
        ("void f(Options o);", 'm.def("f", &f);', "a.cpp: `f` takes `Options o`, which"),
        ("", 'm.def("f", []() { return 1; });', '`m.def("f", []() { return 1; })` has no'),
        ("class A {};", 'py::class_<A>(m, "A");', '`py::class_<A>(m, "A")` has no counterpart'),
        ("py::object f(py::list x);", 'm.def("f", &f);', "which no op can take"),
        ("void f(std::vector<int> n);", 'm.def("f", &f);', "a `std::vector<int>`, which ops"),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_is_listed(function, definition, note):
    answer = bound(function, definition)
    assert answer.ops == []
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
    assert "REGISTER_EXTENSION" in answer.texts["ops.cpp"]
    assert "REGISTER_EXTENSION" not in answer.texts["cuda.cu"]
    assert answer.texts["other.h"] == "#pragma once\n"
    assert answer.notes == []


def test_an_empty_module_beside_a_library_goes():
    answer = rewrite_bindings(
        {"a.cpp": "TORCH_LIBRARY(demo, m) {}\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"}
    )
    assert "PYBIND11" not in answer.texts["a.cpp"]
    assert answer.texts["a.cpp"].count("TORCH_LIBRARY_EXPAND(") == 1


def test_no_bindings():
    answer = rewrite_bindings({"a.cu": "void f();\n"})
    assert answer.notes == [
        (
            "a.cu: neither this file nor those with it have a PYBIND11_MODULE or TORCH_LIBRARY: "
            "write the bindings"
        )
    ]
