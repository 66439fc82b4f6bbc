"""The Hub of `tests/support/hub` as the real huggingface_hub sees it: without faults."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.support.hub.fixture import STRANGER, HubBench, running_hub
from tests.support.hub.hub import Limits

BINARY = bytes(range(256)) * 40
START = "from huggingface_hub import *; api = HfApi()\n"
CREATE = START + "api.create_repo('org/k', repo_type='kernel')\n"


def folder_with(root: Path, **files: bytes) -> Path:
    """A folder; double underscores in names are slashes, single ones dots."""
    for name, data in files.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


UPLOAD = (
    START + "info = api.upload_folder(repo_id='org/k', folder_path=arguments[0],"
    " repo_type='kernel', revision='v1')\nanswer(info.oid)"
)


@pytest.mark.quick
def test_a_kernel_repository_from_nothing(hub: HubBench, tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "k", build__cpu__a_py=b"x = 1\n", build__cpu__b_so=BINARY)
    code = """
user = api.whoami()["name"]
again = api.create_repo("org/k", repo_type="kernel", exist_ok=True)
api.create_branch("org/k", branch="v1", repo_type="kernel")
api.create_branch("org/k", branch="v1", repo_type="kernel", exist_ok=True)
api.upload_folder(repo_id="org/k", folder_path=arguments[0], repo_type="kernel", revision="v1")
refs = api.list_repo_refs("org/k", repo_type="kernel")
info = api.kernel_info("org/k", revision="v1")
answer([user, again.repo_id, again.repo_type, sorted(b.name for b in refs.branches), info.sha])
"""
    *names, sha = hub.python(CREATE + code, str(folder))
    assert names == ["tester", "org/k", "kernel", ["main", "v1"]]
    assert hub.content("org/k", "v1") == {"build/cpu/a.py": b"x = 1\n", "build/cpu/b.so": BINARY}
    assert hub.content("org/k", "main") == {}
    assert hub.hub.repository("org/k").resolve("v1").oid == sha
    assert hub.log.unknown == []
    assert hub.log.leaks == []


def test_large_files_go_to_the_storage_and_are_noted(hub: HubBench, tmp_path: Path) -> None:
    hub.create("org/k", "v1")
    hub.python(UPLOAD, str(folder_with(tmp_path / "k", a_so=BINARY, b_py=b"text")))
    files = hub.hub.repository("org/k").resolve("v1").files
    assert files["a.so"].sha256 == hashlib.sha256(BINARY).hexdigest()
    assert files["b.py"].sha256 is None
    attributes = hub.ask("GET", "/kernels/org/k/resolve/v1/.gitattributes").body.decode()
    assert "\na.so filter=lfs diff=lfs merge=lfs -text\n" in attributes


def test_multipart(tmp_path: Path) -> None:
    data = BINARY[:2500]
    with running_hub(tmp_path, limits=Limits(part_size=1000)) as hub:
        hub.create("org/k", "v1")
        hub.python(UPLOAD, str(folder_with(tmp_path / "k", a_so=data, b_so=BINARY[:900])))
        assert [r.received for r in hub.log.matching("PUT /part/")] == [1000, 1000, 500]
        assert len(hub.log.matching("POST /api/complete_multipart/")) == 1
        assert len(hub.log.matching("PUT /upload/")) == 1  # what fits into one part is sent whole
        assert hub.content("org/k", "v1")["a.so"] == data


def test_nothing_is_committed_twice(hub: HubBench, tmp_path: Path) -> None:
    hub.create("org/k", "v1")
    files = {f"f{number}_py": b"x = %d" % number for number in range(300)}
    folder = folder_with(tmp_path / "k", so_so=BINARY, **files)
    first = hub.python(UPLOAD, str(folder))
    hub.log.clear()
    assert hub.python(UPLOAD, str(folder)) == first
    assert hub.log.commits == []
    asked = [record.line.split("/")[-2:] for record in hub.log.records]
    assert asked == [
        ["preupload", "v1"],
        ["preupload", "v1"],  # 256 files at a time
        ["objects", "batch"],
        ["revision", "v1"],
    ]


def test_a_parent_that_is_not_the_head_is_refused(hub: HubBench) -> None:
    old = hub.create("org/k", "v1").resolve("v1").oid
    assert hub.commit("org/k", "v1", {"a": "1"}, parentCommit=old).status == 200
    code = """
