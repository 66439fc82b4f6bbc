"""The table of stable replacements against the headers of an installed Torch."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from kbuild.plugins.advice.stable_abi import Replacement, stable_abi_table
from kbuild.system.version import Version
from tests.support.stores import MACHINE_CACHE, TEST_CACHE

pytestmark = [pytest.mark.quick, pytest.mark.torch]

ROOT = Path(__file__).parents[2]
GUARD = re.compile(r"TORCH_FEATURE_VERSION (>=|<) TORCH_VERSION_(\d+)_(\d+)_0")


@pytest.fixture(scope="module")
def include() -> Path:
    """The headers that the table is of: installed ones, or those of kbuild's toolchains."""
    release = str(stable_abi_table().torch)
    spec = find_spec("torch")
    if spec is not None and spec.origin and version("torch").startswith(f"{release}."):
        return Path(spec.origin).parent / "include"
    stores = (MACHINE_CACHE / "store", TEST_CACHE / "store")
    pattern = f"torch-{release}[-.]*/root/torch/include"
    kept = [found for store in stores for found in sorted(store.glob(pattern))]
    if not kept:
        pytest.skip(f"needs Torch {release}: kbuild toolchain install torch-{release}")
    return kept[-1]


def lines_with_floor(header: Path) -> Iterator[tuple[str, Version]]:
    """Each line outside of comments, with the Torch that the guards around it ask for."""
    stack: list[Version] = []
    for line in re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(), flags=re.DOTALL).splitlines():
        if re.match(r"\s*#\s*if", line):
            guard = GUARD.search(line)
            newer = guard is not None and guard[1] == ">="
            stack.append(
                Version((int(guard[2]), int(guard[3]))) if newer else stable_abi_table().base
            )
        elif re.match(r"\s*#\s*else", line):
            stack[-1] = stable_abi_table().base
        elif re.match(r"\s*#\s*endif", line):
            stack.pop()
        yield line, max([stable_abi_table().base, *stack])


def first_release(header: Path, symbol: str) -> Version | None:
    """The oldest Torch that has the symbol, by its guards; `x::symbol` is a use and not it."""
    pattern = re.compile(rf"(?<![\w:]){re.escape(symbol)}(?!\w)")
    return min(
        (floor for line, floor in lines_with_floor(header) if pattern.search(line)), default=None
    )


def entries() -> Iterator[tuple[str, Replacement]]:
    """Each use of the table without patterns, with what is said about it."""
    yield "mm", stable_abi_table().dispatcher.about("mm", {})
    for entry in stable_abi_table().entries:
        for use in entry.use:
            name = re.split(r"/|::", use)[-1].removesuffix("<>")
            if entry.stable and "*" not in use:
                yield use, entry.about(name, stable_abi_table().constants)


def test_the_headers_have_the_replacements(include):
    for use, entry in entries():
        if entry.source == "C++":
            continue
        if not entry.symbol:  # a header-only header
            assert (include / entry.source).is_file(), use
            continue
        assert first_release(include / entry.source, entry.symbol) == entry.since, use
        for header in re.findall(r"<(torch/[\w/]+\.h)>", entry.stable or ""):
            assert (include / header).is_file(), use


def test_the_younger_ones_are_as_young(include):
    for younger in stable_abi_table().younger:
        for name in (*younger.names, *younger.methods):
            symbol = name.rpartition("::")[2]
            assert first_release(include / younger.source, symbol) == younger.since, name


def test_the_stable_tensor_has_its_methods(include):
    text = (include / "torch/csrc/stable/tensor_struct.h").read_text()
    for name in stable_abi_table().tensor_methods:
        assert re.search(rf"\b{name}\(", text), name


def test_constants_are_scalar_types(include):
    text = (include / "torch/headeronly/core/ScalarType.h").read_text()
    for name in stable_abi_table().constants.values():
        assert re.search(rf"\b{name}\b", text), name


def test_the_operators_are_fresh(include):
    script = ROOT / "scripts" / "refresh_aten_operators.py"
    done = subprocess.run([sys.executable, script, "--check"], check=False)  # noqa: TID251
    assert done.returncode == 0
