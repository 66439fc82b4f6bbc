"""The load check: loads, fails, or says why it could not be tried."""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.checks.base import Finding, Output
from kbuild.checks.load import LoadCheck
from kbuild.checks.report import CheckSelection, run_selected_checks
from kbuild.plan.metadata import Metadata
from tests.support.fake_emulator import OTHER_CPU, fake_emulator

Make = Callable[..., Output]
HERE = Path(sys.executable)
ID = "_relu_cpu_0a1b2c3"
needs_client = pytest.mark.skipif(
    importlib.util.find_spec("kernels") is None or importlib.util.find_spec("torch") is None,
    reason="torch and the kernels client are not installed",
)
pytestmark = pytest.mark.torch


def said(output: Output) -> list[tuple[str, str]]:
    return [(f.severity, f.what) for f in LoadCheck().run(output)]


@needs_client
@pytest.mark.parametrize("source", ["raise SystemExit(0)", "import os; os._exit(3)"])
@pytest.mark.full
def test_a_kernel_that_ends_the_process(noarch: Make, warm: Path, source: str) -> None:
    ((severity, _),) = said(noarch({"__init__.py": source}, python=warm))
    assert severity == "error"


@needs_client
@pytest.mark.parametrize(
    ("variant", "reason"),
    [(f"torch11-cxx11-cpu-{platform.machine()}-linux", "Torch version (1.1) does not match")],
)
def test_a_variant_for_elsewhere_is_said_not_skipped(
    make: Make, warm: Path, variant: str, reason: str
) -> None:
    metadata = Metadata("relu", ID, 1, "mit", "cpu")
    ((severity, what),) = said(make(variant=variant, metadata=metadata, python=warm))
    assert severity == "info"
    assert what.startswith("not loaded here: ")
    assert reason in what


OF_OTHER_CPU = f"torch213-cxx11-cpu-{OTHER_CPU}-linux"


@pytest.mark.parametrize("variant", [OF_OTHER_CPU, "torch213-metal-aarch64-darwin"])
def test_a_variant_for_another_system_is_not_run(make: Make, variant: str) -> None:
    backend = "metal" if "metal" in variant else "cpu"
    metadata = Metadata("relu", ID, 1, "mit", backend)
    (finding,) = LoadCheck().run(make(variant=variant, metadata=metadata, python=HERE))
    system = "-".join(variant.split("-")[-2:])
    assert finding.severity == "info"
    assert finding.what.startswith(f"not run: it is for {system}, and this machine is ")
    assert f"KBUILD_EMULATOR_{system.upper().replace('-', '_')}" in finding.hint


