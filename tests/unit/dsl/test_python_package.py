"""`_aot.py`: fake kernels, and what runs where no image fits."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import tomli

from kbuild.dsl.python_package import PYTHON_FOLDER, package_files
from kbuild.ops.binding import bind
from kbuild.ops.bound_launch import KernelParameter
from kbuild.ops.section import read_section
from kbuild.project.config.issue import IssueCollector

SECTION = """
language = "triton"
toolchain = "triton==3.9.0"
src = ["dsl/add.py", "dsl/more.py"]

[[op]]
schema = "add(Tensor x, Tensor? y, float alpha=1.0) -> (Tensor low, Tensor high)"
shapes = { x = ["...", "N"], y = "x", low = "x", high = "x", spare = ["N"] }
dtypes = { x = ["float16"], y = "x", low = "x", high = "x", spare = "float32" }
temporaries = ["spare"]
fallback = "FALLBACK"
let = { n = "numel(x)" }
configs = [{ BLOCK = 64, num_warps = 2, when = "n < BLOCK" }, { BLOCK = 1024 }]
constants = { EVEN = "N % 2 == 0" }
grid = ["cdiv(n, BLOCK)"]
"""
NAMES = ("x_ptr", "y_ptr", "low_ptr", "high_ptr", "spare_ptr", "alpha", "n")


def text_of(fallback: str, root: Path, section: str = SECTION) -> tuple[str, list[str]]:
    reading = read_section("k", tomli.loads(section.replace("FALLBACK", fallback)))
    assert not reading.issues
    (op,) = reading.ops
    parameters = [KernelParameter(name) for name in NAMES]
    parameters += [KernelParameter(name, True) for name in ("BLOCK", "EVEN")]
    place = IssueCollector(())
    bound = bind(op, op.launches[0], {"add": parameters}, place)
    assert bound is not None, place.issues
    files = package_files([(op, [(op.launches[0], bound)])], root)
    paths = [path.removeprefix(f"{PYTHON_FOLDER}/") for path, _ in files.items()]
    return files[f"{PYTHON_FOLDER}/_aot.py"].decode(), paths


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dsl").mkdir()
    for name in ("add.py", "more.py"):
        (tmp_path / "dsl" / name).write_text("")
    return tmp_path


def test_a_fallback_ships_its_sources(root):
    text, paths = text_of("jit", root)
    assert paths == ["_aot.py", "_aot_sources/dsl/add.py", "_aot_sources/dsl/more.py"]
    ast.parse(text)
    assert '@_fallback("_add_jit(Tensor x, Tensor? y, float alpha=1.0)' in text
    assert "low, high = _results" in text
    assert "spare = torch.empty((_N,), dtype=torch.float32, device=x.device)" in text
    assert "if (_n < 64):" in text
    assert "else:\n        _candidate = {'BLOCK': 1024}" in text
    assert "EVEN = _candidate['EVEN'] = bool(" in text
    assert "alpha=alpha, n=int(_n), **_candidate)" in text


DESCRIBED = (
    "args = { x_ptr = { tensor = 'x', block = [8, 64], padding = 'nan', layout = LAYOUT } }\n"
)


class Recorded:
    """In the place of Triton's modules: what is called, with what."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __getattr__(self, name: str) -> Recorded:
        return Recorded(f"{self.name}.{name}".strip("."))

    def __call__(self, *args: object, **more: object) -> tuple[object, ...]:
        return (self.name, *map(str, args), *more.items())

    def __str__(self) -> str:
        return self.name


@pytest.mark.parametrize(
    ("is_gluon", "layout", "made"),
    [
        (False, "{}", ("tools.tensor_descriptor.TensorDescriptor.from_tensor", "nan")),
        (True, "{}", ("gluon.nvidia.hopper.TensorDescriptor.from_tensor", "get_default_for")),
        (True, "{ swizzle_byte_width = 64 }", ("from_tensor", "('swizzle_byte_width', 64)")),
    ],
)
def test_a_fallback_makes_the_descriptor_of_its_language(root, is_gluon, layout, made):
    section = SECTION.replace('x = ["...", "N"], y', 'x = ["M", "N"], y')
    section = section.replace("configs =", DESCRIBED.replace("LAYOUT", layout) + "configs =")
    text, _ = text_of("jit", root, section)
    source = text[text.index("    def _descriptor(") : text.index("    if (_n < 64):")]
    kernel = SimpleNamespace(params=[], is_gluon=lambda: is_gluon)
    modules = SimpleNamespace(import_module=Recorded)
    known = {"importlib": modules, "_kernel": SimpleNamespace(fn=kernel)}
    exec(textwrap.dedent(source), known)  # noqa: S102 - our own text
    call = re.search(r"x_ptr=(_descriptor\(.*?\}\))", text)[1]
    tensor = SimpleNamespace(dtype="torch.float16", element_size=lambda: 2)
    found = str(eval(call, known, {"x": tensor}))  # noqa: S307 - our own text
    assert all(part in found for part in made), found


def test_a_language_is_found_without_the_others():
    """Every command reads `build.toml`: what compiles is not imported for that."""
    code = (
        "import sys; from kbuild.ops.language import LANGUAGES; "
        "assert LANGUAGES.find('triton').name == 'triton'; "
        "assert 'kbuild.dsl.aot_compiler' not in sys.modules"
    )
    subprocess.run((sys.executable, "-c", code), check=True)  # noqa: TID251
