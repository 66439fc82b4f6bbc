"""What is uploaded is accounted for; what is refused is said once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kbuild.plan.digest import digest_variant
from kbuild.publish.card.markdown import with_notice
from kbuild.publish.hub.candidate import UploadCandidate, examine_candidate, upload_obstacles
from kbuild.publish.hub.preflight import UploadObstacle, UploadRefusedError
from kbuild.publish.upload import overruled_warnings

NAME = "torch-cpu"


@pytest.fixture
def variant(tmp_path: Path) -> Path:
    folder = tmp_path / "build" / NAME
    folder.mkdir(parents=True)
    for name in ("__init__.py", "_ops.py"):
        (folder / name).write_text("")
    metadata = {
        "name": "demo",
        "id": "_demo_cpu_1",
        "version": 1,
        "license": "MIT",
        "python-depends": [],
        "backend": {"type": "cpu"},
        "digest": digest_variant(folder),
    }
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return folder


def words(candidate: UploadCandidate) -> list[str]:
    return [reason.message for reason in upload_obstacles([candidate])]


def test_what_no_digest_counts_is_refused(variant: Path, tmp_path: Path) -> None:
    (variant / "empty").mkdir()
    (variant / "far").symlink_to(tmp_path)
    os.mkfifo(variant / "module.py")
    assert words(examine_candidate(variant)) == [
        "`empty` is an empty folder",
        "`far` is a link that leads out of the folder",
        "`module.py` is a named pipe",
    ]


def seal(variant: Path, overruled: dict[str, str]) -> None:
    told = json.loads((variant / "metadata.json").read_text())
    told["provenance"] = {"kernel-builder": {"version": "1", "overruled": overruled}}
    told["digest"] = digest_variant(variant)
    (variant / "metadata.json").write_text(json.dumps(told))


def test_what_the_author_overruled_is_said_and_in_nobodys_way(variant: Path) -> None:
    (variant / "x.py").write_text('import torch\ntorch.library.define("a::b", "()")\n')
    seal(variant, {})
    assert any("[ops]" in said for said in words(examine_candidate(variant)))
    seal(variant, {"ops": "wanted", "layout": "no"})
    candidate = examine_candidate(variant)
    assert words(candidate) == []
    assert f"{NAME}: the errors of `ops` are overruled: wanted" in overruled_warnings([candidate])


def test_what_protects_users_is_never_overruled(variant: Path) -> None:
    (variant / "x.pyo").write_text("")
    seal(variant, {"layout": "no matter"})
    assert any("is bytecode" in said for said in words(examine_candidate(variant)))


def test_a_card_of_another_tool_says_what_is_overruled() -> None:
    told = {"one": {"ops": "see <b>"}, "two": {"ops": "see <b>", "load": "slow."}}
    card = with_notice("# Card\n", dirty=(), noncompliant=(), overruled=told)
    assert (
        "> The author overruled what the check `ops` found in `one`, `two`: see &lt;b&gt;." in card
    )
    assert "> The author overruled what the check `load` found in `two`: slow.\n" in card
    assert with_notice(card, dirty=(), noncompliant=()) == "# Card\n"


def test_what_is_said_of_several_variants_is_said_once():
    reasons = [
        UploadObstacle("torch212-cpu", "no commit", "use git"),
        UploadObstacle("token", "is missing"),
        UploadObstacle("torch213-cpu", "no commit", "use git"),
        UploadObstacle("torch214-cpu", "no commit", "use git"),
    ]
    error = UploadRefusedError("nothing was sent:", reasons)
    assert str(error) == (
        "nothing was sent:\n"
        "  torch212-cpu and 2 more: no commit\n"
        "    hint: use git\n"
        "  token: is missing"
    )
    assert len(error.to_json()["reasons"]) == 4
