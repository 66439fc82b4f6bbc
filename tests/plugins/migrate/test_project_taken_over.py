"""Everything that a package has is in the new project, or is listed with its place."""

from __future__ import annotations

import pytest
import tomli

from kbuild.plugins.migrate.project import migrate_package
from kbuild.plugins.migrate.sources import read_package
from kbuild.system.processes import LocalRunner

SETUP = """\
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

class Own(BuildExtension):
    pass

setup(
    name="demo",
    packages=["demo"],
    {more}
    ext_modules=[
        {extensions}
    ],
)
"""
BINDING = (
    "#include <torch/extension.h>\n"
    'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("{0}", &{0}); }}\n'
)
CXX = "at::Tensor {0}(at::Tensor x) {{ return x; }}\n"
FILES = {
    "demo/__init__.py": "from . import _C\n",
    "csrc/a.cpp": CXX.format("f") + BINDING.format("f"),
    "csrc/b.cpp": CXX.format("g") + BINDING.format("g"),
    "csrc/k.cu": "void k() {}\n",
    "csrc/h.h": "#pragma once\n",
}


@pytest.fixture
def migrated(tmp_path):
    """What becomes of a package: build.toml, files, and what is left."""

    def migrate(extensions='CppExtension("demo._C", ["csrc/a.cpp"]),', more="", files=None):
        texts = {
            "setup.py": SETUP.format(extensions=extensions, more=more),
            **FILES,
            **(files or {}),
        }
        for name, text in texts.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        package = read_package(tmp_path, LocalRunner())
        project = migrate_package(package, "demo", "org/demo", "MIT")
        written = {path: data.decode() for path, data in project.files.items()}
        return tomli.loads(written["build.toml"]), written, project.left

    return migrate


@pytest.mark.parametrize(
    ("more", "note"),
    [
        ('version="1.2",', "setup.py:10: `version`: build.toml has no such keys"),
        (
            'entry_points={"console_scripts": ["x=y:z"]},',
            "setup.py:10: `entry_points` is not taken",
        ),
        ('scripts=["bin/x"],', "setup.py:10: `scripts` is not taken over"),
        ('data_files=[("etc", ["x.conf"])],', "setup.py:10: `data_files` is not taken over"),
        ('cmdclass={"build_ext": Own},', "setup.py:10: `cmdclass` is not taken over: what the"),
        ('install_requires=["scipy>1"],', "setup.py:10: the dependency `scipy>1`"),
        ('extras_require={"dev": ["a"]},', "setup.py:10: `extras_require` is not taken over: dev"),
    ],
)
def test_arguments_of_setup(migrated, more, note):
    assert any(text.startswith(note) for text in migrated(more=more)[2])


@pytest.mark.parametrize(
    ("argument", "note"),
    [
        ('libraries=["z"]', "library `z`"),
        ('extra_link_args=["-Wl,-s"]', "link flag `-Wl,-s` is not taken over"),
        ('extra_objects=["z.o"]', "`extra_objects` is not taken over: ['z.o']"),
        ('library_dirs=["/z"]', "`library_dirs` is not taken over: ['/z']"),
        ("dlink=True", "`dlink` is not taken over"),
        ('dlink_libraries=["z"]', "`dlink_libraries` is not taken over"),
        ('extra_compile_args={"nvcc_dlink": ["-dlto"]}', "the flags of `nvcc_dlink` are not taken"),
        ('extra_compile_args={"nvcc": ["-arch=native", "-v"]}', "CUDA flag `-arch=native` names"),
        ('include_dirs=["/opt/x"]', "`/opt/x` is outside the package"),
    ],
)
def test_arguments_of_an_extension(migrated, argument, note):
    extension = f'CUDAExtension("demo._C", ["csrc/a.cpp", "csrc/k.cu"],\n        {argument}),'
    left = migrated(extension)[2]
    assert any(text.startswith("setup.py:13: ") and note in text for text in left)


