"""The ops check: names that a file shows to be another namespace's, and those that are left alone."""
# ruff: noqa: E501 - one case is one line

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from kbuild.checks.base import Finding
from kbuild.checks.ops import REGISTRARS, check_ops_source

HEAD = "import torch\nfrom ._ops import add_op_namespace_prefix, ops\n"


def findings(tmp_path: Path, files: dict[str, str] | str) -> list[Finding]:
    listed = {"__init__.py": HEAD + files} if isinstance(files, str) else files
    for name, text in listed.items():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(dedent(text))
    return check_ops_source(tmp_path, "relu")


WRONG = {
    "decorator": '@torch.library.custom_op("relu::f", mutates_args=())\ndef f(): ...',
    "stacked decorator": '@staticmethod\n@torch.library.custom_op("relu::f", mutates_args=())\ndef f(x): ...',
    "keyword": '@torch.library.custom_op(name="relu::f", mutates_args=())\ndef f(): ...',
    "plain call": 'torch.library.define("relu::f", "(Tensor x) -> Tensor")',
    "qualname keyword": 'torch.library.define(qualname="relu::f", schema="(Tensor x) -> Tensor")',
    "nested function": 'def g():\n    @torch.library.triton_op("relu::f")\n    def f(): ...',
    "conditional": 'if torch.cuda.is_available():\n    torch.library.impl("relu::f", "CUDA", f)',
    "method": 'class A:\n    @torch.library.register_fake("relu::f")\n    def f(self): ...',
    "async": '@torch.library.register_fake("relu::f")\nasync def f(): ...',
    "lambda": 'g = lambda f: torch.library.register_kernel("relu::f", "cpu", f)',
    "in f-string": "x = f\"{torch.library.custom_op('relu::f', f)}\"",
    "curried": 'd = torch.library.custom_op("relu::f", mutates_args=())\nd(f)',
    "from import alias": 'from torch.library import custom_op as co\nco("relu::f", f)',
    "module alias": 'import torch.library as tl\ntl.register_autograd("relu::f", f)',
    "import torch as t": 'import torch as t\n@t.library.custom_op("relu::f", mutates_args=())\ndef f(x): ...',
    "module import": 'from torch import library\nlibrary.register_vmap("relu::f", f)',
    "assigned alias": 'co = torch.library.custom_op\n@co("relu::f")\ndef f(): ...',
    "chained alias": 'tl = torch.library\nco = tl.custom_op\nco("relu::f", f)',
    "star import": 'from torch.library import *\nregister_fake("relu::f", f)',
    "fallback import": (
        "try:\n    from torch.library import register_fake\n"
        "except ImportError:\n    from torch.library import impl_abstract as register_fake\n"
        'register_fake("relu::f", f)'
    ),
    "f-string": 'torch.library.custom_op(f"relu::{name}", f)',
    "joined text": 'torch.library.register_fake("relu::" + name, f)',
    "constant": 'NAME = "relu::f"\ntorch.library.custom_op(NAME, f)',
    "library": 'lib = torch.library.Library("relu", "DEF")',
    "library keyword": 'lib = torch.library.Library(ns="relu", kind="DEF")',
    "library of aten": 'torch.library.Library("aten", "IMPL").impl("relu", f, "CUDA")',
    "scoped library": 'with torch.library._scoped_library("relu", "DEF") as lib: ...',
    "library alias": 'from torch.library import Library as L\nlib = L("relu", "FRAGMENT")',
    "private module": 'from torch._library.custom_ops import custom_op\ncustom_op("relu::f", f)',
    "private triton_op": 'from torch._library.triton import triton_op\n@triton_op("relu::f", mutates_args={})\ndef f(x): ...',
    "legacy module": 'import torch._custom_ops\ntorch._custom_ops.custom_op("relu::f", f)',
    "CustomOpDef": 'from torch._library.custom_ops import CustomOpDef\nCustomOpDef("relu", "f", "()->()", f)',
    "_dispatch_library": 'torch._C._dispatch_library("DEF", "relu", "")',
    "jax": 'import jax\njax.ffi.register_ffi_target("f", x)',
    "else of TYPE_CHECKING": 'from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    torch.library.define("relu::f", "()->()")',
    "not TYPE_CHECKING": 'from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    torch.library.define("relu::f", "()->()")',
    "except of something else": 'try:\n    from . import fast\nexcept ImportError:\n    torch.library.define("relu::f", "()->()")',
    "finally": 'try:\n    pass\nfinally:\n    torch.library.define("relu::f", "()->()")',
}
REFUSED_BY_THE_REFERENCE = {
    "unknown name": "from other import name\n@torch.library.custom_op(name, mutates_args=())\ndef f(x): ...",
    "name of a sibling": "from .names import NAME\n@torch.library.register_fake(NAME)\ndef f(x): ...",
    "cut prefix": '@torch.library.custom_op(add_op_namespace_prefix("f").replace(ops.name, "relu"))\ndef f(x): ...',
    "cut and kept": 'n = add_op_namespace_prefix("f")[3:]\n@torch.library.custom_op(n)\ndef f(x): ...',
    "one of two": '@torch.library.custom_op("relu::f" if x else ops.name + "::f")\ndef f(x): ...',
    "another's ops": "@torch.library.register_fake(torch.ops.other.f)\ndef f(x): ...",
}


