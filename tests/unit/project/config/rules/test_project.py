"""The Python package is where kbuild looks for it, and its files load under any name."""

from __future__ import annotations

import pytest

TEXT = """\
[general]
name = "my-relu"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch]
src = ["csrc/relu.cpp"]
"""
INIT = "torch-ext/my_relu/__init__.py"
FILES = {INIT: '__all__ = ["relu"]\n', "csrc/relu.cpp": ""}


def test_tvm_ffi_packages_have_their_own_folder(said):
    assert "needs `tvm-ffi-ext/my_relu/__init__.py`" in said(
        TEXT.replace("[torch]", "[tvm-ffi]"), FILES
    )


@pytest.mark.parametrize(
    "source", ["__all__ = []", "__all__: list[str] = []", "__all__ = ['a']\n__all__ += ['b']"]
)
def test_ways_to_write_all(said, source):
    assert said(TEXT, FILES | {INIT: source}) == ""


@pytest.mark.parametrize(
    ("line", "warned"),
    [
        ("import my_relu", True),
        ("import my_relu.ops as ops", True),
        ("from my_relu import ops", True),
        ("from my_relu.ops import relu", True),
        ("def late():\n    from my_relu import ops", True),
        ("from . import ops", False),
        ("from .my_relu import ops", False),
        ("import my_relu_tools", False),
    ],
)
def test_self_imports(said, line, warned):
    found = said(TEXT, FILES | {"torch-ext/my_relu/ops.py": f"\n{line}\n"})
    assert (": warning: `my_relu` is imported by its name" in found) == warned


def test_heavy_headers(said):
    source = "// why\n#include <vector>\n  # include <torch/extension.h>\n"
    found = said(TEXT, FILES | {"csrc/relu.cpp": source})
    assert found.startswith("csrc/relu.cpp:3: warning: `torch/extension.h` pulls in all of Torch")
    assert said(TEXT, FILES | {"csrc/relu.cpp": "// #include <torch/extension.h>"}) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.17.0", ""),
        ("0.17", "build.toml:7: general.kernels-minver: `0.17` is not a release of `kernels`"),
        (">=0.17.0", "`>=0.17.0` is not a release of `kernels`"),
    ],
)
def test_the_oldest_client(said, text, message):
    found = said(TEXT.replace("\n[torch]", f'kernels-minver = "{text}"\n\n[torch]', 1), FILES)
    assert message in found if message else found == ""
