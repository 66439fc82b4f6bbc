from __future__ import annotations

import json

import pytest

from kbuild.plan.generate.project import generate
from kbuild.plan.plan import VariantPlan
from kbuild.plan.selection import Selection, select_variants
from kbuild.plan.variant import Identity, Planner
from kbuild.system.errors import ConfigError
from kbuild.system.processes import ProcessResult
from kbuild.system.sourcetree import SourceTree
from tests.support.projects import BINDING, kernel, plan_variant

CLEAN = Identity("abc1234", "f" * 40)


class NoGit:
    """A runner for machines without git."""

    def run(self, argv, **_) -> ProcessResult:
        return ProcessResult(tuple(argv), 127, "git: not found", 0.0)


def plan(made, name: str, identity: Identity = CLEAN, archs: tuple[str, ...] = ()) -> VariantPlan:
    (choice,) = select_variants(made, Selection(globs=(name,)))
    return plan_variant(made, choice, identity, archs)


def part(made: VariantPlan, name: str):
    return next(component for component in made.components if component.name == name)


def test_a_plan_is_json_and_comes_back_the_same(project) -> None:
    made = plan(project(BINDING, kernel("cuda"), backends=("cuda",)), "torch213-*-cu130-x86_64-*")
    again = VariantPlan.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    assert again.digest == made.digest


def test_plans_are_the_same_on_every_run(project) -> None:
    made = project(BINDING, kernel("cpu"), kernel("cuda"), backends=("cpu", "cuda"))
    chosen = select_variants(made, Selection())
    planners = (Planner(made, SourceTree(made.root), NoGit()) for _ in range(2))
    first, second = (planner.plans(chosen) for planner in planners)
    assert [one.digest for one in first] == [one.digest for one in second]
    assert len({one.digest for one in first}) == len(chosen)


def test_only_sources_that_use_the_op_namespace_get_to_see_it(project) -> None:
    made = project(BINDING, kernel("cpu"))
    macro = "TORCH_EXTENSION_NAME=_my_kernel_cpu_abc1234"
    built = plan(made, "torch213-*-cpu-x86_64-linux")
    assert macro in part(built, "binding").definitions
    assert macro not in part(built, "cpu").definitions
    (made.root / "src/k.cpp").write_text('#include "deep.h"\n')
    (made.root / "src/deep.h").write_text("TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m)")
    assert macro in part(plan(made, "torch213-*-cpu-x86_64-linux"), "cpu").definitions


def test_python_files_and_pyext_are_shipped_and_generated_ones_are_not(project) -> None:
    made = project(BINDING + 'pyext = ["json"]\n', kernel("cpu"))
    targets = {file.target for file in plan(made, "torch213-*-cpu-x86_64-linux").files}
    assert targets == {"__init__.py", "layers/__init__.py", "layers/__init__.pyi", "table.json"}


def test_a_kernel_that_needs_a_newer_toolkit_is_left_out_with_a_note(project) -> None:
    made = project(
        BINDING,
        kernel("cuda"),
        kernel("cuda", 'cuda-minver = "13.2"', name="new"),
        backends=("cuda",),
    )
    older, newer = (plan(made, f"torch213-*-{cu}-x86_64-linux") for cu in ("cu130", "cu132"))
    assert [part.name for part in older.components] == ["binding", "cuda"]
    assert any("kernel.new" in note for note in older.notes)
    assert [part.name for part in newer.components] == ["binding", "cuda", "new"]


def test_device_code_in_the_bindings_is_compiled_for_the_toolkits_archs(project) -> None:
    binding = BINDING.replace('binding.cpp"', 'binding.cpp", "src/k.cu"')
    made = project(binding, kernel("cuda", 'cuda-capabilities = ["9.0"]'), backends=("cuda",))
    built = plan(made, "torch213-*-cu130-x86_64-linux")
    flags = dict(part(built, "binding").flags)["CUDA"]
    assert "-gencode=arch=compute_80,code=sm_80" in flags
    assert "8.0" in built.archs
    assert dict(part(built, "cuda").flags)["CUDA"].count("-gencode=arch=compute_80,code=sm_80") == 0


def test_sections_without_device_code_announce_no_archs(project) -> None:
    host = kernel("cuda", name="host").replace("src/k.cu", "src/k.cpp")
    device = kernel("cuda", 'cuda-capabilities = ["9.0"]')
    made = project(BINDING, device, host, backends=("cuda",))
    assert plan(made, "torch213-*-cu130-x86_64-linux").archs == ("9.0",)
    made = project(BINDING, host, backends=("cuda",))
    assert plan(made, "torch213-*-cu130-x86_64-linux").archs == ()


def test_grouped_archs_are_those_of_the_code_and_the_plan_says_who_runs_it(project) -> None:
    keys = 'cuda-capabilities = ["8.0", "8.6", "8.9", "9.0"]\ncuda-group-archs = true'
    made = project(BINDING, kernel("cuda", keys), backends=("cuda",))
    name = "torch213-*-cu130-x86_64-linux"
    built = plan(made, name)
    assert part(built, "cuda").archs == built.archs == ("8.0", "9.0")
    codes = [flag for flag in dict(part(built, "cuda").flags)["CUDA"] if "gencode" in flag]
    assert [code.rpartition("=")[2] for code in codes] == ["sm_80", "sm_90"]
    note = "kernel.cuda: `8.6` and `8.9` run the code of `8.0` (`cuda-group-archs`)"
    assert note in built.notes
    assert plan(made, name, archs=("8.6",)).archs == ("8.0",)


