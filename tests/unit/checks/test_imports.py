"""The imports check: relative self-imports, and syntax of the Python floor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.checks.base import Finding, Output
from kbuild.checks.imports import ImportsCheck, check_imports_source

Make = Callable[..., Output]


def find(output: Output) -> list[Finding]:
    return list(ImportsCheck().run(output))


def test_good(noarch: Make) -> None:
    files = {
        "__init__.py": "from ._ops import ops\nfrom . import sub\nfrom .sub.x import y\n",
        "sub/__init__.py": "from .. import _ops\nfrom ..sub import x\nfrom .x import y\n",
        "sub/x.py": "y = 1\nimport relu_other\n",
        "optional.py": "try:\n    from .gone import z\nexcept ImportError:\n    z = None\n",
        "suppressed.py": "import contextlib\nwith contextlib.suppress(ImportError):\n"
        "    from .gone import z\n",
        "typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import relu\n",
    }
    assert find(noarch(files)) == []


def test_on_the_source_the_generated_module_counts_as_there(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("from ._ops import ops\nimport my_relu\n")
    (found,) = check_imports_source(tmp_path, "my-relu")
    assert found.where == "__init__.py:2"


def test_modules_that_are_generated_count_as_there(tmp_path: Path) -> None:
    text = "from .my_ops.loss import loss\nfrom .my_ops import norm\nfrom .gone import x\n"
    (tmp_path / "__init__.py").write_text(text)
    (found,) = check_imports_source(tmp_path, "my-relu", ["my_ops/loss.py", "my_ops/norm.py"])
    assert "`.gone` is not in this variant" in str(found)


SELF = "sys.modules[__name__]"
REGISTER = f'import sys\nsys.modules.setdefault("relu", {SELF})\n'


@pytest.mark.parametrize(
    "register",
    [
        REGISTER,
        f'import sys\nsys.modules["relu"] = {SELF}\n',
        f'import sys\nsys.modules["relu"] = package = {SELF}\n',
        f'import sys\nif "relu" not in sys.modules:\n    sys.modules["relu"] = {SELF}\n',
        'import sys as _s\n_s.modules.update({"relu": _s.modules[__name__]})\n',
        'from sys import modules\nmodules.setdefault("relu", modules[__name__])\n',
        f'import sys\nNAME = "relu"\nsys.modules[NAME] = {SELF}\n',
        f'import sys\ndef alias():\n    sys.modules["relu"] = {SELF}\nalias()\n',
        "from . import alias\n",
    ],
)
def test_a_package_may_put_itself_into_sys_modules(noarch: Make, register: str) -> None:
    files = {
        "__init__.py": f"{register}from . import layers\nimport relu.layers\n",
        "layers.py": "from relu import _ops\n",
        "alias.py": REGISTER.replace("__name__", "__package__"),
    }
    assert find(noarch(files)) == []


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (f"import relu\n{REGISTER}", 1),  # before it is there
        ("import sys\nsys.modules[__name__] = object()\nimport relu\n", 3),
        (REGISTER.replace("relu", "other") + "import relu\n", 3),
        ('import sys\nsys.modules["relu.x"] = sys\nimport relu.y\n', 3),
        ('import sys\nsys.modules.get("relu")\nimport relu\n', 3),
    ],
)
def test_what_sys_modules_does_not_have_yet(noarch: Make, source: str, line: int) -> None:
    (found,) = find(noarch({"__init__.py": source}))
    assert (found.severity, found.where) == ("error", f"__init__.py:{line}")


@pytest.mark.parametrize(
    "line",
    [
        "import relu",
        "import os, relu.layers",
        "from relu import x",
        "from relu._ops import ops",
        'import importlib; importlib.import_module("relu.x")',
        '__import__("relu")',
        "class A:\n    import relu",
        "def f(x=__import__('relu')): pass",
        "try:\n    import relu\nfinally:\n    pass",
    ],
)
def test_absolute_self_import(noarch: Make, line: str) -> None:
    loading = {"__init__.py": "from .sub import x\n"}
    (found,) = find(noarch({**loading, "sub/x.py": f"import sys\n{line}\n"}))
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
    loading = {"__init__.py": "from .sub.x import y\n", "sub/__init__.py": ""}
    (found,) = find(noarch({**loading, "sub/x.py": f"{line}\n"}))
    assert (found.severity, found.where, found.what) == ("error", "sub/x.py:1", what)


BROKEN = "from .gone import x\n"


@pytest.mark.parametrize(
    "files",
    [
        {"__init__.py": "def f():\n    from .gone import x\n"},
        {"__init__.py": "if cuda:\n    from .gone import x\n"},
        {"__init__.py": "for n in ():\n    from .gone import x\n"},
        {"__init__.py": "f = lambda: __import__('relu')\n"},
        {"__init__.py": "try:\n    import relu\nexcept ImportError:\n    relu = None\n"},
        {"x.py": BROKEN},
        {"x.py": "import relu\n"},
        {"x.py": "no python\n"},
        {"x.py": BROKEN, "__init__.py": "def f():\n    from . import x\n"},
        {"x.py": BROKEN, "__init__.py": "try:\n    from . import x\nexcept ImportError: pass\n"},
    ],
    ids=lambda files: f"{len(files)} files",
)
def test_what_loading_may_not_reach_is_a_warning(noarch: Make, files: dict[str, str]) -> None:
    assert [found.severity for found in find(noarch(files))] == ["warning"]


@pytest.mark.parametrize(
    "way",
    [
        {"__init__.py": "from .a import b\n", "a/__init__.py": BROKEN, "a/b.py": ""},
        {"__init__.py": "from . import a\n", "a.py": "from .b import c\n", "b.py": BROKEN},
        {"__init__.py": "from .a.b import c\n", "a/__init__.py": "", "a/b.py": BROKEN},
        {"__init__.py": "from .a import *\n", "a.py": "from . import b as c\n", "b.py": BROKEN},
    ],
)
def test_what_loading_reaches_through_other_files_is_an_error(
    noarch: Make, way: dict[str, str]
) -> None:
    assert [found.severity for found in find(noarch(way))] == ["error"]
