"""What was linked in by mistake, what is offered to others, and which source brings it in."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.checks import CheckLimits, Finding, Output
from kbuild.checks.clash import ClashCheck
from kbuild.checks.manylinux import ManylinuxCheck
from kbuild.checks.needed import NeededCheck
from kbuild.checks.python_abi import PythonAbiCheck
from kbuild.checks.rpath import RpathCheck
from kbuild.checks.static import StaticCheck
from kbuild.checks.torch_abi import TorchAbiCheck

pytestmark = pytest.mark.compile

CPU = platform.machine()
ID = "_relu_cpu_0a1b2c3"
INIT = f'extern "C" void *PyInit_{ID}() {{ return 0; }}\n'
STABLE = f"torch-stable-abi211-cpu-{CPU}-linux"
Compiled = Callable[..., Output]
Run = Callable[..., list[Finding]]
stripped = pytest.mark.parametrize("strip", [False, True], ids=["unstripped", "stripped"])


@stripped
@pytest.mark.parametrize(("framework", "found"), [("torch213-cxx11", 1), ("tvm-ffi01", 0)])
def test_a_second_cuda_runtime(
    compiled: Compiled, run: Run, strip: bool, framework: str, found: int
) -> None:
    """The text is in every release's `libcudart_static.a`; the symbols are gone when stripped."""
    source = INIT + 'extern "C" const char *path = "/cudart.shm.%08llx%08llx";\n'
    source += '__attribute__((visibility("hidden"), used)) int cudaMalloc() { return 0; }\n'
    variant = f"{framework}-cu130-{CPU}-linux"
    output = compiled(source, strip=strip, output={"variant": variant}, language="c++")
    assert [f.severity for f in run(StaticCheck(), output)] == ["warning"] * found


@stripped
def test_what_an_extension_exports(
    compiled: Compiled, run: Run, tmp_path: Path, strip: bool
) -> None:
    source = (
        "namespace c10 { struct Free {}; template <class T> T twice(T x) { return x + x; } }\n"
        + INIT
        + 'extern "C" int helper(int x) { return c10::twice(x) + c10::twice(2 * x); }\n'
        + "namespace relu { int forward(int x) { return helper(x); } }\n"
    )
    found = run(ClashCheck(), compiled(source, language="c++", strip=strip))
    assert [(f.severity, f.what.split(":")[0]) for f in found] == [
        ("warning", "exports `_ZN4relu7forwardEi`, `helper`"),
        ("warning", "exports 1 weak symbols of headers (1 of `c10`)"),
    ]
    assert found[1].symbols == ("_ZN3c105twiceIiEET_S1_",)
    script = tmp_path / "exports"
    script.write_text("{ global: PyInit_*; local: *; };")
    hidden = compiled(source, "-Wl,--version-script=" + str(script), language="c++", strip=strip)
    assert run(ClashCheck(), hidden) == []


def test_a_library_brought_along_may_export(make: Compiled, library, run: Run) -> None:
    files = {f"{ID}.abi3.so": library(INIT, language="c++"), "libown.so": library("void f() {}")}
    assert run(ClashCheck(), make(files)) == []


def test_torch_among_the_needed(compiled: Compiled, library, run: Run, tmp_path: Path) -> None:
    library("void aoti_torch_get_sizes(void) {}", soname="libtorch_cpu.so")
    source = (
        INIT
        + 'extern "C" void aoti_torch_get_sizes();\nextern "C" void f() { aoti_torch_get_sizes(); }'
    )
    output = compiled(source, str(tmp_path / "objects/libtorch_cpu.so"), language="c++")
    assert run(NeededCheck(), output) == []


def test_text_relocations_name_the_function(compiled: Compiled, run: Run) -> None:
    source = INIT + (
        '__asm__(".text\\n.globl here\\n.type here, @function\\nhere: .8byte there\\n'
        '.size here, 8\\n");\n'
    )
    (found,) = run(RpathCheck(), compiled(source, "-Wl,-z,notext", language="c++"))
    assert found.what == "has text relocations (DT_TEXTREL) in `here`"


def calls(*names: str) -> str:
    return INIT + "".join(
        f'extern "C" void {name}();\nextern "C" void call_{name}() {{ {name}(); }}\n'
        for name in names
    )


@stripped
def test_the_stable_abi(compiled: Compiled, run: Run, strip: bool) -> None:
    names = (
        "torch_new_generator_handle",
        "torch_call_dispatcher",
        "torch_never",
        "THPVariable_Wrap",
    )
    source = calls(*names) + 'namespace c10 { void f(); }\nextern "C" void g() { c10::f(); }\n'
    output = compiled(source, language="c++", strip=strip, output={"variant": STABLE})
    assert [(f.severity, f.what) for f in run(TorchAbiCheck(), output)] == [
        ("error", "`torch_new_generator_handle` came with Torch 2.13, after 2.11"),
        ("warning", "`torch_never`: not in the shim of any Torch up to 2.15"),
        (
            "error",
            "takes `THPVariable_Wrap`, `_ZN3c101fEv` from Torch's C++, which has no stable ABI",
        ),
    ]


def test_the_stable_abi_is_checked_where_it_is_promised_or_asked_for(
    compiled: Compiled, run: Run
) -> None:
    from kbuild.system.version import Version

    source = calls("torch_new_generator_handle")
    assert run(TorchAbiCheck(), compiled(source, language="c++")) == []
    asked = {"asked": CheckLimits(torch_stable_abi=Version((2, 12)))}
    assert len(run(TorchAbiCheck(), compiled(source, language="c++", output=asked))) == 1
    asked = {"asked": CheckLimits(torch_stable_abi=Version((2, 13)))}
    assert run(TorchAbiCheck(), compiled(source, language="c++", output=asked)) == []


@pytest.mark.parametrize(("policy", "count"), [("manylinux_2_5", 1), ("manylinux_2_17", 0)])
def test_the_policy_can_be_chosen(compiled: Compiled, run: Run, policy: str, count: int) -> None:
    if CPU != "x86_64":
        pytest.skip("the oldest policies are for x86_64")
    source = "#include <string.h>\n" + INIT  # memcpy is of glibc 2.14
    source += 'extern "C" void copy(void *a, void *b, long n) { memcpy(a, b, n); }\n'
    output = compiled(source, language="c++", output={"asked": CheckLimits(manylinux=policy)})
    assert [f.severity for f in run(ManylinuxCheck(), output)] == ["error"] * count
    assert "loads on manylinux_2_17 and newer" in [
        f.what for f in run(ManylinuxCheck(), output, notes=True)
    ]


def test_the_source_that_brings_it_in(compiled: Compiled, run: Run, compiler: str) -> None:
    """As after a build here: objects below `.kbuild/<variant>/tree`."""
    text = calls("_PyNot")
    output = compiled(text, language="c++")
    project = output.root.parent.parent
    inside = Path(*project.parts[1:]) / "relu_cpu"
    folder = project / f".kbuild/{output.root.name}/tree/CMakeFiles/kbuild-relu.dir" / inside
    folder.mkdir(parents=True)
    for name, source in {"relu.cpp": text, "other.cpp": INIT}.items():
        command = [compiler, "-c", "-x", "c++", "-", "-o", str(folder / f"{name}.o")]
        subprocess.run(command, input=source, text=True, check=True)  # noqa: TID251
    (folder / "broken.o").write_bytes(b"\x7fELF")
    (found,) = run(PythonAbiCheck(), output)
    assert found.objects == ("relu_cpu/relu.cpp",)
    shutil.rmtree(project / ".kbuild")
    (found,) = run(PythonAbiCheck(), output)
    assert found.objects == ()
