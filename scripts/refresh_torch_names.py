"""Refresh `kbuild/dsl/worker/torch_names.txt`: which names an installed Torch has.

Usage: `python scripts/refresh_torch_names.py [--check]`, with the Python that has the Torch.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import torch

TARGET = Path(__file__).parent.parent / "kbuild/dsl/worker/torch_names.txt"
LISTED = (
    "amp", "autograd", "autograd.function", "backends", "compiler", "cuda", "cuda.amp",
    "distributed", "distributed.tensor", "fx", "jit", "library", "nn", "nn.functional",
    "nn.parameter", "optim", "random", "sparse", "special", "utils", "utils.checkpoint",
    "utils.cpp_extension", "utils.dlpack", "utils.hooks", "version", "xpu",
)  # fmt: skip
"""Modules below `torch` whose names are listed; others have every name."""
HEADER = """\
# What Torch {version} has. `modules`: everything that can be imported, as a tree, where brackets
# hold what is below a module. Then the names of modules that sources look into: classes,
# functions, and what is neither. Made by scripts/refresh_torch_names.py.
version {version}
"""


def modules() -> set[tuple[str, ...]]:
    """Every module, as parts below `torch`; those of C++ only as far as Torch has imported them."""
    root = Path(inspect.getfile(torch)).parent
    found = set()
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if parts and all(part.isidentifier() for part in parts):
            found |= {parts[: at + 1] for at in range(len(parts))}
    loaded = (name.split(".")[1:] for name in sys.modules if name.startswith("torch."))
    return found | {tuple(parts) for parts in loaded}


def tree(below: set[tuple[str, ...]]) -> str:
    """`amp(autocast_mode grad_scaler) backends`: modules with what is below them."""
    names = sorted({parts[0] for parts in below})
    return " ".join(_branch(name, below) for name in names)


def _branch(name: str, below: set[tuple[str, ...]]) -> str:
    inner = {parts[1:] for parts in below if parts[0] == name and len(parts) > 1}
    return f"{name}({tree(inner)})" if inner else name


def listed(module: ModuleType) -> Iterator[tuple[str, list[str]]]:
    """`classes`, `functions` and `values` of a module, without modules and its own affairs."""
    kinds: dict[str, list[str]] = {"classes": [], "functions": [], "values": []}
    for name in sorted(dir(module)):
        value = getattr(module, name)
        if name.startswith("__") or isinstance(value, ModuleType):
            continue
        kind = "classes" if isinstance(value, type) else "values"
        kinds["functions" if kind == "values" and callable(value) else kind].append(name)
    yield from kinds.items()


def text() -> str:
    """The file's content."""
    version = torch.__version__.partition("+")[0]
    wrapper = textwrap.TextWrapper(118, initial_indent="  ", subsequent_indent="  ")
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    found = [importlib.import_module(f"torch.{name}") for name in LISTED]
    sections = {"modules": tree(modules())}
    for module in (torch, *found):
        sections |= {f"{module.__name__} {kind}": " ".join(n) for kind, n in listed(module)}
    lines = [HEADER.format(version=version).rstrip("\n")]
    for name, words in sections.items():
        lines += [name, *wrapper.wrap(words)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write or compare; 1 when `--check` finds a difference."""
    warnings.simplefilter("ignore")
    new = text()
    if "--check" in sys.argv:
        return int(TARGET.read_text("utf-8") != new)
    TARGET.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
