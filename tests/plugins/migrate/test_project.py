"""Packages that build with setuptools, or not at all, as projects; their licences."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tomli

from kbuild.plugins.migrate.package import DeclaredLicence, read_licence
from kbuild.plugins.migrate.project import migrate_package
from kbuild.plugins.migrate.sources import read_package
from kbuild.system.errors import UsageError
from kbuild.system.processes import LocalRunner

FOREIGN = Path(__file__).parents[2] / "support" / "foreign"


def migrated(root: Path):
    project = migrate_package(read_package(root, LocalRunner()), "demo", "org/demo", "")
    files = {path: data.decode() for path, data in project.files.items()}
    return tomli.loads(files["build.toml"]), files, project.left


@pytest.fixture
def package(tmp_path):
    """A copy of a package that may be changed."""

    def copy(name):
        return Path(shutil.copytree(FOREIGN / name, tmp_path / name))

    return copy


def test_a_setup_that_computes_its_flags():
    document, files, left = migrated(FOREIGN / "extension")
    assert document["general"]["license"] == "MIT"
    assert document["general"]["backends"] == ["cuda"]
    macros = ["-DFUSED", "-DLEVEL=2"]
    assert document["torch"] == {
        "include": ["csrc"], "src": ["csrc/bindings.cpp"], "cxx-flags": macros
    }  # fmt: skip
    assert document["kernel"] == {
        "fused-scale-c-cuda": {
            "backend": "cuda",
            "depends": ["torch"],
            "include": ["csrc"],
            "src": ["csrc/scale_kernel.cu", "csrc/scale.h"],
            "cxx-flags": macros,
            "cuda-flags": ["--use_fast_math", *macros],
            "cuda-capabilities": ["8.0", "9.0+PTX", "9.0a"],
        }
    }
    assert "from ._ops import ops as _C" in files["torch-ext/demo/functional.py"]
    assert [note for note in left if "check the schema" not in note] == [
        "setup.py:21: `version`: build.toml has no such keys",
        "setup.py:31: library `cublas`: kernels link what Torch brings, see `depends`",
    ]


def test_a_setup_that_fails_is_read(package):
    root = package("extension")
    text = (root / "setup.py").read_text()
    (root / "setup.py").write_text(f"raise SystemError('no GPU')\n{text}")
    document, _, left = migrated(root)
    assert left[0].startswith("`setup.py` failed (SystemError: no GPU): its calls were read")
    assert document["kernel"]["fused-scale-c-cuda"]["src"][0] == "csrc/scale_kernel.cu"


def test_a_setup_starts_no_process_and_leaves_nothing(package, monkeypatch):
    monkeypatch.setenv("KBUILD_SANDBOX", "off")
    root = package("extension")
    text = (root / "setup.py").read_text()
    start = "import os, subprocess\nfor f in (os.system, subprocess.run, subprocess.check_call):\n"
    (root / "setup.py").write_text(f"{start}    f(['touch', 'ran'])\nprint('x', end='')\n{text}")
    before = sorted(root.rglob("*"))
    assert migrated(root)[0]["kernel"]
    assert sorted(root.rglob("*")) == before


def test_archs_of_the_environment(package):
    root = package("extension")
    text = (root / "setup.py").read_text().replace('if "release', 'if 0 and "release')
    line = 'os.environ["TORCH_CUDA_ARCH_LIST"] = "7.5;8.6+PTX"\n'
    (root / "setup.py").write_text(text.replace("\nROOT", f"\n{line}ROOT"))
    section = migrated(root)[0]["kernel"]["fused-scale-c-cuda"]
    assert section["cuda-capabilities"] == ["7.5", "8.0", "8.6+PTX"]


def test_triton():
    document, files, left = migrated(FOREIGN / "triton_ops")
    assert document["general"]["backends"] == ["cuda", "rocm"]
    assert document["general"]["license"] == "BSD-3-Clause"
    assert document["torch-noarch"] == {}
    assert "kernel" not in document
    assert files["torch-ext/demo/__init__.py"].startswith("from .add import add\n")
    assert left[0] == "pyproject.toml:3: `version`: build.toml has no such keys"
    assert "`kbuild capture`" in left[1]
    assert len(left) == 2


def test_nothing_to_take_over(tmp_path):
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='x')\n")
    with pytest.raises(UsageError, match="no extension for Torch and no Triton kernel"):
        read_package(tmp_path, LocalRunner())


OSI = "License :: OSI Approved :: "


@pytest.mark.parametrize(
    ("declared", "files", "licence", "why"),
    [
        (["MIT"], [], "MIT", ""),
        (["Apache License, Version 2.0"], ["LICENSE"], "Apache-2.0", ""),
        (["MIT OR Apache-2.0"], [], "MIT OR Apache-2.0", ""),
        ([f"{OSI}MIT License", "MIT"], [], "MIT", ""),
        ([], [], "", "names no licence, and has no LICENSE file"),
        ([], ["LICENSE"], "", "LICENSE has a text"),
        (["BSD"], [], "", "setup.py:1 says `BSD`"),
        (["MIT", f"{OSI}Apache Software License"], [], "", "setup.py:2 says `License :: OSI"),
        (["License :: Other/Proprietary License"], [], "", "Other/Proprietary License`"),
        (["see the file"], [], "", "says `see the file`"),
    ],
)
def test_licence(declared, files, licence, why):
    parts = [DeclaredLicence(text, f"setup.py:{line}") for line, text in enumerate(declared, 1)]
    found, reason = read_licence(parts, files)
    assert found == licence
    assert why in reason
