"""Generated text is reviewed text: what each backend and framework gets, word for word."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild import __version__
from kbuild.plan.generate.project import generate, generate_project, metadata_text
from kbuild.system.files import FileSet
from kbuild.system.rendering import template_root
from tests.support.plans import SECTIONS, plan_of

COPIED = (
    "cmake/kbuild.cmake",
    "cmake/aot.cmake",
    "cmake/extension.cmake",
    "cmake/facts.cmake",
    "cmake/languages/",
)
FRAME = ("cmake/probe.py", "torch-ext/registration.h")
COMPILED = [name for name, sections in SECTIONS.items() if sections]


def own_text(files: FileSet) -> dict[str, str]:
    """Everything that is not a copy of a file under review elsewhere."""
    copies = (*COPIED, *FRAME)
    builder = f'"version": "{__version__}"'
    return {
        path: data.decode().replace(builder, '"version": "(of kbuild)"')
        for path, data in files.items()
        if not path.startswith(copies)
    }


@pytest.mark.parametrize("variant", SECTIONS)
def test_files_of_a_variant(variant, golden):
    for path, text in own_text(generate(plan_of(variant))).items():
        golden(f"{variant}/{path}", text)


@pytest.mark.parametrize("variant", sorted(SECTIONS.keys() - {*COMPILED}))
def test_metadata_of_a_python_only_variant(variant, golden):
    files = FileSet({"metadata.json": metadata_text(plan_of(variant))})
    golden(f"{variant}/metadata.json", own_text(files)["metadata.json"])


@pytest.mark.parametrize("variant", SECTIONS)
def test_the_set_of_files(variant, golden):
    listed = "".join(f"{path}\n" for path, _ in generate(plan_of(variant)).items())
    golden(f"{variant}/files.txt", listed)


def test_one_project_for_all_variants(golden):
    names = [name for name in COMPILED if name.startswith("torch213")]
    files = generate_project([plan_of(name) for name in names])
    for path, text in own_text(files).items():
        if not path.startswith("cmake/"):
            golden(f"project/{path}", text)


def test_python_only_project(golden):
    files = generate_project([plan_of("torch-cuda"), plan_of("torch-tpu")])
    for path, text in own_text(files).items():
        golden(f"project-noarch/{path}", text)


def test_tvm_ffi_project(golden):
    files = generate_project([plan_of(n) for n in COMPILED if n.startswith("tvm-ffi")])
    golden("project-tvm-ffi/pyproject.toml", files["pyproject.toml"].decode())


@pytest.mark.parametrize("variant", COMPILED)
def test_copies_are_copies(variant):
    for path, data in generate(plan_of(variant)).items():
        if path.startswith(COPIED):
            assert data == (template_root() / "project" / path).read_bytes()


def test_no_machine_path_is_generated():
    home = str(Path.home()).encode()
    for name in SECTIONS:
        for path, data in generate(plan_of(name)).items():
            assert home not in data, path
            assert str(template_root()).encode() not in data, path