def test_archs_that_no_toolkit_has_are_a_located_problem(project) -> None:
    made = project(BINDING, kernel("cuda", 'cuda-capabilities = ["7.0"]'), backends=("cuda",))
    with pytest.raises(ConfigError) as caught:
        Planner(made, SourceTree(made.root), NoGit()).select(Selection(globs=("*cu130*",)))
    assert "kernel.cuda.cuda-capabilities" in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "asked", "built"),
    [
        ("", ["9.0"], ("9.0",)),
        ('cuda-capabilities = ["8.0", "9.0a", "9.0+PTX"]', ["9.0"], ("9.0+PTX", "9.0a")),
        ('cuda-capabilities = ["8.0", "9.0a", "9.0+PTX"]', ["9.0a"], ("9.0a",)),
        ('cuda-capabilities = ["8.0", "9.0a"]', ["8.0", "9.0"], ("8.0", "9.0a")),
    ],
)
def test_a_user_can_ask_for_fewer_archs(project, keys, asked, built) -> None:
    made = project(BINDING, kernel("cuda", keys), backends=("cuda",))
    (choice,) = select_variants(made, Selection(globs=("torch213-*-cu130-x86_64-*",)))
    found = plan_variant(made, choice, CLEAN, tuple(asked))
    assert found.archs == built


def test_a_kernel_without_the_asked_arch_is_left_out_with_a_note(project) -> None:
    keys = 'cuda-capabilities = ["9.0a"]'
    made = project(BINDING, kernel("cuda"), kernel("cuda", keys, name="hopper"), backends=("cuda",))
    (choice,) = select_variants(made, Selection(globs=("torch213-*-cu130-x86_64-*",)))
    found = plan_variant(made, choice, CLEAN, ("8.0",))
    assert [one.name for one in found.components] == ["binding", "cuda"]
    assert found.notes == ("kernel.hopper is left out: it has no code for 8.0",)


CU128 = "torch211-cxx11-cu128-x86_64-linux"


def planned_for(made, name: str, compiler: str, archs: tuple[str, ...] = ()) -> VariantPlan:
    """The plan of a variant whose nvcc is of another release."""
    planner = Planner(made, SourceTree(made.root), NoGit(), CLEAN, archs)
    return planner.plans(select_variants(made, Selection(globs=(name,))), {name: compiler})[0]


def test_another_compiler_decides_on_archs_and_flags(project) -> None:
    made = project(BINDING, kernel("cuda"), backends=("cuda",))
    own, other = plan(made, CU128), planned_for(made, CU128, "12.4")
    assert {"10.0", "12.0+PTX"} <= set(own.archs)
    assert other.archs == ("7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0+PTX")
    flags = [dict(part(one, "cuda").flags)["CUDA"] for one in (own, other)]
    assert ["--compress-mode=size" in one for one in flags] == [True, False]
    assert (other.variant, other.requires) == (own.variant, own.requires)


def test_archs_that_another_compiler_lacks_are_left_out_or_an_error(project) -> None:
    keys = 'cuda-capabilities = ["9.0", "10.0"]'
    made = planned_for(project(BINDING, kernel("cuda", keys), backends=("cuda",)), CU128, "12.4")
    assert made.archs == ("9.0",)
    assert "`10.0` is left out: it is not a target of CUDA 12.4" in made.notes[0]
    every = project(BINDING, kernel("cuda"), backends=("cuda",))
    with pytest.raises(ConfigError, match=r"none of `10\.0` is a target of CUDA 12\.4"):
        planned_for(every, CU128, "12.4", ("10.0",))


@pytest.mark.parametrize(
    ("name", "ends", "facts"),
    [
        ("cpu-x86_64-linux", ".so", ("CPU", "cpu", "tvm_ffi")),
        ("cpu-aarch64-darwin", ".dylib", ("CPU", "cpu", "tvm_ffi")),
        ("cu130-x86_64-linux", ".so", ("CUDA", "gpu", "tvm_ffi CUDA::cudart")),
        ("rocm72-x86_64-linux", ".so", ("CUDA", "gpu", "tvm_ffi hip::host")),
        ("xpu20260-x86_64-linux", ".so", ("XPU", "gpu", "tvm_ffi")),
        ("metal-aarch64-darwin", ".dylib", ("MPS", "gpu", "tvm_ffi -framework Foundation")),
    ],
)
def test_tvm_ffi_for_every_backend(project, name, ends, facts) -> None:
    backends = ("cpu", "cuda", "rocm", "xpu", "metal")
    binding = '\n[tvm-ffi]\nsrc = ["src/k.cpp"]\n'
    made = project(binding, *map(kernel, backends), backends=backends)
    built = plan(made, f"tvm-ffi01-{name}")
    assert (built.requires.tvm_ffi, built.requires.torch) == ("0.1", None)
    files = generate(built)
    text = files[f"cmake/variants/tvm-ffi01-{name}.cmake"].decode()
    key, platform, libraries = facts
    assert f"set(KBUILD_DISPATCH_KEY {key})" in text
    assert f"set(KBUILD_JAX_PLATFORM {platform})" in text
    assert f"set(KBUILD_LIBRARIES {libraries}" in text.replace('"', "")
    assert f"set(KBUILD_EXTENSION_FILE {built.ops_name}{ends})" in text
    assert 'set(KBUILD_EXPORTS "__tvm_ffi_*")' in text
