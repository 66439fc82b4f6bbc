"""What `kbuild init --language` writes builds as it is, with no finding; fetches up to 500 MB."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.command_project import Bench, run
from tests.support.stores import dsl_store, warm_cache

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="DSLs have no wheels for it"),
]
ENVIRONMENTS = {
    "cute": ("cute-4.8.1", "nvidia-cutlass-dsl"),
    "ninetoothed": ("ninetoothed-0.26.0", "ninetoothed"),
    "tilelang": ("tilelang-0.1.15", "tilelang"),
    "triton": ("triton-3.9.0", "triton"),
}
"""Language -> its folder in the store, and the distribution that it is fetched from."""
CUDA = "torch-stable-abi211-cu130-x86_64-linux"
CPU = "torch-stable-abi211-cpu-x86_64-linux"
WHEELS = {"KBUILD_TOOLCHAIN": "wheels"}


def written(language: str, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A new project, and a kbuild that has the language or can fetch it."""
    store = dsl_store(*ENVIRONMENTS[language], tmp_path_factory)
    cache = warm_cache(folder / "cache", store, tmp_path_factory)
    Bench(folder, cache).kbuild("init", "--name", "org/demo", "--language", language)
    return Bench(folder / "demo", cache)


def judged(bench: Bench) -> dict[str, list[str]]:
    """Variant -> what a strict check finds that is more than a note."""
    done = bench.kbuild("check-builds", "--strict", "--skip", "manylinux", "--json")
    (target,) = json.loads(done.stdout)["targets"]
    return {
        built["name"]: [one["message"] for one in built["findings"] if one["severity"] != "info"]
        for built in target["outputs"]
    }


@pytest.mark.parametrize("language", sorted(ENVIRONMENTS))
def test_a_project_for_gpus(
    language: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bench = written(language, tmp_path, tmp_path_factory)
    options = ("--driver", "local", "--variant", CUDA, "--arch", "9.0")
    bench.kbuild("build", *options, env=WHEELS)
    assert judged(bench) == {CUDA: []}
    card = (bench.root / "build" / "CARD.md").read_text()
    assert "scale(x: torch.Tensor, factor: float) -> torch.Tensor" in card
    assert ("nvidia-cutlass-dsl" in card) is (language == "cute")


def test_a_project_in_tilelang_on_the_cpu(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bench = written("tilelang", tmp_path, tmp_path_factory)
    bench.kbuild("build", "--driver", "local", "--variant", CPU, env=WHEELS)
    assert judged(bench) == {CPU: []}
    done = bench.kbuild("test")
    assert " 14 passed" in done.stdout + done.stderr
    assert "equal to Torch" in run((sys.executable, "example.py"), cwd=bench.root).stdout
