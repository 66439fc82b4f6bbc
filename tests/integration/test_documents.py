"""Every code example of the documents that kbuild implements, in its style, and what comes of it.

What cannot work is refused at its line, with a remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tomli

from kbuild.__main__ import main
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
MAP = """
schema = "f(Tensor x) -> Tensor y"
function = "{name}"
shapes = {{ x = [{shape}], y = "x" }}
dtypes = ["float32"]
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


def in_place(name: str, shape: str, more: str = "", dtype: str = "float32") -> str:
    return IN_PLACE.format(name=name, shape=shape, dtype=dtype, more=more)


TILELANG = {
    "gemm with options": (
        PRODUCT.format(name="sized", more=f'{SIZES}, k = {{ value = "k", choices = [64] }} }}'),
        "sm_80",
    ),
    "a macro, T.dynamic": (PRODUCT.format(name="dynamic", more=""), "sm_80"),
    "T.StridedTensor": (MAP.format(name="strided", shape='"m", "n"', more=""), "cpu"),
    "parameters as sizes": (PRODUCT.format(name="given", more=""), "sm_80"),
    "run-time sizes": (PRODUCT.format(name="counted", more=""), "sm_80"),
    "dyn_annot, two dimensions": (
        in_place("either", '"m", "n"', f"{SIZES}, is_flat = false }}"),
        "cpu",
    ),
    "dyn_annot, one dimension": (
        in_place(
            "either",
            '"n"',
            'constants = { is_flat = true, count = { value = "n", choices = [64] } }',
        ),
        "cpu",
    ),
    "default of a number": (
        MAP.format(name="plus", shape='"m", "n"', more=f"contiguous = true\n{SIZES} }}"),
        "cpu",
    ),
    "a kernel without effect": (PAIR, "cpu"),
    "T.Ref": (in_place("referred", "2"), "cpu"),
    "a macro as an argument": (
        MAP.format(
            name="applied",
            shape='"n"',
            more='contiguous = true\nconstants = { function = { string = "twice" } }',
        ),
        "cpu",
    ),
    "a recursive macro": (in_place("recursive", "1", "constants = { count = 4 }", "int32"), "cpu"),
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
        with (
            tilelang_kernels.shop(tmp_path, source) as found,
            pytest.raises(BuildError) as caught,
        ):
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
            made = found.compile(CUTE, getattr(document_kernels, source), "sm_90a")
        assert all(one.code.startswith(b"\x7fELF") for one in made)
        assert not (tmp_path / "never").exists()

    def test_what_is_refused(self, cute_cache: Path, tmp_path: Path) -> None:
        with (
            cute_kernels.shop(cute_cache, tmp_path) as found,
            pytest.raises(BuildError) as caught,
        ):
            found.compile(CUTE, document_kernels.CUTE_REMOVED, "sm_90a")
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


class TestTriton:
    @pytest.fixture
    def aot(self, tmp_path, tmp_path_factory, monkeypatch, capsys) -> Callable[..., str]:
        store = dsl_store("triton-3.9.0", "triton", tmp_path_factory)
        cache = warm_cache(shared_folder(tmp_path_factory) / "aot-cache", store, tmp_path_factory)
        monkeypatch.setenv("KBUILD_CACHE_DIR", str(cache))
        monkeypatch.chdir(tmp_path)
        (tmp_path / "kernel.py").write_text(document_kernels.TRITON)

        def run(*options: str, expect: int = 0) -> str:
            assert main(["aot", "triton", "kernel.py", *options]) == expect
            return capsys.readouterr().err

        return run

    @pytest.mark.parametrize("target", ["cuda:80:32", "hip:gfx942:64"])
    def test_the_command(self, aot, tmp_path: Path, target: str) -> None:
        signature = "*fp32:16, i32:16, 1024, fp32"
        options = ("--kernel-name", "kernel", "--num-warps", "2", "--num-stages", "2")
        aot(*options, "--signature", signature, "--grid", "8,1,1", "--out-name", "scaled",
            "--out-path", "out/scaled", "--target", target)  # fmt: skip
        (header,) = (tmp_path / "out").glob("*.h")
        assert "scaled" in header.read_text()
        assert "float scale" in header.read_text()

    @pytest.mark.parametrize(
        ("signature", "grid", "target", "words"),
        [
            ("*fp32:8, i32, 1024, fp32", "8,1,1", "cuda:80:32", "`8`"),
            ("*fp32, i32, 1024, fp32", "8,1,1,1", "cuda:80:32", "8,1,1,1"),
            ("*fp32, i32, 1024", "8,1,1", "cuda:80:32", "the signature has 3 entries"),
            ("*fp32, i32, 1024, fp32", "8,1,1", "", "--target"),
        ],
    )
    def test_what_is_refused(self, aot, signature, grid, target, words) -> None:
        options = ("-n", "kernel", "-s", signature, "-g", grid)
        said = aot(*options, *(("-t", target) if target else ()), expect=2)
        assert words in said