@pytest.mark.parametrize("case", [*WRONG.values(), *REFUSED_BY_THE_REFERENCE.values()])
def test_wrong_is_found(tmp_path: Path, case: str) -> None:
    found = findings(tmp_path, case)
    assert [finding.severity for finding in found] == ["error"], found
    assert found[0].where.startswith("__init__.py:")
    assert found[0].hint


LEFT_TO_LOADING = {
    "parameter": "def g(name):\n    torch.library.custom_op(name, f)",
    "parameter like a constant": 'name = "relu::f"\ndef g(name):\n    torch.library.custom_op(name, f)',
    "loop like a constant": 'n = "relu::f"\nfor n in names:\n    torch.library.custom_op(n, f)',
    "import like a constant": 'if x:\n    from .a import N\nelse:\n    N = "relu::f"\ntorch.library.custom_op(N, f)',
    "starred": "torch.library.custom_op(*args)",
    "no name": "torch.library.custom_op(mutates_args=())",
    "one branch": 'n = "relu::f" if x else add_op_namespace_prefix("f")\ntorch.library.custom_op(n, f)',
    "one binding": 'n = "relu::f"\nif x:\n    n = ops.f\ntorch.library.custom_op(n, f)',
    "nested decorator": "from other import name\nif x:\n    @torch.library.custom_op(name)\n    def f(x): ...",
    "third-party wrapper": 'from other import register_fake\nregister_fake("relu::f", f)',
    "own wrapper": 'from torch.library import register_fake\ndef register_fake(name): ...\nregister_fake("relu::f")',
    "shadowed module": 'def g(torch):\n    torch.library.custom_op("relu::f", f)',
    "getattr": 'getattr(torch.library, "custom_op")("relu::f", f)',
    "partial": 'from functools import partial\npartial(torch.library.custom_op, "relu::f")(f)',
    "a name of itself": "a = a.b\nb = c\nc = b\na(x)\nb(x)\ntorch.library.custom_op(b, f)",
}
RIGHT = {
    "decorator": '@torch.library.custom_op(add_op_namespace_prefix("f"), mutates_args=())\ndef f(): ...',
    "keyword": '@torch.library.custom_op(name=add_op_namespace_prefix("f"), mutates_args=())\ndef f(): ...',
    "keyword of the prefix": '@torch.library.custom_op(add_op_namespace_prefix(op_name="f"))\ndef f(): ...',
    "alias of the prefix": 'from ._ops import add_op_namespace_prefix as p\n@torch.library.custom_op(p("f"))\ndef f(): ...',
    "assigned prefix": 'p = add_op_namespace_prefix\n@torch.library.custom_op(p("f"))\ndef f(): ...',
    "prefix of TVM-FFI": 'from ._ops import torch_add_op_namespace_prefix\n@torch.library.register_fake(torch_add_op_namespace_prefix("f"))\ndef f(): ...',
    "module": 'from . import _ops\n@torch.library.custom_op(_ops.add_op_namespace_prefix("f"))\ndef f(): ...',
    "star": 'from ._ops import *\n@torch.library.custom_op(add_op_namespace_prefix("f"))\ndef f(): ...',
    "absolute": 'from relu._ops import add_op_namespace_prefix as p\n@torch.library.custom_op(p("f"))\ndef f(): ...',
    "reexported": 'from .compat import add_op_namespace_prefix\n@torch.library.custom_op(add_op_namespace_prefix("f"))\ndef f(): ...',
    "wrapper of the same name": "from ._ops import add_op_namespace_prefix as _add\nclass A:\n    def add_op_namespace_prefix(n): return _add(n)",
    "ops": "@torch.library.register_fake(ops.f)\ndef f(): ...",
    "ops of the module": "from . import _ops\n@torch.library.register_fake(_ops.ops.f.default)\ndef f(): ...",
    "assigned ops": "o = ops\n@torch.library.register_fake(o.f)\ndef f(): ...",
    "constant": 'NAME = add_op_namespace_prefix("f")\n@torch.library.register_fake(NAME)\ndef f(): ...',
    "f-string": '@torch.library.register_fake(f"{ops.name}::f")\ndef f(): ...',
    "add": '@torch.library.register_fake(ops.name + "::f")\ndef f(): ...',
    "library": 'lib = torch.library.Library(ops.name, "DEF")\nlib.define("f() -> ()")\n@torch.library.impl(lib, "f", "CPU")\ndef f(): ...',
    "custom op object": (
        '@torch.library.custom_op(add_op_namespace_prefix("f"), mutates_args=())\ndef f(): ...\n'
        "torch.library.register_autograd(f, g)\n@torch.library.register_fake(f)\ndef g(): ...\n"
        '@f.register_fake\ndef _(): ...\n@f.register_kernel("cpu")\ndef _(): ...'
    ),
    "unrelated names": 'import other\nother.define("a::b")\nother.impl("x")\nobj.register_kernel("cpu")',
    "torch's own ops": "y = torch.ops.aten.relu(x)",
    "opcheck": 'torch.library.opcheck("relu::f", (x,))',
    "infer_schema": "torch.library.infer_schema(f, mutates_args=())",
    "Library of the own namespace": 'NS = add_op_namespace_prefix("x").split("::")[0]\nlib = torch.library.Library(NS, "DEF")',
    "except of _ops": 'try:\n    from ._ops import add_op_namespace_prefix as p\nexcept ImportError:\n    torch.library.define("relu::f", "()->()")',
    "TYPE_CHECKING": 'import typing\nif typing.TYPE_CHECKING:\n    torch.library.define("relu::f", "()->()")',
    "text": '# torch.library.custom_op("relu::f", f)\nDOC = "torch.library.custom_op(\'relu::f\')"',
    "jax": 'import jax\nfrom ._ops import jax_add_ffi_target_name_prefix\njax.ffi.register_ffi_target(jax_add_ffi_target_name_prefix("f"), x)',
}


