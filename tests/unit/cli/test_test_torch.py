"""`kbuild test --torch`: environments from an index on disk, which has a `torch` of a few lines."""

from __future__ import annotations

import json
import platform
import shutil
import site
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kbuild.pipeline.test_environments import TestEnvironment, read_environments
from kbuild.plan.project import open_project
from kbuild.project.variant import Variant
from kbuild.system.errors import ToolchainError, UsageError
from kbuild.system.store import Store
from kbuild.toolchains.wheels.installer import WheelInstaller
from kbuild.toolchains.wheels.settings import IndexSettings
from tests.support.fake_machine import FakeRunner, failed
from tests.support.wheel_index import make_wheel

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the builds are Linux's"
    ),
]
HERE = "x86_64-linux"
NEWER, OLDER = f"torch214-cxx11-cpu-{HERE}", f"torch213-cxx11-cpu-{HERE}"
STABLE = f"torch-stable-abi211-cpu-{HERE}"
CLIENT = """
import torch

def parse_variant(name):
    return type("Parsed", (), {"variant_str": name})

def resolve_variant(variants):
    release = "torch" + "".join(torch.__version__.split(".")[:2])
    return next((v for v in variants if v.variant_str.startswith(release + "-")), None), []
"""
TESTS = """
import demo
import torch

def test_variant():
    assert demo.VARIANT.startswith("torch" + "".join(torch.__version__.split(".")[:2]))

def test_only_2_13():
    assert torch.__version__ == "2.13.0+cpu"
"""


