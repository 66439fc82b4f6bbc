"""The depends check: what a kernel imports, and what it says it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kbuild.checks.base import Finding, Output
from kbuild.checks.depends import DependsCheck
from kbuild.plan.metadata import Metadata

Make = Callable[..., Output]
Run = Callable[..., list[Finding]]


@pytest.mark.parametrize(
    "source",
    [
        "import os, torch.nn\nimport typing_extensions\n",
        "from . import sub\nfrom ._ops import ops\nfrom .numpy import x\n",
        "try:\n    import numpy\nexcept ImportError:\n    numpy = None\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy\n",
        "import typing\nif typing.TYPE_CHECKING:\n    from jaxtyping import Float\n",
        "import triton\nimport triton.language as tl\n",
    ],
)
def test_allowed(noarch: Make, run: Run, source: str) -> None:
    assert run(DependsCheck(), noarch({"x.py": source})) == []


@pytest.mark.parametrize(
    ("source", "module", "line"),
    [
        ("import os\nimport numpy as np\n", "numpy", 2),
        ("from scipy.special import erf\n", "scipy", 1),
        ("def f():\n    import pandas\nimport pandas.io\n", "pandas", 3),
        ('import importlib\nm = importlib.import_module("cupy.cuda")\n', "cupy", 2),
        (
            "import typing\nif typing.TYPE_CHECKING:\n    pass\nelse:\n    import attrs\n",
            "attrs",
            5,
        ),
        ("import tvm_ffi\n", "tvm_ffi", 1),
    ],
)
def test_what_nobody_has(noarch: Make, run: Run, source: str, module: str, line: int) -> None:
    (found,) = run(DependsCheck(), noarch({"sub/x.py": source}))
    assert (found.severity, found.where) == ("warning", f"sub/x.py:{line}")
    assert f"imports `{module}`" in found.what


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    import pandas\n",
        "if x:\n    import pandas\n",
        "g = lambda: __import__('pandas')",
    ],
)
def test_what_may_never_be_imported_is_a_note(noarch: Make, run: Run, source: str) -> None:
    (found,) = run(DependsCheck(), noarch({"x.py": source}), notes=True)
    assert found.severity == "info"
    assert "imports `pandas`" in found.what


def test_what_metadata_names_is_there(noarch: Make, run: Run, metadata: Metadata) -> None:
    files = {"x.py": "import einops\n"}
    (found,) = run(DependsCheck(), noarch(files))
    assert "name `einops` in `python-depends`" in found.hint
    told = replace(metadata, python_depends=("einops",))
    assert run(DependsCheck(), noarch(files, metadata=told)) == []


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("nvidia-cutlass-dsl", "import cuda.bindings.driver as cuda\n"),
        ("nvidia-cutlass-dsl", "from cuda.bindings import driver\n"),
        ("helion", "import numpy as np\n"),
    ],
)
def test_what_a_declared_package_requires_is_there(
    noarch: Make, run: Run, metadata: Metadata, package: str, source: str
) -> None:
    cuda = replace(metadata, backend="cuda")
    (found,) = run(DependsCheck(), noarch({"x.py": source}, metadata=cuda))
    assert "does not declare" in found.what
    declared = replace(cuda, python_depends=(package,))
    assert run(DependsCheck(), noarch({"x.py": source}, metadata=declared)) == []
