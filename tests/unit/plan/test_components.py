"""What reaches the link of an extension, and which headers its units see."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.pipeline.source_checks import SourceChecker
from kbuild.plan.generate.project import generate
from kbuild.plan.project import open_project
from kbuild.plan.selection import Selection, select_variants
from kbuild.plan.variant import Identity
from tests.support.projects import BINDING, kernel, plan_variant, write_project

CLEAN = Identity("abc1234", "f" * 40)
CPU = "torch213-*-cpu-x86_64-linux"
CUDA = "torch213-*-cu130-x86_64-linux"
ROCM = "torch213-*-rocm72-x86_64-linux"
XPU = "torch213-*-xpu*-x86_64-linux"
NAMES = {"cpu": CPU, "cuda": CUDA, "rocm": ROCM, "xpu": XPU}


@pytest.fixture
def project(tmp_path: Path):
    """Write and open a project, with files of these texts beside the usual ones."""

    def make(
        *parts: str, backends: tuple[str, ...] = ("cpu",), files: dict[str, str] | None = None
    ):
        root = write_project(tmp_path / "project", *parts, backends=backends)
        for name, text in (files or {}).items():
            (root / name).write_text(text)
        return open_project(root)

    return make


def plan(made, name: str, archs: tuple[str, ...] = ()):
    (choice,) = select_variants(made, Selection(globs=(name,)))
    return plan_variant(made, choice, CLEAN, archs)


def planned(project, backend: str, key: str, *flags: str):
    listed = ", ".join(f"'{flag}'" for flag in flags)
    section = kernel(backend, f"{key} = [{listed}]")
    if key == "cxx-flags":
        section = section.replace("src/k.cu", "src/k.cpp")
    return plan(project(BINDING, section, backends=(backend,)), NAMES[backend])


@pytest.mark.parametrize(
    "flags",
    [
        ("-Xcompiler", "-fopenmp"),
        ("-Xcompiler=-fopenmp",),
        ("-Xcompiler=-Wall,-fopenmp",),
        ("-Xcompiler", "-Wall -fopenmp"),
        ("--compiler-options", "-fopenmp,-O2"),
        ("-fopenmp",),
    ],
)
def test_nvcc_hands_flags_to_the_hosts_compiler(project, flags: tuple[str, ...]) -> None:
    assert planned(project, "cuda", "cuda-flags", *flags).link_flags == ("-fopenmp",)


def test_flags_of_device_compilers_stay_there(project) -> None:
    made = planned(project, "cuda", "cuda-flags", "-Xptxas", "-fopenmp", "-lineinfo")
    assert made.link_flags == ()
    assert made.notes == ()
    made = planned(project, "rocm", "hip-flags", "-Xarch_device", "-fopenmp")
    assert made.link_flags == ()
    made = planned(project, "rocm", "hip-flags", "-Xarch_host", "-fopenmp")
    assert made.link_flags == ("-fopenmp",)


def test_the_last_word_of_a_section_counts_and_no_others(project) -> None:
    made = planned(project, "cpu", "cxx-flags", "-fopenmp", "-flto=auto", "-fno-openmp", "-fno-lto")
    assert made.link_flags == ()
    one, two = (kernel("cpu", f"cxx-flags = ['{flag}']", flag[1:]) for flag in ("-fopenmp", "-pg"))
    no = kernel("cpu", "cxx-flags = ['-fno-openmp', '-fopenmp', '-pg']", "no")
    made = plan(project(BINDING, one, two, no), CPU)
    assert made.link_flags == ("-fopenmp", "-pg")


def test_what_only_a_linker_reads_is_said_to_have_no_effect(project) -> None:
    flags = ("-Wl,-O1", "-L/opt", "-lfoo", "-fuse-ld=lld", "-static-libstdc++", "-Xlinker", "-x")
    made = planned(project, "cpu", "cxx-flags", *flags)
    assert made.link_flags == ()
    (note,) = made.notes
    assert note.startswith("kernel.cpu: `-Wl,-O1`, `-L/opt`, `-lfoo`, `-fuse-ld=lld`")
    assert "`-Xlinker -x` have no effect" in note


@pytest.mark.parametrize(
    ("flags", "linked"),
    [
        ("'-rdc=true'", True),
        ("'--relocatable-device-code=true'", True),
        ("'-rdc', 'true'", True),
        ("'-dc'", True),
        ("'--device-c'", True),
        ("'-rdc=true', '-rdc=false'", False),
        ("'-O3'", False),
    ],
)
def test_relocatable_device_code_is_linked_for_its_archs(project, flags: str, linked: bool) -> None:
    archs = 'cuda-capabilities = ["8.0", "9.0+PTX"]\n'
    made = plan(
        project(BINDING, kernel("cuda", f"{archs}cuda-flags = [{flags}]"), backends=("cuda",)), CUDA
    )
    text = generate(made)[f"cmake/variants/{made.variant}.cmake"].decode()
    words = (
        'set(KBUILD_CUDA_LINK_FLAGS "-gencode=arch=compute_80,code=sm_80'
        ' -gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_90,code=compute_90")'
    )
    assert (words in text) is linked
    assert ("KBUILD_CUDA_LINK_FLAGS" in text) is linked


def test_every_unit_sees_what_any_section_depends_on(project) -> None:
    plain = kernel("cuda", name="plain").replace('["torch"]', "[]")
    with_library = kernel("cuda", name="gemm").replace('["torch"]', '["cutlass_3_8"]')
    other = kernel("xpu", name="other").replace('["torch"]', '["torch", "sycl_tla"]')
    made = project(BINDING, plain, with_library, other, backends=("cuda", "xpu"))
    parts = {part.name: part.depends for part in plan(made, CUDA).components}
    assert parts == {
        "binding": ("torch", "cutlass_3_8"),
        "plain": ("cutlass_3_8",),
        "gemm": ("cutlass_3_8",),
    }
    assert plan(made, CUDA).requires.libraries == ("cutlass_3_8",)


def test_of_two_releases_a_section_sees_its_own(project) -> None:
    one, two = (
        kernel("cuda", name=f"k{release}").replace('["torch"]', f'["cutlass_{release}"]')
        for release in ("3_8", "4_0")
    )
    made = project(BINDING, one, two, kernel("cuda", name="plain"), backends=("cuda",))
    parts = {part.name: part.depends for part in plan(made, CUDA).components}
    assert parts == {
        "binding": ("torch",),
        "k3_8": ("cutlass_3_8",),
        "k4_0": ("cutlass_4_0",),
        "plain": ("torch",),
    }


def test_a_section_that_is_left_out_still_brings_headers(project) -> None:
    gone = kernel("cuda", 'cuda-capabilities = ["8.0"]', "gone")
    gone = gone.replace('["torch"]', '["cutlass_3_8"]')
    made = project(BINDING, gone, kernel("cuda", name="stays"), backends=("cuda",))
    (binding, stays) = plan(made, CUDA, archs=("9.0",)).components
    assert binding.depends == stays.depends == ("torch", "cutlass_3_8")


@pytest.mark.parametrize(
    ("text", "sees"),
    [
        ("#include <torch/torch.h>", True),
        ("#include <ATen/ATen.h>", True),
        ("#include <THC/THCAtomics.cuh>", True),
        ('#include "deep.h"', True),
        ("#include <cuda/atomic>", False),
        ("", False),
    ],
)
def test_torch_is_seen_by_whoever_includes_it(project, text: str, sees: bool) -> None:
    made = project(BINDING, kernel("cuda").replace('["torch"]', "[]"), backends=("cuda",))
    (made.root / "src/k.cu").write_text(text)
    (made.root / "src/deep.h").write_text("#include <c10/util/Half.h>")
    _, part = plan(made, CUDA).components
    assert (part.depends == ("torch",)) is sees
    assert ("--expt-extended-lambda" in dict(part.flags)["CUDA"]) is sees


def test_sources_that_no_compiler_takes_are_named(project) -> None:
    section = kernel("cpu").replace(
        '"src/k.cpp"', '"src/k.cpp", "src/k.cu", "src/x.f90", "src/x.h"'
    )
    made = project(BINDING, section, files={"src/x.f90": "", "src/x.h": ""})
    (note,) = plan(made, CPU).notes
    assert note.startswith("kernel.cpu: `src/k.cu`, `src/x.f90` are not compiled: CPU takes .cpp")


@pytest.mark.parametrize("backend", NAMES)
def test_c_and_assembler_sources_are_compiled(project, backend: str) -> None:
    section = kernel(backend, 'cxx-flags = ["-O3", "-std=c++20", "-mavx2"]').replace(
        "src = [", 'src = ["src/x.c", "src/y.S", "src/z.s", '
    )
    files = dict.fromkeys(("src/x.c", "src/y.S", "src/z.s"), "")
    built = plan(project(BINDING, section, backends=(backend,), files=files), NAMES[backend])
    part = next(part for part in built.components if part.name == backend)
    assert {s.path: s.language for s in part.sources if s.path in files} == {
        "src/x.c": "C", "src/y.S": "ASM", "src/z.s": "ASM",
    }  # fmt: skip
    assert built.languages[-2:] == ("C", "ASM")
    assert dict(part.flags)["C"] == ("-fvisibility=hidden", "-O3", "-mavx2")
    assert "ASM" not in dict(part.flags)


def test_sources_are_read_again_when_they_change(project) -> None:
    opened = project(BINDING, kernel("cuda"), backends=("cuda",))
    checker, chosen = SourceChecker(opened), plan(opened, CUDA)
    assert checker.findings(chosen) == ()
    package = opened.root / "torch-ext/my_kernel"
    (package / "new.py").write_text("def f(:\n")
    assert [found.where for found in checker.findings(chosen)] != []


def test_sources_are_read_once(project, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = project(BINDING, kernel("cuda"), backends=("cuda",))
    checker, asked = SourceChecker(opened), []
    monkeypatch.setattr(
        "kbuild.pipeline.source_checks.pointer_findings", lambda *_: asked.append(1) or ()
    )
    for name in (CUDA, CUDA, "torch214-*-cu130-x86_64-linux"):
        checker.findings(plan(opened, name))
    assert asked == [1]
