"""TileLang kernels from which the optimiser removes parameters, or all that they do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbuild.system.errors import BuildError
from tests.support.dsl.tilelang_kernels import TileLangProject, shop
from tests.support.dsl.tilelang_linked import Linked

pytestmark = pytest.mark.network
SOURCE = """\
import tilelang
import tilelang.language as T


@tilelang.jit
def annotated(A: T.ptr, is_2d: bool = False):
    if is_2d:
        M, N = T.const("M, N")
        A = T.match_buffer(A, [M, N], T.float32)
        with T.Kernel(1) as _:
            A[0, 0]
    else:
        L = T.const("L")
        A = T.match_buffer(A, [L], T.float32)
        with T.Kernel(1) as _:
            A[0]


@tilelang.jit
def scalars(x, count):
    n = T.dynamic("n")
    count: T.int32
    x: T.Tensor[[n], T.float32]
    with T.Kernel(1) as _:
        for i in T.serial(count):
            pass


@tilelang.jit
def writes_nothing_then_something(x):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    with T.Kernel(1) as _:
        pass
    with T.Kernel(T.ceildiv(n, 128), threads=128) as block:
        for i in T.Parallel(128):
            if block * 128 + i < n:
                x[block * 128 + i] = 1
"""
FLAT = """
schema = "f(Tensor(a!) x) -> ()"
function = "{name}"
shapes = {{ x = ["n"] }}
dtypes = ["float32"]
contiguous = true
"""
ANNOTATED = """
schema = "f(Tensor(a!) A) -> ()"
function = "annotated"
shapes = {{ A = {shape} }}
dtypes = ["float32"]
contiguous = true
constants = {{ is_2d = {is_2d}, {sizes} }}
"""
COUNT = FLAT.replace("x) -> ()", "x, int count) -> ()").format(name="scalars")


@pytest.fixture(scope="module")
def tilelang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TileLangProject]:
    with shop(tmp_path_factory.mktemp("tilelang"), SOURCE) as found:
        yield found


@pytest.mark.parametrize(
    ("text", "launches"),
    [
        (ANNOTATED.format(shape='["m", "n"]', is_2d="true", sizes="M = 256, N = 256"), 1),
        (COUNT, 1),
        (FLAT.format(name="writes_nothing_then_something"), 1),
    ],
    ids=["two dimensions", "scalars", "two kernels"],
)
def test_what_remains_is_launched(tilelang, tmp_path: Path, text: str, launches: int) -> None:
    linked = Linked(tilelang.compiled(text, "sm_90a"), tmp_path)
    assert linked.call() == 0, linked.error()
    assert len(linked.said("launch")) == launches


def test_a_constant_that_nothing_gives_a_value(tilelang) -> None:
    text = ANNOTATED.format(shape='["L"]', is_2d="false", sizes="").replace(",  }", " }")
    with pytest.raises(BuildError) as raised:
        tilelang.compiled(text, "sm_90a")
    assert "nothing gives `L`, which is a `T.const`, a value" in raised.value.message
    assert 'write `T.dynamic("L")` in the kernel' in raised.value.hint
    assert raised.value.message.startswith("kernel.k: k.py:")
