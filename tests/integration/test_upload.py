"""`kbuild upload` and `build-and-upload` from the command line, against a Hub on this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_project import CommandProject
from tests.support.hub.fixture import READ, STRANGER, WRITE, HubBench

pytest.importorskip("huggingface_hub")
REPO = "org/relu"
TO = ("--repo-id", REPO)
Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class UploadProject:
    """A project and a Hub."""

    project: CommandProject
    hub: HubBench

    @property
    def root(self) -> Path:
        return self.project.root

    def kbuild(
        self, *arguments: str, expect: int = 0, token: str | None = WRITE, **env: str
    ) -> Done:
        own = {"KBUILD_CACHE_DIR": str(self.project.cache), "KBUILD_TOOLCHAIN": "host", **env}
        command = (sys.executable, "-m", "kbuild", *arguments)
        done = self.hub.run(*command, token=token, cwd=self.root, env=own)
        assert done.returncode == expect, f"{done.stdout}\n{done.stderr}"
        return done

    def json(self, *arguments: str, expect: int = 0, token: str | None = WRITE) -> Any:
        return json.loads(self.kbuild(*arguments, "--json", expect=expect, token=token).stdout)

    def write(self, path: str, text: str) -> None:
        (self.root / path).write_text(text)

    def change(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text()
        assert old in text
        self.write(path, text.replace(old, new))

    def commit(self) -> None:
        self.project.git("add", "-A")
        self.project.git("commit", "-qm", "change")

    def published(self, branch: str = "v1") -> dict[str, bytes]:
        return self.hub.content(REPO, branch)


@pytest.fixture(scope="module")
def built(example: Callable[[str], CommandProject], need_torch: None) -> CommandProject:
    """A Python-only project, built once."""
    bench = example("relu-noarch")
    bench.kbuild("build")
    return bench


@pytest.fixture
def upload(built: CommandProject, hub: HubBench, tmp_path: Path) -> UploadProject:
    """A copy of it, and a Hub."""
    root = tmp_path / "relu-noarch"
    shutil.copytree(built.root, root, symlinks=True)
    return UploadProject(CommandProject(root, built.cache), hub)


@pytest.mark.quick
def test_from_source_to_strangers(hub: HubBench, tmp_path: Path, need_torch: None) -> None:
    """init, build-and-upload, and the kernel runs in a process that knows nothing but its name."""
    env = {"KBUILD_CACHE_DIR": str(tmp_path / "cache"), "KBUILD_TOOLCHAIN": "host"}
    kbuild = (sys.executable, "-m", "kbuild")
    made = hub.run(
        *kbuild,
        "init",
        "--name",
        "org/fresh",
        "--backends",
        "cpu",
        "--noarch",
        cwd=tmp_path,
        env=env,
    )
    assert made.returncode == 0, made.stderr
    project = CommandProject(tmp_path / "fresh", tmp_path / "cache")
    project.git("add", "-A")
    project.git("commit", "-qm", "first")
    done = hub.run(*kbuild, "build-and-upload", cwd=project.root, env=env)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.splitlines()[-1] == f"{hub.server.endpoint}/kernels/org/fresh/tree/v1"
    loaded = hub.python(
        "import torch\n"
        "from kernels import get_kernel\n"
        "kernel = get_kernel('org/fresh', version=1)\n"
        "answer(kernel.scale(torch.ones(3), 3.0).tolist())",
        token=None,
    )
    assert loaded == [3.0, 3.0, 3.0]


class TestWhatGoesWhere:
    def test_variants_evidence_and_benchmarks_on_the_version_and_the_card_on_main(
        self, upload: UploadProject
    ) -> None:
        (upload.root / "build/torch-cpu/__pycache__").mkdir()
        (upload.root / "build/torch-cpu/__pycache__/x.pyc").write_bytes(b"0")
        (upload.root / "build/torch-cpu/.DS_Store").write_bytes(b"0")
        (upload.root / "benchmarks/notes.txt").write_text("not a benchmark")
        upload.kbuild("upload", *TO)
        files = upload.published()
        folder = upload.root / "build"
        wanted = {
            f"build/{path.relative_to(folder).as_posix()}": path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path.name not in {".DS_Store", "CARD.md", "x.pyc"}
        }
        assert {p: d for p, d in files.items() if p.startswith("build/")} == wanted
        assert sorted(p for p in files if p.startswith("benchmarks/")) == [
            "benchmarks/benchmark.py"
        ]
        assert list(upload.published("main")) == ["README.md"]
        assert b"get_kernel" in upload.published("main")["README.md"]
        assert b"TODO" not in upload.published("main")["README.md"]

    def test_stale_files_go_and_other_variants_stay(self, upload: UploadProject) -> None:
        upload.hub.create(REPO, "v1")
        old = {
            "build/torch-cpu/gone.py": "x",
            "build/torch-xpu/metadata.json": "{}",
            "build/torch-xpu/__init__.py": "x",
            "benchmarks/benchmark_old.py": "x",
            "benchmarks/data.csv": "x",
            "LICENSE": "x",
        }
        assert upload.hub.commit(REPO, "v1", old) == 200
        upload.kbuild("upload", *TO)
        files = upload.published()
        assert "build/torch-cpu/gone.py" not in files
        assert "benchmarks/benchmark_old.py" not in files
        kept = {"build/torch-xpu/metadata.json", "build/torch-xpu/__init__.py"}
        assert {*kept, "benchmarks/data.csv", "LICENSE"} <= {*files}

    def test_a_new_branch_takes_nothing_of_build_from_main(self, upload: UploadProject) -> None:
        upload.hub.create(REPO)
        old = {"build/torch-xpu/__init__.py": "x", "benchmarks/x.csv": "x", "LICENSE": "x"}
        upload.hub.commit(REPO, "main", old)
        upload.kbuild("upload", *TO)
        files = upload.published()
        assert not {"build/torch-xpu/__init__.py", "benchmarks/x.csv"} & {*files}
        assert "LICENSE" in files
        assert files["README.md"] == upload.published("main")["README.md"]

    def test_one_variant(self, upload: UploadProject) -> None:
        upload.kbuild("upload", *TO, "--variant", "*-cuda")
        assert not any(path.startswith("build/torch-cpu") for path in upload.published())


class TestTheAnswer:
    def test_the_file_of_the_reference_tool(self, upload: UploadProject) -> None:
        upload.kbuild("upload", *TO, "--output-json", "out.json")
        url = f"{upload.hub.server.endpoint}/kernels/{REPO}/tree/v1"
        told = {"status": "uploaded", "repo_id": REPO, "branch": "v1", "url": url}
        text = (upload.root / "out.json").read_text()
        assert json.loads(text) == {**told, "pull_requests": []}
        assert text.endswith("}\n")
        upload.kbuild("upload", *TO, "--output-json", "out.json")
        again = json.loads((upload.root / "out.json").read_text())
        assert (again["status"], again["url"]) == ("no_changes", None)

    def test_a_dry_run_tells_and_changes_nothing(self, upload: UploadProject) -> None:
        first = upload.kbuild("upload", *TO, "--dry-run").stdout
        assert first.startswith(f"{REPO} (kernel, which does not exist yet)\n  v1: new branch\n")
        assert "    + build/torch-cpu/metadata.json, " in first
        assert "  main\n" in first or "  main: new branch\n" in first
        assert upload.hub.hub.find(REPO) is None
        assert upload.hub.log.matching("^(POST|PUT|DELETE) ") == []
        upload.kbuild("upload", *TO)
        (upload.root / "benchmarks" / "benchmark_two.py").write_text("x = 1\n")
        second = upload.kbuild("upload", *TO, "--dry-run").stdout
        assert "    + benchmarks/benchmark_two.py, 6 bytes\n" in second
        assert "  main: nothing to do\n" in second
        assert upload.json("upload", *TO, "--dry-run")["difference"]["branches"][0]["commits"] == 1

    def test_pull_requests(self, upload: UploadProject) -> None:
        upload.kbuild("upload", *TO)
        (upload.root / "benchmarks" / "benchmark_two.py").write_text("x = 1\n")
        upload.change("CARD.md", "Packaged by kbuild", "Made by kbuild")
        before = upload.published()
        told = upload.json("upload", *TO, "--create-pr")["upload"]
        assert told["status"] == "pull_request_created"
        assert told["pull_requests"][0]["branch"] == "v1"
        assert upload.published() == before
        assert "benchmarks/benchmark_two.py" in upload.published("refs/pr/1")
        again = upload.json("upload", *TO, "--create-pr")["upload"]
        assert again["pull_requests"] == told["pull_requests"]
        assert len(upload.hub.hub.repository(REPO).pulls) == len(told["pull_requests"])


class TestRefusals:
    @pytest.mark.quick
    def test_every_reason_at_once(self, upload: UploadProject) -> None:
        upload.hub.create(REPO)
        (upload.root / "build/torch-cpu/_relu.py").write_text("edited = 1\n")
        (upload.root / "build/torch-cuda/extra.py").write_text("x = 1\n")
        upload.change("build/CARD.md", "# relu-noarch", "# TODO: say something")
        error = upload.json("upload", *TO, "--create-pr", "--private", token=STRANGER, expect=11)
        told = {(row["subject"], row["message"]) for row in error["error"]["reasons"]}
        assert {subject for subject, _ in told} == {
            *("branch", "repository", "torch-cpu", "torch-cuda", "card")
        }
        assert ("torch-cpu", "`_relu.py` differs from the digest") in told
        assert ("torch-cuda", "`extra.py` is not in the digest") in told
        assert ("card", "CARD.md:8: something is still to be done (line 8)") in told

    @pytest.mark.parametrize(
        ("token", "words"),
        [
            (None, "there is no token"),
            ("hf_nobodyknowsthisone", "rejected the token"),
            (READ, "the token of tester may only read"),
            (STRANGER, "stranger is not a member of org"),
        ],
    )
    def test_rights(self, upload: UploadProject, token: str | None, words: str) -> None:
        assert words in upload.kbuild("upload", *TO, token=token, expect=11).stderr
        assert upload.hub.log.matching("^(POST|PUT|DELETE) ") == []

    def test_dirty_variants_need_consent_and_are_named(self, upload: UploadProject) -> None:
        mark(upload, "torch-cpu", dirty=True)
        done = upload.kbuild("upload", *TO, expect=11)
        assert "torch-cpu: built from uncommitted sources" in done.stderr
        upload.kbuild("upload", *TO, "--allow-dirty")
        card = upload.published("main")["README.md"].decode()
        assert card.startswith("---\n")
        assert "Not built from a commit" in card
        assert "`torch-cpu`" in card.split("Not built from a commit")[1].split("\n")[0]

    def test_variants_that_break_promises_need_consent_and_are_named(
        self, upload: UploadProject
    ) -> None:
        (upload.root / "build/torch-cpu/_ops.py").unlink()
        upload.kbuild("hash")
        for beside in (upload.root / "build").glob("*.json"):
            beside.unlink()
        done = upload.kbuild("upload", *TO, expect=11)
        assert "torch-cpu: _ops.py: is missing [layout]" in done.stderr
        upload.kbuild("upload", *TO, "--allow-noncompliant")
        card = upload.published("main")["README.md"].decode()
        assert "> - `torch-cpu`: is missing\n" in card

    def test_a_change_that_breaks_callers_of_the_same_version_is_a_warning(
        self, upload: UploadProject
    ) -> None:
        upload.kbuild("upload", *TO)
        upload.change("torch-ext/relu_noarch/_relu.py", "def relu(", "def rectify(")
        upload.change("torch-ext/relu_noarch/__init__.py", '"relu"]', '"rectify"]')
        upload.change("torch-ext/relu_noarch/__init__.py", "import relu", "import rectify")
        upload.commit()
        warning = "warning: `relu`: public object was removed, which breaks callers"
        assert warning in upload.kbuild("build-and-upload", *TO, "--dry-run").stderr
        upload.change("build.toml", "version = 1", "version = 2")
        upload.commit()
        done = upload.kbuild("build-and-upload", *TO, "--dry-run")
        assert done.stdout.startswith(f"{REPO}, v2\n")
        assert "breaks callers" not in done.stderr


class TestBeforeTheBuild:
    def test_nothing_is_built_for_nothing(self, upload: UploadProject) -> None:
        shutil.rmtree(upload.root / "build")
        upload.write("torch-ext/relu_noarch/new.py", "x = 1\n")
        upload.change("CARD.md", "Packaged by kbuild", "TODO: by kbuild")
        done = upload.kbuild("build-and-upload", *TO, token=READ, expect=11)
        subjects = [line.split(":")[0].strip() for line in done.stderr.splitlines()]
        assert {"token", "sources", "card"} <= {*subjects}
        assert not (upload.root / "build").exists()

    def test_a_build_that_fails_uploads_nothing(self, upload: UploadProject) -> None:
        outside = "import torch\n\nfrom ...elsewhere import nothing\n"
        upload.change("torch-ext/relu_noarch/_relu.py", "import torch\n", outside)
        upload.commit()
        done = upload.kbuild("build-and-upload", *TO, expect=6)
        assert "nothing was uploaded" in done.stderr
        assert upload.hub.hub.find(REPO) is None

    def test_only_what_is_missing(self, upload: UploadProject) -> None:
        upload.kbuild("upload", *TO, "--variant", "torch-cpu")
        shutil.rmtree(upload.root / "build")
        told = upload.json("build-and-upload", *TO, "--missing", "--dry-run")["ahead"]
        assert (told["build"], told["published"]) == (["torch-cuda"], ["torch-cpu"])
        answer = upload.json("build-and-upload", *TO, "--missing")
        assert [row["variant"] for row in answer["variants"]] == ["torch-cuda"]
        assert answer["upload"]["status"] == "uploaded"
        assert {"build/torch-cpu/metadata.json", "build/torch-cuda/metadata.json"} <= {
            *upload.published()
        }
        done = upload.kbuild("build-and-upload", *TO, "--missing")
        assert "is up to date" in done.stderr
        assert "built in" not in done.stderr


def mark(upload: UploadProject, variant: str, *, dirty: bool) -> None:
    """Let a variant's metadata say that its source was dirty."""
    path = upload.root / "build" / variant / "metadata.json"
    told = json.loads(path.read_text())
    told["provenance"]["kernel"]["dirty"] = dirty
    path.write_text(json.dumps(told))
    for beside in (upload.root / "build").glob(f"{variant}.*.json"):
        beside.unlink()
