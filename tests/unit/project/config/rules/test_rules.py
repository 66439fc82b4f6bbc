"""What a build.toml must say beyond the shape of its tables."""

from __future__ import annotations

import pytest

BASE = """\
[general]
name = "relu"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda", "rocm"]
{general}
{framework}
{kernel}
"""
KERNEL = """\
[kernel.relu]
backend = "{backend}"
depends = ["torch"]
src = ["a.cpp"]
{keys}
"""
FILES = {"torch-ext/relu/__init__.py": "__all__ = []\n", "a.cpp": "", "inc/a.h": ""}


def text(*, general="", framework="[torch]", kernel=""):
    return BASE.format(general=general, framework=framework, kernel=kernel)


def kernel(backend="cuda", keys=""):
    whole = text(kernel=KERNEL.format(backend=backend, keys=keys))
    if backend not in {"cpu", "cuda", "rocm"}:
        return whole
    return whole.replace('["cpu", "cuda", "rocm"]', f'["{backend}"]')


def renamed(name):
    return text().replace('"relu"', f'"{name}"')


@pytest.mark.parametrize(
    "name", ["a", "a" * 97, "Relu", "my_kernel", "1relu", "relu-", "-relu", "", "é1"]
)
def test_bad_names(said, name):
    assert f"general.name: `{name}` is not a kernel name" in said(renamed(name), FILES)


def test_a_bad_name_is_mended_in_the_hint(said):
    assert "did you mean `my-kernel`?" in said(renamed("My_Kernel"), FILES)


def test_a_backend_without_a_kernel_beside_compiled_ones_is_a_warning(said):
    found = said(kernel().replace("backends = [", 'backends = ["metal", ', 1), FILES)
    assert "warning: general.backends: `metal` has no `[kernel.*]` section" in found


@pytest.mark.parametrize(
    ("backends", "words"),
    [
        ("[]", "general.backends: lists no backend"),
        ('["cpu", "cuda", "rocm", "cpu"]', "general.backends: `cpu` is listed twice"),
        ('["cdua"]', "did you mean `cuda`? allowed: `cann`, `cpu`"),
        ('["vulkan"]', "`vulkan` is not a backend\n  hint: allowed: `cann`"),
    ],
)
def test_backends(said, backends, words):
    assert words in said(text().replace('["cpu", "cuda", "rocm"]', backends), FILES)


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/org/repo",
        "http://host/x.git",
        "git://host/x",
        "ssh://git@host/x",
        "git+ssh://git@host/x",
        "git+https://host/x",
        "git+http://host/x",
        "git@github.com:org/repo.git",
    ],
)
def test_git_urls(said, url):
    assert said(text(general=f'upstream = "{url}"\nsource = "{url}"'), FILES) == ""


