"""The public API of a package, read off its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.publish.card.model import CardError, PublicApi, PublicFunction
from kbuild.publish.card.public_api import find_package, read_public_api

EXAMPLES = Path(__file__).parents[4] / "examples"


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


def signatures(api: PublicApi) -> list[str]:
    return [function.signature for function in api.functions]


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
            '__all__ = ["relu"]\nif True:\n    __all__ += ["gelu"]\nelse:\n    __all__ += ["silu"]',
            '__all__ = ["relu"]\ntry:\n    __all__ += ["gelu"]\nfinally:\n    __all__ += ["silu"]',
            'from . import acts\n__all__ = ["relu"] + acts.__all__',
            'from . import acts\n__all__ = list(("relu", *acts.__all__))',
            'from .acts import __all__ as others\n__all__ = ["relu"] + others',
        ],
    )
    def test_every_way_to_write_all(self, package, init):
        api = package(init, acts='__all__ = ["gelu", "silu"]\ndef gelu(): ...')
        assert [f.name for f in api.functions] == ["relu", "gelu", "silu"]

    def test_without_all_the_packages_own_names_count(self, package):
        api = package(
            "import torch\nfrom typing import Any\nfrom .a import relu, _b\nfrom .c import *\n"
            "LIMIT = 3\ndef gelu(x): ...\ndef _hidden(): ...\nclass Act: ...",
            a="def relu(x): ...\ndef _b(): ...",
            c="import os\ndef silu(x): ...\ndef _no(): ...",
        )
        assert signatures(api) == ["relu(x)", "gelu(x)", "silu(x)"]
        assert [found.name for found in api.classes] == ["Act"]

    def test_modules_values_and_ops_are_neither(self, package):
        api = package(
            'from . import acts\nfrom ._ops import ops\n__version__ = "1"\nLIMIT = -1\n'
            '__all__ = ["acts", "ops", "LIMIT", "__version__"]',
            acts="",
        )
        assert api.names == ("acts", "ops", "LIMIT", "__version__")
        assert (api.functions, api.classes) == ((), ())


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
        api = package(f'{init}\n__all__ = ["relu"]', _impl=impl, _again="from ._impl import relu")
        assert signatures(api) == ["relu(x, *, inplace: bool = False)"]

    def test_the_applied_autograd_function(self, package):
        old = "class F(Function):\n    @staticmethod\n    def forward(ctx, x, y=1): ...\n"
        new = (
            old.replace("ctx, ", "") + "    @staticmethod\n    def setup_context(ctx, i, o): ...\n"
        )
        init = '{}f = F.apply\n__all__ = ["f"]'
        assert signatures(package(init.format(old))) == ["f(x, y=1)"]
        assert signatures(package(init.format(new))) == ["f(x, y=1)"]


class TestSignatures:
    def test_all_kinds(self, package):
        text = "f(a, /, b: Tensor, c: 'int | None' = None, *rest, d=1, **more) -> Tensor"
        api = package(f"def {text}:\n    '''Do it\n    well.\n\n    Long.\n    '''")
        (function,) = api.functions
        assert function.signature == text.replace("'", "")
        assert function.required == ("a", "b")
        assert function.doc == "Do it\nwell.\n\nLong."


class TestClasses:
    def test_constructor_methods_and_attributes(self, package):
        api = package(
            "class Act:\n    '''An act.'''\n    limit: int = 3\n    _hidden = 1\n"
            "    def __init__(self, size: int, *, bias=True): ...\n"
            "    def __call__(self, x): ...\n    def _no(self): ...\n"
            "    @classmethod\n    def make(cls, x): ...\n"
            "    @staticmethod\n    def add(a, b): ...\n"
            "    @property\n    def size(self): ...\n    @size.setter\n    def size(self, v): ...\n"
        )
        (act,) = api.classes
        assert act.constructor is not None
        assert act.constructor.signature == "Act(size: int, *, bias=True)"
        assert [m.signature for m in act.methods] == ["__call__(x)", "make(x)", "add(a, b)"]
        assert act.attributes == {"limit": "3"}
        assert act.doc == "An act."

    def test_bases_inside_the_package_add_theirs(self, package):
        api = package(
            "from ._base import Base\nclass Act(Base):\n    def run(self, x, y): ...\n"
            "__all__ = ['Act']",
            _base="class Base:\n    def __init__(self, a): ...\n    def run(self, x): ...\n"
            "    def stop(self): ...",
        )
        (act,) = api.classes
        assert act.constructor == PublicFunction("Act", ("a",), ("a",))
        assert {m.signature for m in act.methods} == {"run(x, y)", "stop()"}


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
        api = package('from . import layers\n__all__ = ["layers"]', **files)
        (layer,) = api.layers
        assert layer.name == "ReLU"
        assert [m.signature for m in layer.methods] == ["forward(x)"]
        assert layer.attributes == {"has_backward": "False"}


class TestFolders:
    def test_what_does_not_parse_has_a_line(self, package):
        with pytest.raises(CardError, match=r"__init__\.py:2: does not parse"):
            package("x = 1\ndef f(:")

    @pytest.mark.parametrize("name", ["relu", "relu-noarch", "relu-stable-abi"])
    def test_the_examples(self, name):
        folder = find_package(EXAMPLES / name, name.replace("-", "_"))
        assert folder is not None
        api = read_public_api(folder)
        assert api.functions[0].signature.startswith("relu(x: torch.Tensor")
        assert api.layers[0].methods[0].signature == "forward(x: torch.Tensor) -> torch.Tensor"
