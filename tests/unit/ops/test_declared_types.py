"""Types that sources declare, found from their text: no DSL is installed here."""

from __future__ import annotations

import textwrap

import pytest

from kbuild.plan.project import open_project
from kbuild.system.errors import ConfigError

HEAD = """\
[general]
name = "demo"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]

[torch]
stable-abi = "2.11"

[kernel.demo]
backend = "cuda"
language = "{language}"
toolchain = "{toolchain}"
src = ["k.py", "other.py"]

[[kernel.demo.op]]
schema = "scale(Tensor x, float factor) -> Tensor out"
shapes = {{ x = ["..."], out = "x" }}
dtypes = {dtypes}
contiguous = true
"""
TILELANG = """\
import tilelang
import tilelang.language as T

DTYPE = T.float32

@tilelang.jit
def scale(x, factor: T.float32, block: int):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    out = T.empty([n], T.float32)
    return out
"""
CUTE = """\
import cutlass
from cutlass import Float32, cute

@cute.jit
def scale(x: cute.Tensor, out: cute.Tensor, factor: Float32, stream):
    pass
"""


def found(folder, language, source, dtypes='["float32"]', more=""):
    """The problems of a project with this kernel: line, message and hint of each."""
    pins = {"tilelang": "tilelang==0.1.15", "cute": "nvidia-cutlass-dsl==4.8.1"}
    grid = 'grid = ["1"]\n' if language == "cute" else ""
    text = HEAD.format(language=language, toolchain=pins[language], dtypes=dtypes) + more + grid
    (folder / "torch-ext" / "demo").mkdir(parents=True, exist_ok=True)
    (folder / "torch-ext" / "demo" / "__init__.py").write_text("__all__ = []\n")
    (folder / "build.toml").write_text(text)
    (folder / "k.py").write_text(textwrap.dedent(source))
    (folder / "other.py").write_text("")
    try:
        open_project(folder)
    except ConfigError as error:
        return [(one.line, one.message, one.hint) for one in error.problems]
    return []


def test_what_agrees_is_no_problem(tmp_path):
    assert found(tmp_path, "tilelang", TILELANG) == []
    assert found(tmp_path, "cute", CUTE) == []


def test_a_dtype_that_the_kernel_does_not_declare(tmp_path):
    ((line, message, hint),) = found(tmp_path, "tilelang", TILELANG, '["float16"]')
    assert line == 20
    assert message == "`x` is float16, and `x` of the kernel is a tensor of float32 (k.py:9)"
    assert hint == "write `float32` here, or another dtype in the kernel"


def test_one_of_several_dtypes(tmp_path):
    ((line, message, hint),) = found(tmp_path, "tilelang", TILELANG, '["float16", "float32"]')
    assert line == 20
    assert message.startswith("`x` may be float16, and")
    assert hint.startswith("leave `float16` out here, or make the dtype a parameter")


def test_each_tensor_has_its_own_line(tmp_path):
    dtypes = '{ x = ["float16"], out = ["int32"] }'
    problems = found(tmp_path, "tilelang", TILELANG, dtypes)
    assert [message.split(",")[0] for _, message, _ in problems] == [
        "`x` is float16",
        "`out` is int32",
    ]


@pytest.mark.parametrize(
    "source",
    [
        TILELANG.replace("T.float32]", "DTYPE]").replace("[n], T.float32)", "[n], DTYPE)"),
        TILELANG.replace("T.Tensor[[n], T.float32]", "T.Tensor((n,), 'float32')"),
        TILELANG.replace("T.Tensor[[n], T.float32]", "T.StridedTensor((n,), (1,), T.float32)"),
        """\
        @tilelang.jit
        def scale(block):
            n = T.dynamic("n")

            @T.prim_func
            def main(x: T.Tensor((n,), "float32"), out: T.Tensor((n,), "float32")):
                pass

            return main
        """,
        """\
        @T.prim_func
        def scale(x: T.Tensor((4,), dtype=T.float32), out: T.Tensor((4,), dtype=T.float32)):
            pass
        """,
    ],
    ids=["a name", "a call", "strides", "inside", "a program"],
)
def test_the_ways_to_write_a_dtype(tmp_path, source):
    assert found(tmp_path, "tilelang", source) == []
    assert len(found(tmp_path, "tilelang", source, '["float16"]')) == 1


@pytest.mark.parametrize(
    "source",
    [
        TILELANG.replace("block: int", "DTYPE").replace("T.float32]", "DTYPE]"),
        TILELANG.replace("T.float32]", "x.dtype]"),
        TILELANG.replace("def scale", "def another") + "scale = another",
        TILELANG.replace(
            "    n = ", "    if block:\n        x: T.Tensor[[4], T.float16]\n    n = "
        ),
        "def scale(:\n",
    ],
    ids=["a parameter", "an expression", "elsewhere", "in two ways", "no Python"],
)
def test_what_the_text_does_not_say(tmp_path, source):
    problems = found(tmp_path, "tilelang", source.replace("[n], T.float32)", "[n], x.dtype)"))
    assert problems == []
    other = source.replace("[n], T.float32)", "[n], x.dtype)")
    assert found(tmp_path, "tilelang", other, '["float16"]') == []


@pytest.mark.parametrize(
    ("language", "source", "line", "dtype"),
    [
        ("tilelang", TILELANG.replace("factor: T.float32", "factor: T.int32"), 7, "int32"),
        ("cute", CUTE.replace("factor: Float32", "factor: cutlass.Int64"), 5, "int64"),
    ],
)
def test_a_float_keeps_its_fraction(tmp_path, language, source, line, dtype):
    ((at, message, hint),) = found(tmp_path, language, source)
    assert at == 18
    assert f"the kernel takes {dtype}, which would drop its fraction (k.py:{line})" in message
    assert hint == "declare a float in the kernel, or an `int` in the schema"


def test_an_argument_of_another_name(tmp_path):
    source = CUTE.replace("factor: Float32", "alpha: cutlass.Int32")
    ((line, message, _),) = found(tmp_path, "cute", source, more='args = { alpha = "factor" }\n')
    assert line == 22
    assert "`alpha` is a float" in message
