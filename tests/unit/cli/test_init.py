from __future__ import annotations

import re
import shutil
import sys

import pytest

from kbuild.backends import BACKENDS
from kbuild.backends.base import Backend
from kbuild.backends.frameworks import FRAMEWORKS
from kbuild.ops.language import LANGUAGES
from kbuild.plan.project import open_project
from kbuild.project.config.model import CXX
from kbuild.system.errors import UsageError
from tests.support.projects import scaffold_pairs

SETS = [
    ["cpu"],
    ["cuda"],
    ["rocm"],
    ["xpu"],
    ["metal"],
    ["cann"],
    ["neuron", "tpu"],
    ["cuda", "xpu"],
    ["cpu", "cuda", "rocm"],
    ["all"],
]


def files(folder):
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in paths if path.parts[0] != ".git")


@pytest.mark.parametrize("backends", SETS, ids="-".join)
def test_every_backend_set_is_a_valid_project(kbuild, here, backends):
    answer = kbuild("init", "--name", "org/my-kernel", "--backends", *backends)
    assert answer.code == 0
    project = open_project(here / "my-kernel")
    assert project.warnings == ()
    expected = {"cpu", "cuda", "metal", "rocm", "xpu"} if backends == ["all"] else {*backends}
    assert set(project.file.general.backends) == expected
    assert project.file.general.hub.repo_id == "org/my-kernel"


@pytest.mark.parametrize(
    ("language", "chosen", "expected"),
    [
        ("cute", (), ("cuda",)),
        ("cutile", (), ("cuda",)),
        ("helion", (), ("cuda",)),
        ("ninetoothed", (), ("cuda",)),
        ("tilelang", (), ("cpu", "cuda")),
        ("tilelang", ("cpu",), ("cpu",)),
        ("tilelang", ("all",), ("cpu", "cuda")),
        ("triton", (), ("cuda", "rocm")),
        ("triton", ("cuda",), ("cuda",)),
    ],
)
def test_a_kernel_in_a_dsl(kbuild, here, language, chosen, expected):
    more = ("--backends", *chosen) if chosen else ()
    answer = kbuild("init", "--name", "org/my-demo", "--no-git", "--language", language, *more)
    assert answer.code == 0
    root = here / "my-demo"
    project = open_project(root)
    assert project.warnings == ()
    assert project.dsl_kernels["my-demo"].backends == project.file.general.backends == expected
    assert project.cxx_kernels == {}
    found = files(root)
    assert {
        "CARD.md",
        "example.py",
        "benchmarks/benchmark.py",
        "tests/test_my_demo.py",
        f"my_demo_{language}/my_demo.py",
        "torch-ext/my_demo/__init__.py",
        "torch-ext/my_demo/layers/__init__.py",
    } <= set(found)
    assert len(found) == 14


PAIRS = [
    (language, framework)
    for language in [CXX, *(one.name for one in LANGUAGES if one.init_backends)]
    for framework in FRAMEWORKS.names()
]
SUPPORTED = [(pair.language or CXX, pair.framework) for pair in scaffold_pairs()]


@pytest.mark.parametrize(("language", "framework"), PAIRS)
def test_every_pair_that_a_build_supports_is_a_project(kbuild, here, language, framework):
    pair = ("--language", language, "--framework", framework)
    answer = kbuild("init", "--name", "org/my-demo", "--no-git", *pair)
    if (language, framework) not in SUPPORTED:
        assert answer.code == UsageError.code
        assert f"a kernel in {language} cannot have the framework {framework}" in answer.err
        for one in (pair for pair in SUPPORTED if language in pair or framework in pair):
            assert (one[0] if framework in one else one[1]) in answer.err
        assert not (here / "my-demo").exists()
        return
    assert answer.code == 0
    root = here / "my-demo"
    project = open_project(root)
    assert project.warnings == ()
    wanted = FRAMEWORKS.get(framework)
    assert project.file.framework_key == wanted.table
    stable = project.file.torch.stable_abi if project.file.torch else None
    assert (stable is not None) is (framework == "torch-stable-abi")
    assert bool(project.dsl_kernels) is (language != CXX and wanted.compiled)
    assert bool(project.cxx_kernels) is (language == CXX and wanted.compiled)
    found = files(root)
    package = f"{wanted.package_root}/my_demo/__init__.py"
    assert {"README.md", "example.py", "tests/test_my_demo.py", package} <= set(found)
    for path in found:
        text = (root / path).read_text()
        assert path.endswith("CARD.md") or not re.search(r"\{[{%]|[%}]\}", text), path
        if path.endswith(".py"):
            compile(text, path, "exec")
    readme = (root / "README.md").read_text()
    for path in re.findall(r"`([\w./*-]+/[\w./*-]*)`", readme):
        assert list(root.glob(path)) or path == "build/", path


