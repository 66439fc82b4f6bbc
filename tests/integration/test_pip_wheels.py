"""`kbuild wheel`: pip installs what it writes, Python imports it, other tools agree with tags."""

from __future__ import annotations

import json
import re
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_project import CommandProject, run

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]

USE = """
import sys, torch
import relu.layers
from relu import relu as op
x = torch.randn(100)
assert torch.equal(op(x), torch.relu(x)) and torch.equal(relu.layers.ReLU()(x), torch.relu(x))
assert "kernels" not in sys.modules
assert relu.__name__ == "relu" and relu.layers.ReLU.__module__ == "relu.layers"
"""
CLIENT = """
from pathlib import Path
from kernels import get_local_kernel
kernel = get_local_kernel(Path({path!r}), backend="cpu")
assert torch.equal(kernel.relu(x), torch.relu(x))
"""


@pytest.fixture(scope="module")
def relu(example: Callable[[str], CommandProject]) -> CommandProject:
    bench = example("relu", kept=True)
    assert bench.built("--backend", "cpu")["status"] == "built"
    return bench


@pytest.fixture(scope="module")
def wheels(relu: CommandProject) -> tuple[Path, Path]:
    """The wheel of the variant, and the one that chooses."""
    single = relu.kbuild("wheel").stdout.strip()
    return Path(single), Path(relu.kbuild("wheel", "--combined", "-o", "dist/all").stdout.strip())


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An interpreter with this one's Torch, in an environment of its own."""
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (site / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def pip(python: Path, *arguments: str) -> str:
    own = (sys.executable, "-m", "pip", "--python", str(python), *arguments, "--no-index")
    done = run((*own, "--disable-pip-version-check"), cwd=python.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python_runs(python: Path, code: str) -> None:
    done = run((str(python), "-W", "ignore", "-c", code), cwd=python.parent)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.quick
def test_names(wheels: tuple[Path, Path]) -> None:
    single, combined = (path.name for path in wheels)
    assert re.fullmatch(
        r"relu-1\+torch\d+\.cpu-cp39-abi3-manylinux_2_\d+_(x86_64|aarch64)\.whl", single
    )
    assert combined == re.sub(r"\+torch\d+\.cpu", "", single)


@pytest.mark.parametrize("which", [0, 1])
def test_it_works_without_the_client(wheels: tuple[Path, Path], environment: Path, which) -> None:
    pip(environment, "install", str(wheels[which]))
    python_runs(environment, USE)


@pytest.mark.quick
def test_it_works_beside_the_client(
    wheels: tuple[Path, Path], relu: CommandProject, environment: Path
) -> None:
    pip(environment, "install", str(wheels[1]))
    client = CLIENT.format(path=str(relu.root))
    python_runs(environment, USE + client)
    same = "import relu.layers\nassert relu is kernel and relu.layers is kernel.layers"
    python_runs(environment, f"import torch\nx = torch.randn(9)\n{client}\n{same}")


def test_twine_accepts_them(wheels: tuple[Path, Path], relu: CommandProject) -> None:
    pytest.importorskip("twine", reason="needs twine: pip install '.[test]'")
    names = tuple(map(str, wheels))
    done = run((sys.executable, "-m", "twine", "check", "--strict", *names), cwd=relu.root)
    assert done.returncode == 0, done.stdout + done.stderr


def test_auditwheel_agrees_with_the_tag(wheels: tuple[Path, Path], relu: CommandProject) -> None:
    pytest.importorskip("auditwheel", reason="needs auditwheel: pip install '.[test]'")
    done = run((sys.executable, "-m", "auditwheel", "show", str(wheels[1])), cwd=relu.root)
    text = " ".join(done.stdout.split())
    tag = re.search(r'constrains the platform tag to "(\w+)"', text)
    assert tag, done.stdout + done.stderr
    assert wheels[1].name.endswith(f"-{tag[1]}.whl")


def test_the_same_variants_make_the_same_bytes(
    relu: CommandProject, wheels: tuple[Path, Path]
) -> None:
    before = wheels[0].read_bytes()
    relu.kbuild("wheel")
    assert wheels[0].read_bytes() == before


def test_json_and_options(relu: CommandProject) -> None:
    done = relu.kbuild("wheel", "--json", "--name", "my-relu", "--version", "1.2", "-o", "other")
    (wheel,) = json.loads(done.stdout)["wheels"]
    assert wheel["file"].startswith("my_relu-1.2+torch")
    assert wheel["path"] == str(relu.root / "other" / wheel["file"])
    assert "local part" in relu.kbuild("wheel", "--version", "1+x", expect=2).stderr
    assert "not a package name" in relu.kbuild("wheel", "--name", "a/b", expect=2).stderr
