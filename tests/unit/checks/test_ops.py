"""The ops check: every way to register an op, written right and written wrong."""
# ruff: noqa: E501 - one case is one line

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from kbuild.checks.base import Finding, Output
from kbuild.checks.ops import REGISTRARS, check_ops_source

HEAD = "import torch\nfrom ._ops import add_op_namespace_prefix, ops\n"


def findings(tmp_path: Path, files: dict[str, str] | str) -> list[Finding]:
    listed = {"__init__.py": files} if isinstance(files, str) else files
    for name, text in listed.items():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(dedent(text))
    return check_ops_source(tmp_path, "relu")


def lines(found: list[Finding]) -> list[str]:
    return [finding.where for finding in found]


WRONG = {
    "decorator": '@torch.library.custom_op("relu::f", mutates_args=())\ndef f(): ...',
    "keyword": '@torch.library.custom_op(name="relu::f", mutates_args=())\ndef f(): ...',
    "plain call": 'torch.library.define("relu::f", "(Tensor x) -> Tensor")',
    "qualname keyword": 'torch.library.define(qualname="relu::f", schema="(Tensor x) -> Tensor")',
    "nested function": 'def g():\n    @torch.library.triton_op("relu::f")\n    def f(): ...',
    "conditional": 'if torch.cuda.is_available():\n    torch.library.impl("relu::f", "CUDA", f)',
    "method": 'class A:\n    @torch.library.register_fake("relu::f")\n    def f(self): ...',
    "async": '@torch.library.register_fake("relu::f")\nasync def f(): ...',
    "lambda": 'g = lambda f: torch.library.register_kernel("relu::f", "cpu", f)',
    "comprehension": '[torch.library.define(n, "()->()") for n in ("relu::a", "relu::b")]',
    "from import alias": 'from torch.library import custom_op as co\nco("relu::f", f)',
    "module alias": 'import torch.library as tl\ntl.register_autograd("relu::f", f)',
    "module import": 'from torch import library\nlibrary.register_vmap("relu::f", f)',
    "assigned alias": 'co = torch.library.custom_op\n@co("relu::f")\ndef f(): ...',
    "chained alias": 'tl = torch.library\nco = tl.custom_op\nco("relu::f", f)',
    "tuple alias": 'a, b = torch.library.define, 1\na("relu::f", "()->()")',
    "loop alias": 'for r in (torch.library.define, print):\n    r("relu::f", "()->()")',
    "default argument": 'def g(co=torch.library.custom_op):\n    co("relu::f", f)',
    "class attribute": 'class A:\n    co = torch.library.custom_op\nA.co("relu::f", f)',
    "walrus": '(co := torch.library.custom_op)("relu::f", f)',
    "getattr": 'getattr(torch.library, "custom_op")("relu::f", f)',
    "import_module": 'import importlib\nimportlib.import_module("torch.library").custom_op("relu::f", f)',
    "partial alias": 'from functools import partial\npartial(torch.library.custom_op, mutates_args=())("relu::f", f)',
    "partial name": 'from functools import partial\npartial(torch.library.custom_op, "relu::f")(f)',
    "star import": 'from torch.library import *\nregister_fake("relu::f", f)',
    "fallback import": (
        "try:\n    from torch.library import register_fake\n"
        "except ImportError:\n    from torch.library import impl_abstract as register_fake\n"
        'register_fake("relu::f", f)'
    ),
    "f-string": 'NS = "relu"\ntorch.library.custom_op(f"{NS}::f", f)',
    "variable": 'NAME = "relu::f"\ntorch.library.custom_op(NAME, f)',
    "op object": "torch.library.register_fake(torch.ops.relu_abc.f, f)",
    "overload object": "torch.library.register_fake(torch.ops.relu_abc.f.default, f)",
    "library": 'lib = torch.library.Library("relu", "DEF")',
    "library keyword": 'lib = torch.library.Library(ns="relu", kind="DEF")',
    "library of aten": 'torch.library.Library("aten", "IMPL").impl("relu", f, "CUDA")',
    "scoped library": 'with torch.library._scoped_library("relu", "DEF") as lib: ...',
    "library alias": 'from torch.library import Library as L\nlib = L("relu", "FRAGMENT")',
    "library subclass": 'class L(torch.library.Library): ...\nlib = L("relu", "DEF")',
    "prefix inside": 'torch.library.custom_op("x" + add_op_namespace_prefix("f"), f)',
    "hidden torch": 'def g(torch):\n    torch.library.custom_op("relu::f", f)',
    "legacy module": 'import torch._custom_ops\ntorch._custom_ops.custom_op("relu::f", f)',
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_is_found(tmp_path: Path, case: str) -> None:
    found = findings(tmp_path, HEAD + WRONG[case])
    assert [finding.severity for finding in found] == ["error"], found
    assert found[0].where.startswith("__init__.py:")
    assert found[0].hint


DOUBTFUL = {
    "parameter": "def g(name):\n    torch.library.custom_op(name, f)",
    "starred": "torch.library.custom_op(*args)",
    "no name": "torch.library.custom_op(mutates_args=())",
    "own prefixer": 'def add_op_namespace_prefix(n):\n    return n\ntorch.library.custom_op(add_op_namespace_prefix("f"), f)',
    "one branch": 'n = "relu::f" if x else add_op_namespace_prefix("f")\ntorch.library.custom_op(n, f)',
    "one binding": 'n = "relu::f"\nif x:\n    n = ops.f\ntorch.library.custom_op(n, f)',
    "prefixer or not": 'p = add_op_namespace_prefix if x else str\ntorch.library.custom_op(p("f"), f)',
    "prefixer shadowed": 'p = add_op_namespace_prefix\np = lambda n: n\ntorch.library.custom_op(p("f"), f)',
    "third-party wrapper": 'from other import register_fake\nregister_fake("relu::f", f)',
}
"""Nobody can tell from the source, so it is said and no more."""


@pytest.mark.parametrize("case", DOUBTFUL)
def test_doubtful_is_a_warning(tmp_path: Path, case: str) -> None:
    found = findings(tmp_path, HEAD + DOUBTFUL[case])
    assert [finding.severity for finding in found] == ["warning"], found
    assert found[0].hint


RIGHT = {
    "rewrapped": 'def p(n):\n    return add_op_namespace_prefix(n)\ntorch.library.custom_op(p("f"), f)',
    "rewrapped lambda": 'p = lambda n: add_op_namespace_prefix(n)\ntorch.library.custom_op(p("f"), f)',
    "decorator": '@torch.library.custom_op(add_op_namespace_prefix("f"), mutates_args=())\ndef f(): ...',
    "keyword": '@torch.library.custom_op(name=add_op_namespace_prefix("f"), mutates_args=())\ndef f(): ...',
    "alias of the prefix": 'from ._ops import add_op_namespace_prefix as p\ntorch.library.custom_op(p("f"), f)',
    "assigned prefix": 'p = add_op_namespace_prefix\ntorch.library.custom_op(p("f"), f)',
    "module": 'from . import _ops\ntorch.library.custom_op(_ops.add_op_namespace_prefix("f"), f)',
    "star": 'from ._ops import *\ntorch.library.custom_op(add_op_namespace_prefix("f"), f)',
    "ops": "torch.library.register_fake(ops.f, f)",
    "ops overload": "torch.library.register_fake(ops.f.default, f)",
    "ops getattr": 'torch.library.register_fake(getattr(ops, "f"), f)',
    "variable": 'NAME = add_op_namespace_prefix("f")\ntorch.library.register_fake(NAME, f)',
    "built name": 'n = add_op_namespace_prefix("f")\nn = n + "_out"\ntorch.library.register_fake(n, f)',
    "f-string": 'torch.library.register_fake(f"{ops.name}::f", f)',
    "format": 'torch.library.register_fake("{}::f".format(ops.name), f)',
    "percent": 'torch.library.register_fake("%s::%s" % (ops.name, "f"), f)',
    "add": 'torch.library.register_fake(ops.name + "::f", f)',
    "branches": 'torch.library.register_fake(ops.f if x else add_op_namespace_prefix("g"), f)',
    "library": 'lib = torch.library.Library(ops.name, "DEF")\nlib.define("f() -> ()")\ntorch.library.impl(lib, "f", "CPU")(f)',
    "library split": 'lib = torch.library.Library(add_op_namespace_prefix("").split("::")[0], "DEF")',
    "library parameter": 'def g(lib: torch.library.Library):\n    torch.library.define(lib, "f() -> ()")',
    "custom op object": (
        '@torch.library.custom_op(add_op_namespace_prefix("f"), mutates_args=())\ndef f(): ...\n'
        "torch.library.register_autograd(f, g)\n@f.register_fake\ndef _(): ...\n"
        '@f.register_kernel("cpu")\ndef _(): ...'
    ),
    "loop": 'for n in ("a", "b"):\n    torch.library.define(add_op_namespace_prefix(n), "() -> ()")',
    "library attribute": (
        "class A:\n    def __init__(self):\n        self.library = torch.library.Library(ops.name, 'DEF')\n"
        "        self.library.define('f() -> ()')"
    ),
    "unrelated names": 'import other\nother.define("a::b")\nother.impl("x")\nobj.register_kernel("cpu")',
    "torch's own ops": "y = torch.ops.aten.relu(x)",
    "inside Library": 'lib = torch.library.Library(ops.name, "DEF")\nlib.impl("f", f, "CPU")',
}


@pytest.mark.parametrize("case", RIGHT)
def test_right_is_left_alone(tmp_path: Path, case: str) -> None:
    assert findings(tmp_path, HEAD + RIGHT[case]) == []


TRITON_OP = """
import torch
from torch.library import custom_op


def triton_op(name, fn=None, /, *, mutates_args, schema=None):
    def decorate(fn):
        result = custom_op(name, fn, mutates_args=mutates_args, schema=schema)
        result.register_fake(fn)
        return result

    return decorate if fn is None else decorate(fn)
"""
"""A copy of Torch's own, for releases that have none."""
FOLLOWED = {
    "copy of triton_op": (
        "from .compat import triton_op\nfrom ._ops import add_op_namespace_prefix\n"
        '@triton_op(add_op_namespace_prefix("f"), mutates_args={})\ndef f(x): ...\n'
        'triton_op(add_op_namespace_prefix("g"), f, mutates_args={})\n'
    ),
    "wrapper of the same name": (
        "import torch\nfrom ._ops import add_op_namespace_prefix as _add\n"
        'def add_op_namespace_prefix(name):\n    return _add(f"x__{name}")\n'
        '@torch.library.custom_op(add_op_namespace_prefix("f"), mutates_args=())\ndef f(x): ...\n'
        'torch.library.register_fake(add_op_namespace_prefix("f"))(f)\n'
    ),
    "each call by itself": (
        "import torch\nfrom ._ops import ops\n"
        'def join(space, name):\n    return space + "::" + name\n'
        'OTHER = join("aten", "relu")\ntorch.library.custom_op(join(ops.name, "f"), f)\n'
    ),
    "class": (
        "import torch\nfrom ._ops import add_op_namespace_prefix\n"
        "class Op:\n    def __init__(self, name, fn):\n        self.name = name\n"
        "        self.op = torch.library.custom_op(self.name, fn, mutates_args=())\n"
        'Op(add_op_namespace_prefix("f"), f)\nOp(name=add_op_namespace_prefix("g"), fn=g)\n'
    ),
    "methods": (
        "import torch\nfrom ._ops import add_op_namespace_prefix\n"
        "class Registry:\n    @staticmethod\n    def named(name):\n"
        "        return add_op_namespace_prefix(name)\n"
        "    def register(self, name, fn):\n        torch.library.define(name, fn)\n"
        'registry = Registry()\nregistry.register(Registry.named("f"), "() -> ()")\n'
    ),
    "helpers of helpers": (
        "import torch\nfrom ._ops import add_op_namespace_prefix\n"
        "def one(name):\n    return add_op_namespace_prefix(name)\n"
        "def two(name, suffix=''):\n    full = one(name + suffix)\n    return full\n"
        'torch.library.custom_op(two("f", suffix="_out"), f)\n'
    ),
}


@pytest.mark.parametrize("case", FOLLOWED)
def test_helpers_of_the_package_are_followed(tmp_path: Path, case: str) -> None:
    compat = {"compat.py": TRITON_OP} if ".compat" in FOLLOWED[case] else {}
    assert findings(tmp_path, {"__init__.py": FOLLOWED[case], **compat}) == []


def test_one_caller_that_names_another_namespace_is_an_error(tmp_path: Path) -> None:
    user = FOLLOWED["copy of triton_op"] + 'NAME = "relu::h"\ntriton_op(NAME, f, mutates_args={})\n'
    found = findings(tmp_path, {"__init__.py": user, "compat.py": TRITON_OP})
    assert [(f.severity, f.where) for f in found] == [("error", "compat.py:8")]


def test_what_the_reference_refuses_is_an_error_also_where_nobody_can_tell(tmp_path: Path) -> None:
    unknown = "import torch\nfrom other import name\n"
    decorated = f"{unknown}@torch.library.custom_op(name, mutates_args=())\ndef f(x): ...\n"
    called = f"{unknown}torch.library.custom_op(name, f)\n"
    nested = f"{unknown}if x:\n    @torch.library.custom_op(name)\n    def f(x): ...\n"
    found = [findings(tmp_path, text) for text in (decorated, called, nested)]
    assert [[finding.severity for finding in each] for each in found] == [
        ["error"],
        ["warning"],
        ["warning"],
    ]


def test_helpers_that_call_each_other_end(tmp_path: Path) -> None:
    lines = [f"def f{n}(a): return f{n + 1}(f{n + 1}(a)) if a else f{n - 1}(a)" for n in range(40)]
    text = HEAD + "\n".join(lines) + '\ntorch.library.custom_op(f20("x"), f)\n'
    assert [finding.severity for finding in findings(tmp_path, text)] == ["warning"]


@pytest.mark.parametrize("registrar", REGISTRARS)
def test_every_registrar_both_ways(tmp_path: Path, registrar: str) -> None:
    bad = f'{HEAD}torch.library.{registrar}("relu::f", "x")\n'
    good = f'{HEAD}torch.library.{registrar}(add_op_namespace_prefix("f"), "x")\n'
    assert lines(findings(tmp_path, bad)) == ["__init__.py:3"]
    assert findings(tmp_path, good) == []


def test_dots_lead_to_the_top_from_a_subpackage(tmp_path: Path) -> None:
    bad = 'import torch\ntorch.library.custom_op("relu::f", f)\n'
    good = """
        import torch
        from ..._ops import add_op_namespace_prefix
        torch.library.custom_op(add_op_namespace_prefix("f"), f)
    """
    elsewhere = """
        import torch
        from ._ops import add_op_namespace_prefix
        torch.library.custom_op(add_op_namespace_prefix("f"), f)
    """
    files = {"a/b/bad.py": bad, "a/b/good.py": good, "a/b/elsewhere.py": elsewhere}
    found = findings(tmp_path, files)
    assert lines(found) == ["a/b/bad.py:2", "a/b/elsewhere.py:4"]
    assert '`add_op_namespace_prefix("f")`, imported from `..._ops`' in found[0].hint


def test_names_travel_between_the_files_of_the_package(tmp_path: Path) -> None:
    compat = """
        try:
            from torch.library import register_fake
        except ImportError:
            from torch.library import impl_abstract as register_fake
        from ._ops import add_op_namespace_prefix
        NAME = add_op_namespace_prefix("f")
        BAD = "relu::f"
    """
    user = """
        from . import compat
        from .compat import register_fake, NAME, BAD
        from .compat import *
        register_fake(NAME, f)
        register_fake(BAD, f)
        compat.register_fake(compat.BAD, f)
    """
    found = findings(tmp_path, {"compat.py": compat, "user.py": user})
    assert lines(found) == ["user.py:6", "user.py:7"]


def test_the_generated_ops_module_is_not_judged(tmp_path: Path) -> None:
    generated = """
        import torch
        ops = torch.ops._relu_cpu_abc
        def add_op_namespace_prefix(name):
            return f"_relu_cpu_abc::{name}"
    """
    assert findings(tmp_path, {"_ops.py": generated}) == []


def test_a_use_of_the_bare_namespace_is_doubted(tmp_path: Path) -> None:
    found = findings(tmp_path, "import torch\ny = torch.ops.relu.f(x)\n")
    assert [(finding.severity, finding.where) for finding in found] == [
        ("warning", "__init__.py:2")
    ]


def test_files_that_cannot_be_read_are_not_passed_over(tmp_path: Path) -> None:
    files = {
        "a.py": "def f(:\n",
        "b.py": f"x = {'-' * 900}1\n",
        "c.py": f"import torch\ntorch.library.define({' + '.join(['x'] * 350)})\n",
        "d.py": "x = 1\n",
    }
    found = findings(tmp_path, files)
    assert lines(found) == ["a.py", "b.py", "c.py"]
    assert all("so its ops are not known" in finding.what for finding in found)


def test_as_a_check_on_an_output(tmp_path: Path) -> None:
    from kbuild.checks.ops import OpsCheck

    (tmp_path / "__init__.py").write_text('import torch\ntorch.library.define("a::b", "()")\n')
    found = list(OpsCheck().run(Output(tmp_path, None)))
    assert [finding.check for finding in found] == ["ops"]
