"""The ops check under attack: names and registrars that take detours, and good ones that do too."""
# ruff: noqa: E501 - one case is one line

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbuild.checks.base import Finding
from kbuild.checks.ops import check_ops_source

HEAD = "import torch\nfrom ._ops import add_op_namespace_prefix, ops\n"
Case = str | dict[str, str]


def findings(folder: Path, case: Case) -> list[Finding]:
    files = {"__init__.py": HEAD + case} if isinstance(case, str) else case
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return check_ops_source(folder, "relu")


WRONG: dict[str, Case] = {
    "const joined": 'NS = "relu"\nNAME = NS + "::f"\ntorch.library.custom_op(NAME, f)',
    "const from sibling": {
        "__init__.py": HEAD + "from .consts import NAME\ntorch.library.custom_op(NAME, f)",
        "consts.py": 'NAME = "relu::f"',
    },
    "format literal ns": 'torch.library.custom_op("{}::f".format("relu"), f)',
    "format 2nd": 'torch.library.custom_op("{1}::{0}".format(ops.name, "relu"), f)',
    "percent literal": 'torch.library.custom_op("%s::%s" % ("relu", ops.name), f)',
    "join literal": 'torch.library.custom_op("::".join(["relu", "f"]), f)',
    "partial kw": 'import functools\nreg = functools.partial(torch.library.custom_op, name="relu::f")\nreg(f)',
    "partial of partial": 'from functools import partial as P\na = P(torch.library.custom_op, mutates_args=())\nb = P(a, "relu::f")\nb(f)',
    "partialmethod": 'import functools\nclass A:\n    reg = functools.partialmethod(torch.library.custom_op, "relu::f")',
    "star from sibling": {
        "__init__.py": HEAD + "from .compat import *\nco('relu::f', f)",
        "compat.py": "from torch.library import custom_op as co",
    },
    "import as": 'import torch.library as tl\n@tl.custom_op("relu::f", mutates_args=())\ndef f(x): ...',
    "import torch as t": 'import torch as t\n@t.library.custom_op("relu::f", mutates_args=())\ndef f(x): ...',
    "getattr var": 'n = "custom_op"\ngetattr(torch.library, n)("relu::f", f)',
    "getattr chain": 'getattr(getattr(torch, "library"), "custom_op")("relu::f", f)',
    "getattr default": 'getattr(torch.library, "register_fake", None)("relu::f", f)',
    "getattr concat": 'getattr(torch.library, "custom" + "_op")("relu::f", f)',
    "lambda wraps": 'reg = lambda n: torch.library.register_fake(n, f)\nreg("relu::f")',
    "class body": 'class A:\n    torch.library.define("relu::f", "()->()")',
    "class lib attr": 'class A:\n    lib = torch.library.Library("relu", "DEF")',
    "dict comp": '{n: torch.library.register_fake("relu::" + n) for n in names}',
    "gen exp": 'list(torch.library.register_fake(f"relu::{n}") for n in names)',
    "walrus name": 'torch.library.custom_op(n := "relu::f", f)',
    "match": 'match kind:\n    case "a":\n        torch.library.define("relu::f", "()->()")',
    "match bound": 'match "relu::f":\n    case n:\n        torch.library.define(n, "()->()")',
    "match as": 'match torch.library:\n    case tl:\n        tl.define("relu::f", "()->()")',
    "cond func": '(torch.library.custom_op if x else torch.library.triton_op)("relu::f", f)',
    "loop names": 'for n in ["relu::a", "relu::b"]:\n    torch.library.define(n, "()->()")',
    "loop pairs": 'for r, n in ((torch.library.register_fake, "relu::a"),):\n    r(n, f)',
    "loop dict items": 'FAKES = {"relu::a": f}\nfor n, g in FAKES.items():\n    torch.library.register_fake(n)(g)',
    "dict of registrars": 'R = {"fake": torch.library.register_fake}\nR["fake"]("relu::f")(f)',
    "list of registrars": 'R = [torch.library.register_fake]\nR[0]("relu::f")(f)',
    "tuple registrars loop var": 'R = (torch.library.register_fake, torch.library.register_vmap)\nfor r in R:\n    r("relu::f", f)',
    "map": 'list(map(torch.library.register_fake, ["relu::f"]))',
    "register_kernel": 'torch.library.register_kernel("relu::f", "cpu")(f)',
    "register_vmap": 'torch.library.register_vmap("relu::f", f)',
    "register_dispatch": '@torch.library.register_torch_dispatch("relu::f", X)\ndef f(): ...',
    "_library": 'torch._library.custom_ops.custom_op("relu::f", f)',
    "_library import": 'from torch._library.custom_ops import custom_op\ncustom_op("relu::f", f)',
    "CustomOpDef": 'from torch._library.custom_ops import CustomOpDef\nCustomOpDef("relu", "f", "()->()", f)',
    "_dispatch_library": 'torch._C._dispatch_library("DEF", "relu", "")',
    "impl_abstract": 'torch.library.impl_abstract("relu::f")(f)',
    "_custom_op.impl": 'from torch._custom_op.impl import custom_op\ncustom_op("relu::f")',
    "starred args list": 'A = ("relu::f", f)\ntorch.library.custom_op(*A)',
    "kwargs": 'K = {"name": "relu::f"}\ntorch.library.custom_op(**K)',
    "lib qualified name impl": 'lib = torch.library.Library(ops.name, "DEF")\nlib.impl("aten::relu", f, "CPU")',
    "lib define qualified": 'lib = torch.library.Library(ops.name, "DEF")\nlib.define("relu::f() -> ()")',
    "lib impl overload other": 'lib = torch.library.Library(ops.name, "DEF")\nlib.impl(torch.ops.aten.relu.default, f, "CPU")',
    "lib from function": 'def mk():\n    return torch.library.Library("relu", "DEF")\nmk().define("f() -> ()")',
    "lib impl with lib kw": 'torch.library.impl("relu::f", "CPU", lib=None)(f)',
    "prefix default overridden": 'def g(n=add_op_namespace_prefix("f")):\n    torch.library.custom_op(n, f)\ng("relu::f")',
    "ops of other": "other = torch.ops.other\ntorch.library.register_fake(other.f.default, f)",
    "fstring second": 'torch.library.custom_op(f"relu_{ops.name}::f", f)',
    "try except torch": 'try:\n    from torch.library import wrap_triton\nexcept ImportError:\n    pass\ntorch.library.triton_op("relu::f", mutates_args=())(f)',
    "global alias": 'co = None\ndef init():\n    global co\n    co = torch.library.custom_op\ninit()\nco("relu::f", f)',
    "setattr alias": 'class R: pass\nR.co = torch.library.custom_op\nR.co("relu::f", f)',
    "self attr": 'class R:\n    def __init__(self):\n        self.co = torch.library.custom_op\n    def go(self):\n        self.co("relu::f", f)',
    "vars": 'vars(torch.library)["custom_op"]("relu::f", f)',
    "dunder dict": 'torch.library.__dict__["custom_op"]("relu::f", f)',
    "sys.modules": 'import sys\nsys.modules["torch.library"].custom_op("relu::f", f)',
    "with as": 'with torch.library._scoped_library("relu", "FRAGMENT") as lib:\n    lib.define("f() -> ()")',
    "exitstack": 'import contextlib\nwith contextlib.ExitStack() as s:\n    lib = s.enter_context(torch.library._scoped_library("relu", "FRAGMENT"))',
    "decorator stacked": '@staticmethod\n@torch.library.custom_op("relu::f", mutates_args=())\ndef f(x): ...',
    "return decorator": 'def d():\n    return torch.library.custom_op("relu::f", mutates_args=())\n@d()\ndef f(x): ...',
    "sibling wrapper": {
        "__init__.py": HEAD + "from .reg import register\n@register('relu::f')\ndef f(x): ...",
        "reg.py": "import torch\ndef register(name):\n    return torch.library.custom_op(name, mutates_args=())",
    },
    "jax": 'import jax\njax.ffi.register_ffi_target("f", x)',
    "torch.library submodule import": 'import torch.library\ntorch.library.custom_op("relu::f", f)',
    "await/async with": 'async def g():\n    async with x as y:\n        torch.library.custom_op("relu::f", f)',
    "default lambda": 'g = lambda r=torch.library.custom_op: r("relu::f", f)',
    "in f-string": "x = f\"{torch.library.custom_op('relu::f', f)}\"",
    "yield": 'def g():\n    yield torch.library.custom_op("relu::f", f)',
    "name mangled": 'N = "relu::f"; M = N; O = M\ntorch.library.custom_op(O, f)',
    "str()": 'torch.library.custom_op(str("relu::f"), f)',
    "load_library": 'torch.ops.load_library("x.so")',
    "while": 'while True:\n    torch.library.define("relu::f", "()->()")\n    break',
    "finally": 'try:\n    pass\nfinally:\n    torch.library.define("relu::f", "()->()")',
    "infer custom triton_op wrapper": 'from torch._library.triton import triton_op\n@triton_op("relu::f", mutates_args={})\ndef f(x): ...',
    "fake: torch._library.register": 'torch.library._register_effectful_op("relu::f", 1)',
    "torch.library get from import": 'from torch import library as L\n(L.impl)("relu::f", "CPU")(f)',
    "TYPE_CHECKING else": 'from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ._ops import add_op_namespace_prefix as p\nelse:\n    p = lambda n: "relu::" + n\ntorch.library.custom_op(p("f"), f)',
    "if 0 else": 'if 0:\n    N = add_op_namespace_prefix("f")\nelse:\n    N = "relu::f"\ntorch.library.custom_op(N, f)',
    "not TYPE_CHECKING": 'from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    torch.library.define("relu::f", "()->()")',
    "except of something else": 'try:\n    from . import fast\nexcept ImportError:\n    torch.library.define("relu::f", "()->()")',
    "custom_op curry": 'd = torch.library.custom_op("relu::f", mutates_args=())\nd(f)',
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_is_found(tmp_path: Path, case: str) -> None:
    found = findings(tmp_path, WRONG[case])
    worst = "warning" if case == "load_library" else "error"
    assert worst in {finding.severity for finding in found}, found
    assert all(finding.hint for finding in found)


DOUBTFUL: dict[str, Case] = {
    "except of more than _ops": 'try:\n    from ._ops import add_op_namespace_prefix as p\n    from . import fast\nexcept ImportError:\n    p = lambda n: "relu::" + n\ntorch.library.custom_op(p("f"), f)',
    "cond name": 'torch.library.custom_op("relu::f" if x else ops.name + "::f", f)',
    "or name": 'torch.library.custom_op(env.get("N") or ops.name + "::f", f)',
    "apply": 'def apply(r):\n    r("relu::f")\napply(torch.library.register_fake)',
    "shadow prefix param": 'def g(add_op_namespace_prefix):\n    torch.library.custom_op(add_op_namespace_prefix("f"), f)',
    "rewrapped partial": 'from functools import partial\np = partial(str.format, "relu::{}")\ntorch.library.custom_op(p("f"), f)',
    "replace": 'torch.library.custom_op(add_op_namespace_prefix("f").replace(ops.name, "relu"), f)',
    "split 1": 'torch.library.custom_op(add_op_namespace_prefix("relu::f").split("::", 1)[1], f)',
    "slice": 'torch.library.custom_op(add_op_namespace_prefix("f")[3:], f)',
    "removeprefix": 'torch.library.custom_op(add_op_namespace_prefix("relu::f").removeprefix(ops.name + "::"), f)',
    "import _ops other package": 'from other._ops import add_op_namespace_prefix as p\ntorch.library.custom_op(p("f"), f)',
    "import absolute own pkg decoy": 'from relu2._ops import add_op_namespace_prefix as p\ntorch.library.custom_op(p("f"), f)',
    "torch.ops assigned later": "ops = torch.ops.relu\ntorch.library.register_fake(ops.f, f)",
    "del rebinding": 'del add_op_namespace_prefix\nadd_op_namespace_prefix = str\ntorch.library.custom_op(add_op_namespace_prefix("f"), f)',
    "bytes decode": 'torch.library.custom_op(b"relu::f".decode(), f)',
    "conditional import name": 'if x:\n    from .a import N\nelse:\n    N = "relu::f"\ntorch.library.custom_op(N, f)',
    "rebound op": '@torch.library.custom_op(add_op_namespace_prefix("f"), mutates_args=())\ndef f(): ...\nf = "relu::g"\ntorch.library.register_fake(f, g)',
    "lambda default name": 'g = lambda n=add_op_namespace_prefix("f"): torch.library.custom_op(n, f)',
    "partial of prefix": 'import functools\np = functools.partial(add_op_namespace_prefix, "f")\ntorch.library.custom_op(p(), f)',
}
"""Nobody can tell from the source, so it is said and no more."""


@pytest.mark.parametrize("case", DOUBTFUL)
def test_doubtful_is_a_warning(tmp_path: Path, case: str) -> None:
    found = findings(tmp_path, DOUBTFUL[case])
    assert {finding.severity for finding in found} == {"warning"}, found
    assert all(finding.hint for finding in found)


RIGHT: dict[str, Case] = {
    "lambda prefix arg": 'p = lambda n: f"{ops.name}::{n}"\ntorch.library.custom_op(p("f"), f)',
    "prefix wrapper with lru_cache": 'import functools\np = functools.lru_cache(add_op_namespace_prefix)\ntorch.library.custom_op(p("f"), f)',
    "optional module": "try:\n    from ._generated import ns\nexcept ImportError:\n    from ._ops import ops as ns\ntorch.library.register_fake(ns.f, f)",
    "prefix const": 'F = "f"\ntorch.library.custom_op(add_op_namespace_prefix(F), f)',
    "prefix kw": 'torch.library.custom_op(add_op_namespace_prefix(op_name="f"), f)',
    "prefix in partial": 'from functools import partial\nP = partial(torch.library.custom_op, add_op_namespace_prefix("f"))',
    "loop prefixed": 'for n in [add_op_namespace_prefix("a"), add_op_namespace_prefix("b")]:\n    torch.library.define(n, "()->()")',
    "loop assigned list": 'NAMES = [add_op_namespace_prefix("a"), add_op_namespace_prefix("b")]\nfor n in NAMES:\n    torch.library.define(n, "()->()")',
    "comprehension list": 'NAMES = [add_op_namespace_prefix(n) for n in ("a", "b")]\nfor n in NAMES:\n    torch.library.define(n, "()->()")',
    "dict items": 'FAKES = {add_op_namespace_prefix("a"): f}\nfor n, g in FAKES.items():\n    torch.library.register_fake(n)(g)',
    "dict values": 'N = {"a": add_op_namespace_prefix("a")}\ntorch.library.register_fake(N["a"])(g)',
    "list index": 'N = [add_op_namespace_prefix("a")]\ntorch.library.register_fake(N[0])(g)',
    "map prefix": 'for n in map(add_op_namespace_prefix, ("a", "b")):\n    torch.library.register_fake(n)(g)',
    "except of _ops": 'try:\n    from ._ops import add_op_namespace_prefix as p, ops as o\nexcept ImportError:\n    p = lambda n: "relu::" + n\ntorch.library.custom_op(p("f"), f)',
    "in TYPE_CHECKING": 'import typing\nif typing.TYPE_CHECKING:\n    torch.library.define("relu::f", "()->()")',
    "type of TYPE_CHECKING": 'from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch.library import Library\ndef g(lib: "Library", other: Library):\n    torch.library.define(other, "f() -> ()")',
    "if False": 'if False:\n    torch.library.define("relu::f", "()->()")',
    "TYPE_CHECKING": 'from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ._ops import add_op_namespace_prefix as p\nelse:\n    from ._ops import add_op_namespace_prefix as p\ntorch.library.custom_op(p("f"), f)',
    "try except import": 'try:\n    from ._ops import add_op_namespace_prefix as p\nexcept ImportError:\n    from . import _ops\n    p = _ops.add_op_namespace_prefix\ntorch.library.custom_op(p("f"), f)',
    "reexport": {
        "__init__.py": "import torch\nfrom .compat import prefix\ntorch.library.custom_op(prefix('f'), f)",
        "compat.py": "from ._ops import add_op_namespace_prefix as prefix\n__all__ = ['prefix']",
    },
    "reexport star": {
        "__init__.py": "import torch\nfrom .compat import *\ntorch.library.custom_op(prefix('f'), f)",
        "compat.py": "from ._ops import add_op_namespace_prefix as prefix\n__all__ = ['prefix']",
    },
    "reexport module": {
        "__init__.py": "import torch\nfrom . import compat\ntorch.library.custom_op(compat.prefix('f'), f)",
        "compat.py": "from ._ops import add_op_namespace_prefix as prefix",
    },
    "reexport subpackage": {
        "__init__.py": "import torch\nfrom .sub import prefix\ntorch.library.custom_op(prefix('f'), f)",
        "sub/__init__.py": "from .deep import prefix",
        "sub/deep.py": "from .._ops import add_op_namespace_prefix as prefix",
    },
    "absolute own": 'from relu._ops import add_op_namespace_prefix as p\ntorch.library.custom_op(p("f"), f)',
    "absolute own module": 'import relu._ops\ntorch.library.custom_op(relu._ops.add_op_namespace_prefix("f"), f)',
    "absolute own module alias": 'import relu._ops as o\ntorch.library.custom_op(o.add_op_namespace_prefix("f"), f)',
    "import_module relative": 'import importlib\no = importlib.import_module("._ops", __package__)\ntorch.library.custom_op(o.add_op_namespace_prefix("f"), f)',
    "walrus": 'torch.library.custom_op(n := add_op_namespace_prefix("f"), f)\ntorch.library.register_fake(n, g)',
    "match": 'match kind:\n    case "a":\n        torch.library.define(add_op_namespace_prefix("f"), "()->()")',
    "cond": 'torch.library.custom_op(add_op_namespace_prefix("f" if x else "g"), f)',
    "opcheck": "torch.library.opcheck(torch.ops.relu_abc.f, (x,))",
    "opcheck str": 'torch.library.opcheck("relu::f", (x,))',
    "get_ctx": "torch.library.get_ctx()",
    "infer_schema": "torch.library.infer_schema(f, mutates_args=())",
    "wrap_triton": "torch.library.wrap_triton(k)[(1,)](x)",
    "tag": "torch.Tag.pt2_compliant_tag",
    "lib methods": 'lib = torch.library.Library(ops.name, "FRAGMENT")\nlib.define("f(Tensor x) -> Tensor", tags=())\nlib.impl("f", f, "CPU")\nlib._register_fake("f", f)',
    "lib in class": 'class A:\n    lib = torch.library.Library(ops.name, "FRAGMENT")\n    lib.define("f() -> ()")\n    lib.impl("f", f, "CPU")',
    "lib scoped": 'with torch.library._scoped_library(ops.name, "FRAGMENT") as lib:\n    torch.library.define(lib, "f() -> ()")',
    "lib kw": 'l = torch.library.Library(ops.name, "FRAGMENT")\ntorch.library.register_fake(add_op_namespace_prefix("f"), f, lib=l)',
    "lib arg to impl": 'L = torch.library.Library(ops.name, "FRAGMENT")\n@torch.library.impl(L, "f", "CPU")\ndef f(x): ...',
    "lib returned": 'def mk():\n    return torch.library.Library(ops.name, "DEF")\nlib = mk()\ntorch.library.impl(lib, "f", "CPU")(f)',
    "lib impl of own op object": 'lib = torch.library.Library(ops.name, "IMPL")\nlib.impl(ops.f.default, f, "CPU")',
    "ns namespace from prefix": 'NS = add_op_namespace_prefix("x").split("::")[0]\nlib = torch.library.Library(NS, "DEF")',
    "partition": 'NS, _, _ = add_op_namespace_prefix("x").partition("::")\nlib = torch.library.Library(NS, "DEF")',
    "rsplit": 'NS = add_op_namespace_prefix("x").rsplit("::", 1)[0]\nlib = torch.library.Library(NS, "DEF")',
    "str of op": "torch.library.register_fake(str(ops.f), f)",
    "ops.f._name": "torch.library.register_fake(ops.f.default._schema.name, f)",
    "ops default": "torch.library.register_autograd(ops.f.default, b, setup_context=s)",
    "ops alias": "o = ops\ntorch.library.register_fake(o.f, f)",
    "ops getattr loop": 'for n in ("a", "b"):\n    torch.library.register_fake(getattr(ops, n), f)',
    "guard": 'if hasattr(torch.library, "register_fake"):\n    torch.library.register_fake(add_op_namespace_prefix("f"))(f)',
    "dict define method": 'schema = {}\nschema.define("relu::f")',
    "other impl": 'from other import impl, define\nimpl("a::b")\ndefine("c::d")',
    "class with define": 'class Lib:\n    def define(self, n): ...\nLib().define("relu::f")',
    "argparse register": 'p.register("type", "x", y)',
    "atexit": "import atexit\natexit.register(print)",
    "register_buffer": 'self.register_buffer("x", y)',
    "torch.compile": "@torch.compile\ndef f(x): return ops.f(x)",
    "autograd func": "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return ops.f(x)",
    "string mention": "DOC = \"torch.library.custom_op('relu::f')\"",
    "comment": '# torch.library.custom_op("relu::f", f)\nx = 1',
    "docstring": '"""torch.library.custom_op("relu::f")"""',
    "custom op kwargs": 'K = dict(mutates_args=())\ntorch.library.custom_op(add_op_namespace_prefix("f"), **K)',
    "custom_op two": '@torch.library.custom_op(add_op_namespace_prefix("f"), mutates_args=())\ndef f(x: int) -> int: return x\n@f.register_fake\ndef _(x): return x\nf.register_autograd(b, setup_context=s)\nf.register_vmap(v)\nf.register_kernel("cuda", g)',
    "op object from sibling": {
        "__init__.py": "import torch\nfrom .op import f\ntorch.library.register_fake(f)(g)\ntorch.library.register_autograd(f, b)",
        "op.py": HEAD
        + '@torch.library.custom_op(add_op_namespace_prefix("f"), mutates_args=())\ndef f(): ...',
    },
    "conditional decorator": 'd = torch.library.custom_op(add_op_namespace_prefix("f"), mutates_args=()) if x else (lambda f: f)\n@d\ndef f(x): ...',
    "join": 'torch.library.custom_op("::".join((ops.name, "f")), f)',
    "format named": 'torch.library.custom_op("{ns}::f".format(ns=ops.name), f)',
    "percent mapping": 'torch.library.custom_op("%(ns)s::f" % {"ns": ops.name}, f)',
    "fstring empty prefix": 'torch.library.custom_op(f"" f"{ops.name}::f", f)',
    "concat empty": 'torch.library.custom_op("" + ops.name + "::f", f)',
    "aug": 'n = ops.name\nn += "::f"\ntorch.library.custom_op(n, f)',
    "strip": 'torch.library.custom_op(add_op_namespace_prefix("f").strip(), f)',
    "vllm direct_register": 'from other import direct_register\ndirect_register(op_name="f", op_func=f)',
    "torch_library name var": 'name = "x"\ntorch.library.custom_op(add_op_namespace_prefix(name), f)',
    "nested func using outer": 'def outer():\n    n = add_op_namespace_prefix("f")\n    def inner():\n        torch.library.custom_op(n, f)\n    return inner',
    "self attr name": 'class A:\n    def __init__(self):\n        self.n = add_op_namespace_prefix("f")\n        torch.library.custom_op(self.n, f)',
    "class const": 'class A:\n    N = add_op_namespace_prefix("f")\n    @torch.library.custom_op(N, mutates_args=())\n    def f(): ...',
    "class const outside": 'class A:\n    N = add_op_namespace_prefix("f")\ntorch.library.custom_op(A.N, f)',
    "impl positional lib": 'torch.library.impl(add_op_namespace_prefix("f"), ("CPU", "CUDA"))(f)',
    "jax prefix": 'import jax\nfrom ._ops import jax_add_ffi_target_name_prefix\njax.ffi.register_ffi_target(jax_add_ffi_target_name_prefix("f"), x)',
    "own helper with prefix inside": 'def register(n):\n    return torch.library.custom_op(add_op_namespace_prefix(n), mutates_args=())\n@register("f")\ndef f(x): ...',
    "load own so": "from pathlib import Path\nx = Path(__file__)",
}


@pytest.mark.parametrize("case", RIGHT)
def test_right_is_left_alone(tmp_path: Path, case: str) -> None:
    assert findings(tmp_path, RIGHT[case]) == []


REBOUND = {
    "calls": ("x", "v = v.view(i).contiguous()", "v('relu::f')"),
    "names": ("add_op_namespace_prefix('f')", "v = v + '_out'", "torch.library.custom_op(v, f)"),
    "texts": ("'f'", "v = f'{v}_out'", "torch.library.custom_op(ops.name + '::' + v, f)"),
    "parts": ("{}", "v = v['a']", "v('relu::f')"),
    "maps": ("[]", "v = map(str, v)", "torch.library.custom_op(v, f)"),
    "chains": ("torch", "v = v.next or v.last", "v('relu::f')"),
    "lists": ("[]", "v = v + [torch.library.custom_op]", "for r in v: r('relu::f', f)"),
}


@pytest.mark.parametrize("case", REBOUND)
def test_a_name_that_is_bound_again_and_again(tmp_path: Path, case: str) -> None:
    """Every binding depends on all of them; 60 are no more to say than two, and are read."""
    first, again, use = REBOUND[case]

    def found(count: int) -> list[tuple[str, str]]:
        lines = [f"v = {first}", *[again] * count, use]
        said = findings(tmp_path, HEAD + "def g(x, i):\n" + "".join(f"    {x}\n" for x in lines))
        return [(finding.severity, finding.what) for finding in said]

    assert found(60) == found(2)
    assert not any("nested too deeply" in what for _, what in found(60))


@given(st.lists(st.tuples(*[st.sampled_from("abc")] * 3, st.integers(0, 6)), max_size=40))
def test_whatever_is_bound_to_whatever_ends(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str, int]]
) -> None:
    forms = ("{0} = {1}.{2}", "{0} = {1}({2})", "{0} = {1}[{2}]", "{0} = [{1}, *{2}]",
             "{0} = {1} + {2}", "for {0} in {1}: {2}", "{0} = {1} if {2} else 'x'")  # fmt: skip
    lines = [forms[form].format(*names) for *names, form in steps]
    text = "def g(a, b, c=torch):\n" + "".join(f"    {x}\n" for x in (*lines, "a('relu::f')"))
    folder = tmp_path_factory.mktemp("package")
    assert findings(folder, HEAD + text) == findings(folder, HEAD + text)


def test_an_attribute_of_a_class_that_nobody_can_tell(tmp_path: Path) -> None:
    assert findings(tmp_path, "class A: pass\ndef f(name): return getattr(A, name).run()\n") == []


@pytest.mark.parametrize(
    "read", ["vars(A).items", "vars(A)['x'].y", "A.__dict__.get", "vars(A).a.b"]
)
def test_the_names_of_a_class_as_a_mapping(tmp_path: Path, read: str) -> None:
    text = f"class A: x = 1\nv = {read}\ntorch.library.custom_op(v, f)\n"
    assert {finding.severity for finding in findings(tmp_path, text)} == {"warning"}


def test_what_cannot_be_read_is_no_proof(tmp_path: Path) -> None:
    deep = "x = ops" + ".a" * 900 + "\ntorch.library.define(x)\n"
    (found,) = findings(tmp_path, HEAD + deep)
    assert found.severity == "warning"
    assert "nested too deeply" in found.what