@pytest.mark.full
def test_a_variant_for_another_system_runs_in_its_emulator(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = fake_emulator(tmp_path / "emulator", monkeypatch)
    monkeypatch.setenv("KBUILD_SANDBOX", "off")
    metadata = Metadata("relu", ID, 1, "mit", "cpu")
    # The interpreter is this machine's, so a client would refuse the variant: it is another error.
    files = {"__init__.py": "raise RuntimeError('broken there')"}
    found = said(make(files, variant=OF_OTHER_CPU, metadata=metadata, python=HERE))
    assert not any("not run" in what for _, what in found)
    assert "-s" in notes.read_text().split()
    assert "load_probe" in notes.read_text()


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
    (finding,) = LoadCheck().run(make(variant=variant, python=bare))
    assert finding.severity == "info"
    assert finding.what == f"not loaded here: {bare} has no {module}"
    assert finding.hint == f"{bare} -m pip install {package}, or `--python` with one that has it"


STAND_IN = """
import os


class Module:
    def get_function_metadata(self, name):
        kinds = {kinds}
        import json
        return {{"type_schema": json.dumps({{"named_args": {{"params": kinds}}}})}}

    def __getitem__(self, name):
        return getattr(self, name)

    @staticmethod
    def relu(*arguments):
        {body}


def load_module(path):
    return Module()
"""
FUNCTIONS = b"\0__tvm_ffi_relu\0__tvm_ffi__metadata_relu\0"


@pytest.mark.parametrize(
    ("kinds", "body", "words"),
    [
        ([{"type": "int"}, {"type": "Optional"}], "assert arguments == (1, None)", []),
        ([{"type": "int"}], "raise ValueError('no')", ["`ops.relu`: ValueError: no"]),
        ([{"type": "Map"}], "os.abort()", ["`ops.relu`: no test value can be made for `Map`"]),
        ([], "os.abort()", ["`ops.relu` crashed: the process ended with SIGABRT"]),
    ],
)
def test_functions_of_tvm_ffi_are_called(
    make: Make, tmp_path: Path, kinds: list[object], body: str, words: list[str]
) -> None:
    bare = bare_python(tmp_path)
    (tmp_path / "tvm_ffi.py").write_text(STAND_IN.format(kinds=kinds, body=body))
    variant = f"tvm-ffi01-cpu-{platform.machine()}-linux"
    found = said(make({f"{ID}.so": FUNCTIONS}, variant=variant, python=bare))
    assert len(found) == len(words)
    assert all(word in what for word, (_, what) in zip(words, found, strict=True))


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


OPS = f"""
import ctypes, os, time
import torch
lib = torch.library.Library("{ID}", "DEF")
def add(schema, function, fake=None):
    name = schema.partition("(")[0]
    lib.define(schema)
    lib.impl(name, function, "CPU")
    if fake is not None:
        torch.library.register_fake("{ID}::" + name, fake, lib=lib)
"""


Ops = Callable[..., list[Finding]]


@pytest.fixture
def load_ops(noarch: Make, warm: Path) -> Ops:
    """What the check says of a kernel with these ops."""

    def loaded(source: str, *, python: Path = warm, limit_s: float = 60, **how: object):
        check = LoadCheck()
        check.limit_s = limit_s
        return list(check.run(noarch({"__init__.py": OPS + source}, python=python, **how)))

    return loaded


GOOD_OPS = """
add("relu(Tensor x) -> Tensor", lambda x: x.relu(), torch.empty_like)
add("scale(Tensor x, float by, *, int n=1) -> Tensor", lambda x, by, n=1: x * by, lambda x, by, n=1: x + 1)
add("fill(Tensor x, Tensor(a!) out) -> ()", lambda x, out: [None, out.copy_(x)][0], lambda x, out: None)
add("many(Tensor[] xs, int[] n, Tensor? mask, bool b, Scalar s) -> Tensor[]",
    lambda xs, n, mask, b, s: [x + s for x in xs], lambda xs, n, mask, b, s: [x + s for x in xs])
add("split(Tensor x) -> (Tensor, Tensor)", lambda x: (x + 1, x + 2), lambda x: (x + 1, x + 2))
"""  # noqa: E501


@needs_client
@pytest.mark.parametrize(
    ("body", "end"),
    [
        ("ctypes.string_at(0)", "SIGSEGV"),
        ("os.abort()", "SIGABRT"),
        ("os._exit(3)", "ended with exit code 3"),
    ],
)
def test_an_op_that_ends_the_process_is_named(load_ops: Ops, body: str, end: str) -> None:
    source = f'{GOOD_OPS}\ndef bad(x):\n    {body}\nadd("zap(Tensor x) -> Tensor", bad)\n'
    (finding,) = load_ops(source)
    assert finding.severity == "warning"
    assert finding.what.startswith("`zap` crashed: the process ")
    assert end in finding.what


@needs_client
@pytest.mark.full
def test_an_op_that_hangs_is_named(load_ops: Ops) -> None:
    source = 'add("wait(Tensor x) -> Tensor", lambda x: time.sleep(1000))\n'
    (finding,) = load_ops(source, limit_s=2)
    assert finding.severity == "warning"
    assert finding.what.startswith("`wait` did not return")


@needs_client
def test_a_fake_kernel_that_ends_the_process_is_named(load_ops: Ops) -> None:
    source = 'add("zap(Tensor x) -> Tensor", lambda x: x, lambda x: os.abort())\n'
    (finding,) = load_ops(source)
    assert finding.what.startswith("the fake kernel of `zap` crashed")


@needs_client
def test_an_op_without_a_kernel_or_without_a_schema(load_ops: Ops) -> None:
    source = f"""
lib.define("idle(Tensor x) -> Tensor")
more = torch.library.Library("{ID}", "IMPL")
more.m.impl("dangling", "CPU", lambda x: x)
"""
    found = {finding.what: finding.severity for finding in load_ops(source)}
    assert found["`idle` has no kernel for the device that the variant is for"] == "warning"
    assert found["`dangling` has kernels, but is not defined"] == "error"


OTHER_PACKAGE = """
import sys, tempfile
from pathlib import Path
folder = tempfile.mkdtemp()
sys.path.append(folder)
Path(folder, "theirs.py").write_text('''
import torch
library = torch.library.Library("theirs", "DEF")
library.define("f() -> ()")
def register(name):
    torch.library.custom_op(name, lambda: None, mutates_args=(), schema="() -> ()")
''')
import theirs
"""


@needs_client
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('other = torch.library.Library("mine", "DEF")', ("error", "`mine`")),
        ('other = torch.library.Library("aten", "IMPL")', ("error", "`aten`")),
        ('with torch.library._scoped_library("mine", "DEF"): pass', ("error", "`mine`")),
        ('vars(torch.library)["define"]("mine::f", "() -> ()")', ("error", "`mine`")),
        (f'{OTHER_PACKAGE}\ntheirs.register("mine::f")', ("warning", "`mine`")),
        (OTHER_PACKAGE, None),
        (f'{OTHER_PACKAGE}\ntheirs.register("{ID}::f")', None),
        ("import torch._inductor.config, torch.distributed._functional_collectives", None),
    ],
)
def test_registrations_of_the_kernel_outside_its_namespace(
    load_ops: Ops, source: str, expected: tuple[str, str] | None
) -> None:
    found = [f for f in load_ops(source) if f.severity != "info"]
    assert [(f.check, f.severity) for f in found] == ([("ops", expected[0])] if expected else [])
    for finding in found:
        assert f"opens {expected[1]} outside the kernel's namespace `{ID}`" in finding.what
        assert finding.where.startswith("__init__.py:")
        assert ("theirs.py" in finding.what) == (expected[0] == "warning")


