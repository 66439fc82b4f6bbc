"""Schemas of ops from C++ signatures, and what modules of pybind11 bind."""

from __future__ import annotations

import pytest

from kbuild.sources.cxx_signatures import read_signature
from kbuild.sources.pybind import read_pybind_module
from kbuild.system.errors import ConfigError


def schema(text):
    found = read_signature("f", [("cpp_sources", text)], "at::Tensor", macros=["FLAG"])
    return found.schema


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("at::Tensor f(at::Tensor x);", "f(Tensor x) -> Tensor"),
        ("static inline torch::Tensor f(const torch::Tensor& x) {}", "f(Tensor x) -> Tensor"),
        ("void f(at::Tensor &out, int64_t n, int m);", "f(Tensor(a!) out, int n, int m) -> ()"),
        ("auto f(double a, float b) -> bool;", "f(float a, float b) -> bool"),
        ("void f(std::optional<at::Tensor> x);", "f(Tensor? x) -> ()"),
        ("void f(const c10::optional<int64_t>& x);", "f(int? x) -> ()"),
        ("void f(std::vector<at::Tensor> x);", "f(Tensor[] x) -> ()"),
        ("void f(at::TensorList x, at::IntArrayRef y);", "f(Tensor[] x, int[] y) -> ()"),
        ("void f(std::optional<std::vector<int>> x);", "f(int[]? x) -> ()"),
        ("void f(unsigned int, size_t n, long long m);", "f(int a0, int n, int m) -> ()"),
        ("void f(const std::string& s, std::string_view t);", "f(str s, str t) -> ()"),
        ("void f(at::ScalarType t, torch::Dtype u);", "f(ScalarType t, ScalarType u) -> ()"),
        (
            "std::tuple<at::Tensor, std::vector<at::Tensor>, int> f();",
            "f() -> (Tensor, Tensor[], int)",
        ),
        ("std::pair<at::Tensor, double> f(void);", "f() -> (Tensor, float)"),
        ("void f(bool a = true, double b = 1e-5f);", "f(bool a=True, float b=1e-5) -> ()"),
        ("void f(std::optional<at::Tensor> x = {}, int n = -1);", "f(Tensor? x=None, int n=-1)"),
        ('void f(std::string s = "sum", std::vector<int> d = {});', 'f(str s="sum", int[] d=[])'),
        ("void f(at::Tensor lambda);", "f(Tensor lambda_) -> ()"),
        ('extern "C" { void f(int n); }', "f(int n) -> ()"),
        ("namespace { void f(int n) {} }", "f(int n) -> ()"),
        ("void g() { f(1, 2); }\nvoid f(int n);", "f(int n) -> ()"),
        ("struct S { void f(double); };\nvoid f(int n);", "f(int n) -> ()"),
        ("namespace a { void f(double); }\nvoid f(int n) {}", "f(int n) -> ()"),
        ("void f(int n);\nvoid f(int n) { return; }", "f(int n) -> ()"),
        ("void f(int n = 2);\nvoid f(int m) {}", "f(int n=2) -> ()"),
        ("void f(int);\nvoid f(const int n = 3) {}", "f(int a0=3) -> ()"),
        ("void f(unsigned int n);\nvoid f(unsigned n) {}", "f(int n) -> ()"),
        ("void f(int64_t n);\nvoid f(long int n) {}", "f(int n) -> ()"),
        ("void f(at::TensorList x);\nvoid f(c10::ArrayRef<at::Tensor> x) {}", "f(Tensor[] x)"),
        ("[[nodiscard]] int f(int n);\nint f([[maybe_unused]] int n) {}", "f(int n) -> int"),
        ('__attribute__((visibility("default"))) int f(int n [[gnu::unused]]);', "f(int n) -> int"),
        ("MY_API int f(int n);\n__forceinline__ int f(int n) noexcept {}", "f(int n) -> int"),
        ("#ifdef A\nvoid f(int n);\n#else\nvoid f(double n);\n#endif", "f(float n) -> ()"),
        ("#define A\n#ifdef A\nvoid f(int n);\n#else\nvoid f(double n);\n#endif", "f(int n)"),
        ("#if defined(FLAG)\nvoid f(int n);\n#else\nvoid f(bool n);\n#endif", "f(int n) -> ()"),
        ("#ifdef __linux__\nvoid f(int n);\n#else\nvoid f(bool n);\n#endif", "f(bool n) -> ()"),
        ("#ifdef A\nvoid f(float* x);\n#endif\nvoid f(int n);", "f(int n) -> ()"),
        ("void f(std::optional<at::Tensor>& x);", "f(Tensor(a!)? x) -> ()"),
        ("void f(std::vector<at::Tensor> &x, at::Tensor& y);", "f(Tensor(a!)[] x, Tensor(b!) y)"),
        (
            "at::Tensor& f(at::Tensor& x, const at::Tensor& y);",
            "f(Tensor(a!) x, Tensor y) -> Tensor(a!)",
        ),
        ("void f(int, int a0, int);", "f(int a0, int a0_, int a2) -> ()"),
        ("void f(int lambda, int lambda_);", "f(int lambda_, int lambda__) -> ()"),
        ("void f(int n = 010, double x = INFINITY);", "f(int n, float x) -> ()"),
        ("void f(int n = 1'000, double x = 1.5e-3);", "f(int n=1000, float x=1.5e-3) -> ()"),
    ],
)
def test_types(declared, expected):
    assert schema(declared).startswith(expected)


def test_a_default_before_a_required_parameter_is_left_out():
    """C++ may say more than Python can: `kMean` is no value of a schema."""
    assert schema("void f(int n = 1, int m = kMean);") == "f(int n, int m) -> ()"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("\n\nvoid f(float* x);", 3, "`f` takes `float * x`"),
        ("\nvoid f(int n,\n  py::dict d);", 3, "`f` takes `py :: dict d`"),
        ("\ntorch::Device f(int n);", 2, "`f` returns `torch::Device`"),
        ("\ntemplate <class T>\nvoid f(T x);", 3, "`f` is a template"),
        ("void f(int n);\nvoid f(double n);", 1, "`f` is overloaded: cpp_sources:2 declares it"),
        ("\n#if A > 1\nvoid f(int n);\n#else\nvoid f(double n);\n#endif", 3, "depends on cond"),
        ("void g();", 0, "there is no function `f`"),
        ("namespace a { void f(); }", 0, "there is no function `f`"),
    ],
)
def test_what_cannot_be_bound_is_reported_at_its_line(text, line, message):
    with pytest.raises(ConfigError) as caught:
        schema(text)
    (problem,) = caught.value.problems
    assert problem.line == line
    assert message in problem.message
    assert problem.hint


def test_functions_of_namespaces():
    text = "namespace a { inline namespace b { void f(int n); } }\nnamespace c { void f(double); }"
    for name, expected in (("a::b::f", "f(int n)"), ("b::f", "f(int n)"), ("c::f", "f(float a0)")):
        found = read_signature(name, [("a.h", text)], "at::Tensor", in_namespaces=True)
        assert found.schema == f"{expected} -> ()"
    with pytest.raises(ConfigError, match="`f` is overloaded"):
        read_signature("f", [("a.h", text)], "at::Tensor", in_namespaces=True)
    with pytest.raises(ConfigError, match="there is no function"):
        read_signature("c::f", [("a.h", text)], "at::Tensor")


def test_two_spellings_of_a_type_are_no_overload():
    assert schema("torch::Tensor f(torch::Tensor x);\nat::Tensor f(at::Tensor x) {}")


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
