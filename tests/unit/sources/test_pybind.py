"""What modules of pybind11 bind."""

from __future__ import annotations

from kbuild.sources.pybind import read_pybind_module


def test_functions_of_pybind():
    text = (
        "int before;\n"
        "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n"
        '  m.def("forward", &lltm_forward, "LLTM forward");\n'
        '  m.def("backward", lltm_backward, py::arg("x"));\n'
        "} int after;\n"
    )
    module = read_pybind_module(text)
    assert tuple(function[:4] for function in module.functions) == (
        ("forward", "lltm_forward", "LLTM forward", ()),
        ("backward", "lltm_backward", "", (("x", ""),)),
    )
    assert module.others == ()
    assert (module.before, module.height, module.after) == ("int before;\n", 3, " int after;\n")
    assert read_pybind_module("int before;") is None


def test_other_things_of_pybind():
    text = """PYBIND11_MODULE(a, m) {
      m.doc() = "demo";
      m.def("f", &ns::f, py::arg("x") = 1.5, "y"_a = py::none()).def("g", &g);
      py::class_<A>(m, "A");
      m.def("h", []() { return 1; });
    }"""
    module = read_pybind_module(text)
    assert tuple(function[:4] for function in module.functions) == (
        ("f", "ns::f", "", (("x", "1.5"), ("y", "py::none()"))),
        ("g", "g", "", ()),
    )
    assert [line for line, _ in module.others] == [4, 5]
