"""`kbuild test` with pytest itself: which kernel the tests get by its name."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import pytest

from tests.support.fake_emulator import OTHER_CPU, fake_emulator

pytestmark = pytest.mark.full

VARIANTS = {
    "torch-cpu": "cpu",
    f"torch213-cxx11-cpu-{platform.machine()}-linux": "cpu",
    f"torch21-cxx11-cpu-{platform.machine()}-linux": "cpu",
}
TEST = """
import demo
from demo.layers import LAYER

def test_it():
    assert demo.VARIANT == {variant!r}
    assert LAYER.startswith("layer of ")

def test_another_process():
    import subprocess, sys
    said = subprocess.check_output([sys.executable, "-c", "import demo; print(demo.VARIANT)"])
    assert said.decode().strip() == {variant!r}
"""


@pytest.fixture
def built(demo: Path) -> Path:
    """`demo`, with variants that say which they are, and its sources, which cannot be imported."""
    (demo / "torch-ext" / "demo" / "__init__.py").write_text("from ._ops import ops\n")
    for name, backend in VARIANTS.items():
        folder = demo / "build" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"from . import layers\nVARIANT = {name!r}\n")
        (folder / "layers.py").write_text("LAYER = 'layer of ' + __name__\n")
        (folder / "_ops.py").write_text("")
        told = {"name": "demo", "id": "_demo_1", "version": 1, "license": "MIT"}
        more = {"python-depends": [], "backend": {"type": backend}}
        (folder / "metadata.json").write_text(json.dumps({**told, **more}))
    (demo / "tests").mkdir()
    return demo


def write_tests(project: Path, variant: str) -> None:
    (project / "tests" / "test_it.py").write_text(TEST.format(variant=variant))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_variant_has_the_kernel_s_name(kbuild, built, variant):
    write_tests(built, variant)
    answer = kbuild("test", "demo", "--variant", variant, "--python", sys.executable)
    assert answer.code == 0, answer.err


@pytest.mark.parametrize("folder", ["torch-ext", "."])
def test_sources_of_that_name_do_not_come_first(kbuild, built, folder):
    (built / "demo").mkdir()
    (built / "demo" / "__init__.py").write_text("raise RuntimeError('the wrong one')\n")
    path = f"import sys\nsys.path.insert(0, {str(built / folder)!r})\n"
    (built / "tests" / "test_it.py").write_text(
        f"{path}import demo\ndef test_it(): assert demo.VARIANT == 'torch-cpu'\n"
    )
    answer = kbuild("test", "demo", "--variant", "torch-cpu", "--python", sys.executable)
    assert answer.code == 0, answer.err


@pytest.mark.torch
@pytest.mark.quick
def test_of_several_variants_the_one_that_fits_this_torch(kbuild, built):
    kernels = pytest.importorskip("kernels.variants")
    names = [kernels.parse_variant(name) for name in VARIANTS]
    chosen, _ = kernels.resolve_variant(names)
    if chosen is None:
        pytest.skip("no variant fits this machine")
    write_tests(built, chosen.variant_str)
    answer = kbuild("test", "demo", "--python", sys.executable)
    assert answer.code == 0, answer.err


@pytest.mark.quick
def test_a_variant_for_another_processor_is_tested_in_its_emulator(
    kbuild, built, tmp_path, monkeypatch
):
    name = f"torch213-cxx11-cpu-{OTHER_CPU}-linux"
    (built / "build" / "torch-cpu").rename(built / "build" / name)
    write_tests(built, "torch-cpu")
    answer = kbuild("test", "demo", "--variant", name)
    assert answer.code != 0
    assert f"{name} is for {OTHER_CPU}-linux; this machine is" in answer.err
    assert f"name an emulator in KBUILD_EMULATOR_{OTHER_CPU.upper()}_LINUX" in answer.err
    notes = fake_emulator(tmp_path / "emulator", monkeypatch)
    answer = kbuild("test", "demo", "--variant", name)
    assert answer.code == 0, answer.err
    assert "-m pytest" in notes.read_text()


@pytest.mark.quick
def test_all_tests_run_unless_marked_ones_are_asked_for(kbuild, built):
    marks = "import pytest\npytestmark = pytest.mark.kernels_ci\n"
    (built / "tests" / "test_a.py").write_text(f"{marks}def test_good(): pass\n")
    (built / "tests" / "test_b.py").write_text("def test_bad(): assert False\n")
    given = ("test", "demo", "--variant", "torch-cpu", "--python", sys.executable)
    assert kbuild(*given, "--marked").code == 0
    answer = kbuild(*given)
    assert answer.code == 8
    assert "test_b.py::test_bad" in answer.err
    (built / "tests" / "test_a.py").unlink()
    answer = kbuild(*given, "--marked")
    assert answer.code == 8
    assert "found no test in `tests` that is marked `kernels_ci`" in answer.err


def test_the_trace_of_torch_is_no_part_of_a_failure(kbuild, built):
    (built / "tests" / "test_a.py").write_text(
        "import logging\ndef test_it():\n"
        "    logging.getLogger('torch.__trace').warning('a %s', 'record')\n"
        "    logging.getLogger('mine').warning('my %s', 'own')\n    assert False\n"
    )
    answer = kbuild("test", "demo", "--variant", "torch-cpu", "--python", sys.executable)
    assert "my own" in answer.err
    assert "a record" not in answer.err


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.skip\ndef test_it(): pass\n",
        "def test_it(): pytest.skip('no GPU')\n",
        "pytest.importorskip('no_such_module')\ndef test_it(): pass\n",
        "@pytest.fixture\ndef gpu(): pytest.skip('no GPU')\ndef test_it(gpu): pass\n",
    ],
)
def test_nothing_but_skipped_tests_is_a_failure(kbuild, built, source):
    (built / "tests" / "test_a.py").write_text(f"import pytest\n{source}")
    given = ("test", "demo", "--variant", "torch-cpu", "--python", sys.executable)
    answer = kbuild(*given)
    assert answer.code == 8
    assert "nothing was tested: every test was skipped" in answer.err
    assert kbuild(*given, "--allow-skipped").code == 0


@pytest.mark.parametrize(
    "source",
    [
        "def test_other(): pass\n",
        "@pytest.mark.xfail\ndef test_other(): assert False\n",
        "def test_other(): pytest.xfail('a known fault')\n",
    ],
)
def test_one_test_that_ran_is_enough(kbuild, built, source):
    skipped = "@pytest.mark.skip\ndef test_it(): pass\n"
    (built / "tests" / "test_a.py").write_text(f"import pytest\n{skipped}{source}")
    given = ("test", "demo", "--variant", "torch-cpu", "--python", sys.executable)
    assert kbuild(*given).code == 0
    assert kbuild(*given, "--", "--collect-only").code == 0
