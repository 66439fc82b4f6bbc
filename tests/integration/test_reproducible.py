"""The same bytes from other folders, caches and surroundings, on a variant of three seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.command_project import CommandProject
from tests.support.tiny_project import write_tiny

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]
OPTIMIZER = (".gnu.lto_", ".gnu.debuglto_")


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
