"""From a toolchain's paths to what was used: store entries, this machine's headers, programs."""

from __future__ import annotations

import hashlib
import shutil
import sysconfig
from pathlib import Path

import pytest

from kbuild.pipeline.provenance.documents import Material
from kbuild.pipeline.provenance.materials import (
    ProgramInspector,
    local_headers,
    materials_of_entry,
    store_entries_used,
    with_licence,
)
from kbuild.system.processes import LocalRunner
from kbuild.system.store import Recipe, Store, StoreEntry
from kbuild.toolchains import build_tools
from kbuild.toolchains.base import Toolchain
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.wheels.lock import packaged_lock

CMAKE = Path(build_tools.cmake())
NINJA = Path(build_tools.ninja())


def toolchain(*cache: tuple[str, str], **others: object) -> Toolchain:
    return Toolchain("wheels", CMAKE, NINJA, Path("/python"), cache=cache, **others)


def installed(store: Store, kind: str, facts: dict, **files: str) -> StoreEntry:
    def make(root: Path) -> dict:
        for name, text in files.items():
            (root / name.replace("_a", ".a")).write_text(text)
        return facts

    return store.ensure(Recipe(kind, "1.0", {"k": kind}), make)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache" / "store")


class TestStore:
    def test_only_entries_that_the_toolchain_names(self, store):
        used = installed(store, "torch", {"sources": []})
        flag = installed(store, "manylinux", {"sources": []})
        installed(store, "cuda", {"sources": []})
        found = store_entries_used(
            toolchain(
                ("A", f"{used.root}/include;{used.root}/include/torch"),
                ("B", f"-nodefaultlibs -L{flag.root} -Wl,--x"),
                ("C", "/usr/include"),
            ),
            store,
        )
        assert [entry.name for entry in found] == sorted([used.name, flag.name])

    def test_a_wheel(self, store):
        source = {
            "filename": "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
            "sha256": "1" * 64,
            "fetched": 5,
            "how": "ranges",
        }
        (found,) = materials_of_entry(installed(store, "torch", {"sources": [source]}))
        assert (found.name, found.version) == ("torch", "2.13.0+cpu")
        assert found.digest == ("sha256", "1" * 64)
        assert found.purl.startswith("pkg:pypi/torch@2.13.0%2Bcpu?file_name=torch-2.13.0")

    def test_packages_of_both_kinds(self, store):
        sources = [
            {"filename": "nvidia-cuda-toolkit_12.4_amd64.deb", "sha256": "2" * 64},
            {"name": "c", "version": "1:2-3", "path": "pool/c_2-3_amd64.deb", "sha256": "3" * 64},
        ]
        found = list(materials_of_entry(installed(store, "hip", {"sources": sources})))
        assert [(part.name, part.version) for part in found] == [
            ("nvidia-cuda-toolkit", "12.4"),
            ("c", "1:2-3"),
        ]
        assert found[1].purl == "pkg:deb/debian/c@1%3A2-3?arch=amd64"

    def test_a_checkout(self, store):
        source = {"repository": "https://git.example/c", "tag": "v3.9", "commit": "a" * 40}
        entry = installed(store, "source-cutlass_3_9", {"sources": [source]})
        (found,) = materials_of_entry(entry)
        assert (found.name, found.digest) == ("cutlass_3_9", ("gitCommit", "a" * 40))
        assert "https%3A%2F%2Fgit.example%2Fc" in found.purl

    def test_what_kbuild_made_of_this_machine(self, store):
        entry = installed(store, "manylinux_2_28", {"sources": []}, libcompat_a="code", stub="s")
        library, rest = materials_of_entry(entry)
        assert (library.name, library.enters) == ("libcompat.a", "static")
        assert library.digest == ("sha256", hashlib.sha256(b"code").hexdigest())
        assert (rest.name, rest.enters) == ("manylinux_2_28", "interface")


class TestLicences:
    def named(self, name: str) -> Material:
        return with_licence(Material(name, "1", ("sha256", ""), "", "tool"))

    @pytest.mark.parametrize(
        ("name", "licence", "enters"),
        [
            ("cutlass_3_9", "BSD-3-Clause", "headers"),
            ("nvidia-cutlass", "BSD-3-Clause", "headers"),
            ("nvidia-cuda-nvcc", "LicenseRef-NVIDIA-Proprietary", "tool"),
            ("nvidia-nvvm", "LicenseRef-NVIDIA-Proprietary", "device"),
            ("nvidia-cuda-runtime", "LicenseRef-NVIDIA-Proprietary", "headers"),
            (
                "libkbuild_compat.a",
                "Apache-2.0 AND GPL-3.0-or-later WITH GCC-exception-3.1",
                "static",
            ),
            ("libclang-cpp21", "Apache-2.0 WITH LLVM-exception", "tool"),
            ("of nobody", "", "tool"),
        ],
    )
    def test_known(self, name, licence, enters):
        found = self.named(name)
        assert (found.licence, found.enters) == (licence, enters)

    def test_every_pinned_wheel_is_known(self):
        lock = packaged_lock()
        toolkits = (*lock.cuda.values(), *lock.runtimes.values())
        wheels = [wheel for kit in toolkits for wheel in (*kit.programs, *kit.libraries)]
        wheels += [wheel for torch in lock.torch.values() for wheel in torch.wheels]
        assert len(wheels) > 20
        assert {wheel.project for wheel in wheels if not self.named(wheel.project).licence} == set()