def judged(make: Make, python: Path, source: str, backend: str, *needs: str) -> Finding:
    metadata = Metadata("relu", ID, 1, "mit", backend, python_depends=needs)
    made = make(
        {"__init__.py": source}, variant=f"torch-{backend}", metadata=metadata, python=python
    )
    (finding,) = LoadCheck().run(made)
    return finding


@pytest.mark.parametrize(
    ("backend", "severity"),
    [("cpu", "warning"), ("cuda", "info"), ("rocm", "info"), ("xpu", "info")],
)
def test_what_only_some_releases_of_torch_bring(
    make: Make, tmp_path: Path, backend: str, severity: str
) -> None:
    bare = bare_python(tmp_path, "torch")
    (tmp_path / "torch.py").write_text("__version__ = '2.13.0+cpu'\n")
    found = judged(make, bare, "import triton.language as tl\n", backend)
    assert found.severity == severity
    assert found.what == "cannot be loaded with Torch 2.13.0+cpu, which has no `triton`"
    assert "in the functions that need it" in found.hint


def test_what_python_depends_names_has_to_be_installed(make: Make, tmp_path: Path) -> None:
    bare = bare_python(tmp_path, "torch")
    found = judged(make, bare, "import tvm_ffi\n", "cpu", "einops", "tvm-ffi")
    assert (found.severity, found.what) == ("info", f"not loaded here: {bare} has no einops")
    (tmp_path / "einops.py").write_text("")
    found = judged(make, bare, "import tvm_ffi\n", "cpu", "einops", "tvm-ffi")
    assert found.hint.startswith(f"{bare} -m pip install apache-tvm-ffi, or")


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("import einops\n", "name `einops` in `python-depends` of build.toml"),
        ("import numpy.linalg\n", "kernels cannot depend on it"),
        ("import relu\n", "import the kernel's own files relatively"),
    ],
)
def test_a_module_that_nobody_brings(make: Make, tmp_path: Path, source: str, hint: str) -> None:
    found = judged(make, bare_python(tmp_path, "torch"), source, "cpu")
    assert found.severity == "error"
    assert "ModuleNotFoundError" in found.what
    assert hint in found.hint


def test_a_kernel_that_asks_for_a_device_while_it_is_imported(make: Make, tmp_path: Path) -> None:
    bare = bare_python(tmp_path, "torch")
    (tmp_path / "torch.py").write_text(
        "class cuda:\n    @staticmethod\n    def is_available(): return False\n"
        "    @staticmethod\n    def current_device(): raise RuntimeError('no driver')\n"
    )
    source = "import torch\ntorch.cuda.current_device()\n"
    found = judged(make, bare, source, "cuda")
    assert found.severity == "warning"
    assert "RuntimeError: no driver" in found.what
    assert judged(make, bare, source, "cpu").severity == "error"
    assert judged(make, bare, "import torch\ntorch.cuda.nothing()\n", "cuda").severity == "error"


@needs_client
def test_the_state_of_the_check_that_a_finding_belongs_to(noarch: Make, warm: Path) -> None:
    source = 'import torch\nmake = getattr(torch.library, "define")\nmake("mine::f", "() -> ()")\n'
    output = noarch({"__init__.py": source}, python=warm)
    for only, expected in (
        (("load", "ops"), {"load": "ok", "ops": "fail"}),
        (("ops",), {"ops": "ok"}),
    ):
        wanted = CheckSelection(only=only)
        assert run_selected_checks(output, wanted.checks(), wanted).states == expected


@pytest.mark.full
def test_every_other_interpreter_is_asked(noarch: Make, tmp_path: Path) -> None:
    good, lacking = bare_python(tmp_path, "torch"), tmp_path / "lacking"
    lacking.mkdir()
    second = bare_python(lacking, "jax")
    (finding,) = LoadCheck().run(noarch(python=good, other_pythons=(second,)))
    assert finding.severity == "info"
    assert finding.what == f"under {second}: not loaded here: {second} has no torch"
