from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.system.cache import OBJECTS, Cache
from tests.support.unit_launches import UnitRun


@pytest.fixture
def bench(tmp_path: Path) -> UnitRun:
    bench = UnitRun(tmp_path)
    bench.write("a.cpp", 'int a;\n#include "x.h"\n')
    bench.write("include/x.h", "x is 1\n")
    return bench


def include(bench: UnitRun, name: str = "include") -> str:
    return f"-I{bench.project / name}"


def torch(bench: UnitRun, release: str) -> tuple[str, str]:
    folder = bench.root / f"torch-{release}"
    return f"-isystem{folder}", f"-ffile-prefix-map={folder}=/torch"


def header(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    os.utime(folder / name, (1e9, 1e9))


def test_the_second_compilation_is_a_look_up(bench: UnitRun) -> None:
    bench.compile("a.cpp", include(bench))
    first = bench.object_of("a.cpp")
    bench.forget_objects()
    bench.compile("a.cpp", include(bench))
    assert (bench.outcomes, bench.starts) == (["miss", "hit"], 1)
    assert bench.object_of("a.cpp") == first
    depfile = (bench.root / "tree" / "a.cpp.o.d").read_text()
    assert depfile.startswith("a.cpp.o: ")
    assert str(bench.project / "include/x.h") in depfile


@pytest.mark.parametrize("change", ["source", "header", "flag", "compiler"])
def test_what_changes_the_object_is_a_miss(bench: UnitRun, change: str) -> None:
    bench.compile("a.cpp", include(bench))
    flags = [include(bench)]
    if change == "source":
        bench.write("a.cpp", 'int b;\n#include "x.h"\n')
    elif change == "header":
        bench.write("include/x.h", "x is 2\n")
    elif change == "flag":
        flags.append("-O3")
    else:
        bench.compiler.write_text(bench.compiler.read_text() + "# newer\n")
    bench.compile("a.cpp", *flags)
    assert bench.outcomes == ["miss", "miss"]


def test_both_contents_of_a_header_are_kept(bench: UnitRun) -> None:
    for text in ("x is 1\n", "x is 2\n", "x is 1\n", "x is 2\n"):
        bench.write("include/x.h", text)
        os.utime(bench.project / "include/x.h", (1e9, 1e9 + len(text) + int(text[5])))
        bench.compile("a.cpp", include(bench))
        assert text in bench.object_of("a.cpp")
    assert bench.outcomes == ["miss", "miss", "hit", "hit"]


def test_a_unit_is_shared_by_torch_releases_with_the_same_headers(bench: UnitRun) -> None:
    bench.write("a.cpp", '#include "stable.h"\n#include "x.h"\n')
    for release in ("2.13", "2.14", "2.15"):
        header(bench.root / f"torch-{release}", "stable.h", "stable\n" * (1 + (release == "2.15")))
    for release in ("2.13", "2.14", "2.15"):
        bench.compile("a.cpp", include(bench), *torch(bench, release), tree=release)
    assert bench.outcomes == ["miss", "hit", "miss"]
    depfile = (bench.root / "2.14" / "a.cpp.o.d").read_text()
    assert str(bench.root / "torch-2.14/stable.h") in depfile
    assert "torch-2.13" not in depfile
    assert bench.log.units[1].torch == 1


def test_several_folders_may_have_one_name(bench: UnitRun) -> None:
    """ROCm's variants find Torch's headers in translated ones, in Torch's own, and below these."""
    bench.write("a.cpp", '#include "stable.h"\n')
    flags: tuple[str, ...] = ()
    for place in ("translated", "torch", "torch/api"):
        header(bench.root / place, "stable.h", place)
        flags += (f"-isystem{bench.root / place}", f"-ffile-prefix-map={bench.root / place}=/torch")
    for tree in ("one", "two"):
        bench.compile("a.cpp", *flags, tree=tree)
    assert bench.outcomes == ["miss", "hit"]
    assert str(bench.root / "translated/stable.h") in (bench.root / "two/a.cpp.o.d").read_text()


def test_a_unit_that_does_not_see_torch_is_shared(bench: UnitRun) -> None:
    for release in ("2.13", "2.14"):
        header(bench.root / f"torch-{release}", "torch.h", release)
        bench.compile("a.cpp", include(bench), *torch(bench, release), tree=release)
    assert bench.outcomes == ["miss", "hit"]


def test_a_header_in_an_earlier_folder_is_seen(bench: UnitRun) -> None:
    bench.write("first/other.h", "")
    flags = (include(bench, "first"), include(bench))
    bench.compile("a.cpp", *flags)
    bench.write("first/x.h", "x is 7\n")
    bench.compile("a.cpp", *flags)
    assert bench.outcomes == ["miss", "miss"]
    assert "x is 7" in bench.object_of("a.cpp")


def test_two_versions_of_a_library_inside_the_project(bench: UnitRun) -> None:
    """Both lie below the folder of the source, which is searched as well."""
    bench.write("a.cpp", '#include "lib.h"\n')
    for version in ("1", "2"):
        bench.write(f"lib{version}/lib.h", f"version {version}\n")
    for version in ("1", "2", "1"):
        bench.compile("a.cpp", f"-isystem{bench.project}/lib{version}")
        assert f"version {version}" in bench.object_of("a.cpp")
    assert bench.outcomes == ["miss", "miss", "hit"]


def test_without_prefix_maps_places_are_content(bench: UnitRun) -> None:
    bench.write("a.cpp", '#include "stable.h"\n')
    for release in ("2.13", "2.14"):
        header(bench.root / f"torch-{release}", "stable.h", "stable\n")
        bench.compile("a.cpp", torch(bench, release)[0])
    assert bench.outcomes == ["miss", "miss"]


@pytest.mark.parametrize("place", ["a.cpp", "include/x.h"])
def test_a_clock_is_not_cached(bench: UnitRun, place: str) -> None:
    bench.write(place, "const char* when = __DATE__;\n" + (bench.project / place).read_text())
    bench.compile("a.cpp", include(bench))
    bench.compile("a.cpp", include(bench))
    assert bench.outcomes == ["off", "off"]
    assert bench.log.units[0].why == "it uses __DATE__"


def test_warnings_are_said_again_with_this_builds_paths(bench: UnitRun) -> None:
    bench.write("a.cpp", "//! say {source}:1: warning: unused\n")
    said = [bench.compile("a.cpp"), bench.compile("a.cpp")]
    assert said[0] == said[1] == f"{bench.project}/a.cpp:1: warning: unused\n"
    moved = replace(bench, root=bench.root / "elsewhere")
    (bench.root / "elsewhere").mkdir()
    (moved.root / "cache").symlink_to(bench.root / "cache")
    (moved.root / "bin").symlink_to(bench.root / "bin")
    moved.write("a.cpp", "//! say {source}:1: warning: unused\n")
    assert moved.compile("a.cpp") == f"{moved.project}/a.cpp:1: warning: unused\n"
    assert moved.outcomes == ["hit"]


def test_a_failure_is_not_kept(bench: UnitRun) -> None:
    bench.write("a.cpp", "//! say error: no\n//! exit 3\n")
    assert "error: no" in bench.compile("a.cpp", expect=3)
    bench.compile("a.cpp", expect=3)
    assert bench.starts == 2
    assert [unit.status for unit in bench.log.units] == [3, 3]


def test_paths_with_spaces(tmp_path: Path) -> None:
    bench = UnitRun(tmp_path / "my kernels")
    bench.write("a.cpp", '#include "x.h"\n')
    bench.write("include/x.h", "x is 1\n")
    for _ in range(2):
        bench.compile("a.cpp", include(bench))
    assert bench.outcomes == ["miss", "hit"]
    depfile = (bench.root / "tree" / "a.cpp.o.d").read_text()
    assert str(bench.project / "include/x.h").replace(" ", "\\ ") in depfile


def test_a_damaged_object_is_compiled_again(bench: UnitRun) -> None:
    bench.compile("a.cpp", include(bench))
    (entry,) = Cache(bench.root / "cache", OBJECTS).entries()
    Path(entry.path).write_bytes(Path(entry.path).read_bytes()[:-1])
    for _ in range(2):
        bench.compile("a.cpp", include(bench))
    assert bench.outcomes == ["miss", "miss", "hit"]
    assert "damaged entry" in "".join(bench.log.warnings)


def test_a_record_of_another_shape_is_a_miss(bench: UnitRun) -> None:
    bench.compile("a.cpp", include(bench))
    cache = Cache(bench.root / "cache", OBJECTS)
    (entry,) = cache.entries()
    cache.put(entry.key, b"nonsense\n\n", b"", b"")
    for _ in range(2):
        bench.compile("a.cpp", include(bench))
    assert bench.outcomes == ["miss", "miss", "hit"]


def test_a_cache_that_cannot_be_written_is_a_warning(bench: UnitRun) -> None:
    (bench.root / "cache").write_text("a file")
    bench.compile("a.cpp", include(bench))
    bench.compile("a.cpp", include(bench))
    assert bench.starts == 2
    assert any("cannot be written" in warning for warning in bench.log.warnings)


def test_the_cache_can_be_off(bench: UnitRun) -> None:
    off = replace(bench, keeps=False)
    off.compile("a.cpp", include(bench))
    off.compile("a.cpp", include(bench))
    assert off.outcomes == ["off", "off"]
    assert not (bench.root / "cache").exists()


def test_another_launcher_runs_instead(bench: UnitRun) -> None:
    tool = bench.root / "ccache"
    tool.write_text(f'#!/bin/sh\necho used >> "{bench.root}/used"\nexec "$@"\n')
    tool.chmod(0o755)
    other = replace(bench, tool=str(tool))
    other.compile("a.cpp", include(bench))
    assert (bench.root / "used").read_text() == "used\n"
    assert not (bench.root / "cache/objects").exists()


def test_concurrent_writers_do_not_harm_each_other(bench: UnitRun) -> None:
    command = bench.command("a.cpp", include(bench))
    running = [bench.start(*command, tree=f"tree{n}") for n in range(6)]
    for process in running:
        process.communicate(timeout=60)
    assert [process.returncode for process in running] == [0] * 6
    objects = {(bench.root / f"tree{n}" / "a.cpp.o").read_text() for n in range(6)}
    assert len(objects) == 1
    assert not list((bench.root / "cache").rglob("*.draft"))


def test_what_is_not_one_compilation_just_runs(bench: UnitRun) -> None:
    process = bench.start("/bin/sh", "-c", "exit 4")
    process.communicate(timeout=20)
    assert process.returncode == 4


def test_a_missing_compiler_is_said(bench: UnitRun) -> None:
    process = bench.start("no-such-compiler", "-c", "a.cpp", "-o", "a.o")
    _, said = process.communicate(timeout=20)
    assert process.returncode == 127
    assert said == "no-such-compiler: No such file or directory\n"


def test_two_variants_that_want_the_same_object_at_once_compile_it_once(bench: UnitRun) -> None:
    bench.write("a.cpp", "//! sleep 1\n")
    started = [
        bench.start(*bench.command("a.cpp", tree=tree), tree=tree) for tree in ("one", "two")
    ]
    for process in started:
        process.communicate(timeout=60)
    assert sorted(bench.outcomes) == ["hit", "miss"]
    assert bench.starts == 1
    assert bench.object_of("a.cpp", tree="one") == bench.object_of("a.cpp", tree="two")


@pytest.mark.parametrize(
    ("releases", "includes", "outcomes"),
    [
        (("2.13", "2.13"), "<torch/library.h>", ["hit", "miss"]),
        (("2.13", "2.14"), "<torch/library.h>", ["miss", "miss"]),
        (("2.13", "2.13"), "<c10/cuda/CUDAStream.h>", ["miss", "miss"]),
    ],
)
def test_sources_that_include_torch_wait_for_the_same_torch_and_toolkit(
    bench: UnitRun, releases: tuple[str, str], includes: str, outcomes: list[str]
) -> None:
    bench.write("a.cpp", f"//! sleep 1\n// #include {includes}\n")
    started = []
    for release, toolkit in zip(releases, ("13.0", "13.2"), strict=True):
        tree = f"{release}-{toolkit}"
        command = bench.command("a.cpp", *torch(bench, release), tree=tree)
        one = replace(bench, compilers=f"c++=12;cuda={toolkit}")
        started.append(one.start(*command, tree=tree))
    for process in started:
        process.communicate(timeout=60)
    assert sorted(bench.outcomes) == outcomes
    assert bench.starts == outcomes.count("miss")


def test_the_record_tells_what_a_unit_read_of_torch(bench: UnitRun) -> None:
    bench.write("a.cpp", '#include "all.h"\n')
    include, named = torch(bench, "213")
    header(bench.root / "torch-213", "all.h", "x" * 3000)
    for _ in range(2):
        bench.compile("a.cpp", include, named)
    made, found = bench.log.units
    assert (made.cache, made.torch, made.kib) == ("miss", 1, 2)
    assert (found.cache, found.torch) == ("hit", 1)