class TestHeaders:
    def test_pythons(self, store):
        include = sysconfig.get_path("include")
        found = local_headers(toolchain(("KBUILD_PYTHON_INCLUDE_DIR", include)), store.root)
        (python,) = found
        assert python.name == "python headers"
        assert python.version.startswith("3.")

    def test_a_folder_of_the_user_by_content(self, store, tmp_path):
        def ingredient(name: str, text: str) -> Material:
            folder = tmp_path / name / "include"
            folder.mkdir(parents=True)
            (folder / "cutlass.h").write_text(text)
            headers = (("cutlass_3_9", f"3.9 ({folder}, sha256 0123)"),)
            made = toolchain(("KBUILD_CUTLASS_3_9_INCLUDE_DIRS", str(folder)), headers=headers)
            (found,) = local_headers(made, store.root)
            return found

        first = ingredient("a", "x")
        assert (first.name, first.version) == ("cutlass_3_9", "3.9")
        assert ingredient("b", "x") == first  # wherever it is
        assert ingredient("c", "y") != first

    def test_an_installed_torch_by_what_pip_recorded(self, store, tmp_path):
        def ingredient(name: str, line: str) -> Material:
            site = tmp_path / name
            (site / "torch" / "include").mkdir(parents=True)
            (site / "torch" / "__init__.py").write_text("")
            (site / "torch-2.13.0.dist-info").mkdir()
            listed = f"../bin/torchrun,sha256={name},1\ntorch/__init__.py,sha256={line},0\n"
            (site / "torch-2.13.0.dist-info" / "RECORD").write_text(listed)
            include = site / "torch" / "include"
            made = toolchain(
                ("KBUILD_TORCH_INCLUDE_DIRS", f"{include};{include}/api"),
                versions=(("torch", "2.13.0"),),
            )
            (found,) = local_headers(made, store.root)
            return found

        first = ingredient("a", "x")
        assert (first.version, first.purl) == ("2.13.0", "pkg:pypi/torch@2.13.0")
        assert ingredient("b", "x") == first  # scripts know where they were put
        assert ingredient("c", "y") != first

    def test_what_is_in_the_store_is_not_this_machines(self, store):
        made = toolchain(("KBUILD_TORCH_INCLUDE_DIRS", f"{store.root}/torch-1/root/include"))
        assert list(local_headers(made, store.root)) == []


@pytest.mark.compile
@pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
class TestPrograms:
    def of(self, tmp_path: Path, compiler: Path) -> dict[str, Material]:
        programs = ProgramInspector(LocalRunner(), FactCache(tmp_path / "facts"))
        made = toolchain(("CMAKE_CXX_COMPILER", str(compiler)))
        return {part.name: part for part in programs.of(made, tmp_path / "store")}

    def test_what_works_and_what_is_added(self, tmp_path):
        found = self.of(tmp_path, Path(str(shutil.which("c++"))))
        assert {"cmake", "ninja", "compiler of CXX", "libgcc.a", "libstdc++ headers"} <= set(found)
        assert found["compiler of CXX"].enters == "tool"
        assert with_licence(found["libgcc.a"]).is_contained
        assert "/" not in "".join(part.version for part in found.values())

    def test_the_digest_is_of_the_program_wherever_it_is(self, tmp_path):
        compiler = Path(str(shutil.which("c++")))
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "c++").symlink_to(compiler)
        elsewhere = self.of(tmp_path, tmp_path / "bin" / "c++")
        assert (
            elsewhere["compiler of CXX"].digest
            == self.of(tmp_path, compiler)["compiler of CXX"].digest
        )

    def test_a_program_of_the_store_is_told_by_its_wheel(self, tmp_path):
        inside = tmp_path / "store" / "cuda" / "root" / "bin" / "nvcc"
        inside.parent.mkdir(parents=True)
        inside.write_text("")
        assert set(self.of(tmp_path, inside)) == {"cmake", "ninja"}