def test_a_readme_of_ones_own_stays(kbuild, here):
    (here / "demo").mkdir()
    (here / "demo" / "README.md").write_text("mine")
    assert kbuild("init", "demo", "--no-git").code == 0
    assert (here / "demo" / "README.md").read_text() == "mine"
    assert kbuild("init", "demo", "--no-git", "--overwrite").code == 0
    assert (here / "demo" / "README.md").read_text().startswith("# demo\n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--language triton --backends cpu cuda", "triton kernels are not compiled for cpu"),
        ("--language cute --backends rocm", "cute kernels are not compiled for rocm"),
        ("--language tilelang --backends cuda,rocm", "tilelang kernels are not compiled for rocm"),
        ("--language ninetoothed --backends cpu", "ninetoothed kernels are not compiled for cpu"),
        ("--language cute --backends cuad", "`cuad` is not a backend"),
        ("--language cute --noarch", "a kernel in cute cannot have the framework torch-noarch"),
        ("--framework tvm-ffi --backends cpu metal", "no tvm-ffi project for metal"),
        ("--framework tvm-ffi --backends tpu", "no tvm-ffi project for tpu"),
        ("--framework tvm-ffi --noarch", "--noarch is `--framework torch-noarch`"),
        (
            "--framework tvm-ffi --language triton --backends cpu",
            "triton kernels are not compiled for cpu",
        ),
    ],
)
def test_what_cannot_be_together(kbuild, here, options, words):
    answer = kbuild("init", "demo", *options.split())
    assert answer.code == 2
    assert words in answer.err
    assert not (here / "demo").exists()


def test_compiled_and_python_only_backends_mix(kbuild, here):
    assert kbuild("init", "demo", "--backends", "cpu", "tpu").code == 0
    text = (here / "demo" / "build.toml").read_text()
    assert 'backends = ["cpu", "tpu"]' in text
    assert "[kernel.demo-cpu]" in text
    assert "[kernel.demo-tpu]" not in text
    assert kbuild("check-config", "demo").code == 0


@pytest.mark.parametrize("backends", [["cpu"], ["cuda"], ["cpu", "cuda", "rocm", "xpu"]])
def test_tvm_ffi_projects_know_no_torch_below_python(kbuild, here, backends):
    answer = kbuild("init", "demo", "--no-git", "--framework", "tvm-ffi", "--backends", *backends)
    assert answer.code == 0
    project = open_project(here / "demo")
    assert project.warnings == ()
    assert project.file.framework_key == "tvm-ffi"
    assert set(project.file.kernel) == {f"demo-{backend}" for backend in backends}
    found = files(here / "demo")
    assert {"CARD.md", "example.py", "tests/test_demo.py", "tests/conftest.py"} <= set(found)
    assert {"tvm-ffi-ext/binding.cpp", "tvm-ffi-ext/demo/__init__.py"} <= set(found)
    compiled = [path for path in found if path.endswith((".cpp", ".cu", ".h"))]
    includes = {
        line
        for path in compiled
        for line in (here / "demo" / path).read_text().splitlines()
        if line.startswith("#include")
    }
    assert not {line for line in includes if "torch" in line or "ATen" in line}


def test_a_backend_without_sources_gets_no_project(kbuild, here, monkeypatch):
    class Bare(Backend):
        name, title, section = "bare", "Bare", type(BACKENDS.get("cpu")).section

    monkeypatch.setitem(BACKENDS.load()._items, "bare", Bare())
    answer = kbuild("init", "demo", "--no-git", "--backends", "cpu", "bare")
    assert answer.code == UsageError.code
    assert "there is no torch project for bare" in answer.err
    assert "choose from cpu, cuda, metal, rocm, xpu" in answer.err
    assert not (here / "demo").exists()
    assert kbuild("init", "demo", "--no-git", "--noarch", "--backends", "bare").code == 0


