"""A real interpreter of its own, with a Torch and a `kernels` client of a few lines."""

from __future__ import annotations

import venv
from dataclasses import dataclass
from pathlib import Path

CLIENT = """
import importlib.util, sys
class Metadata:
    def read_from_file(path):
        open(path).close()
def get_local_kernel(folder, backend):
    spec = importlib.util.spec_from_file_location("loaded", folder / "__init__.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
"""
PACKAGES = {
    "torch/__init__.py": "from torch.version import __version__\n",
    "torch/version.py": "__version__ = '2.13.0+cpu'\ncuda = None\n",
    "kernels/__init__.py": CLIENT,
    "kernels-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: kernels\nVersion: 1.0\n",
}


@dataclass(frozen=True)
class Interpreter:
    """A virtual environment."""

    root: Path

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def packages(self) -> Path:
        return next((self.root / "lib").glob("*/site-packages"))


def make_interpreter(root: Path) -> Interpreter:
    """The environment in a new folder, with the packages."""
    venv.create(root, symlinks=True)
    made = Interpreter(root)
    for name, text in PACKAGES.items():
        path = made.packages / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return made
