"""What of a section that is left out others still call, read off the sources."""

from __future__ import annotations

import pytest

from kbuild.checks.cxx_sources import MacroDefinitions, OmittedSection, check_omitted_functions
from kbuild.sources.cxx import read_cxx
from kbuild.sources.cxx_functions import read_functions

MACROS = MacroDefinitions(("CUDA_KERNEL", "USE_CUDA"), ("CPU_KERNEL", "USE_ROCM"))
HEADER = "#pragma once\nnamespace at { class Tensor; }\nvoid run_80(const at::Tensor &x);\n"
DEVICE = """
#include "run.h"
template <int N> __global__ void __launch_bounds__(128) copy(float *x) { x[0] = N; }
void run_80(const at::Tensor &x) { copy<1><<<1, 128>>>(nullptr); }
"""
BINDING = """
#include "run.h"
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("run(Tensor x) -> ()"); }
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  USE
}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""


def found(use: str, header: str = HEADER, device: str = DEVICE, kept: str = "") -> list[str]:
    units = {"b.cpp": BINDING.replace("USE", use), "kept.cu": f'#include "run.h"\n{kept}'}
    left = [OmittedSection("kernel.old", "it has no code for 9.0", {"old.cu": device})]
    findings = check_omitted_functions(units, {"run.h": header}, left, MACROS)
    return [f"{one.severity} {one.where} {one.what}" for one in findings]


def test_a_use_of_what_only_the_left_out_section_defines() -> None:
    (line,) = found('ops.impl("run", &run_80);')
    assert line == (
        "error b.cpp:5 uses `run_80`, which only kernel.old defines (old.cu:4), and that is left "
        "out: it has no code for 9.0"
    )


@pytest.mark.parametrize(
    "use",
    [
        'ops.impl("run", TORCH_BOX(run_80));',
        "auto x = run_80(y);",
        "return run_80(y);",
        "if (old) { run_80(y); } else { run_90(y); }",
        "#if defined(CUDA_KERNEL) || defined(ROCM_KERNEL)\nrun_80(y);\n#endif",
        "#ifdef CPU_KERNEL\nnothing();\n#elif defined(CUDA_KERNEL)\nrun_80(y);\n#endif",
        "#if !defined(USE_ROCM) && USE_CUDA_OR_NOT || 1\nrun_80(y);\n#endif",
        "::run_80(y);",
    ],
)
def test_calls_and_addresses(use: str) -> None:
    assert [line.partition(" uses ")[0].partition(":")[0] for line in found(use)] == ["error b.cpp"]


@pytest.mark.parametrize(
    "use",
    [
        "#ifdef HAS_80\nrun_80(y);\n#endif",
        "#ifdef HAS_90\nnothing();\n#else\nrun_80(y);\n#endif",
        "#if CUDA_VERSION >= 12000 && defined(CUDA_KERNEL)\nrun_80(y);\n#endif",
        "}\ntemplate <typename T> void any(T y) { run_80(y); ",
        "#define RUN(y) run_80(y)\n",
    ],
)
def test_what_a_build_may_do_without_is_a_warning(use: str) -> None:
    assert [line.partition(" `")[0].split(" ", 2)[::2] for line in found(use)] == [
        ["warning", "may use"]
    ]


@pytest.mark.parametrize(
    "use",
    [
        "",
        "// run_80(y);",
        '"run_80(y)";',
        "y.run_80();",
        "y->run_80();",
        "other::run_80(y);",
        "int run_80 = 3;",
        "#ifdef CPU_KERNEL\nrun_80(y);\n#endif",
        "#if 0\nrun_80(y);\n#endif",
        "#if defined(USE_ROCM) || (defined(CPU_KERNEL) && X)\nrun_80(y);\n#endif",
    ],
)
def test_no_use(use: str) -> None:
    assert found(use) == []


def test_what_somebody_else_defines_is_not_lost() -> None:
    use = "run_80(y);"
    assert found(use, kept="void run_80(const at::Tensor &x) {}") == []
    assert found(use, kept="static void run_80(const at::Tensor &x) {}") == []
    assert found(use, HEADER + "inline void run_80(const at::Tensor &x) {}\n") == []
    assert found(use, device="static void run_80(const at::Tensor &x) {}") == []
    assert found(use, device="namespace { void run_80(const at::Tensor &x) {} }") == []
    assert found(use, HEADER.replace("void run", "__attribute__((weak)) void run")) == []


def test_a_name_that_no_header_declares_may_be_anything() -> None:
    assert found("run_80(y);", header="") == []


def test_namespaces_tell_functions_apart() -> None:
    header = "namespace k::sm80 { void run(int); }\nnamespace k::sm90 { void run(int); }\n"
    old = "namespace k {\nnamespace sm80 {\nvoid run(int x) {}\n}\n}\n"
    new = "void k::sm90::run(int x) {}\n"
    assert found("k::sm90::run(1);", header, old, new) == []
    (line,) = found("sm80::run(1);", header, old, new)
    assert "uses `sm80::run`, which only kernel.old defines (old.cu:3)" in line
    assert found("run(1);", header, old, new) == [], "any of the two may be meant"


TEMPLATE = "template <typename T, int N = 2>\nvoid run(T *x);\n"
BODY = "template <typename T, int N> void run(T *x) {}\n"


@pytest.mark.parametrize(
    "device",
    [
        BODY + "template void run<float, 2>(float *);\n",
        BODY + "template void run(float *);\n",
        BODY + "EACH(x)\ntemplate __attribute__((used)) void run<std::array<int, 3>>(int *x);\n",
        "template <> void run<float, (1 > 0)>(float *x) {}\n",
        "template <>\nvoid run<float>(float *x)\n{ other(x); }\n",
    ],
)
@pytest.mark.parametrize("use", ["run<float, 2>(x)", "run(x)", "::run<float>(x)"])
def test_what_is_instantiated_or_specialised_explicitly(device: str, use: str) -> None:
    (line,) = found(f"{use};", TEMPLATE, device)
    assert line.startswith("error b.cpp:5 uses `run`, which only kernel.old defines (old.cu:")
    declared = f"extern template void run<float>(float *);\n{TEMPLATE}"
    assert len(found(f"{use};", declared, device)) == 1


@pytest.mark.parametrize(
    "kept",
    [
        BODY,
        "template void run<float, 2>(float *);\n",
        "template void run<int>(int *);\n",
        "template <> void run<float, 2>(float *x) {}\n",
        "#define EACH(T) template void run<T>(T *);\nEACH(float)\n",
        "DEFINE(run, float);\n",
        "DEFINE(run, float)\nvoid other() {}\n",
        "DEFINE(run) { x[0] = 1; }\n",
        "INSTANTIATE(run)\ntemplate <typename T> void other(T x) {}\n",
        "void run(float *x) {}\n",
    ],
)
def test_a_kept_definition_or_instantiation_silences(kept: str) -> None:
    device = BODY + "template void run<float, 2>(float *);\n"
    assert found("run<float, 2>(x);", TEMPLATE, device, kept) == []


@pytest.mark.parametrize(
    ("header", "device", "use"),
    [
        (TEMPLATE, BODY, "run(x);"),  # nobody else can link against it
        (TEMPLATE + BODY, "template void run<float>(float *);", "run<float>(x);"),
        (TEMPLATE, "extern template void run<float>(float *);", "run<float>(x);"),
        (TEMPLATE, "namespace { template void run<float>(float *); }", "run<float>(x);"),
        (
            "template <typename T>\ninline void run(T *x);",
            "template void run<float>(float *);",
            "run<float>(x);",
        ),
        (TEMPLATE, "template class run<float>;", "run<float>(x);"),
        ("void run(int);", "template void S<float>::run(int);", "run(1);"),
        ("void run(int);", "template <> void S<float>::run(int x) {}", "run(1);"),
        ("void run(int);", "void run(int x) {}", "S<float>::run(1);"),
    ],
)
def test_other_templates_are_not_lost(header: str, device: str, use: str) -> None:
    assert found(use, header, device) == []


def test_the_body_of_a_specialisation_is_compiled() -> None:
    special, general = "template <> void g<int>(int y)", "template <class T> void h(T y)"
    text = f"{special} {{ run_80(y); }}\n{general} {{ run_80(y); }}\n"
    read = read_functions(read_cxx(text))
    assert [one.maybe for one in read.used if one.base == "run_80"] == [False, True]
    assert [(one.name, one.is_own) for one in read.defined] == [("g", False), ("h", True)]


def test_linkage_blocks_and_macros_before_a_definition() -> None:
    text = """
extern "C" {
void a(int);
void b(int x) { a(x); }
}
REGISTER(x)
EXPORT void *c(const std::vector<int> &x) noexcept { return 0; }
struct S { void method() { a(1); } } s;
int table[] = { d(1), 2 };
std::tuple<int, int> e(int x);
k::S::S(int x) : y(x) { f(x); }
"""
    read = read_functions(read_cxx(text))
    assert [one.name for one in read.defined] == ["b", "c", "k::S::S"]
    assert [one.name for one in read.declared] == ["a", "e"]
    assert {one.base for one in read.used} >= {"a", "d", "f"}


@pytest.mark.parametrize(
    "text",
    ["}}}}", "{{{{", "void f(", "#if (((\n#else\n#endif", ")", "a::", "template <", "template"],
)
def test_no_text_is_too_odd(text: str) -> None:
    read_functions(read_cxx(text))