add = CommitOperationAdd("b", b"2")
api.create_commit("org/k", [add], commit_message="m", repo_type="kernel", revision="v1",
                  parent_commit=arguments[0])
"""
    error = hub.python(START + code, old)
    assert (error["error"], error["status"]) == ("HfHubHTTPError", 412)
    assert "A commit has happened since" in error["text"]
    assert hub.content("org/k", "v1") == {"a": b"1"}


def test_deleting(hub: HubBench) -> None:
    hub.create("org/k", "v1")
    names = ("build/x/a", "build/x/b", "build/y/a", "c")
    hub.commit("org/k", "v1", dict.fromkeys(names, "1"))
    code = """
gone = [CommitOperationDelete("build/x/"), CommitOperationDelete("c")]
gone += [CommitOperationDelete(name) for name in arguments]
api.create_commit("org/k", gone, commit_message="m", repo_type="kernel", revision="v1")
"""
    error = hub.python(START + code, "nothing")
    assert (error["error"], error["status"]) == ("RemoteEntryNotFoundError", 404)
    assert set(hub.content("org/k", "v1")) == set(names)  # all or nothing
    hub.python(START + code)
    assert set(hub.content("org/k", "v1")) == {"build/y/a"}


def test_pull_request(hub: HubBench) -> None:
    hub.create("org/k", "v1")
    code = """
def commit(path, **where):
    add = CommitOperationAdd(path, b"1")
    return api.create_commit("org/k", [add], commit_message=path, repo_type="kernel", **where)
pull = commit("a", revision="v1", create_pr=True)
commit("b", revision=pull.pr_revision)
refs = api.list_repo_refs("org/k", repo_type="kernel", include_pull_requests=True)
answer([pull.pr_url, pull.pr_num, [r.ref for r in refs.pull_requests]])
"""
    # From somebody who may not write here: that is what pull requests are for.
    url, num, refs = hub.python(START + code, token=STRANGER)
    assert url == f"{hub.server.endpoint}/kernels/org/k/discussions/1"
    assert (num, refs) == (1, ["refs/pr/1"])
    assert set(hub.content("org/k", "refs/pr/1")) == {"a", "b"}
    assert hub.content("org/k", "v1") == {}
    assert hub.ask("POST", "/api/kernels/org/k/discussions/1/merge", {}).status == 200
    assert set(hub.content("org/k", "v1")) == {"a", "b"}


def test_tree_is_given_in_pages(tmp_path: Path) -> None:
    with running_hub(tmp_path, limits=Limits(page=3, expanded_page=2)) as hub:
        hub.create("org/k", "v1")
        hub.commit("org/k", "v1", {f"build/f{number}": "1" for number in range(7)})
        code = """
def paths(**how):
    tree = api.list_repo_tree("org/k", revision="v1", repo_type="kernel", **how)
    return [(entry.path, bool(entry.last_commit)) for entry in tree]
answer([paths(recursive=True), paths(path_in_repo="build", expand=True)])
"""
        every, inside = hub.python(START + code)
        names = [f"build/f{number}" for number in range(7)]
        assert every == [[path, False] for path in [".gitattributes", "build", *names]]
        assert inside == [[path, True] for path in names]
        assert len(hub.log.matching("/tree/v1[?]")) == 3
        assert len(hub.log.matching("/tree/v1/build[?]")) == 4


def test_downloads(hub: HubBench, tmp_path: Path) -> None:
    hub.create("org/k", "v1")
    folder = folder_with(tmp_path / "k", build__a_py=b"text", build__b_so=BINARY, other_py=b"1")
    hub.python(UPLOAD, str(folder))
    code = """
