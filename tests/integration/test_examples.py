"""The other examples, and projects as `kbuild init` writes them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.support.command_project import CommandProject

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("need_torch")]


@pytest.mark.compile
@pytest.mark.parametrize(
    "name",
    [
        "relu",
        "relu-stable-abi",
        "relu-noarch",
    ],
)
def test_what_is_built_has_no_findings(example: Callable[[str], CommandProject], name: str) -> None:
    bench = example(name, kept=True)
    bench.build("--backend", "cpu")
    assert_without_findings(bench)


def assert_without_findings(bench: CommandProject) -> None:
    """Not even warnings, but for what this machine's compiler promises nobody."""
    done = bench.kbuild("check-builds", "--strict", "--skip", "manylinux", "--json")
    (target,) = json.loads(done.stdout)["targets"]
    found = [finding for built in target["outputs"] for finding in built["findings"]]
    assert target["outputs"]
    assert [finding for finding in found if finding["severity"] != "info"] == []


@pytest.mark.compile
def test_two_ranks_communicate_through_torch(example: Callable[[str], CommandProject]) -> None:
    bench = example("all-reduce-norm", kept=True)
    bench.build("--backend", "cpu")
    assert_without_findings(bench)
    tests = ("tests/test_all_reduce_norm.py", "-k", "test_ranks_on_cpu and 2")
    done = bench.kbuild("test", "--", "-q", *tests)
    assert "1 passed" in done.stdout + done.stderr


def test_the_card_follows_the_build(example: Callable[[str], CommandProject]) -> None:
    bench = example("relu-noarch")
    done = bench.kbuild("build")
    card = bench.root / "build" / "CARD.md"
    assert f"filled {card}" in done.stderr
    text = card.read_text()
    assert 'get_kernel("kbuild-examples/relu-noarch", version=1)' in text
    assert "| `torch-cuda` | CUDA | any | any |" in text
    assert "filled" not in bench.kbuild("build").stderr
    init = bench.root / "torch-ext" / "relu_noarch" / "__init__.py"
    init.write_text(f"{init.read_text()}VERSION = 3\n".replace("ReLU in Python", "Clips in Python"))
    bench.kbuild("build")
    assert "Clips in Python alone" in card.read_text()
    assert "The source of all variants differed from the commit" in card.read_text()