@pytest.mark.parametrize("url", ["ftp://host/x", "file:///x", "word", "https://", "host:path", ""])
def test_what_is_no_git_url(said, url):
    found = said(text(general=f'upstream = "{url}"'), FILES)
    assert f"general.upstream: `{url}` is not a git URL" in found
    assert "`git+ssh`" in found


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ('{ repo-id = "o/n", version = 1 }', ""),
        ('{ repo-id = "o/n", revision = "main" }', ""),
        ('{ repo-id = "o/n" }', "general.kernel-depends: has no version"),
        ('{ repo-id = "o/n", version = 1, revision = "x" }', "has both `version` and `revision`"),
        ('{ repo-id = "o", version = 1 }', "general.kernel-depends[0].repo-id: `o` is not a Hub"),
        ('{ repo-id = "o/n", version = -1 }', "general.kernel-depends[0].version: is -1"),
        ("{ version = 1 }", "general.kernel-depends[0].repo-id: is missing"),
    ],
)
@pytest.mark.parametrize("table", ["", "[general.cuda]\n"])
def test_kernel_depends(said, entry, words, table):
    found = said(text(general=f"{table}kernel-depends = [{entry}]"), FILES)
    prefix = "general.cuda.kernel" if table else "general.kernel"
    assert words.replace("general.kernel", prefix) in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize(
    ("general", "words"),
    [
        ('python-depends = ["einops", "helion", "tvm-ffi"]', ""),
        ('[general.cuda]\npython-depends = ["nvidia-cutlass-dsl"]', ""),
        ('python-depends = ["einosp"]', "did you mean `einops`? allowed: `einops`, `helion`"),
        (
            'python-depends = ["nki"]',
            "`nki` does not belong here\n  hint: it goes into `[general.n",
        ),
        ('[general.cuda]\npython-depends = ["einops"]', "hint: it goes into `[general]`"),
        ('[general.cuda]\npython-depends = ["numpy"]', "not a known Python dependency for cuda"),
    ],
)
def test_python_depends(said, general, words):
    found = said(text(general=general), FILES)
    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize(
    ("framework", "words"),
    [
        ("", "build.toml: there is no framework table\n  hint: add one of `[torch]`, `[torch-no"),
        ("[torhc]", "build.toml:8: torhc: unknown key\n  hint: did you mean `torch`?"),
        ("[torch]\n[torch-noarch]", "build.toml:9: torch-noarch: a project has one framework"),
        ("[torch]\n[tvm-ffi]\nsrc = []", "build.toml:9: tvm-ffi: a project has one framework"),
        ("[tvm-ffi]", "tvm-ffi.src: is missing"),
        ("[torch]\nminver = '2.13'\nmaxver = '2.11'", "torch.minver: is 2.13, above maxver 2.11"),
        ("[torch]\nminver = '2.11'", "warning: torch.minver: leaves out Torch releases"),
        ("[torch]\nmaxver = '2.11'", "warning: torch.maxver: leaves out Torch releases"),
        ("[torch]\npyext = ['.json']", "`.json` is not a file extension\n  hint: write `json`"),
        ("[torch]\npyext = ['*.json']", "`*.json` is not a file extension\n  hint: write `json`"),
        ("[torch]\nstable-abi = 2.11",
         "torch.stable-abi: must be a version in quotes, not a float"),
        ("[torch]\nstable-abi = 'new'", "torch.stable-abi: `new` is not a version"),
        ("[torch]\nstable-abi = {}", "torch.stable-abi: names no backend"),
        ("[torch]\nstable-abi = { cdua = '2.11' }",
         "torch.stable-abi.cdua: `cdua` is not a backend"),
        ("[torch]\nstable-abi = { cuda = 2.11 }",
         "torch.stable-abi.cuda: must be a version in quo"),
        ("[torch]\nstable-abi = { xpu = '2.11' }", "warning: torch.stable-abi.xpu: has no effect"),
        ("[torch-noarch]\nsrc = []", "torch-noarch.src: unknown key"),
        ("[torch-noarch]\ncuda-capabilities = ['x']", "`x` is not a CUDA capability"),
        ("[torch-noarch]\nrocm_archs = ['x']", "torch-noarch.rocm_archs: `x` is not a ROCm arch"),
        ("[torch-noarch]\nrocm-archs = ['gfx942']\nrocm_archs = ['gfx942']",
         "build.toml:10: torch-noarch.rocm_archs: is the same key as `rocm-archs`"),
    ],
)  # fmt: skip
def test_frameworks(said, framework, words):
    assert words in said(text(framework=framework), FILES)


@pytest.mark.parametrize(
    "framework",
    [
        "[torch]",
        "[torch]\nstable-abi = '2.11'",
        "[torch]\nstable-abi = { cuda = '3.0', cpu = '2.11' }",
        "[torch]\npyext = ['json', 'tar.gz']",
        "[torch]\nsrc = ['a.cpp']\ninclude = ['inc', '.']\ncxx-flags = ['-O3']",
        "[torch-noarch]",
        "[torch-noarch]\ncuda-capabilities = ['9.0a']\nrocm-archs = ['gfx90a']",
        "[torch-noarch]\ncuda_capabilities = ['9.0a']\nrocm_archs = ['gfx90a']",
    ],
)
def test_good_frameworks(said, framework):
    assert said(text(framework=framework), FILES) == ""


