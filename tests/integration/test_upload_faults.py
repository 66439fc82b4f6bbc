"""Uploads that go wrong: what is on the Hub afterwards, and what it showed on the way."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.hub.fixture import HubBench, running_hub
from tests.support.hub.log import COMMITS, Record
from tests.support.hub.state import Commit
from tests.support.hub.uploads import (
    REPO,
    VARIANTS,
    Fate,
    Watcher,
    attempt,
    expected,
    suffer,
    write_build,
    write_variant,
)

pytest.importorskip("huggingface_hub")
# ruff: noqa: S311
# `benchmarks/upload.py` goes through all hundred.
SEEDS = (0, 1, 3, 5, 8, 20, 47, 99)
FOURTEEN = (
    *(f"torch{t}-cxx11-cu{c}-{a}-linux" for t in (212, 213) for c in (126, 130, 132)
      for a in ("x86_64", "aarch64")),
    *("torch-cuda", "torch-rocm"),
)  # fmt: skip


@pytest.fixture(scope="module")
def fates(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Fate]:
    """Each upload by its seed; most of the time is spent waiting, so several run at once."""
    with ThreadPoolExecutor(4) as pool:
        folders = [tmp_path_factory.mktemp(f"seed{seed}") for seed in SEEDS]
        return {fate.seed: fate for fate in pool.map(suffer, SEEDS, folders)}


@pytest.mark.parametrize("seed", SEEDS)
def test_after_faults_the_repository_equals_the_build(fates: dict[int, Fate], seed: int) -> None:
    assert fates[seed].identical, fates[seed]
    assert fates[seed].complaints == ()


def test_the_faults_were_real(fates: dict[int, Fate]) -> None:
    assert sum(fate.killed for fate in fates.values()) >= 3
    assert sum(fate.tries > 1 for fate in fates.values()) >= 4
    assert len({kind for fate in fates.values() for kind in fate.faults}) >= 6


def test_a_thousand_files_take_three_commits(hub: HubBench, tmp_path: Path) -> None:
    source = random.Random(2)
    project = write_build(tmp_path / "p", source, FOURTEEN)
    for name in FOURTEEN:
        write_variant(project / "build", name, source, files=70)
    assert len(expected(project)) >= 1000
    assert attempt(hub, project)[0] == 0
    assert len(hub.log.commits) <= 3
    content = hub.content(REPO, "v1")
    assert {p: d for p, d in content.items() if p != "README.md"} == expected(project)


def test_two_uploads_of_other_variants_at_once_both_arrive(tmp_path: Path) -> None:
    """As jobs of one CI run do; each has its own variants of the same version."""
    with running_hub(tmp_path) as hub:
        watcher = Watcher()
        hub.hub.listen(watcher)
        halves = [VARIANTS[:2], VARIANTS[2:3], VARIANTS[3:]]
        projects = [
            write_build(tmp_path / f"p{at}", random.Random(at), names)
            for at, names in enumerate(halves)
        ]
        for project in projects:  # what is the same for all jobs
            (project / "build" / "CARD.md").write_text("---\nlicense: mit\n---\n")
            (project / "benchmarks" / "benchmark.py").write_text("x = 1\n")
        with ThreadPoolExecutor(3) as pool:
            ended = list(pool.map(lambda project: attempt(hub, project), projects))
        assert [code for code, _ in ended] == [0, 0, 0], ended
        content = hub.content(REPO, "v1")
        content.pop("README.md", None)
        wanted = {path: data for project in projects for path, data in expected(project).items()}
        assert content == wanted
        assert watcher.complaints == []


def test_two_uploads_of_the_same_variant_do_not_mix(tmp_path: Path) -> None:
    with running_hub(tmp_path) as hub:
        watcher = Watcher()
        hub.hub.listen(watcher)
        builds = [write_build(tmp_path / f"p{at}", random.Random(at)) for at in range(2)]
        with ThreadPoolExecutor(2) as pool:
            ended = list(pool.map(lambda project: attempt(hub, project), builds))
        content = hub.content(REPO, "v1")
        content.pop("README.md", None)
        assert content in [expected(build) for build in builds]
        assert watcher.complaints == []
        lost = [said for code, said in ended if code]
        assert all("somebody else changed" in said for said in lost)
        assert any(code == 0 for code, _ in ended)


def test_a_commit_of_others_in_between_is_no_obstacle(hub: HubBench, tmp_path: Path) -> None:
    assert attempt(hub, write_build(tmp_path / "old", random.Random(1)))[0] == 0
    project = write_build(tmp_path / "new", random.Random(2))
    hub.faults.add("stale", "/commit/v1")
    assert attempt(hub, project) == (0, "uploaded\n")
    assert [kind for kind, _ in hub.faults.fired] == ["stale"]
    titles = [c.title for c in _history(hub)]
    assert titles[:2] == ["Uploaded using kbuild.", "Somebody was faster"]


def test_who_changes_the_same_variant_ends_the_upload(hub: HubBench, tmp_path: Path) -> None:
    assert attempt(hub, write_build(tmp_path / "old", random.Random(1)))[0] == 0
    project = write_build(tmp_path / "new", random.Random(2))
    theirs = f"build/{VARIANTS[0]}/__init__.py"

    def interfere(record: Record) -> None:
        if "/preupload/v1" in record.target and record.method == "POST":
            hub.server.follow = None
            assert hub.commit(REPO, "v1", {theirs: "theirs"}) == 200

    hub.server.follow = interfere
    code, said = attempt(hub, project)
    assert code == 1
    assert f"somebody else changed `{theirs}`" in said
    assert hub.content(REPO, "v1")[theirs] == b"theirs"
    assert _history(hub)[0].title == "test"


def test_a_pull_request_is_opened_once(hub: HubBench, tmp_path: Path) -> None:
    """Also when the answer that it was opened is lost, and when the upload is begun again."""
    assert attempt(hub, write_build(tmp_path / "old", random.Random(1)))[0] == 0
    project = write_build(tmp_path / "new", random.Random(2))
    before = hub.content(REPO, "v1")
    hub.faults.add("cut-after-commit", COMMITS, times=2)
    assert attempt(hub, project, pull=True) == (0, "pull_request_created\n")
    assert attempt(hub, project, pull=True) == (0, "pull_request_created\n")
    pulls = hub.hub.repository(REPO).pulls
    assert sorted(pull.base for pull in pulls.values()) == ["main", "v1"]
    assert hub.content(REPO, "v1") == before


def _history(hub: HubBench) -> list[Commit]:
    repository = hub.hub.repository(REPO)
    return repository.history(repository.resolve("v1"))
