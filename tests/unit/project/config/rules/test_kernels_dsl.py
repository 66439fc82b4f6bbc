"""Sections in Python DSLs: what they say, and all that is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.plan.project import open_project

EXAMPLES = Path(__file__).parents[4] / "support" / "section_examples"
GENERAL = """\
[general]
name = "add"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]
[torch]
"""
FILES = {"torch-ext/add/__init__.py": "__all__ = []\n", "add_triton/add.py": ""}
ADD = GENERAL + (EXAMPLES / "add.toml").read_text("utf-8")


def test_it_is_read(project):
    found = open_project(project(ADD, FILES))
    section = found.dsl_kernels["add"]
    assert section.backends == ("cuda",)
    assert section.pins == ("triton==3.9.0",)
    assert section.archs_of("cuda-capabilities") == ("8.0", "9.0")
    assert section.archs_of("rocm-archs") is None
    assert found.dsl_kernels_for("cuda") == {"add": section}
    assert found.cxx_kernels == {}
    assert found.is_compiled("cuda")


def test_several_backends(project, said):
    text = ADD.replace('backend = "cuda"', 'backend = ["cuda", "rocm"]')
    text = text.replace('backends = ["cuda"]', 'backends = ["cuda", "rocm"]')
    text = text.replace("src =", 'rocm-archs = ["gfx942"]\nsrc =', 1)
    found = open_project(project(text, FILES))
    assert found.dsl_kernels_for("cuda") == found.dsl_kernels_for("rocm") != {}
    assert found.dsl_kernels["add"].archs_of("rocm-archs") == ("gfx942",)
    assert "kernel.add.rocm-archs: `gfx94` is not" in said(text.replace("gfx942", "gfx94"), FILES)


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("[]", "kernel.add.backend: lists no backend\n  hint: one of `cuda`, `rocm`"),
        ('["cuda", "cuda"]', "kernel.add.backend: `cuda` is listed twice"),
        ('["cuda", "rocm"]', "kernel.add.backend: `rocm` is not listed in general.backends"),
        ('["cuda", 3]', "kernel.add.backend: must be a string"),
        ('["cuda", "cud"]', "kernel.add.backend: `cud` is not a backend\n  hint: did you mean"),
        ("true", "kernel.add.backend: must be a string or a list, not a boolean"),
        ('"cpu"', "kernel.add.backend: kernels for `cpu` are not written in `triton`"),
    ],
)
def test_backends(said, backend, words):
    assert words in said(
        ADD.replace('"cuda"', "X", 1)
        .replace('backend = "cuda"', f"backend = {backend}")
        .replace("X", '"cuda"'),
        FILES,
    )


def test_everything_at_once(said):
    text = ADD.replace("add.py", "ad.py").replace("cdiv(n, BLOCK)", "cdiv(n, BLOK)")
    text = text.replace("src =", "cuda-flags = []\nsrc =").replace('license = "MIT"\n', "")
    found = said(text, FILES)
    assert "general.license: is missing" in found
    assert "kernel.add.cuda-flags: unknown key\n  hint: allowed: `backend`, `cuda-cap" in found
    assert "kernel.add.src: `add_triton/ad.py` does not exist\n  hint: did you mean" in found
    assert "build.toml:22: kernel.add.op[0].grid: `cdiv(n, BLOK)`: `BLOK` is unknown" in found
    assert len(found.splitlines()) == 8  # each of them once


def test_a_release_that_cannot_be_used(said):
    text = ADD.replace('"triton"', '"cute"').replace("triton==3.9.0", "nvidia-cutlass-dsl==4.2.0")
    found = said(text, FILES)
    assert "kernel.add.toolchain: pins nvidia-cutlass-dsl 4.2.0, which compiles only on" in found


TVM_FFI = ADD.replace("[torch]", "[tvm-ffi]")
TVM_FFI_FILES = {"tvm-ffi-ext/add/__init__.py": "__all__ = []\n", "add_triton/add.py": ""}
PLAIN = """
[kernel.plain]
backend = "cpu"
depends = []
src = ["plain.cpp"]
"""


def test_a_tvm_ffi_project_needs_no_other_sources(said):
    assert said(TVM_FFI, TVM_FFI_FILES) == ""


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (
            "add(Tensor x, Tensor y, Device? device=None) -> Tensor",
            "`Device? device=None` cannot be passed through TVM-FFI\n  hint: leave it out",
        ),
        ("add(Tensor x, Tensor y, str[] s) -> Tensor", "`s` is a `str[]`\n  hint: write one `str`"),
        ("add(Tensor x, Tensor y, float[] a, bool[] b, ScalarType? c) -> Tensor", ""),
        ("add(Tensor x, Tensor y, Tensor[2] xs, Tensor?[2] ys) -> Tensor", ""),
    ],
)
def test_what_tvm_ffi_does_not_pass(said, schema, words):
    found = said(TVM_FFI.replace("add(Tensor x, Tensor y) -> Tensor", schema), TVM_FFI_FILES)
    assert words in found
    assert ("op[0].schema: " in found) == bool(words)
    line = TVM_FFI[: TVM_FFI.index("schema =")].count("\n") + 1
    assert not words or f"build.toml:{line}: kernel.add.op[0].schema: {words}" in found


@pytest.mark.parametrize(
    "argument", ["Device? device", "Tensor[2] xs", "int[] many", "str s", "Tensor?[1] xs"]
)
def test_what_older_torches_do_not_pass(said, argument):
    text = ADD.replace("add(Tensor x, Tensor y) ->", f"add(Tensor x, Tensor y, {argument}) ->")
    words = f"`{argument}` is not passed by the stable ABI of Torch 2.9\n  hint: write `stable-abi"
    assert words in said(text.replace("[torch]", '[torch]\nstable-abi = "2.9"'), FILES)


GRID = 'configs = [{ BLOCK = 1024, num_warps = 4 }]\ngrid = ["cdiv(n, BLOCK)"]\n'
STEP = f"""
views = {{ flat = {{ of = "x", shape = ["numel(x)"] }} }}
[[kernel.add.op.launch]]
function = "add_kernel"
{GRID}
[[kernel.add.op.launch]]
aten = "zero_"
arguments = ["out"]
"""


def test_aten_calls_need_torch_and_lists(said):
    found = said(TVM_FFI.replace(GRID, "") + STEP, TVM_FFI_FILES)
    assert "op[0].launch[1].aten: calls ATen, which a function for TVM-FFI cannot do" in found
    assert "op[0].views: no function for TVM-FFI has views" in found
    projected = 'projections = [{ schema = "p(Tensor x, Tensor y) -> Tensor", results = ["out"] }]'
    found = said(f"{TVM_FFI}\n{projected}\n", TVM_FFI_FILES)
    assert "op[0].projections: no function for TVM-FFI has projections" in found
    text = ADD.replace("[torch]", '[torch]\nstable-abi = "2.9"').replace(GRID, "") + STEP
    assert "aten: ATen is not called through the stable ABI of Torch 2.9\n  hint: write" in said(
        text, FILES
    )


def test_results_that_may_be_none_need_torch(said):
    text = TVM_FFI.replace("-> Tensor", "-> (Tensor out, Tensor? rest)")
    text = text.replace('out = "x"', 'out = "x", rest = "x"') + 'returned = { rest = "n > 1" }\n'
    words = "a result that may be None cannot be returned through TVM-FFI\n  hint: return an empty"
    assert words in said(text, TVM_FFI_FILES)


def test_kernels_in_cxx_have_sources_that_export_them(said):
    text = TVM_FFI.replace('["cuda"]', '["cpu", "cuda"]', 1) + PLAIN
    found = said(text, {**TVM_FFI_FILES, "plain.cpp": ""})
    assert "tvm-ffi.src: is missing\n  hint: list the sources" in found
    only = TVM_FFI[: TVM_FFI.index("[kernel.add]")].replace('["cuda"]', '["cpu"]') + PLAIN
    assert "tvm-ffi.src: is missing" in said(only, {**TVM_FFI_FILES, "plain.cpp": ""})


def test_a_cxx_kernel_beside_it_is_judged(said):
    kernel = '[kernel.other]\nbackend = "cuda"\nsrc = ["add_triton/add.py"]\n'
    found = said(ADD + kernel, FILES)
    assert "kernel.other.depends: is missing" in found
    assert "kernel.add.depends" not in found


def test_the_examples_are_fine(say):
    examples = [*EXAMPLES.glob("*.toml")]
    assert examples
    for path in examples:
        text = GENERAL + path.read_text("utf-8")
        sources = {line.strip(' "') for line in text.split("src = [")[1].split("]")[0].split(",")}
        problems = say(text, {**FILES, **dict.fromkeys(sources, "")})
        assert {problem.key.split(".")[-1] for problem in problems} <= {"language"}, path