def test_both_spellings_of_noarch_keys_mean_the_same(project):
    from kbuild.plan.project import open_project

    for key in ("cuda-capabilities", "cuda_capabilities"):
        root = project(text(framework=f"[torch-noarch]\n{key} = ['9.0']"), FILES)
        table = open_project(root).file.torch_noarch
        assert table is not None
        assert table.cuda_capabilities == ("9.0",)


@pytest.mark.parametrize(
    ("capability", "meant"),
    [
        ("abc", "write e.g. `9.0`"),
        ("90", "did you mean `9.0`?"),
        ("sm_90a", "did you mean `9.0a`?"),
        ("9.0A", "did you mean `9.0a`?"),
        ("120", "did you mean `12.0`?"),
        ("7.x", "write e.g. `9.0`"),
        ("99999.0", "write e.g. `9.0`"),
        ("9.0+ptx", "write e.g. `9.0`"),
    ],
)
def test_bad_capabilities(said, capability, meant):
    found = said(kernel(keys=f"cuda-capabilities = ['8.0', '{capability}']"), FILES)
    assert f"`{capability}` is not a CUDA capability\n  hint: {meant}" in found


@pytest.mark.parametrize("arch", ["90a", "gfx", "sm_90", "GFX90A", "gfx90a:fast"])
def test_bad_rocm_archs(said, arch):
    assert f"`{arch}` is not a ROCm arch" in said(kernel("rocm", f"rocm-archs = ['{arch}']"), FILES)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (kernel("xpu"), "kernel.relu.backend: `xpu` is not listed in general.backends"),
        (kernel("cann"), "`cann` kernels are Python files and have no `[kernel.*]` section"),
        (kernel("cdua"),
         "kernel.relu.backend: `cdua` is not a backend\n  hint: did you mean `cuda`"),
        (kernel("cuda", "cuda-capabilities = []"), "kernel.relu.cuda-capabilities: lists no archs"),
        (kernel("cuda", "cuda-capabilities = ['8.0', '8.0']"), "`8.0` is listed twice"),
        (kernel("cuda", "hip-flags = []"), "a key of rocm kernels, and this is a cuda one"),
        (kernel("cuda", "cuda-capabilites = []"), "did you mean `cuda-capabilities`?"),
        (kernel("cpu", "sycl-flags = []"), "kernel.relu.sycl-flags: unknown key"),
        (kernel("cuda", "cuda-minver = 12"), "kernel.relu.cuda-minver: must be a string"),
        (kernel().replace('["a.cpp"]', "[]"), "kernel.relu.src: lists no sources"),
        (kernel().replace('src = ["a.cpp"]', ""), "kernel.relu.src: is missing"),
        (kernel().replace('depends = ["torch"]', ""), "kernel.relu.depends: is missing"),
        (kernel().replace('backend = "cuda"', ""),
         "kernel.relu.backend: is missing\n  hint: one of"),
        (kernel().replace('backend = "cuda"', "backend = 3"), "backend: must be a string, not an"),
        (kernel().replace('"torch"]', '"cutlass_4_7"]'), "did you mean `cutlass_4_5`?"),
        (kernel().replace("kernel.relu", 'kernel."a b"'), "cannot be the name of a CMake target"),
        (kernel().replace("kernel.relu", "kernel.binding"),
         "`binding` is what the framework's own sources are called"),
    ],
)  # fmt: skip
def test_kernels(said, section, words):
    assert words in said(section, FILES)


def test_a_kernel_with_a_misspelt_backend_is_judged_all_the_same(said):
    found = said(kernel("cdua", "cuda_flags = []").replace('depends = ["torch"]', ""), FILES)
    assert "kernel.relu.cuda_flags: unknown key\n  hint: did you mean `cuda-flags`?" in found
    assert "kernel.relu.depends: is missing" in found


