"""Imports and ops of a package's modules, rewritten for a kernel."""

from __future__ import annotations

import pytest

from kbuild.plugins.migrate.python import ForeignNames, rewrite_module

NAMES = ForeignNames("demo", {"demo._C", "demo_cuda"}, {"demo"})


@pytest.mark.parametrize(
    ("before", "depth", "after"),
    [
        ("import demo_cuda\n", 0, "from ._ops import ops as demo_cuda\n"),
        ("import os, demo_cuda as c\n", 0, "import os\nfrom ._ops import ops as c\n"),
        ("from demo import _C\n", 1, "from .._ops import ops as _C\n"),
        ("from . import _C, util\n", 0, "from ._ops import ops as _C\nfrom . import util\n"),
        ("from ._C import f as g\n", 0, "from ._ops import ops\ng = ops.f\n"),
        ("from demo.sub import a as b, c\n", 0, "from .sub import a as b, c\n"),
        ("from demo import a\n", 2, "from ... import a\n"),
        ("import demo.sub as s\n", 0, "from . import sub as s\n"),
        ("try:\n    import demo_cuda\nexcept ImportError:\n    pass\n", 0,
         "try:\n    from ._ops import ops as demo_cuda\nexcept ImportError:\n    pass\n"),
        ('"""Text."""\nimport torch\ny = torch.ops.demo.f(1)\n', 0,
         '"""Text."""\nfrom ._ops import ops\nimport torch\ny = ops.f(1)\n'),
        ('x = "é"; f("demo::g")\n', 0,
         'from ._ops import add_op_namespace_prefix\nx = "é"; f(add_op_namespace_prefix("g"))\n'),
        ("p = 1\nfor n in p:\n    q = n\n    torch.ops.load_library(q)\nx = 1\n", 0,
         "p = 1\nfrom ._ops import ops  # noqa: F401 - loads the library\nx = 1\n"),
        ("a = 1\n\x0cimport demo_cuda\n", 0, "a = 1\n\x0cfrom ._ops import ops as demo_cuda\n"),
        ("from demolition import x\nimport torch\n", 0, "from demolition import x\nimport torch\n"),
    ],
)  # fmt: skip
def test_rewriting(before, depth, after):
    assert rewrite_module(before, depth, NAMES) == (after, ())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import demo\n", "import kern as demo\n"),
        ("import demo as d\n", "import kern as d\n"),
        ("import demo.sub\n", "import kern.sub; import kern as demo\n"),
        ("import demo.sub.x as x\n", "from kern.sub import x as x\n"),
        ("from demo import _C, f\n", "from kern._ops import ops as _C\nfrom kern import f\n"),
        ("from demo.sub import f\n", "from kern.sub import f\n"),
        ("import demo_cuda\n", "from kern._ops import ops as demo_cuda\n"),
        ("y = torch.ops.demo.f(1)\n", "from kern._ops import ops\ny = ops.f(1)\n"),
    ],
)
def test_tests_import_the_kernel_by_its_name(before, after):
    assert rewrite_module(before, 0, NAMES, "kern") == (after, ())


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("import demo.sub\n", "1: `import demo.sub` of the kernel's own module"),
        ("\nimport demo._C\n", "2: `import demo._C`: use `ops` of `._ops`"),
        (
            "def f(p):\n    torch.ops.load_library(p)\n",
            "2: `load_library`: importing `_ops` loads the",
        ),
        (
            "p = 1\nif 1:\n    q = 2\n    torch.ops.load_library(p)\nprint(q)\n",
            "4: `load_library`: im",
        ),
        ("print 1\n", "1: is not Python"),
    ],
)
def test_what_is_left_has_its_line(text, note):
    rewritten, notes = rewrite_module(text, 0, NAMES)
    assert rewritten == text
    assert len(notes) == 1
    assert notes[0].startswith(note)
