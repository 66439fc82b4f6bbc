"""The same bytes from other folders, caches and surroundings, on a variant of three seconds."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.command_project import ROOT, CommandProject, mutant
from tests.support.tiny_project import write_tiny

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]
# What a unit without public names, with its place and the time in it, needs to be the same.
MAP = '"-ffile-prefix-map=${KBUILD_SOURCE_DIR}=/kernel"'
EPOCH = ', "SOURCE_DATE_EPOCH": epoch'
OPTIMIZER = (".gnu.lto_", ".gnu.debuglto_")
SEED = "-frandom-seed=${name}"


@pytest.fixture
def tiny(tmp_path: Path) -> CommandProject:
    return write_tiny(tmp_path, "cpu")


def bytes_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(p.relative_to(folder)): (p.stat().st_mode, p.read_bytes()) for p in files}


def objects_of(project: Path) -> list[dict[str, bytes]]:
    """Sections of all objects; those for the optimizer without content, which has places."""
    return [_sections(path) for path in sorted(project.glob(".kbuild/*/tree/**/*.o"))]


def _sections(path: Path) -> dict[str, bytes]:
    with path.open("rb") as file:
        parts = list(ELFFile(file).iter_sections())
        return {p.name: b"" if p.name.startswith(OPTIMIZER) else p.data() for p in parts}


def clone_of(tiny: CommandProject, place: str, cache: str) -> CommandProject:
    """A clone at another place, with another cache or the same one."""
    root, folder = tiny.root.parent / place, tiny.root.parent / cache
    folder.mkdir(exist_ok=True)
    tiny.git("clone", "-q", str(tiny.root), str(root))
    return CommandProject(root, folder)


def test_two_folders_cold_and_warm(tiny: CommandProject) -> None:
    first = tiny.built("--backend", "cpu", "--jobs", "1")
    odd = {"TZ": "Asia/Kathmandu", "LC_ALL": "C", "TMPDIR": str(tiny.cache)}
    cold = clone_of(tiny, "far/from/here", "other-cache")
    warm = clone_of(tiny, "near", tiny.cache.name)
    found = bytes_of(Path(first["path"]))
    for bench, hits in ((cold, 0), (warm, 1)):
        done = bench.kbuild("build", "--json", "--backend", "cpu", "--jobs", "4", env=odd)
        (built,) = [one for one in json.loads(done.stdout)["variants"] if one["path"]]
        assert built["from_cache"] == hits  # the other unit has the time in it
        assert bytes_of(Path(built["path"])) == found
        assert objects_of(bench.root) == objects_of(tiny.root)


@pytest.mark.quick
def test_reproduce(tiny: CommandProject) -> None:
    built = tiny.built("--backend", "cpu")
    done = tiny.kbuild("reproduce", "--json")
    (outcome,) = json.loads(done.stdout)
    assert (outcome["variant"], outcome["status"]) == (built["variant"], "same")


def test_a_changed_library_is_found_and_explained(tiny: CommandProject) -> None:
    built = tiny.built("--backend", "cpu")
    source = tiny.root / "cpu" / "quiet.cpp"
    source.write_text(source.read_text().replace("TINY_SAYS", "TINY_TELL"))
    shutil.rmtree(tiny.root / ".git")  # or the recorded commit would be built
    done = tiny.kbuild("reproduce", "--json", expect=6)
    (outcome,) = json.loads(done.stdout)
    found = {one["path"]: one["places"] for one in outcome["differences"]}
    assert len(found) == 2  # the library, and the metadata with its digest
    (library,) = [places for path, places in found.items() if path.endswith(".so")]
    texts = {(one["before"], one["after"]) for one in library if one["section"] == ".rodata"}
    assert texts == {("`TINY_SAYS`", "`TINY_TELL`")}
    assert Path(built["path"]).is_dir()


@pytest.mark.parametrize(
    ("file", "flag", "leak"),
    [
        ("templates/project/cmake/kbuild.cmake", MAP, r"`(/\w+|…[^/]*)/.*"),
        # The date, where the other time zone has another one; else the time.
        ("kbuild/toolchains/host.py", EPOCH, r"`([A-Z][a-z]+ [ \d]\d 20\d\d|\d\d:\d\d:\d\d)`"),
    ],
    ids=["places", "time"],
)
def test_each_flag_is_needed(
    tiny: CommandProject, tmp_path: Path, file: str, flag: str, leak: str
) -> None:
    """A kbuild without it does not reproduce, and `kbuild reproduce` shows what leaked."""
    env = {"PYTHONPATH": str(mutant(tmp_path, (file, flag)))}
    tiny.kbuild("build", "--backend", "cpu", env=env)
    done = tiny.kbuild("reproduce", "--json", expect=6, env=env)
    places = [one for diff in json.loads(done.stdout)[0]["differences"] for one in diff["places"]]
    (place,) = [one for one in places if one["section"] == ".rodata"]
    assert place["before"] != place["after"]
    assert re.fullmatch(leak, place["before"])


def test_objects_need_the_seed(tiny: CommandProject, tmp_path: Path) -> None:
    """It is in no library, but the object cache would give what it does not get."""
    env = {
        "PYTHONPATH": str(mutant(tmp_path, ("templates/project/cmake/kbuild.cmake", SEED))),
        "KBUILD_CACHE": "off",
    }
    tiny.kbuild("build", "--backend", "cpu", env=env)
    other = clone_of(tiny, "elsewhere", "other-cache")
    other.kbuild("build", "--backend", "cpu", env=env)
    assert [*map(set, objects_of(other.root))] != [*map(set, objects_of(tiny.root))]


def test_examples_have_no_place_in_them(example: Callable[[str], CommandProject]) -> None:
    """The real thing: the library of an example knows neither its folder nor this machine's."""
    bench = example("relu-stable-abi")
    built = bench.built("--backend", "cpu")
    (library,) = Path(built["path"]).glob("*.so")
    for place in (bench.root, bench.cache, Path.home(), ROOT):
        assert str(place).encode() not in library.read_bytes()
