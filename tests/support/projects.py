"""Small projects on disk, for tests that plan or build them."""

from __future__ import annotations

from pathlib import Path

from kbuild.backends import BACKENDS
from kbuild.backends.frameworks import FRAMEWORKS
from kbuild.cli.scaffold import Scaffold, has_template, language_frameworks
from kbuild.ops.language import LANGUAGES
from kbuild.plan.plan import VariantPlan
from kbuild.plan.project import Project
from kbuild.plan.selection import VariantChoice
from kbuild.plan.variant import Identity, Planner
from kbuild.system.processes import LocalRunner
from kbuild.system.rendering import template_root
from kbuild.system.sourcetree import SourceTree
from tests.support.command_project import write_files

GENERAL = """\
[general]
name = "my-kernel"
version = 2
edition = 5
license = "MIT"
backends = {backends}
"""

BINDING = """
[torch]
src = ["torch-ext/binding.cpp"]
"""


def kernel(backend: str, extra: str = "", name: str | None = None) -> str:
    """A `[kernel.*]` section with one source."""
    suffix = {"cuda": "cu", "rocm": "cu"}.get(backend, "cpp")
    return (
        f'\n[kernel.{name or backend}]\nbackend = "{backend}"\ndepends = ["torch"]\n'
        f'src = ["src/k.{suffix}"]\n{extra}\n'
    )


def write_project(root: Path, *parts: str, backends: tuple[str, ...] = ("cpu",)) -> Path:
    """A project whose `build.toml` is `[general]` and `parts`; every file it may name exists."""
    listed = "[" + ", ".join(f'"{backend}"' for backend in backends) + "]"
    files = {
        "build.toml": GENERAL.format(backends=listed) + "".join(parts),
        "torch-ext/binding.cpp": "#include <torch/library.h>\n",
        "torch-ext/my_kernel/__init__.py": "__all__ = []\n",
        "tvm-ffi-ext/my_kernel/__init__.py": "__all__ = []\n",
        "torch-ext/my_kernel/_ops.py": "# left over from another tool\n",
        "torch-ext/my_kernel/py.typed": "",
        "torch-ext/my_kernel/table.json": "{}\n",
        "torch-ext/my_kernel/layers/__init__.py": "",
        "torch-ext/my_kernel/layers/__init__.pyi": "",
        "src/k.cpp": "int k;\n",
        "src/k.cu": "int k;\n",
    }
    write_files(root, files)
    return root


def plan_variant(
    project: Project, choice: VariantChoice, identity: Identity, archs: tuple[str, ...] = ()
) -> VariantPlan:
    """The plan of one variant."""
    planner = Planner(project, SourceTree(project.root), LocalRunner(), identity, archs)
    return planner.plans([choice])[0]


def scaffold_pairs() -> list[Scaffold]:
    """A new project for each pair of language and framework, for all backends that it can have."""
    templates = template_root() / "init"
    pairs = [
        (language.name, language.init_backends, FRAMEWORKS.get(name))
        for language in LANGUAGES
        if language.init_backends
        for name in language_frameworks(language, templates)
    ]
    for framework in FRAMEWORKS:
        able = tuple(b.name for b in BACKENDS if has_template(b, framework, templates))
        pairs.append(("", able or tuple(BACKENDS.names()), framework))
    return [
        Scaffold("demo", "org", "org/demo", "MIT", backends, backends * framework.compiled, *names)
        for language, backends, framework in pairs
        for names in [(language, framework.name)]
    ]
