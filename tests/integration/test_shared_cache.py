"""Two machines with one shared cache: the second one compiles nothing and has the same bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kbuild.build.unit_log import read_log
from tests.support.command_project import Bench
from tests.support.tiny_project import write_tiny

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]


@pytest.fixture
def tiny(tmp_path: Path) -> Bench:
    bench = write_tiny(tmp_path, "cpu")
    source = bench.root / "cpu" / "quiet.cpp"
    for macro in ("__DATE__", "__TIME__"):  # what has the time in it is never cached
        source.write_text(source.read_text().replace(macro, '"then"'))
    shutil.rmtree(bench.root / ".git")  # or the commit would differ
    return bench


def built(bench: Bench, url: str, **variables: str) -> tuple[dict[str, bytes], list[str], str]:
    """The variant's files, how each unit was had, and what kbuild said."""
    env = {"KBUILD_REMOTE_CACHE": url, **variables}
    done = bench.kbuild("build", "--json", "--backend", "cpu", env=env)
    (variant,) = [one for one in json.loads(done.stdout)["variants"] if one["path"]]
    files = (path for path in Path(variant["path"]).rglob("*") if path.is_file())
    log = read_log(bench.root / ".kbuild" / "report" / "units.jsonl")
    return (
        {str(path.relative_to(variant["path"])): path.read_bytes() for path in files},
        [unit.cache for unit in log.units],
        done.stderr,
    )


def another_machine(bench: Bench, name: str) -> Bench:
    """Another folder with the same project, and another cache."""
    root = bench.root.parent / name / "elsewhere"
    shutil.copytree(bench.root, root, ignore=shutil.ignore_patterns("build", ".kbuild"))
    (root.parent / "cache").mkdir()
    return Bench(root, root.parent / "cache")


def test_the_second_machine_compiles_nothing(tiny: Bench, tmp_path: Path) -> None:
    url = (tmp_path / "shared").as_uri()
    second = another_machine(tiny, "b")
    # An answer that is had faster than its files are read is not stored: no interpreter is so fast.
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import time\ntime.sleep(4)\n")
    slow = {"PYTHONPATH": str(tmp_path / "site")}
    files, outcomes, said = built(tiny, url, **slow)
    assert outcomes == ["miss", "miss"]
    assert "0 of 4 entries" in said  # two objects, and two answers of interpreters
    assert "4 stored" in said

    again, outcomes, said = built(second, url, KBUILD_REMOTE_CACHE_MODE="read", **slow)
    assert (again, outcomes) == (files, ["hit", "hit"])
    assert "4 of 4 entries" in said
    assert "s of work saved" in said
    assert "stored" not in said
    page = second.root / ".kbuild" / "report" / "build.html"
    assert "entries from the shared cache" in page.read_text()


def test_a_bad_address_ends_the_command(tiny: Bench) -> None:
    env = {"KBUILD_REMOTE_CACHE": "/srv/cache"}
    done = tiny.kbuild("build", "--backend", "cpu", expect=2, env=env)
    assert "KBUILD_REMOTE_CACHE: `/srv/cache` is not an address" in done.stderr
    assert "file:///FOLDER" in done.stderr
