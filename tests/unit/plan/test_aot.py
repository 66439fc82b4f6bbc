"""Plans of kernels in Python DSLs: what is compiled for, and what a toolchain needs for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.ops import section
from kbuild.plan.generate.project import generate
from kbuild.plan.plan import VariantPlan
from kbuild.plan.project import Project
from kbuild.plan.selection import Selection, select_variants
from kbuild.plan.variant import Identity, Planner
from kbuild.project.variant import System
from kbuild.system.errors import ConfigError
from kbuild.system.processes import LocalRunner
from kbuild.system.sourcetree import SourceTree
from tests.support.projects import BINDING, kernel, plan_variant

CLEAN = Identity("abc1234", "f" * 40)
STABLE = '\n[torch]\nstable-abi = "2.11"\n'
OP = """
[[kernel.{name}.op]]
schema = "{name}(Tensor x) -> Tensor"
shapes = {{ x = ["..."], out = "x" }}
dtypes = ["float32"]
configs = [{{ BLOCK = 1024 }}]
grid = ["cdiv(numel(x), BLOCK)"]
"""
CU130 = "torch-stable-abi211-cu130-x86_64-linux"


def triton(name: str = "add", extra: str = "") -> str:
    return (
        f'\n[kernel.{name}]\nbackend = "cuda"\nlanguage = "triton"\n{extra}\n'
        f'toolchain = "triton==3.9.0"\nsrc = ["dsl/add.py"]\n{OP.format(name=name)}'
    )


def plan(made: Project, name: str, archs: tuple[str, ...] = ()) -> VariantPlan:
    (choice,) = select_variants(made, Selection(globs=(name,)))
    return plan_variant(made, choice, CLEAN, archs)


@pytest.fixture
def dsl(project, tmp_path: Path):
    """A project with the source of a kernel in a DSL."""
    (tmp_path / "project/dsl").mkdir(parents=True)
    (tmp_path / "project/dsl/add.py").write_text("")
    return lambda *parts, backends=("cuda",): project(*parts, backends=backends)


def test_a_kernel_in_a_dsl_needs_no_toolkit(dsl):
    extra = 'cuda-capabilities = ["8.0+PTX", "9.0"]'
    made = plan(dsl(STABLE, triton(extra=extra)), CU130)
    (kernel_,) = made.aot
    assert kernel_.targets == ("sm_80", "compute_80", "sm_90a")
    assert kernel_.flavour == "cuda13"
    assert kernel_.toolchain == ("triton==3.9.0",)
    assert made.archs == ("8.0+PTX", "9.0a")
    assert made.components == ()
    assert made.is_compiled
    assert made.languages == ("CXX",)
    assert made.libraries == ("torch", "torch_cpu")
    assert (made.requires.backend, made.requires.toolkit) == ("cpu", None)
    assert "dsl/add.py" in made.inputs


def test_functions_for_tvm_ffi_need_its_headers_and_a_cxx_compiler(dsl):
    made = plan(dsl("\n[tvm-ffi]\n", triton()), "tvm-ffi01-cu130-x86_64-*")
    assert (made.requires.backend, made.requires.toolkit) == ("cpu", None)
    assert (made.requires.tvm_ffi, made.requires.torch) == ("0.1", None)
    assert (made.components, made.languages, made.libraries) == ((), ("CXX",), ("tvm_ffi",))
    files = generate(made)
    text = files[f"cmake/variants/{made.variant}.cmake"].decode()
    component = text[text.index("kbuild_add_component(add") : text.index("kbuild_aot(add)")]
    assert "DEPENDS\n      tvm-ffi\n" in component or "DEPENDS tvm-ffi" in component
    assert b"from . import _aot" in files["cmake/ops_tvm_ffi_aot.py.in"]


def test_beside_a_kernel_in_cuda(dsl):
    extra = 'cuda-capabilities = ["8.0"]'
    made = plan(
        dsl(BINDING, triton(extra=extra), kernel("cuda", extra)), "torch213-*-cu130-x86_64-*"
    )
    assert [part.name for part in made.components] == ["binding", "cuda"]
    assert made.requires.toolkit == "13.0"
    assert "CUDA::cudart" in made.libraries
    assert made.languages == ("CXX", "CUDA")
    assert made.archs == ("8.0",)
    assert [kernel_.name for kernel_ in made.aot] == ["add"]


def test_bindings_in_plain_cxx_need_no_toolkit(dsl, tmp_path):
    made = dsl(BINDING, triton())
    assert plan(made, "torch213-*-cu130-x86_64-*").requires.toolkit is None
    (tmp_path / "project/torch-ext/binding.cpp").write_text("#include <c10/cuda/CUDAStream.h>\n")
    found = plan(made, "torch213-*-cu130-x86_64-*")
    assert (found.requires.backend, found.requires.toolkit) == ("cuda", "13.0")


@pytest.mark.parametrize(
    ("language", "pins", "flavour"),
    [
        ("triton", "triton==3.9.0", "cuda13"),
        ("tilelang", "tilelang==0.1.15", "cuda13-aarch64-linux"),
    ],
)
def test_host_code_is_for_the_system_of_the_variant(dsl, monkeypatch, language, pins, flavour):
    monkeypatch.setattr("kbuild.plan.aot.host_system", lambda: System("x86_64", "linux"))
    text = triton().replace('"triton"', f'"{language}"').replace("triton==3.9.0", pins)
    assert f'"{language}"' in text
    arm = plan(dsl(STABLE, text), "torch-stable-abi211-cu130-aarch64-*")
    assert [kernel.flavour for kernel in arm.aot] == [flavour]


def test_archs_that_are_left_out_are_noted(dsl):
    made = plan(dsl(STABLE, triton(extra='cuda-capabilities = ["7.0", "9.0"]')), CU130)
    assert made.archs == ("9.0a",)
    assert any(note.startswith("kernel.add: 7.0: ") for note in made.notes)


def test_archs_that_the_user_asks_for(dsl):
    made = dsl(STABLE, triton(extra='cuda-capabilities = ["8.0+PTX", "9.0"]'))
    assert plan(made, CU130, ("9.0",)).aot[0].targets == ("sm_90a",)
    assert plan(dsl(STABLE, triton()), CU130, ("9.0",)).archs == ("9.0a",)
    with pytest.raises(ConfigError, match=r"has no code for 12\.0"):
        plan(made, CU130, ("12.0",))


def test_a_plan_comes_back_the_same(dsl):
    made = plan(dsl(STABLE, triton()), CU130)
    again = VariantPlan.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    assert again.digest == made.digest


def test_the_order_in_a_section_counts(dsl):
    text = triton().replace("configs = [{ BLOCK = 1024 }]", "matrix = { BLOCK = [8], W = [1] }")
    first = plan(dsl(STABLE, text), CU130)
    text = text.replace("{ BLOCK = [8], W = [1] }", "{ W = [1], BLOCK = [8] }")
    second = plan(dsl(STABLE, text), CU130)
    assert first.digest != second.digest


def test_a_section_is_read_once_for_all_variants(dsl, monkeypatch):
    names = []
    read_op = section.read_op
    monkeypatch.setattr(
        section, "read_op", lambda *given: (names.append(given[1].kernel), read_op(*given))[1]
    )
    made = dsl(STABLE, triton(name="counted"))
    planner = Planner(made, SourceTree(made.root), LocalRunner(), CLEAN)
    kernels = [kernel for plan in planner.select(Selection()) for kernel in plan.aot]
    assert len(kernels) > 1
    assert {id(kernel.section) for kernel in kernels} == {id(made.dsl_sections["counted"][0])}
    assert names == ["counted"]
    again = VariantPlan.from_json(json.loads(json.dumps(planner.select(Selection())[0].to_json())))
    assert again.aot[0].section == kernels[0].section
    assert names == ["counted", "counted"]


def test_tuned_tables_are_inputs(dsl, tmp_path):
    (tmp_path / "project/tuned").mkdir()
    table = {"format": 1, "device": "NVIDIA H200", "arch": "sm_90", "rows": []}
    (tmp_path / "project/tuned/nvidia-h200.json").write_text(json.dumps(table))
    made = plan(dsl(STABLE, triton()), CU130)
    assert made.aot[0].tables == ("tuned/nvidia-h200.json",)
    assert "tuned/nvidia-h200.json" in made.inputs


def test_every_candidate_is_kept_for_tuning(dsl):
    made = plan(dsl(STABLE, triton(), triton("other")), CU130)
    kept = replace(made, aot=tuple(replace(kernel, keep_all=True) for kernel in made.aot))
    assert [kernel.keep_all for kernel in made.aot] == [False, False]
    assert [kernel.keep_all for kernel in kept.aot] == [True, True]
    assert kept.digest != made.digest
    assert VariantPlan.from_json(json.loads(json.dumps(kept.to_json()))) == kept
