"""What a package offers, read off its source, and which changes break its callers."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbuild.public_api.compare import ApiChange, compare_apis
from kbuild.public_api.model import (
    FunctionParameter,
    ParameterKind,
    PublicApi,
    PublicApiError,
    PublicClass,
    PublicFunction,
    parameters_of,
)
from kbuild.public_api.read import find_package, read_public_api

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def package(tmp_path):
    """Writes a package, file by file, and reads it."""

    def read(init: str, **files: str) -> PublicApi:
        folder = tmp_path / "demo"
        for name, text in {"__init__": init, **files}.items():
            file = folder / f"{name.replace('__in__', '/')}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return read_public_api(folder)

    return read


def signatures(surface: PublicApi) -> list[str]:
    return [function.signature for function in surface.functions]


def functions(source: str) -> PublicApi:
    """A surface of the functions in a source."""
    found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return PublicApi(functions=tuple(PublicFunction(n.name, parameters_of(n.args)) for n in found))


class TestNames:
    @pytest.mark.parametrize(
        "init",
        [
            '__all__ = ["relu", "gelu", "silu"]',
            '__all__ = ("relu", "gelu", "silu")',
            '__all__: list[str] = ["relu", "gelu", "silu"]',
            '__all__ = ["relu"]\n__all__ += ["gelu", "silu"]',
            '__all__ = ["relu"] + ["gelu"]\n__all__ += ("silu", "relu")',
            '__all__ = ["relu"]\n__all__.append("gelu")\n__all__.extend(["silu"])',
            '__all__ = ["relu", "gelu"]\n__all__ = [*__all__, "silu"]',
            '__all__ = ["old", "relu", "gelu", "silu"]\n__all__.remove("old")',
            '__all__ = ["relu"]\nif True:\n    __all__ += ["gelu"]\nelse:\n    __all__ += ["silu"]',
            '__all__ = ["relu"]\ntry:\n    __all__ += ["gelu"]\nfinally:\n    __all__ += ["silu"]',
            'from . import acts\n__all__ = ["relu"] + acts.__all__',
            'from . import acts\n__all__ = list(("relu", *acts.__all__))',
            'from .acts import __all__ as others\n__all__ = ["relu"] + others',
        ],
    )
    def test_every_way_to_write_all(self, package, init):
        surface = package(init, acts='__all__ = ["gelu", "silu"]\ndef gelu(): ...')
        assert [f.name for f in surface.functions] == ["relu", "gelu", "silu"]

    def test_names_that_are_found_nowhere_are_kept(self, package):
        surface = package('__all__ = ["relu", "gelu"]\ndef relu(x): ...')
        assert surface.functions[1] == PublicFunction("gelu", None)
        assert signatures(surface) == ["relu(x)", "gelu(...)"]

    def test_without_all_the_packages_own_names_count(self, package):
        surface = package(
            "import torch\nfrom typing import Any\nfrom .a import relu, _b\nfrom .c import *\n"
            "LIMIT = 3\ndef gelu(x): ...\ndef _hidden(): ...\nclass Act: ...",
            a="def relu(x): ...\ndef _b(): ...",
            c="import os\ndef silu(x): ...\ndef _no(): ...",
        )
        assert signatures(surface) == ["relu(x)", "gelu(x)", "silu(x)"]
        assert [found.name for found in surface.classes] == ["Act"]

    def test_modules_values_and_ops_are_neither(self, package):
        surface = package(
            'from . import acts\nfrom ._ops import ops\n__version__ = "1"\nLIMIT = -1\n'
            '__all__ = ["acts", "ops", "LIMIT", "__version__"]',
            acts="",
        )
        assert surface.others == ("acts", "ops", "LIMIT", "__version__")
        assert surface.functions == ()
        assert surface.names == surface.others


class TestFollowing:
    @pytest.mark.parametrize(
        "init",
        [
            "from ._impl import relu",
            "from ._impl import _relu as relu",
            "from ._again import relu",
            "from ._impl import *",
            "from . import _impl\nrelu = _impl.relu",
            "import demo._impl\nfrom demo._impl import relu",
            "from ._impl import relu as _r\nrelu = _r",
            "try:\n    from ._impl import relu\nexcept ImportError:\n    relu = None",
            "from ._impl import relu\nrelu = relu",
        ],
    )
    def test_re_exports(self, package, init):
        impl = "def relu(x, *, inplace: bool = False): ...\n_relu = relu"
        surface = package(
            f'{init}\n__all__ = ["relu"]', _impl=impl, _again="from ._impl import relu"
        )
        assert signatures(surface) == ["relu(x, *, inplace: bool = False)"]

    def test_out_of_a_folder_and_back(self, package):
        surface = package(
            'from .deep import relu\n__all__ = ["relu"]',
            deep__in____init__="from .inner import relu",
            deep__in__inner="from .._impl import relu",
            _impl="def relu(x): ...",
        )
        assert signatures(surface) == ["relu(x)"]

    def test_a_name_too_long_for_a_file(self, package):
        surface = package(f'from . import {"a" * 300} as relu\n__all__ = ["relu"]')
        assert [function.parameters for function in surface.functions] == [None]

    def test_circles_end(self, package):
        surface = package(
            'from .a import relu\n__all__ = ["relu"]',
            a="from .b import relu",
            b="from .a import relu",
        )
        assert signatures(surface) == ["relu(...)"]

    def test_the_module_that_is_not_asked_for_may_be_broken(self, package):
        surface = package('__all__ = ["f"]\ndef f(): ...', other="def (")
        assert signatures(surface) == ["f()"]

    def test_the_applied_autograd_function(self, package):
        old = "class F(Function):\n    @staticmethod\n    def forward(ctx, x, y=1): ...\n"
        new = (
            old.replace("ctx, ", "") + "    @staticmethod\n    def setup_context(ctx, i, o): ...\n"
        )
        init = '{}f = F.apply\n__all__ = ["f"]'
        assert signatures(package(init.format(old))) == ["f(x, y=1)"]
        assert signatures(package(init.format(new))) == ["f(x, y=1)"]

    def test_ops_have_no_signature_in_python(self, package):
        surface = package('from ._ops import ops\nrelu = ops.relu\n__all__ = ["relu"]')
        assert surface.functions == (PublicFunction("relu", None),)


class TestSignatures:
    def test_all_kinds(self, package):
        text = "f(a, /, b: Tensor, c: 'int | None' = None, *rest, d=1, **more) -> Tensor"
        surface = package(f"def {text}:\n    '''Do it\n    well.\n\n    Long.\n    '''")
        (function,) = surface.functions
        assert function.signature == text.replace("'", "")
        kinds = [parameter.kind for parameter in function.parameters or ()]
        assert [*ParameterKind] == list(dict.fromkeys(kinds))
        assert function.summary == "Do it well."
        assert function.doc == "Do it\nwell.\n\nLong."

    def test_overloads_give_way_to_what_runs(self, package):
        surface = package(
            "from typing import overload\n@overload\ndef f(x: int) -> int: ...\n"
            "@overload\ndef f(x: str) -> str: ...\ndef f(x): ..."
        )
        assert signatures(surface) == ["f(x)"]

    def test_lambdas(self, package):
        assert signatures(package("f = lambda x, y=2: x\n__all__ = ['f']")) == ["f(x, y=2)"]


class TestClasses:
    def test_constructor_methods_and_attributes(self, package):
        surface = package(
            "class Act:\n    '''An act.'''\n    limit: int = 3\n    _hidden = 1\n"
            "    def __init__(self, size: int, *, bias=True): ...\n"
            "    def __call__(self, x): ...\n    def _no(self): ...\n"
            "    @classmethod\n    def make(cls, x): ...\n"
            "    @staticmethod\n    def add(a, b): ...\n"
            "    @property\n    def size(self): ...\n    @size.setter\n    def size(self, v): ...\n"
        )
        (act,) = surface.classes
        assert act.signature == "Act(size: int, *, bias=True)"
        assert [m.signature for m in act.methods] == ["__call__(x)", "make(x)", "add(a, b)"]
        assert act.attributes == {"limit": "3", "size": ""}
        assert act.summary == "An act."

    def test_bases_inside_the_package_add_theirs(self, package):
        surface = package(
            "from ._base import Base\nclass Act(Base):\n    def run(self, x, y): ...\n"
            "__all__ = ['Act']",
            _base="class Base:\n    def __init__(self, a): ...\n    def run(self, x): ...\n"
            "    def stop(self): ...",
        )
        (act,) = surface.classes
        assert act.signature == "Act(a)"
        assert {m.signature for m in act.methods} == {"run(x, y)", "stop()"}

    def test_an_outer_base_keeps_its_constructor_to_itself(self, package):
        surface = package("from torch import nn\nclass A(nn.Module): ...\nclass B: ...")
        assert [found.signature for found in surface.classes] == ["A", "B()"]

    def test_records(self, package):
        surface = package(
            "from dataclasses import dataclass\nfrom typing import ClassVar\n"
            "@dataclass(frozen=True)\nclass Config:\n    size: int\n    all: ClassVar[int] = 0\n"
            "    bias: bool = True\n"
        )
        assert surface.classes[0].signature == "Config(size: int, bias: bool = True)"


class TestLayers:
    LAYER = "class ReLU(nn.Module):\n    has_backward = False\n    def forward(self, x): ...\n"

    @pytest.mark.parametrize(
        "files",
        [
            {"layers": LAYER + "class _Hidden: ...\ndef f(): ..."},
            {"layers__in____init__": LAYER},
            {
                "layers__in____init__": 'from .act import ReLU\n__all__ = ["ReLU"]',
                "layers__in__act": LAYER,
            },
        ],
    )
    def test_their_classes_are_read(self, package, files):
        surface = package('from . import layers\n__all__ = ["layers"]', **files)
        (layer,) = surface.layers
        assert layer.name == "ReLU"
        assert [m.signature for m in layer.methods] == ["forward(x)"]
        assert layer.attributes == {"has_backward": "False"}

    def test_a_layer_from_elsewhere_is_kept(self, package):
        init = 'from . import layers\n__all__ = ["layers"]'
        surface = package(init, layers='from torch.nn import ReLU\n__all__ = ["ReLU"]')
        assert surface.layers == (PublicClass("ReLU"),)

    def test_they_count_only_when_public(self, package):
        assert package('__all__ = ["relu"]', layers=self.LAYER).layers == ()


class TestFolders:
    def test_the_old_layout(self, tmp_path):
        inner = tmp_path / "torch211-cu130" / "relu"
        inner.mkdir(parents=True)
        (inner / "__init__.py").write_text("def relu(x): ...")
        assert signatures(read_public_api(inner.parent)) == ["relu(x)"]

    def test_no_package(self, tmp_path):
        with pytest.raises(PublicApiError, match=r"no `__init__\.py`"):
            read_public_api(tmp_path)

    def test_what_does_not_parse_has_a_line(self, package):
        with pytest.raises(PublicApiError, match=r"__init__\.py:2: does not parse"):
            package("x = 1\ndef f(:")

    @pytest.mark.parametrize("name", ["relu", "relu-noarch", "relu-stable-abi"])
    def test_the_examples(self, name):
        folder = find_package(EXAMPLES / name, name.replace("-", "_"))
        assert folder is not None
        surface = read_public_api(folder)
        assert surface.functions[0].signature.startswith("relu(x: torch.Tensor")
        assert surface.layers[0].methods[0].signature == "forward(x: torch.Tensor) -> torch.Tensor"
        assert surface.others == ("layers",)
        assert not compare_apis(surface, surface)


BREAKING = [
    ("def f(x, y=1): ...", "def f(x): ...", "`y` is gone"),
    ("def f(x): ...", "def f(y): ...", "`x` is now called `y`"),
    ("def f(x, y=1): ...", "def f(x, y): ...", "`y` must be given now"),
    ("def f(x, y): ...", "def f(y, x): ...", "`x` was number 1, is number 2"),
    ("def f(x): ...", "def f(x, y): ...", "takes a new `y`, which must be given"),
    ("def f(x): ...", "def f(*, x): ...", "`x` can no longer be given by position"),
    ("def f(x): ...", "def f(x, /): ...", "`x` can no longer be given by name"),
    ("def f(x, *, y=1): ...", "def f(x): ...", "`y` is gone"),
    ("def f(x, *a): ...", "def f(x): ...", "`*a` is gone"),
    ("def f(x, **k): ...", "def f(x): ...", "`**k` is gone"),
    ("def f(x, *a): ...", "def f(x, y=1, *a): ...", "takes a new `y=1`, before the star"),
    (
        "def f(x, /, **k): ...",
        "def f(x, **k): ...",
        "`x` now takes what another parameter took before",
    ),
    (
        "def f(*a, x): ...",
        "def f(x, *a): ...",
        "`x` now takes what another parameter took before",
    ),
    ("def f(x): ...\ndef g(x): ...", "def g(x): ...", "is gone"),
]
HARMLESS = [
    ("def f(x): ...", "def f(x, y=1): ...", "takes a new `y=1`"),
    ("def f(x): ...", "def f(x, *, y=1): ...", "takes a new `y=1`"),
    ("def f(x: int): ...", "def f(x: float): ...", "is now `f(x: float)`"),
    ("def f(x, /): ...", "def f(y, /): ...", "`x` is now called `y`"),
    ("def f(x, /): ...", "def f(x): ...", "is now `f(x)`"),
    ("def f(x, y=1): ...", "def f(x, y=2): ...", "the default of `y` was `1`, is `2`"),
    ("def f(x): ...", "def f(x=1): ...", "`x` need not be given any more: `1`"),
    ("def f(*, x): ...", "def f(x): ...", "is now `f(x)`"),
    ("def f(x, y=1): ...", "def f(x, *a, **k): ...", "`y` is taken in by a starred parameter"),
    ("", "def f(x): ...", "is new"),
]


class TestComparison:
    @pytest.mark.parametrize(("old", "new", "words"), BREAKING)
    def test_what_breaks(self, old, new, words):
        found = compare_apis(functions(old), functions(new))
        assert words in {change.words for change in found if change.breaking}

    @pytest.mark.parametrize(("old", "new", "words"), HARMLESS)
    def test_what_does_not(self, old, new, words):
        found = compare_apis(functions(old), functions(new))
        assert words in {change.words for change in found}
        assert not [change for change in found if change.breaking]

    def test_breaking_changes_come_first(self):
        found = compare_apis(
            functions("def a(x): ...\ndef b(x): ..."), functions("def a(x, y=1): ...")
        )
        assert [change.name for change in found] == ["b", "a"]
        assert str(found[0]) == "`b` is gone"
        assert str(found[1]) == "`a`: takes a new `y=1`"
        assert found[0].to_json()["breaking"] is True

    def test_unknown_signatures_are_not_held_against_anyone(self):
        known, unknown = (
            functions("def f(x): ..."),
            PublicApi(functions=(PublicFunction("f", None),)),
        )
        (lost,) = compare_apis(known, unknown)
        (gained,) = compare_apis(unknown, known)
        assert not lost.breaking
        assert not gained.breaking
        assert compare_apis(unknown, unknown) == ()
        (other,) = compare_apis(unknown, PublicApi(others=("f",)))
        assert not other.breaking

    def test_a_class_in_the_place_of_a_function(self):
        (change,) = compare_apis(functions("def f(x): ..."), PublicApi(classes=(PublicClass("f"),)))
        assert change == ApiChange(
            "changed", "f", breaking=True, words="was a function, is a class"
        )

    @pytest.mark.parametrize(
        ("old", "new", "name", "breaking"),
        [
            ("def forward(self, x): ...", "pass", "layers.A.forward", True),
            ("def forward(self, x): ...", "def forward(self, y): ...", "layers.A.forward", True),
            ("limit = 1", "pass", "layers.A.limit", True),
            ("limit = 1", "limit = 2", "layers.A.limit", False),
            ("can_torch_compile = True", "pass", "layers.A.can_torch_compile", True),
            ("pass", "can_torch_compile = True", "layers.A.can_torch_compile", False),
            ("pass", "has_backward = False", "layers.A.has_backward", True),
            ("has_backward = False", "pass", "layers.A.has_backward", False),
            ("def __init__(self, a): ...", "def __init__(self, b): ...", "layers.A", True),
        ],
    )
    def test_layers(self, package, old, new, name, breaking):
        init = 'from . import layers\n__all__ = ["layers"]'
        before = package(init, layers=f"class A(B):\n    {old}\n")
        (change,) = compare_apis(before, package(init, layers=f"class A(B):\n    {new}\n"))
        assert (change.name, change.breaking) == (name, breaking)

    def test_what_a_layer_may_leave_out(self, package):
        init = 'from . import layers\n__all__ = ["layers"]'
        before = package(init, layers="class A(B):\n    has_backward = True\n")
        assert compare_apis(before, package(init, layers="class A(B): ...\n")) == ()


NAMES = "abc"


@st.composite
def signature(draw):
    """A signature that Python takes, with few names, so that two of them have much in common."""
    order = draw(st.permutations(NAMES))[: draw(st.integers(0, len(NAMES)))]
    plain = [ParameterKind.POSITIONAL_ONLY, ParameterKind.NORMAL, ParameterKind.KEYWORD_ONLY]
    kinds = sorted(draw(st.lists(st.sampled_from(plain), min_size=3, max_size=3)), key=plain.index)
    found, optional = [], False
    for name, kind in zip(order, kinds, strict=False):
        optional = draw(st.booleans()) or (optional and kind != ParameterKind.KEYWORD_ONLY)
        found.append(FunctionParameter(name, kind, default="0" if optional else None))
    if draw(st.booleans()):
        found.append(FunctionParameter("args", ParameterKind.VAR_POSITIONAL))
    if draw(st.booleans()):
        found.append(FunctionParameter("kwargs", ParameterKind.VAR_KEYWORD))
    return tuple(sorted(found, key=lambda parameter: [*ParameterKind].index(parameter.kind)))


def made(parameters):
    """A function with these parameters that returns what each was given."""
    scope: dict = {}
    exec(f"def {PublicFunction('f', parameters).signature}: return locals()", scope)  # noqa: S102
    return scope["f"]


CALLS = [
    (tuple(range(count)), dict.fromkeys(names, "n"))
    for count in range(4)
    for size in range(4)
    for names in itertools.combinations(NAMES, size)
]


def given_by(function, call):
    """What each parameter is given; None when the call fails."""
    try:
        return function(*call[0], **call[1])
    except TypeError:
        return None


def means_the_same(before, after) -> bool:
    """True when the call works and parameters that both have are given the same."""
    shared = before.keys() & after.keys() & {*NAMES} if after is not None else ()
    return after is not None and all(before[name] == after[name] for name in shared)


@settings(max_examples=1000, deadline=None)
@given(signature(), signature())
def test_a_call_that_worked_still_means_the_same_when_nothing_breaks(old, new):
    changes = compare_apis(
        PublicApi(functions=(PublicFunction("f", old),)),
        PublicApi(functions=(PublicFunction("f", new),)),
    )
    if any(change.breaking for change in changes):
        return
    before, after = made(old), made(new)
    worked = [(call, found) for call in CALLS if (found := given_by(before, call)) is not None]
    assert all(means_the_same(found, given_by(after, call)) for call, found in worked)


@given(signature())
def test_signatures_are_written_as_python_reads_them(parameters):
    written = PublicFunction("f", parameters).signature
    (node,) = ast.parse(f"def {written}: ...").body
    assert isinstance(node, ast.FunctionDef)
    assert parameters_of(node.args) == parameters