@pytest.mark.parametrize(
    ("backends", "message"),
    [
        (["cpuu"], "`cpuu` is not a backend"),
        (["cpu", "folder"], "`folder` is not a backend"),
        ([","], "--backends names none"),
    ],
)
def test_unknown_backends(kbuild, here, backends, message):
    answer = kbuild("init", "--backends", *backends)
    assert message in answer.err
    assert answer.code == 2
    assert "a PATH goes before --backends" in answer.err


@pytest.mark.parametrize(
    ("argv", "target", "names"),
    [
        (["--name", "org/a-kernel"], "a-kernel", ("a-kernel", "org/a-kernel")),
        (["sub/deep", "--name", "org/other"], "sub/deep", ("other", "org/other")),
        (["sub/deep"], "sub/deep", ("deep", "your-org/deep")),
        ([], ".", ("here", "your-org/here")),
        (["--name", "user/MyKernel"], "MyKernel", ("my-kernel", "user/MyKernel")),
        (["--name", "user/x"], "x", ("x-kernel", "user/x")),
        (["--name", "user/a_b.c"], "a_b.c", ("a-b-c", "user/a_b.c")),
        (["x"], "x", ("x-kernel", "your-org/x-kernel")),
        ([".", "--name", "lambda"], ".", ("lambda-kernel", "your-org/lambda")),
    ],
)
def test_names_and_places(kbuild, here, argv, target, names):
    answer = kbuild("init", *argv, "--json", "--no-git")
    assert answer.code == 0
    assert answer.json["path"] == str((here / target).resolve())
    assert (answer.json["name"], answer.json["repo_id"]) == names
    assert open_project(here / target).name == names[0]


def test_next_commands_are_last(kbuild):
    answer = kbuild("init", "a folder")
    assert answer.err.endswith(
        "next:\n  cd 'a folder'\n  kbuild build\n  kbuild test\n  python example.py\n"
    )


def test_a_language_whose_ops_are_captured_is_captured_first(kbuild, here):
    answer = kbuild("init", "demo", "--no-git", "--language", "helion")
    assert "next:\n  cd demo\n  kbuild capture\n  kbuild build\n" in answer.err
    assert "\nkbuild capture " in (here / "demo" / "README.md").read_text()


def test_conflicts_come_all_at_once_and_before_any_write(kbuild, here):
    (here / "demo").mkdir()
    (here / "demo" / "build.toml").write_text("mine")
    (here / "demo" / "tests").write_text("a file where a folder goes")
    answer = kbuild("init", "demo")
    assert answer.code == 7
    assert "build.toml" in answer.err
    assert "tests/conftest.py" in answer.err
    assert "--overwrite" in answer.err
    assert files(here / "demo") == ["build.toml", "tests"]


def test_overwrite(kbuild, here):
    (here / "demo").mkdir()
    (here / "demo" / "build.toml").write_text("mine")
    (here / "demo" / "other.txt").write_text("stays")
    assert kbuild("init", "demo", "--overwrite").code == 0
    assert open_project(here / "demo").name == "demo"
    assert (here / "demo" / "other.txt").read_text() == "stays"


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
@pytest.mark.parametrize(
    ("platform", "framework", "expected"),
    [
        ("linux", "torch", ("cpu", "cuda")),
        ("linux", "tvm-ffi", ("cpu", "cuda")),
        ("darwin", "torch", ("cpu", "metal")),
        ("darwin", "tvm-ffi", ("cpu",)),
    ],
)
def test_the_default_builds_on_this_machine(
    kbuild, here, monkeypatch, platform, framework, expected
):
    monkeypatch.setattr(sys, "platform", platform)
    answer = kbuild("init", "demo", "--no-git", "--framework", framework)
    monkeypatch.undo()
    assert answer.code == 0
    assert open_project(here / "demo").file.general.backends == expected
