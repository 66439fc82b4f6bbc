"""Python files that are wrong: names of ops, imports, syntax."""

from __future__ import annotations

import sys

from tests.seeded.seeded_recipe import GOOD, Case, on

PLAIN = GOOD["cpu"]
TORCH = "import torch\n"
OPS = "from ._ops import add_op_namespace_prefix\n"
RELU = "def relu(x: torch.Tensor) -> torch.Tensor:\n    return x.clamp(min=0)\n"


def op(name: str, wrong: str, word: str, text: str) -> Case:
    """A wrong op name, in a module of its own beside the good one."""
    return Case(f"op: {name}", wrong, "ops", word, on(PLAIN, python={"named.py": TORCH + text}))


def module(name: str, wrong: str, check: str, word: str, text: str) -> Case:
    """Another fault in a module of its own."""
    return Case(name, wrong, check, word, on(PLAIN, python={"module.py": text}))


OP_NAMES = (
    op("decorator", 'a literal: `@custom_op("relu::relu")`', "'relu::relu'",
        f'@torch.library.custom_op("relu::relu", mutates_args=())\n{RELU}'),
    op("keyword", 'the same as `name="relu::relu"`', "'relu::relu'",
        f'@torch.library.custom_op(name="relu::relu", mutates_args=())\n{RELU}'),
    op(
        "nested",
        "in a function that is called later",
        "named.py:4",
        "def register():\n    if torch.cuda.is_available():\n"
        '        @torch.library.custom_op("relu::relu", mutates_args=())\n'
        "        def relu(x: torch.Tensor) -> torch.Tensor:\n            return x.clamp(min=0)\n",
    ),
    op(
        "alias",
        "through `from torch.library import custom_op as op`",
        "'relu::relu'",
        "from torch.library import custom_op as op\nmake = op\n"
        f'@make("relu::relu", mutates_args=())\n{RELU}',
    ),
    op(
        "Library",
        '`Library("relu", "DEF")`',
        "opens the namespace 'relu'",
        'library = torch.library.Library("relu", "DEF")\n'
        'library.define("relu(Tensor x) -> Tensor")\n',
    ),
    op("define", '`torch.library.define("relu::relu", ...)`',
        "`torch.library.define` takes the op's name from 'relu::relu'",
        'torch.library.define("relu::relu", "(Tensor x) -> Tensor")\n'),
    op("impl", '`@torch.library.impl("relu::relu", "cpu")`',
        "`torch.library.impl` takes the op's name from 'relu::relu'",
        f'@torch.library.impl("relu::relu", "cpu")\n{RELU}'),
    op("register_autograd", '`register_autograd("relu::relu", ...)`',
        "`torch.library.register_autograd` takes",
        'torch.library.register_autograd("relu::relu", lambda ctx, grad: grad)\n'),
    op("register_fake", '`@register_fake("relu::relu")`', "`torch.library.register_fake` takes",
        f'@torch.library.register_fake("relu::relu")\n{RELU}'),
    op("triton_op", "`triton_op` with a formatted name", "triton_op",
        f'NAME = "relu"\n@torch.library.triton_op(f"{{NAME}}::relu", mutates_args=())\n{RELU}'),
    op(
        "rewrapped prefix",
        "the name is cut out of `add_op_namespace_prefix`",
        "named.py:4",
        f'{OPS}name = add_op_namespace_prefix("relu").replace("_relu_cpu_0a1b2c3", "relu")\n'
        f"@torch.library.custom_op(name, mutates_args=())\n{RELU}",
    ),
)  # fmt: skip
TEMPORARY = """\
#include <torch/csrc/stable/library.h>
void f(torch::stable::Tensor x) {
  void *p = torch::stable::contiguous(x).data_ptr();
}
"""
SOURCES = (
    Case(
        "code for this machine",
        "`-march=native` in `cxx-flags`",
        "flags",
        "build.toml:21",
        None,
        sources={
            "build.toml": (
                'src = ["relu_cpu/relu_cpu.cpp"]\n',
                'src = ["relu_cpu/relu_cpu.cpp"]\ncxx-flags = [\n  "-O3",\n  "-march=native",\n]\n',
            )
        },
    ),
    Case(
        "pointer of a temporary",
        "`float *p = contiguous(x).data_ptr()` for the stable ABI",
        "pointers",
        "torch_binding.cpp:3",
        None,
        sources={
            "torch-ext/torch_binding.cpp": (
                "#include <torch/library.h>\n",
                TEMPORARY,
            )
        },
    ),
)
MODULES = (
    module("absolute import", "`from relu import _ops`", "imports",
        "imports its own package by name", "from relu import _ops\n"),
    module("import of nothing", "`from .gone import relu`", "imports",
        "`.gone` is not in this variant", "from .gone import relu\n"),
    module("import of a stranger", "`import scipy`", "depends", "imports `scipy`",
        "import scipy.special\n"),
    module("newer syntax", "an `except*`", "imports",
        "needs a newer Python than 3.10" if sys.version_info >= (3, 11) else "does not parse",
        "try:\n    x = 1\nexcept* ValueError:\n    x = 2\n"),
)  # fmt: skip
PYTHON_FILES = (*OP_NAMES, *SOURCES, *MODULES)
