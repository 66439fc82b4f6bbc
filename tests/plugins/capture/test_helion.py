"""What Helion writes is taken apart and joined; the texts here are as Helion 1.5 writes them."""

from __future__ import annotations

import ast

import pytest

from kbuild.plugins.capture.helion.source import SourceError, read_module, with_candidates

TEXT = """\
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch._inductor.runtime.triton_compat import libdevice
import types

def _make_helion_runtime():
    return types.SimpleNamespace()
helion = types.SimpleNamespace(runtime=_make_helion_runtime())
_default_launcher = helion.runtime.default_launcher
_BLOCK_SIZE_0 = tl.constexpr({block})

@triton.jit
def _helion_twice(x, out, x_size_0, _NUM_SM: tl.constexpr):
    # src[ops.py:9]: for tile in hl.tile(x.size(0)):
    indices_0 = tl.program_id(0) * _BLOCK_SIZE_0 + tl.arange(0, _BLOCK_SIZE_0)
    load = tl.load(x + indices_0, indices_0 < x_size_0)
    tl.store(out + indices_0, libdevice.exp(load), indices_0 < x_size_0)

def twice(x: torch.Tensor, *, _launcher=_default_launcher):
    # src[ops.py:8]: out = torch.empty_like(x)
    out = torch.empty_like({like})
    # src[ops.py:9]: for tile in hl.tile(x.size(0)):
    _BLOCK_SIZE_0 = {block}
    _NUM_SM = helion.runtime.get_num_sm(x.device)
    _launcher(_helion_twice, ({grid},), x, out, x.size(0), _NUM_SM, num_warps={warps})
    # src[ops.py:11]: return out
    return out
"""
BLOCKS = "(x.size(0) + _BLOCK_SIZE_0 - 1) // _BLOCK_SIZE_0"


def written(block: int, warps: int = 4, grid: str = BLOCKS, like: str = "x") -> str:
    return TEXT.format(block=block, warps=warps, grid=grid, like=like)


def test_kernels_need_triton_alone_and_have_names_of_their_own() -> None:
    first, second = (read_module(written(block), "twice") for block in (64, 128))
    assert [*first.head] == [
        "import triton",
        "import triton.language as tl",
        "from triton.language.extra import libdevice",
    ]
    assert {*first.names} == {"_helion_twice"}
    assert first.names != second.names
    assert "_BLOCK_SIZE_0 " not in first.kernels
    assert read_module(written(64), "twice").text == first.text


def test_statements_have_the_lines_of_the_author() -> None:
    function = read_module(written(64), "twice").function
    assert [node.lineno for node in function.body] == [8, 9, 9, 9, 11]


def test_configs_are_candidates_of_one_kernel() -> None:
    modules = [read_module(written(64), "twice"), read_module(written(256, 8, "_NUM_SM"), "twice")]
    assert modules[0].rest == modules[1].rest
    joined = with_candidates(modules)
    assert 'triton.Config({"config": 0}, num_warps=4)' in joined.text
    assert 'triton.Config({"config": 1}, num_warps=8)' in joined.text
    assert "key=['x_size_0']" in joined.text
    assert "x, out, x_size_0, _NUM_SM: tl.constexpr, config: tl.constexpr" in joined.text
    assert joined.text.count("import triton\n") == 1
    compile(joined.text, "kernels", "exec")
    (launch,) = (text for text in map(ast.unparse, joined.function.body) if "_launcher(" in text)
    blocks, one_for_each = "((x.size(0) + 64 - 1) // 64,)", "(helion.runtime.get_num_sm(x.device),)"
    assert f"[{blocks}, {one_for_each}]" in launch


def test_configs_that_allocate_something_else_are_no_candidates() -> None:
    modules = [read_module(written(64, like=like), "twice") for like in ("x", "x[0]")]
    assert modules[0].rest != modules[1].rest


def test_code_that_needs_another_library_is_refused() -> None:
    text = written(64).replace("import types\n", "import my_ops as _source_module\n")
    text = text.replace("libdevice.exp(load)", "load + _source_module.BIAS")
    with pytest.raises(SourceError, match="needs `import my_ops as _source_module`"):
        read_module(text, "twice")
