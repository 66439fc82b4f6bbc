"""The imports check: relative self-imports, and syntax of the Python floor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.checks.base import Finding, Output
from kbuild.checks.imports import Imports, check_imports_source

Make = Callable[..., Output]


def find(output: Output) -> list[Finding]:
    return list(Imports().run(output))


def test_good(noarch: Make) -> None:
    files = {
        "__init__.py": "from ._ops import ops\nfrom . import sub\nfrom .sub.x import y\n",
        "sub/__init__.py": "from .. import _ops\nfrom ..sub import x\nfrom .x import y\n",
        "sub/x.py": "y = 1\nimport relu_other\n",
        "optional.py": "try:\n    from .gone import z\nexcept ImportError:\n    z = None\n",
    }
    assert find(noarch(files)) == []


def test_on_the_source_the_generated_module_counts_as_there(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("from ._ops import ops\nimport my_relu\n")
    (found,) = check_imports_source(tmp_path, "my-relu")
    assert found.where == "__init__.py:2"


def test_the_extension_counts_as_a_module(make: Make) -> None:
    files = {"_relu_cpu_0a1b2c3.abi3.so": b"", "_ops.py": "from ._relu_cpu_0a1b2c3 import x\n"}
    assert find(make(files)) == []


@pytest.mark.parametrize(
    "line",
    [
        "import relu",
        "import os, relu.layers",
        "from relu import x",
        "from relu._ops import ops",
        'import importlib; importlib.import_module("relu.x")',
        '__import__("relu")',
        "def f():\n    try:\n        import relu\n    except ImportError: pass",
    ],
)
def test_absolute_self_import(noarch: Make, line: str) -> None:
    (found,) = find(noarch({"sub/x.py": f"import sys\n{line}\n"}))
    assert found.severity == "error"
    assert found.where.startswith("sub/x.py:")
    assert "imports its own package by name" in found.what
    assert "relatively" in found.hint


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("from .gone import x", "`.gone` is not in this variant"),
        ("from ..sub.gone import x", "`..sub.gone` is not in this variant"),
        ("from ... import x", "`...` leads out of the kernel's package"),
        ("from ....a import x", "`....a` leads out of the kernel's package"),
    ],
)
def test_relative_imports_that_lead_nowhere(noarch: Make, line: str, what: str) -> None:
    (found,) = find(noarch({"sub/x.py": f"{line}\n"}))
    assert (found.severity, found.where, found.what) == ("error", "sub/x.py:1", what)


@pytest.mark.parametrize(
    "source",
    [
        "match x:\n    case 1: pass",
        pytest.param(
            "try:\n    pass\nexcept* ValueError:\n    pass",
            marks=pytest.mark.skipif(
                sys.version_info < (3, 11), reason="this Python cannot read it either"
            ),
        ),
    ],
)
def test_newer_syntax_warns(noarch: Make, source: str) -> None:
    (found,) = find(noarch({"x.py": source}))
    assert found.severity == "warning"
    assert "needs a newer Python than 3.9" in found.what


@pytest.mark.parametrize("source", ["def f(:\n", "x = 1\n  y = 2\n", "\0"])
def test_no_python_at_all(noarch: Make, source: str) -> None:
    (found,) = find(noarch({"x.py": source}))
    assert found.severity == "error"
    assert "does not parse" in found.what


def test_bad_escapes_are_not_our_business(noarch: Make) -> None:
    assert find(noarch({"x.py": 'x = "\\d"\n'})) == []
