"""Generated projects in the hands of a real cmake and ninja, without kbuild's own build."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.backends.frameworks import FRAMEWORKS
from kbuild.plan.generate.project import generate, generate_project, metadata_text, ops_text
from kbuild.plan.plan import BINDING, Component, PackagedFile, Source, VariantPlan
from kbuild.system import rendering
from kbuild.toolchains import build_tools
from tests.support.plans import plan_of

pytestmark = pytest.mark.compile
CPU = "torch213-cxx11-cpu-x86_64-linux"
METAL = "torch213-metal-aarch64-darwin"
LANGUAGES = rendering.template_root() / "project" / "cmake" / "languages"

BINDING_CPP = """
#include <torch/csrc/stable/library.h>
#include "registration.h"
#include "three.h"
STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) { m.def("three() -> int"); }
int64_t three_op() { return three(); }
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
THREE_CPP = '#include "three.h"\nint three() { return 3; }\n'

needs_compiler = pytest.mark.skipif(
    shutil.which("c++") is None, reason="needs a C++ compiler: apt install g++"
)
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch: pip install torch"
)


def run(*command: object, ok: bool = True) -> str:
    done = subprocess.run(  # noqa: TID251 - no part of kbuild is under test here
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        check=False,
    )
    assert (done.returncode == 0) is ok, done.stdout
    return done.stdout


def configure(project: Path, source: Path, *entries: str, ok: bool = True) -> str:
    return run(
        build_tools.cmake(), "-G", "Ninja", "-S", project, "-B", project / "tree",
        f"-DCMAKE_MAKE_PROGRAM={build_tools.ninja()}", f"-DKBUILD_SOURCE_DIR={source}",
        f"-DKBUILD_PYTHON={sys.executable}", *(f"-D{entry}" for entry in entries), ok=ok,
    )  # fmt: skip


def ninja(project: Path, *arguments: str) -> str:
    return run(build_tools.ninja(), "-C", project / "tree", *arguments)


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)


def stable_plan(unique_id: str) -> VariantPlan:
    """Two components against Torch's headers, lean enough for a test."""
    ops = f"_demo_cpu_{unique_id}"
    torch = FRAMEWORKS.get("torch")
    macros = torch.definitions(ops, None)
    binding = Component(
        BINDING,
        (Source("torch-ext/binding.cpp", "CXX"),),
        include=("src",),
        definitions=(*macros, f"TORCH_EXTENSION_NAME={ops}"),
        depends=("torch",),
    )
    three = Component("three", (Source("src/three.cpp", "CXX"), Source("src/three.h", None)))
    plan = plan_of(CPU)
    awkward = r"ssh://git@one:two@three/é;${HOME}@CMAKE_COMMAND@\[=[ ]=]"
    return replace(
        plan,
        kernel=replace(plan.kernel, upstream=awkward),
        unique_id=unique_id,
        ops_name=ops,
        components=(binding, three),
        files=(PackagedFile("torch-ext/demo/__init__.py", "__init__.py"),),
    )