def test_files_that_are_copied(migrated):
    document, files, left = migrated(
        more='install_requires=["einops", "torch"],',
        files={
            "LICENSE": "x", "NOTICE.txt": "x", "AUTHORS.md": "x", "README.rst": "x",
            "LICENSES/other.txt": "x", "csrc/LICENSE.other": "x", "examples/a.py": "x",
            "tests/test_a.py": "import demo\nfrom demo import _C\n", "tests/data.bin": "x",
            "tests/conftest.py": "mine = 1\n", "demo/tuned/a.json": "{}", "demo/b.csv": "1",
            "demo/raw": "x",
        },
    )  # fmt: skip
    for path in ("LICENSE", "NOTICE.txt", "AUTHORS.md", "README.rst", "LICENSES/other.txt",
                 "csrc/LICENSE.other", "tests/data.bin"):  # fmt: skip
        assert files[path] == "x"
    assert files["tests/test_a.py"] == "import demo\nfrom demo._ops import ops as _C\n"
    assert files["tests/conftest.py"] == "mine = 1\n"
    assert files["torch-ext/demo/tuned/a.json"] == "{}"
    assert document["torch"]["pyext"] == ["csv", "json"]
    assert document["general"]["python-depends"] == ["einops"]
    assert "not copied: examples/" in left
    assert any(text.startswith("demo/raw: is not taken over") for text in left)


def section_sources(document):
    return {
        name: [path for path in table["src"] if not path.endswith(".h")]
        for name, table in document["kernel"].items()
    }


def test_an_extension_for_each_device_of_the_same_sources(migrated):
    """What is for CUDA stays out of the CPU's flags; no source is compiled twice for a device."""
    document, files, left = migrated(
        'CppExtension("demo._C_cpu", ["csrc/a.cpp"]),\n'
        'CUDAExtension("demo._C_cuda", ["csrc/a.cpp", "csrc/k.cu"], define_macros=[("GPU", None)]),'
    )
    assert document["general"]["backends"] == ["cpu", "cuda"]
    assert section_sources(document) == {
        "demo-c-cpu": ["csrc/a.cpp"],
        "demo-c-cuda": ["csrc/a.cpp", "csrc/k.cu"],
    }
    assert "cxx-flags" not in document["torch"]
    assert "cxx-flags" not in document["kernel"]["demo-c-cpu"]
    assert document["kernel"]["demo-c-cuda"]["cxx-flags"] == ["-DGPU"]
    assert document["torch"]["src"] == ["torch-ext/torch_binding.cpp"]
    registered = [path for path, text in files.items() if "REGISTER_EXTENSION(" in text]
    assert registered == ["torch-ext/torch_binding.cpp"]
    assert left == ()


def test_extensions_that_share_a_source(migrated):
    document, files, left = migrated(
        'CppExtension("demo._A", ["csrc/a.cpp"]),\n'
        'CppExtension("demo._B", ["csrc/a.cpp", "csrc/b.cpp"], extra_compile_args=["-g"]),'
    )
    assert section_sources(document) == {"demo-a-cpu": ["csrc/a.cpp"], "demo-b-cpu": ["csrc/b.cpp"]}
    assert left == (
        "setup.py:13: `csrc/a.cpp` is compiled once for cpu, with the flags of `demo._A`",
    )
    macros = [line for text in files.values() for line in text.splitlines() if "(TORCH_EXT" in line]
    assert not [path for path, text in files.items() if "registration.h" in text and "csrc" in path]
    assert [line.partition("(")[0] for line in macros] == [
        "TORCH_LIBRARY_EXPAND",
        "TORCH_LIBRARY_FRAGMENT_EXPAND",
        "REGISTER_EXTENSION",
    ]


def test_a_helper_for_the_cpu_is_part_of_the_cuda_variant(migrated):
    document = migrated(
        'CUDAExtension("demo._A", ["csrc/a.cpp", "csrc/k.cu"]),\n'
        'CppExtension("demo._B", ["csrc/b.cpp"]),'
    )[0]
    assert section_sources(document) == {
        "demo-b-cpu": ["csrc/b.cpp"],
        "demo-a-cuda": ["csrc/a.cpp", "csrc/k.cu"],
        "demo-b-cuda": ["csrc/b.cpp"],
    }


def test_two_extensions_that_bind_one_name(migrated):
    document, _, left = migrated(
        'CppExtension("demo.x_cpu", ["csrc/b.cpp"]), CUDAExtension("demo.x_cuda", ["csrc/g.cu"]),',
        files={"csrc/g.cu": CXX.format("g") + BINDING.format("g")},
    )
    assert section_sources(document) == {"demo-x-cpu": ["csrc/b.cpp"], "demo-x-cuda": ["csrc/g.cu"]}
    assert "`g` is bound here and by csrc/g.cu: the cuda variant has that one" in left[0]