@pytest.mark.parametrize("case", [*LEFT_TO_LOADING.values(), *RIGHT.values()])
def test_no_finding_without_proof(tmp_path: Path, case: str) -> None:
    assert findings(tmp_path, case) == []


@pytest.mark.parametrize("registrar", REGISTRARS)
def test_every_registrar_both_ways(tmp_path: Path, registrar: str) -> None:
    wrong = f'torch.library.{registrar}("relu::f", "x")\n'
    right = f'torch.library.{registrar}(add_op_namespace_prefix("f"), "x")\n'
    assert [finding.where for finding in findings(tmp_path, wrong)] == ["__init__.py:3"]
    assert findings(tmp_path, right) == []


def test_the_hint_imports_from_the_top_of_the_package(tmp_path: Path) -> None:
    text = 'import torch\ntorch.library.custom_op("relu::f", f)\n'
    (found,) = findings(tmp_path, {"a/b/bad.py": text})
    assert found.where == "a/b/bad.py:2"
    assert found.hint == 'write `add_op_namespace_prefix("f")`, imported from `..._ops`'


def test_the_generated_ops_module_is_not_read(tmp_path: Path) -> None:
    assert (
        findings(tmp_path, {"_ops.py": 'import torch\ntorch.library.define("a::b", "()")\n'}) == []
    )


def test_a_use_of_the_bare_namespace_is_a_warning(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, "y = torch.ops.relu.f(x)\n")
    assert (found.severity, found.where) == ("warning", "__init__.py:3")
    assert found.hint == "use `ops`, imported from `._ops`"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    deep = " + ".join(["x"] * 2000)
    files = {
        "a.py": "def f(:\n",
        "b.py": f"x = {'-' * 9000}1\n",
        "c.py": f"import torch\n@torch.library.custom_op({deep})\ndef f(): ...\n",
        "d.py": "x = 1\n",
    }
    found = findings(tmp_path, files)
    assert [finding.where for finding in found] == ["a.py", "b.py", "c.py"]
    assert all("so its ops are not known" in finding.what for finding in found)