@pytest.mark.parametrize(
    "library",
    [
        *("cutlass_2_10", "cutlass_3_5", "cutlass_3_6", "cutlass_3_8", "cutlass_3_9"),
        *("cutlass_4_0", "cutlass_4_4", "cutlass_4_5", "sycl_tla", "metal-cpp", "torch"),
    ],
)
def test_every_dependency_of_the_format_is_known(said, library):
    assert said(kernel().replace('"torch"]', f'"{library}"]'), FILES) == ""


@pytest.mark.parametrize("backend", ["cpu", "rocm", "metal", "cann"])
def test_backends_without_a_table_of_their_own(said, backend):
    found = said(text(general=f"[general.{backend}]"), FILES)
    assert f"general.{backend}: unknown key\n  hint: backends with a table of their own" in found


@pytest.mark.parametrize(
    ("backend", "key", "arch", "words"),
    [
        ("cuda", "cuda-capabilities", "12.5", "has `12.5`\n  hint: the nearest is `12.1`"),
        ("cuda", "cuda-capabilities", "8.0a", "the nearest is `8.0`"),
        ("cuda", "cuda-capabilities", "9.9+PTX", "the nearest is `10.0`"),
        ("cuda", "cuda-capabilities", "H100", "hint: `H100` has `9.0`"),
        ("cuda", "cuda-capabilities", "RTX 4090", "hint: `RTX 4090` has `8.9`"),
        ("rocm", "rocm-archs", "gfx943", "the nearest is `gfx942`"),
        ("rocm", "rocm-archs", "MI300X", "hint: `MI300X` has `gfx942`"),
        ("rocm", "rocm-archs", "H100", "hint: write e.g. `gfx942`"),
    ],
)  # fmt: skip
def test_archs_that_no_gpu_has_and_names_of_gpus(said, backend, key, arch, words):
    section = kernel(keys=f'{key} = ["{arch}"]').replace('"cuda"', f'"{backend}"')
    assert words in said(section, FILES)


@pytest.mark.parametrize(
    ("backend", "archs", "level"),
    [
        ("cuda", ["8.0", "11.8", "12.0"], "warning"),
        ("cuda", ["11.8+PTX", "9.0a"], "warning"),
        ("cuda", ["11.8"], "error"),
        ("cuda", ["11.8", "13.7"], "error"),
        ("rocm", ["gfx942", "gfx943"], "warning"),
        ("rocm", ["gfx943"], "error"),
    ],
)
def test_an_unknown_arch_among_known_ones_is_left_out(say, backend, archs, level):
    section = kernel(keys=f"{key_of(backend)} = {archs}").replace('"cuda"', f'"{backend}"')
    problems = say(section, FILES)
    assert {problem.severity for problem in problems} == {level}
    assert all(("it is left out" in p.message) == (level == "warning") for p in problems)


def key_of(backend: str) -> str:
    return {"cuda": "cuda-capabilities", "rocm": "rocm-archs"}[backend]


@pytest.mark.parametrize("arch", ["gfx1036", "gfx90c", "gfx1151", "gfx1201"])
def test_archs_of_gpus_that_kbuild_does_not_compile_for(said, arch):
    section = kernel(keys=f'rocm-archs = ["{arch}"]').replace('"cuda"', '"rocm"')
    assert said(section, FILES) == ""


@pytest.mark.parametrize(
    ("name", "meant"), [("hip", "rocm"), ("NVIDIA", "cuda"), ("sycl", "xpu"), ("mps", "metal")]
)
def test_a_backend_by_another_name_is_one_mistake_at_each_place(say, name, meant):
    project = kernel().replace('backends = ["cuda"]', f'backends = ["{name}"]')
    problems = say(project.replace('backend = "cuda"', f'backend = "{meant}"'), FILES)
    assert [problem.key for problem in problems] == ["general.backends"]
    assert problems[0].hint.startswith(f"did you mean `{meant}`?")
