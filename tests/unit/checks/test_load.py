"""The load check: loads, fails, or says why it could not be tried."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.checks.base import Output
from kbuild.checks.load import Load
from kbuild.metadata import Metadata

Make = Callable[..., Output]
HERE = Path(sys.executable)
ID = "_relu_cpu_0a1b2c3"
needs_client = pytest.mark.skipif(
    importlib.util.find_spec("kernels") is None or importlib.util.find_spec("torch") is None,
    reason="torch and the kernels client are not installed",
)
pytestmark = pytest.mark.torch


def said(output: Output) -> list[tuple[str, str]]:
    return [(f.severity, f.what) for f in Load().run(output)]


@needs_client
def test_loads(noarch: Make) -> None:
    output = noarch({"__init__.py": "from . import sub\n", "sub.py": ""}, python=HERE)
    assert said(output) == []
    assert not list(output.root.rglob("__pycache__"))


@needs_client
def test_fails_with_the_end_of_the_traceback(noarch: Make) -> None:
    output = noarch({"__init__.py": "raise RuntimeError('broken here')\n"}, python=HERE)
    ((severity, what),) = said(output)
    assert severity == "error"
    assert "RuntimeError: broken here" in what


@needs_client
@pytest.mark.parametrize("source", ["raise SystemExit(0)", "import os; os._exit(3)"])
def test_a_kernel_that_ends_the_process(noarch: Make, source: str) -> None:
    ((severity, _),) = said(noarch({"__init__.py": source}, python=HERE))
    assert severity == "error"


@needs_client
@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        (f"torch11-cxx11-cpu-{platform.machine()}-linux", "Torch version (1.1) does not match"),
        ("torch213-metal-aarch64-darwin", "Invalid backend 'metal'"),
    ],
)
def test_a_variant_for_elsewhere_is_said_not_skipped(make: Make, variant: str, reason: str) -> None:
    backend = "metal" if "metal" in variant else "cpu"
    metadata = Metadata("relu", ID, 1, "mit", backend)
    ((severity, what),) = said(make(variant=variant, metadata=metadata, python=HERE))
    assert severity == "info"
    assert what.startswith("not loaded here: ")
    assert reason in what


def test_without_an_interpreter(noarch: Make) -> None:
    assert said(noarch()) == [("info", "not loaded here: no interpreter was given")]


def test_without_metadata_or_variant(noarch: Make) -> None:
    output = replace(noarch(python=HERE), variant=None)
    assert said(output)[0][0] == "info"


def test_an_interpreter_that_does_not_start(noarch: Make, tmp_path: Path) -> None:
    ((severity, what),) = said(noarch(python=tmp_path / "no-python"))
    assert severity == "error"
    assert "127" in what


def bare_python(tmp_path: Path, *modules: str) -> Path:
    """An interpreter without installed packages, but with these empty modules."""
    for name in modules:
        (tmp_path / f"{name}.py").write_text("")
    bare = tmp_path / "python"
    (tmp_path / "run.py").write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        "sys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    bare.write_text(f'#!/bin/sh\nexec "{HERE}" -S -I "{tmp_path}/run.py" "$@"\n')
    bare.chmod(0o755)
    return bare


@pytest.mark.parametrize(
    ("variant", "here", "module", "package"),
    [
        ("torch-cpu", "tvm_ffi", "torch", "torch"),
        (f"torch213-cxx11-cpu-{platform.machine()}-linux", "tvm_ffi", "torch", "torch"),
        (f"tvm-ffi01-cpu-{platform.machine()}-linux", "torch", "tvm_ffi", "apache-tvm-ffi"),
    ],
)
def test_an_interpreter_without_the_framework(
    make: Make, tmp_path: Path, variant: str, here: str, module: str, package: str
) -> None:
    bare = bare_python(tmp_path, here)
    (finding,) = Load().run(make(variant=variant, python=bare))
    assert finding.severity == "info"
    assert finding.what == f"not loaded here: {bare} has no {module}"
    assert finding.hint == f"{bare} -m pip install {package}, or `--python` with one that has it"


def test_tvm_ffi_needs_no_torch(make: Make, tmp_path: Path) -> None:
    variant = f"tvm-ffi01-cpu-{platform.machine()}-linux"
    assert said(make(variant=variant, python=bare_python(tmp_path, "tvm_ffi"))) == []


def test_without_the_client_it_is_imported_as_a_package(noarch: Make, tmp_path: Path) -> None:
    bare = bare_python(tmp_path, "torch")
    good = {"__init__.py": f"from . import sub\nassert __name__ == '{ID}'\n", "sub.py": ""}
    assert said(noarch(good, python=bare)) == []
    ((severity, what),) = said(noarch({"__init__.py": "import nothing_like_it"}, python=bare))
    assert severity == "error"
    assert "nothing_like_it" in what


def python_with(folder: Path, torch: str | None) -> Path:
    """An interpreter whose only package is a Torch of which the version file can be read."""
    packages = folder / "packages"
    packages.mkdir()
    if torch is not None:
        (packages / "torch").mkdir()
        (packages / "torch" / "__init__.py").write_text("import imported_torch\n")
        (packages / "torch" / "version.py").write_text(torch)
    (folder / "run.py").write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(packages)!r})\n"
        "sys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{HERE}" -S -I "{folder}/run.py" "$@"\n')
    python.chmod(0o755)
    return python


FOR_CPU = "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
FOR_CUDA = "__version__ = '2.13.0a0+cu130'\ncuda: Optional[str] = '13.0'\n"


@pytest.mark.parametrize(
    ("torch", "variant", "backend", "reason"),
    [
        (FOR_CPU, "torch212-cxx11-cpu", "cpu", "(2.12) does not match the installed one (2.13"),
        (FOR_CUDA, "torch21-cxx11-cu130", "cuda", "(2.1) does not match the installed one (2.13"),
        (FOR_CPU, "torch213-cxx11-cu130", "cuda", "(2.13.0+cpu) is not built for cuda"),
        (FOR_CPU, "torch-stable-abi210-cu130", "cuda", "is not built for cuda"),
        (FOR_CUDA, "torch213-cxx11-xpu20253", "xpu", "is not built for xpu"),
        (None, "torch213-cxx11-cpu", "cpu", "has no torch"),
    ],
)
def test_the_version_file_alone_tells_a_misfit(
    make: Make, tmp_path: Path, torch: str | None, variant: str, backend: str, reason: str
) -> None:
    metadata = Metadata("relu", ID, 1, "mit", backend)
    name = f"{variant}-{platform.machine()}-linux"
    output = make(variant=name, metadata=metadata, python=python_with(tmp_path, torch))
    ((severity, what),) = said(output)
    assert severity == "info"
    assert what.startswith("not loaded here: ")
    assert reason in what


@pytest.mark.parametrize(
    ("torch", "variant", "backend"),
    [
        (FOR_CPU, "torch213-cxx11-cpu", "cpu"),
        (FOR_CUDA, "torch213-cxx11-cu126", "cuda"),
        (FOR_CPU, "torch-stable-abi210-cpu", "cpu"),
        ("nothing to read", "torch213-cxx11-cu130", "cuda"),
    ],
)
def test_what_the_version_file_does_not_rule_out_is_loaded(
    make: Make, tmp_path: Path, torch: str, variant: str, backend: str
) -> None:
    metadata = Metadata("relu", ID, 1, "mit", backend)
    name = f"{variant}-{platform.machine()}-linux"
    output = make(variant=name, metadata=metadata, python=python_with(tmp_path, torch))
    ((severity, what),) = said(output)
    assert severity == "error"
    assert "imported_torch" in what


EXTENSION = f"""
#define Py_LIMITED_API 0x03090000
#include <Python.h>
static struct PyModuleDef def = {{PyModuleDef_HEAD_INIT, "{ID}", 0, 0, 0, 0, 0, 0, 0}};
PyMODINIT_FUNC PyInit_{ID}(void) {{ return PyModule_Create(&def); }}
"""


@needs_client
@pytest.mark.compile
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")
def test_a_compiled_variant_of_this_torch(make: Make, library: Callable[..., bytes]) -> None:
    import torch

    include = sysconfig.get_paths()["include"]
    if not Path(include, "Python.h").is_file():
        pytest.skip("no Python.h on this machine")
    major, minor = torch.__version__.split(".")[:2]
    variant = f"torch{major}{minor}-cxx11-cpu-{platform.machine()}-linux"
    files = {
        f"{ID}.abi3.so": library(EXTENSION, f"-I{include}"),
        "_ops.py": f"from . import {ID}\n",
        "__init__.py": "from . import _ops\n",
    }
    output = make(files, variant=variant, python=HERE)
    assert said(output) == []