def write_wheel(folder: Path, project: str, version: str, members: Mapping[str, str]) -> None:
    metadata = f"Version: {version}\nMetadata-Version: 2.1\n"
    kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {**members, f"{project}-{version}.dist-info/WHEEL": kind}
    contents = {name: text.encode() for name, text in files.items()}
    make_wheel(folder, project, version, contents, tag="py3-none-any", metadata=metadata)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache whose environments are made once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip looks: two releases of Torch, a client, and this interpreter's pytest."""
    folder = tmp_path / "index"
    for version in ("2.13.0+cpu", "2.14.0+cpu", "2.14.1"):
        files = {
            "torch/__init__.py": "from torch.version import __version__\n",
            "torch/version.py": f"__version__ = {version!r}\ncuda = None\n",
        }
        write_wheel(folder, "torch", version, files)
    write_wheel(
        folder, "kernels", "1.0", {"kernels/__init__.py": "", "kernels/variants.py": CLIENT}
    )
    write_wheel(folder, "pytest", "1.0", {"own.pth": "\n".join(site.getsitepackages())})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def built(demo: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`demo`, with variants for two releases of Torch."""
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(cache))
    file = demo / "build.toml"
    file.write_text(file.read_text().replace('"cuda"', '"cpu"'))
    for name in (OLDER, NEWER):
        folder = demo / "build" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"VARIANT = {name!r}\n")
        facts = {"name": "demo", "id": "_demo_1", "version": 1, "license": "MIT"}
        more = {"python-depends": [], "backend": {"type": "cpu"}}
        (folder / "metadata.json").write_text(json.dumps({**facts, **more}))
    (demo / "tests").mkdir()
    (demo / "tests" / "test_it.py").write_text(TESTS)
    return demo


def test_each_version_in_its_own_environment_that_is_made_once(kbuild, built, index):
    answer = kbuild("test", "demo", "--torch", "oldest, 2.14", "--json")
    assert answer.code == 8, answer.err
    rows = [(r["variant"], r["torch"], r["passed"], r["failed"]) for r in answer.json["variants"]]
    assert rows == [(OLDER, "2.13.0+cpu", 2, 0), (NEWER, "2.14.0+cpu", 1, 1)], answer.err
    assert f"{NEWER} with Torch 2.14.0+cpu: FAILED" in answer.err
    shutil.rmtree(index)
    answer = kbuild("test", "demo", "--torch", "2.13,2.13", "--variant", "torch21*")
    assert answer.code == 0, answer.err
    (row,) = answer.out.splitlines()[1:]
    assert row.split()[:4] == [OLDER, "-", "2.13.0+cpu", "-"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("2.13", "--python", "x"), "--torch cannot be combined with --python"),
        (("2.13", "--executor", "x"), "--torch cannot be combined with --executor"),
        (("",), "--torch: `` is not a version of Torch"),
        (("2.13,nightly",), "--torch: `nightly` is not a version of Torch"),
        (("2",), "--torch: `2` is not a version of Torch"),
        (("2.13,2.12",), f"--torch: no built variant supports Torch 2.12 on {HERE}"),
    ],
)
def test_versions_that_are_refused(kbuild, built, options, message):
    answer = kbuild("test", "demo", "--torch", *options)
    assert (answer.code, f"error: {message}" in answer.err) == (2, True), answer.err


def test_what_cannot_be_installed_is_an_error(kbuild, built, index):
    answer = kbuild("test", "demo", "--torch", "2.13,2.14.1")
    assert answer.code == 4
    assert "Torch 2.14.1 cannot be installed for tests: the package index has no" in answer.err
    assert "`cpu` and Python" in answer.err
    assert ", only 2.14.1\n" in answer.err
    assert "give it to --python" in answer.err
    (index / "kernels-1.0-py3-none-any.whl").unlink()
    answer = kbuild("test", "demo", "--torch", "2.13.0")
    assert answer.code == 4
    assert "Torch 2.13.0 cannot be installed for tests: `pip` failed:" in answer.err
    assert "No matching distribution found for kernels" in answer.err


@pytest.mark.parametrize(
    ("names", "gpu", "asked", "expected"),
    [
        ((STABLE,), "", "oldest,newest", [("2.11", "cpu"), ("2.15", "cpu")]),
        ((STABLE,), "9.0", "2.99.1", [("2.99.1", "cpu")]),
        ((f"torch-stable-abi211-rocm71-{HERE}",), "", "newest", [("2.13", "rocm71")]),
        ((OLDER, NEWER), "", "newest,oldest,2.13", [("2.14", "cpu"), ("2.13", "cpu")]),
        ((STABLE, f"torch-stable-abi211-cu130-{HERE}"), "9.0", "2.13", [("2.13", "cu130")]),
        ((STABLE, f"torch-stable-abi211-cu130-{HERE}"), "", "2.13", [("2.13", "cpu")]),
        ((f"torch-stable-abi211-cu130-{HERE}",), "", "2.13", [("2.13", "cu130")]),
        (("torch-cuda", "torch-cpu"), "", "oldest", [("2.11", "cpu")]),
        (("torch-cuda", "torch-cpu"), "9.0", "oldest", [("2.11", "cu")]),
        (("torch-universal",), "", "2.13", None),
        ((STABLE.replace(HERE, "aarch64-linux"),), "", "newest", None),
        ((STABLE.replace(HERE, "aarch64-linux"),), "", "2.13", None),
    ],
)
@pytest.mark.quick
def test_versions_and_builds(demo, names, gpu, asked, expected):
    file = demo / "build.toml"
    file.write_text(file.read_text().replace('"cuda"', '"cpu", "cuda", "rocm"'))
    answers = {"nvidia-smi": gpu or failed(""), "rocm_agent_enumerator": failed("")}
    variants = {Variant.parse(name): Path(name) for name in names}

    def read() -> list[tuple[str, str]]:
        found = read_environments(asked, open_project(demo), variants, FakeRunner(answers))
        return [(environment.torch, environment.build) for environment in found]

    if expected is None:
        with pytest.raises(UsageError, match=HERE):
            read()
    else:
        assert read() == expected


class _AskedError(Exception):
    """With the requirements that pip was asked for."""


@pytest.mark.parametrize(
    ("variant", "torch", "expected"),
    [
        (STABLE, "2.13", "torch==2.13.1+cpu"),
        (STABLE, "2.13.0", "torch==2.13.0+cpu"),
        (f"torch213-cxx11-cu126-{HERE}", "2.13", "torch==2.13.0+cu126"),
        (f"torch213-cxx11-cu130-{HERE}", "2.13", "torch==2.13.2"),
        ("torch-cuda", "2.13", "torch==2.13.0+cu126"),
        (f"torch213-cxx11-rocm71-{HERE}", "2.13", "torch==2.13.0+rocm7.1"),
        (f"tvm-ffi01-cpu-{HERE}", "2.13", "torch==2.13.1+cpu apache-tvm-ffi==0.1.*"),
        (f"torch213-cxx11-xpu20260-{HERE}", "2.13", None),
        (STABLE, "2.12", None),
    ],
)
@pytest.mark.quick
def test_requirements(tmp_path, variant, torch, expected):
    builds = ("0+cpu", "1+cpu", "0+cu126", "2", "0+rocm7.1", "3a1+cpu")
    for version in builds:
        write_wheel(tmp_path / "index", "torch", f"2.13.{version}", {})
    make_wheel(tmp_path / "index", "torch", "2.13.9+cpu", {}, tag="cp39-cp39-win32")
    folder = tmp_path / variant
    folder.mkdir()
    facts = {"name": "demo", "id": "_demo_1", "version": 1, "license": "MIT"}
    more = {"python-depends": ["einops"], "backend": {"type": "cpu"}}
    (folder / "metadata.json").write_text(json.dumps({**facts, **more}))

    def install(command: tuple[str, ...]) -> Any:
        raise _AskedError(" ".join(command).partition(" install ")[2])

    settings = IndexSettings(no_index=True, find_links=(str(tmp_path / "index"),))
    runner = FakeRunner({"-m venv": "", " install ": install})
    installer = WheelInstaller(runner, Store(tmp_path / "store"), settings=settings)
    environment = TestEnvironment(torch, {Variant.parse(variant): folder})
    if expected is None:
        with pytest.raises(ToolchainError, match="no build of it"):
            environment.provide(installer)
        return
    with pytest.raises(_AskedError) as asked:
        environment.provide(installer)
    first, *others = expected.split()
    assert str(asked.value).split() == [first, "kernels", "pytest", *others, "einops"]
