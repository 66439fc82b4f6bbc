"""Code examples of the documents that kbuild implements, those in a style that no other test has.

What cannot work is refused at its line, with a remedy.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli

from kbuild.system.errors import BuildError
from tests.support.dsl import cute_kernels, document_kernels, tilelang_kernels, triton_kernels
from tests.support.dsl.ninetoothed_kernels import PINS, compile_section
from tests.support.stores import dsl_store, shared_folder, warm_cache

pytestmark = pytest.mark.network
PRODUCT = """
schema = "f(Tensor a, Tensor b) -> Tensor c"
function = "{name}"
shapes = {{ a = ["m", "k"], b = ["k", "n"], c = ["m", "n"] }}
dtypes = {{ a = ["float16"], b = "a", c = ["float32"] }}
contiguous = true
{more}
"""
IN_PLACE = """
schema = "f(Tensor(a!) x) -> ()"
function = "{name}"
shapes = {{ x = [{shape}] }}
dtypes = ["{dtype}"]
contiguous = true
{more}
"""
SIZES = 'constants = { m = { value = "m", choices = [64] }, n = { value = "n", choices = [64] }'
PAIR = f"""
schema = "f(Tensor(a!) a, Tensor(b!) b) -> ()"
function = "idle"
shapes = {{ a = ["m", "n"], b = ["m", "n"] }}
dtypes = ["float16"]
contiguous = true
{SIZES} }}
"""


def in_place(name: str, shape: str, more: str = "") -> str:
    return IN_PLACE.format(name=name, shape=shape, dtype="float32", more=more)


TILELANG = {
    "gemm with options": (
        PRODUCT.format(name="sized", more=f'{SIZES}, k = {{ value = "k", choices = [64] }} }}'),
        "sm_80",
    ),
    "a macro, T.dynamic": (PRODUCT.format(name="dynamic", more=""), "sm_80"),
    "run-time sizes": (PRODUCT.format(name="counted", more=""), "sm_80"),
    "a kernel without effect": (PAIR, "cpu"),
    "a macro with two results": (in_place("pair", '"n"'), "cpu"),
}
"""Example -> an op, and what it is compiled for."""
AT_IMPORT = """
import torch

A = torch.randn(64, 64, dtype=torch.float16, device="cuda")
C = sized(A, A)
torch.testing.assert_close(C, (A @ A).float(), rtol=1e-2, atol=1e-2)
"""


@pytest.fixture(scope="module")
def tilelang(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tilelang_kernels.TileLangProject]:
    source = document_kernels.TILELANG + AT_IMPORT
    with tilelang_kernels.shop(tmp_path_factory.mktemp("tilelang"), source) as found:
        yield found


class TestTileLang:
    @pytest.mark.parametrize("name", TILELANG)
    def test_what_is_built(self, tilelang: tilelang_kernels.TileLangProject, name: str) -> None:
        (made,) = tilelang.compiled(*TILELANG[name])
        assert made.code.startswith(b"\x7fELF")

    @pytest.mark.parametrize(
        ("old", "new", "op", "message", "hint"),
        [
            (
                "@tilelang.jit\ndef idle",
                "@tilelang.lazy_jit\ndef idle",
                PAIR,
                "AttributeError: module 'tilelang' has no attribute 'lazy_jit'",
                "write `@tilelang.jit`",
            ),
            (
                "@tilelang.jit\ndef indirect",
                "@tilelang.jit\ndef indirect",
                in_place("indirect", '"r", "s"', "constants = { m = 32 }"),
                "RuntimeError: Constexpr variable `m` is not used in any buffer shape or stride.",
                "write it alone as a dimension, or a `T.const` of its own",
            ),
            (
                '    return T.sin(T.cast(x, "float32")),',
                "    return T.sin(x),",
                PAIR,
                "TypeError: tirx.sin only supports floating-point inputs, but got int32",
                "convert it first",
            ),
            (
                "KERNEL = sized",
                "sized.compile(1, 2)(3, 4)  # sized",
                PAIR,
                "the source uses a compiled kernel while it is imported",
                "put that under a main guard",
            ),
        ],
    )
    def test_what_is_refused(self, tmp_path, old, new, op, message, hint) -> None:
        assert old in document_kernels.TILELANG
        source = document_kernels.TILELANG.replace(old, new)
        line = source[: source.index(new)].count("\n") + 1
        with tilelang_kernels.shop(tmp_path, source) as found, pytest.raises(BuildError) as caught:
            found.compiled(op, "cpu")
        assert caught.value.message.startswith(f"kernel.k: k.py:{line}: {message}")
        assert hint in (caught.value.hint or "")


CUTE = """
[[kernel.k.op]]
schema = "shown(Tensor(a!) x) -> ()"
shapes = { x = ["m", "n"] }
dtypes = ["float32"]
"""


@pytest.fixture(scope="module")
def cute_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cute_kernels.cache_with_dsl(tmp_path_factory)


class TestCute:
    @pytest.mark.parametrize("source", ["CUTE", "CUTE_EXPORTED", "CUTE_LOADED"])
    def test_what_is_built(self, cute_cache: Path, tmp_path: Path, source: str) -> None:
        """What a source compiles, exports and loads itself is not what kbuild compiles."""
        with cute_kernels.shop(cute_cache, tmp_path) as found:
            made = found.compiled(CUTE, getattr(document_kernels, source), "sm_90a")
        assert all(one.code.startswith(b"\x7fELF") for one in made)
        assert not (tmp_path / "never").exists()

    def test_what_is_refused(self, cute_cache: Path, tmp_path: Path) -> None:
        with cute_kernels.shop(cute_cache, tmp_path) as found, pytest.raises(BuildError) as caught:
            found.compiled(CUTE, document_kernels.CUTE_REMOVED, "sm_90a")
        assert "add.py:2: No module named 'cutlass.cute.cuda'" in caught.value.message
        assert caught.value.hint == (
            "cutlass 4.8.1 has no `cutlass.cute.cuda`: write `import cuda.bindings.driver as cuda`"
        )


NINETOOTHED = {
    "added": 'schema = "added(Tensor left, Tensor right) -> Tensor total"\n'
    'shapes = { left = ["n"], right = ["n"], total = ["n"] }\ndtypes = ["float16"]\n',
    "product": 'schema = "product(Tensor left, Tensor right) -> Tensor out"\n'
    "shapes = { left = [64, 64], right = [64, 64], out = [64, 64] }\n"
    'dtypes = ["float16", "bfloat16"]\n',
    "bounded": 'schema = "bounded(Tensor x) -> Tensor out"\n'
    'shapes = { x = ["b", "m", 64], out = ["b", "m", 64] }\ndtypes = ["float16"]\n',
}


@pytest.mark.parametrize("name", NINETOOTHED)
def test_ninetoothed(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, name: str) -> None:
    store = dsl_store("ninetoothed-0.26.0", "ninetoothed", tmp_path_factory)
    folder = shared_folder(tmp_path_factory) / "ninetoothed-cache"
    cache = warm_cache(folder, store, tmp_path_factory)
    head = f'language = "ninetoothed"\ntoolchain = {list(PINS)}\nsrc = ["{name}.py"]\n[[op]]\n'
    section = tomli.loads(head + NINETOOTHED[name])
    with triton_kernels.shop(cache, tmp_path) as found:
        found.write({f"{name}.py": document_kernels.NINETOOTHED[name]})
        made = compile_section(found, name, section, "sm_90a", wide=False)
    assert made
    assert {one.image.kind for one in made} == {"cubin"}
    assert not (tmp_path / "never").exists()