@needs_compiler
@needs_torch
@pytest.mark.torch
def test_build_import_rebuild(tmp_path):
    source, project = tmp_path / "kernel", tmp_path / "project"
    for name, text in {
        "torch-ext/binding.cpp": BINDING_CPP,
        "torch-ext/demo/__init__.py": "from ._ops import ops\n",
        "src/three.cpp": THREE_CPP,
        "src/three.h": "#pragma once\nint three();\n",
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    generate(stable_plan("a1")).write(project)
    configure(project, source, f"KBUILD_VARIANT={CPU}")
    ninja(project)
    assert "no work to do" in ninja(project)

    stage = tmp_path / "stage" / "demo"
    run(build_tools.cmake(), "--install", project / "tree", "--prefix", stage,
        "--component", "_demo_cpu_a1")  # fmt: skip
    assert sorted(path.name for path in stage.iterdir()) == [
        "__init__.py", "_demo_cpu_a1.abi3.so", "_ops.py", "metadata.json",
    ]  # fmt: skip
    assert (stage / "metadata.json").read_text() == metadata_text(stable_plan("a1"))
    assert (stage / "_ops.py").read_text() == ops_text(stable_plan("a1"))
    assert (stage / "_demo_cpu_a1.abi3.so").stat().st_mode & 0o777 == 0o755
    assert str(tmp_path).encode() not in (stage / "_demo_cpu_a1.abi3.so").read_bytes()
    code = f"import sys; sys.path.insert(0, {str(stage.parent)!r}); import demo; print(demo.ops)"
    assert "_demo_cpu_a1" in run(sys.executable, "-c", code)

    # In a build, kbuild writes the metadata.
    configure(project, source, f"KBUILD_VARIANT={CPU}", "KBUILD_WRITES_METADATA=ON")
    ninja(project)
    own = tmp_path / "own"
    run(build_tools.cmake(), "--install", project / "tree", "--prefix", own,
        "--component", "_demo_cpu_a1")  # fmt: skip
    assert sorted(path.name for path in own.iterdir()) == [
        "__init__.py", "_demo_cpu_a1.abi3.so", "_ops.py",
    ]  # fmt: skip

    # A new id reaches the binding alone.
    generate(stable_plan("b2")).write(project)
    compiled = ninja(project)
    assert "binding.cpp.o" in compiled
    assert "three.cpp.o" not in compiled
    assert "_demo_cpu_b2.abi3.so" in compiled


@needs_compiler
@pytest.mark.parametrize(
    ("torch", "chosen"),
    [
        ("2.13.0+cpu", "torch213-cxx11-cpu-x86_64-linux"),
        ("2.13.1+cu130", "torch213-cxx11-cu130-x86_64-linux"),
        ("2.13.0+rocm7.2", "torch213-cxx11-rocm72-x86_64-linux"),
        ("2.12.0+cpu", None),
    ],
)
def test_the_variant_that_fits_is_the_default(tmp_path, torch, chosen):
    names = [CPU, CPU.replace("cpu", "cu130"), CPU.replace("cpu", "rocm72")]
    generate_project([plan_of(name) for name in names]).write(tmp_path)
    lists = tmp_path / "CMakeLists.txt"
    lists.write_text(lists.read_text().partition("include(cmake/variants")[0])
    facts = (f"KBUILD_TORCH_VERSION={torch}", "KBUILD_TORCH_INCLUDE_DIRS=/none")
    output = configure(tmp_path, tmp_path, *facts, ok=chosen is not None)
    expected = f"Variant {chosen}" if chosen else "No variant fits this machine (Torch 2.12.0+cpu)"
    assert expected in output


@needs_compiler
@pytest.mark.quick
def test_shaders_are_embedded(tmp_path):
    """The chain from shaders to the header, with a compiler that copies."""
    source, project, tools = tmp_path / "kernel", tmp_path / "project", tmp_path / "tools"
    copy = "import sys, pathlib as p\na = sys.argv\n"
    take = "inputs = [x for x in a[1:] if x.endswith({!r}) and x != a[-1]]\n"
    join = "p.Path(a[-1]).write_text(''.join(p.Path(x).read_text() for x in inputs))\n"
    script(tools / "metal", copy + take.format(".metal") + join)
    script(tools / "metallib", copy + take.format(".air") + join)
    (source / "metal").mkdir(parents=True)
    (source / "metal" / "a.metal").write_text("1234")
    (source / "metal" / "b.metal").write_text("567")
    (source / "host.cpp").write_text(
        "#include EMBEDDED_METALLIB_HEADER\n"
        'extern "C" int size() { return EMBEDDED_METALLIB_NAMESPACE::metallib_data_len; }\n'
    )
    host = Component(BINDING, (Source("host.cpp", "CXX"),))
    shaders = [Source(f"metal/{name}.metal", "METAL") for name in "ab"]
    plan = replace(
        plan_of(METAL),
        languages=("CXX", "METAL"),
        components=(host, Component("shaders", tuple(shaders), include=("metal",))),
        libraries=(),
        deployment_target=None,
        files=(),
    )
    generate(plan).write(project)
    facts = ("KBUILD_TORCH_INCLUDE_DIRS=/none", f"KBUILD_METAL_BIN_DIR={tools}")
    configure(project, source, f"KBUILD_VARIANT={METAL}", *facts)
    ninja(project)
    header = (project / "tree" / "metal" / "embedded_metallib.h").read_text()
    assert "49, 50, 51, 52, 53, 54, 55" in header
    assert "no work to do" in ninja(project)
    (source / "metal" / "b.metal").write_text("568")
    assert "host.cpp.o" in ninja(project)


def test_spirv_extensions_keep_the_compilers_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a CMake script leaves what it writes
    script(tmp_path / "icpx", 'print(\'"-spirv-ext=-all,+OWN_A,+OWN_B" "-o"\')\n')
    (tmp_path / "check.cmake").write_text(
        f'set(CMAKE_CXX_COMPILER "{tmp_path}/icpx")\n'
        f'include("{LANGUAGES}/SYCL.cmake")\n'
        'set(flags "-fsycl -Xspirv-translator=spir64 -spirv-ext=+EXTRA")\n'
        "kbuild_link_flags_SYCL(flags)\nmessage(STATUS ${flags})\n"
    )
    output = run(build_tools.cmake(), "-P", tmp_path / "check.cmake")
    assert "-spirv-ext=-all,+OWN_A,+OWN_B,+EXTRA" in output


@needs_torch
@pytest.mark.torch
@pytest.mark.quick
def test_cuda_sources_are_translated_with_what_they_include(tmp_path):
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    project, output = tmp_path / "kernel", tmp_path / "out"
    for name, text in {
        "cuda/a.cu": '#include <cuda_runtime.h>\n#include "dev.cuh"\n#include <common/b.cuh>\n',
        "cuda/dev.cuh": "inline void f() { cudaDeviceSynchronize(); }\n",
        "include/common/b.cuh": "inline void g() { cudaFree(nullptr); }\n",
        "cuda/unrelated.cu": "#error\n",
    }.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    hipify = Path(torch.origin).parent / "utils" / "hipify"

    def translate() -> dict[Path, int]:
        run(sys.executable, LANGUAGES / "HIP.py", f"--hipify={hipify}", f"--project={project}",
            f"--output={output}", "--include=include", "cuda/a.cu")  # fmt: skip
        return {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()}

    first = translate()
    names = {path.relative_to(output).as_posix() for path in first}
    assert {"units/cuda/a.cu.hip", "hipify.d", "tree/hip/a.hip", "tree/hip/dev.cuh"} <= names
    assert not any("unrelated" in name for name in names)
    assert "hipDeviceSynchronize" in (output / "tree/hip/dev.cuh").read_text()
    assert "include/common/b.cuh" in (output / "hipify.d").read_text()
    assert translate() == first
    (project / "cuda/dev.cuh").write_text("inline void f() { cudaGetLastError(); }\n")
    changed = {path.name for path, time in translate().items() if first.get(path) != time}
    assert changed == {"a.cu.hip", "dev.cuh"}