from pathlib import Path
root = Path(snapshot_download("org/k", repo_type="kernel", revision="v1", allow_patterns="build/*"))
answer({p.relative_to(root).as_posix(): p.read_bytes().hex() for p in root.rglob("*.*")})
"""
    found = hub.python(START + code)
    assert found == {"build/a.py": b"text".hex(), "build/b.so": BINARY.hex()}
    assert len(hub.log.matching("GET /download/")) == 1
    assert hub.log.leaks == []  # no token leaves the Hub
    hub.log.clear()
    assert hub.python(START + code) == found
    assert hub.log.matching("GET .*/(download|resolve)/") == []  # all from the client's cache


def test_tags_history_and_removal(hub: HubBench) -> None:
    hub.create("org/k", "v1")
    hub.commit("org/k", "v1", {"a": "1"})
    code = """
api.create_tag("org/k", tag="t", revision="v1", repo_type="kernel")
titles = [c.title for c in api.list_repo_commits("org/k", revision="t", repo_type="kernel")]
infos = api.get_paths_info("org/k", ["a", "none"], revision="t", repo_type="kernel")
api.delete_tag("org/k", tag="t", repo_type="kernel")
api.delete_branch("org/k", branch="v1", repo_type="kernel")
refs = api.list_repo_refs("org/k", repo_type="kernel")
api.delete_repo("org/k", repo_type="kernel")
answer([titles, [i.path for i in infos], [b.name for b in refs.branches], len(refs.tags)])
"""
    assert hub.python(START + code) == [["test", "initial commit"], ["a"], ["main"], 0]
    assert hub.hub.find("kernels", "org/k") is None


def test_git_ignores(hub: HubBench, tmp_path: Path) -> None:
    hub.create("org/k", "v1")
    folder = folder_with(tmp_path / "k", a_py=b"1", a_pyc=b"2", old__b_py=b"3")
    (folder / ".gitignore").write_text("*.pyc\nold/\n")
    hub.python(UPLOAD, str(folder))
    assert set(hub.content("org/k", "v1")) == {".gitignore", "a.py"}


def test_models_too(hub: HubBench) -> None:
    code = """
api.create_repo("m")
api.upload_file(path_or_fileobj=b"x" * 9, path_in_repo="a.bin", repo_id="tester/m")
info = api.model_info("tester/m", files_metadata=True)
answer([[s.rfilename, s.size] for s in info.siblings if s.lfs])
"""
    assert hub.python(START + code) == [["a.bin", 9]]


def test_without_xet_the_client_does_not_fall_back(hub: HubBench) -> None:
    """Why the environment says `HF_HUB_DISABLE_XET`, and that nothing else needs it."""
    pytest.importorskip("hf_xet")
    hub.create("org/k")
    code = (
        START + "api.upload_file(repo_id='org/k', repo_type='kernel',"
        " path_in_repo='a.bin', path_or_fileobj={})\nanswer('sent')"
    )
    xet = {"HF_HUB_DISABLE_XET": "0"}
    assert hub.python(code.format("bytes(9)"), env=xet)["error"] == "ConnectionError"
    assert hub.log.matching("xet-write-token")[0].status == 404
    assert hub.python(code.format("__import__('io').BytesIO(bytes(9))"), env=xet) == "sent"


def test_cards_are_looked_at(hub: HubBench) -> None:
    hub.create("org/k")
    code = START + (
        "api.upload_file(path_or_fileobj=arguments[0].encode(), path_in_repo='README.md',"
        " repo_id='org/k', repo_type='kernel')"
    )
    error = hub.python(code, "---\nlicense: [\n---\n# k\n")
    assert error["error"] == "ValueError"
    assert "Invalid metadata in README.md" in error["text"]
    assert hub.content("org/k") == {}
    card = "---\nlicense: mit\n---\n# k\n"
    hub.python(code, card)
    assert hub.content("org/k") == {"README.md": card.encode()}
