"""What NineToothed's kernels run where 32 bits do not reach every element, read as assembly."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path

import pytest

from tests.support.command_project import ROOT
from tests.support.dsl.ninetoothed_kernels import compile_wide
from tests.support.dsl.triton_kernels import shop
from tests.support.stores import dsl_store, warm_cache

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="Triton 3.9 has no wheel for it"),
    pytest.mark.skipif(
        (platform.machine(), platform.system()) != ("x86_64", "Linux"),
        reason="Triton compiles on x86_64 Linux",
    ),
]
EXAMPLES = ROOT / "examples"
WIDENING = re.compile(r"(?:cvt\.[us]64\.[us]32|mul\.wide\.[us]32)\b")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with NineToothed."""
    store = dsl_store("ninetoothed-0.26.0", "ninetoothed", tmp_path_factory)
    return warm_cache(tmp_path_factory.mktemp("cache"), store, tmp_path_factory)


def test_the_first_element_of_a_block_has_64_bits(cache: Path, tmp_path: Path) -> None:
    """Block 2**22 of 512 elements begins at 2**31, which 32 bits take for less than nothing."""
    with shop(cache, tmp_path / "project") as own:
        made = compile_wide(own, EXAMPLES / "add-ninetoothed", "add", "compute_80")
    assert [one.unit.aligned for one in made] == [True, True, False]
    for one in made:
        text = one.code.decode()
        register = re.search(r"mov\.u32 \t?(%r\d+), %ctaid\.x;", text)
        assert register is not None, text
        used = [line.strip() for line in text.splitlines() if f"{register[1]}," in line]
        used += [line.strip() for line in text.splitlines() if f" {register[1]};" in line]
        others = [line for line in used if "%ctaid" not in line]
        assert others, text
        assert [line for line in others if not WIDENING.match(line)] == []
        assert {kind.type for kind in one.image.parameters if kind.kind == "int"} == {"i64"}
