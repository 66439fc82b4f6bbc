"""`kbuild publish`, and what readers without a Hub load; `versions` and `diff` against a Hub."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbuild.hub.repository import Repo
from kbuild.mirror.layout import VersionPaths
from tests.support.command_project import Bench
from tests.support.hub.fixture import HubBench
from tests.support.mirrors import layout, metadata, room

REPO = "kbuild-examples/relu-noarch"
VARIANT = "torch-cpu"
CANARY = "canary-d41d8cd98f00"
Done = subprocess.CompletedProcess[str]
BY_PATH = """
import sys, torch
from pathlib import Path
from kernels import get_local_kernel
kernel = get_local_kernel(Path(sys.argv[1]))
print(kernel.relu(torch.tensor([-1.0, 2.0])).tolist())
"""
BY_NAME = """
import sys, torch
from kernels import get_kernel
for version in sys.argv[2:]:
    kernel = get_kernel(sys.argv[1], version=int(version))
    print(kernel.relu(torch.tensor([-1.0, 2.0])).tolist(), kernel.__doc__)
"""


@dataclass(frozen=True)
class Desk:
    """A project that was built, and room for mirrors."""

    project: Bench
    folder: Path

    @property
    def root(self) -> Path:
        return self.project.root

    @property
    def mirror(self) -> Path:
        return self.folder / "mirror"

    @property
    def version(self) -> Path:
        return self.mirror / REPO / "v1"

    def publish(self, *arguments: str, expect: int = 0, **env: str) -> Done:
        where = () if "--to" in arguments else ("--to", str(self.mirror))
        return self.project.kbuild("publish", *where, *arguments, expect=expect, env=env)

    def change(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text()
        assert old in text
        (self.root / path).write_text(text.replace(old, new))
        self.project.git("commit", "-qam", "change")

    def load(self, code: str, *arguments: str, **env: str) -> list[str]:
        """Lines that a process prints which cannot reach any Hub."""
        kept = {name: v for name, v in os.environ.items() if not name.startswith(("HF_", "KERN"))}
        away = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(self.folder / "empty")}
        done = subprocess.run(  # noqa: TID251
            (sys.executable, "-c", code, *arguments),
            env={**kept, **away, **env},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture(scope="module")
def built(example: Callable[[str], Bench], need_torch: None) -> Bench:
    """A Python-only project, built once."""
    bench = example("relu-noarch")
    bench.kbuild("build", "--provenance")
    return bench


@pytest.fixture
def desk(built: Bench, tmp_path: Path) -> Desk:
    """A copy of it."""
    root = tmp_path / "relu-noarch"
    shutil.copytree(built.root, root, symlinks=True)
    return Desk(Bench(root, built.cache), tmp_path)


class TestLoading:
    """In fresh processes, without a Hub, with the client that users have."""

    def test_by_path_and_by_local_kernels(self, desk: Desk) -> None:
        said = desk.publish().stdout.strip()
        assert said == str(desk.version)
        assert desk.load(BY_PATH, said) == ["[0.0, 2.0]"]
        (line,) = desk.load(BY_NAME, REPO, "1", LOCAL_KERNELS=f"{REPO}={said}")
        assert line.startswith("[0.0, 2.0]")

    def test_unchanged_programs_load_every_version_of_a_mirror(self, desk: Desk) -> None:
        """`get_kernel(..., version=N)` as it is written, from a mirror that nobody may write to."""
        desk.publish()
        desk.change("build.toml", "version = 1", "version = 2")
        package = "torch-ext/relu_noarch/__init__.py"
        text = (desk.root / package).read_text()
        (desk.root / package).write_text(f'"""Second."""\n{text.partition(chr(10))[2]}')
        desk.project.git("commit", "-qam", "second")
        desk.project.kbuild("build")
        desk.publish()
        paths = [desk.mirror, *(p for p in desk.mirror.rglob("*") if not p.is_symlink())]
        for path in paths:
            path.chmod(path.stat().st_mode & ~0o222)
        try:
            env = {"KERNELS_CACHE": str(desk.mirror), "HF_HUB_OFFLINE": "1"}
            first, second = desk.load(BY_NAME, REPO, "1", "2", **env)
        finally:
            for path in paths:
                path.chmod(path.stat().st_mode | 0o200)
        assert first.startswith("[0.0, 2.0]")
        assert second == "[0.0, 2.0] Second."

    def test_kernels_that_a_kernel_depends_on(self, tmp_path: Path, need_torch: None) -> None:
        """At the version that it names, while a program loads another one."""
        found = room("folder", tmp_path)
        need = "from kernels import get_kernel_dep\nY = get_kernel_dep('org/first').X\n"
        depends = {"kernel-depends": [{"repo-id": "org/first", "version": 1}]}
        for name, version, code, more in (
            ("first", 1, "X = 1\n", {}),
            ("first", 2, "X = 2\n", {}),
            ("second", 1, need, depends),
        ):
            told = metadata(version, name=name, id=f"_{name}_{version}", **more)
            files = {VARIANT: {"__init__.py": code, "metadata.json": told}}
            place = VersionPaths(Repo(f"org/{name}"), f"v{version}")
            found.publish(layout(tmp_path / f"{name}{version}", files), place)
        code = (
            "from kernels import get_kernel\n"
            "first = get_kernel('org/first', version=2)\n"
            "print(first.X, get_kernel('org/second', version=1).Y)"
        )
        desk = Desk(Bench(tmp_path, tmp_path), tmp_path)
        env = {"KERNELS_CACHE": str(desk.mirror), "HF_HUB_OFFLINE": "1"}
        assert desk.load(code, **env) == ["2 1"]

    def test_a_copy_without_links(self, desk: Desk) -> None:
        """As `aws s3 sync` and the like make it."""
        desk.publish("--to", f"local://{desk.mirror}")
        assert not any(path.is_symlink() for path in desk.mirror.rglob("*"))
        copy = desk.folder / "copy"
        shutil.copytree(desk.mirror, copy)
        env = {"KERNELS_CACHE": str(copy), "HF_HUB_OFFLINE": "1"}
        (line,) = desk.load(BY_NAME, REPO, "1", PYTHONDONTWRITEBYTECODE="1", **env)
        assert line.startswith("[0.0, 2.0]")
        assert desk.project.kbuild("verify-mirror", str(copy)).returncode == 0


class TestWhatIsPublished:
    def test_what_an_upload_would_send_and_the_card(self, desk: Desk) -> None:
        (desk.root / f"build/{VARIANT}/.DS_Store").write_bytes(b"0")
        desk.publish()
        mine = desk.root / "build"
        wanted = {f"build/{p.relative_to(mine)}" for p in mine.rglob("*") if p.is_file()}
        wanted -= {"build/CARD.md", f"build/{VARIANT}/.DS_Store"}
        wanted |= {"README.md", "kbuild-manifest.json", "benchmarks/benchmark.py"}
        found = {str(p.relative_to(desk.version)) for p in desk.version.rglob("*") if p.is_file()}
        assert found == wanted
        assert f"build/{VARIANT}.intoto.json" in found
        assert "TODO" not in (desk.version / "README.md").read_text()

    def test_again_changes_nothing(self, desk: Desk) -> None:
        desk.publish()
        before = {path: path.lstat().st_mtime_ns for path in desk.mirror.rglob("*")}
        again = desk.publish()
        assert "nothing to publish" in again.stderr
        assert {path: path.lstat().st_mtime_ns for path in desk.mirror.rglob("*")} == before

    def test_dry_run(self, desk: Desk) -> None:
        done = desk.publish("--dry-run")
        assert f"{REPO}@v1 in {desk.mirror}: new" in done.stdout
        assert f"+ build/{VARIANT}/metadata.json" in done.stdout or "files" in done.stdout
        assert not desk.mirror.exists()
        told = json.loads(desk.publish("--dry-run", "--json").stdout)["difference"]
        assert (told["new"], told["removed"]) == (True, [])

    def test_missing(self, desk: Desk) -> None:
        desk.publish("--variant", "torch-cpu")
        told = json.loads(desk.publish("--missing", "--dry-run", "--json").stdout)["difference"]
        assert {e["path"].split("/")[1] for e in told["added"] if "build/" in e["path"]} == {
            "torch-cuda",
            "torch-cuda.cdx.json",
            "torch-cuda.intoto.json",
        }

    def test_dirty_variants_are_refused(self, desk: Desk) -> None:
        package = desk.root / "torch-ext/relu_noarch/__init__.py"
        package.write_text(package.read_text() + "\n# changed\n")
        desk.project.kbuild("build")
        refused = desk.publish(expect=11)
        assert "nothing was published:" in refused.stderr
        assert "built from uncommitted sources" in refused.stderr
        assert not desk.mirror.exists()
        desk.publish("--allow-dirty")
        assert f"`{VARIANT}`" in (desk.version / "README.md").read_text()

    def test_variants_of_unknown_source_are_refused(self, desk: Desk) -> None:
        shutil.rmtree(desk.root / ".git")
        shutil.rmtree(desk.root / "build")
        desk.project.kbuild("build")
        refused = desk.publish(expect=11)
        assert "it does not record the commit that it was built from" in refused.stderr
        assert "--allow-dirty" in refused.stderr
        assert not desk.mirror.exists()
        desk.publish("--allow-dirty")

    def test_noncompliant_variants_are_refused(self, desk: Desk) -> None:
        file = desk.root / f"build/{VARIANT}/__init__.py"
        file.write_text("import relu_noarch\n" + file.read_text())
        assert "differs from the digest" in desk.publish(expect=11).stderr
        desk.project.kbuild("hash")
        refused = desk.publish(expect=11)
        assert "--allow-noncompliant" in refused.stderr

    def test_an_interface_that_breaks_callers_is_refused(self, desk: Desk) -> None:
        desk.publish()
        desk.change("torch-ext/relu_noarch/__init__.py", '["layers", "relu"]', '["layers"]')
        desk.project.kbuild("build")
        refused = desk.publish(expect=11)
        assert "`relu` is gone: breaks callers" in refused.stderr
        diff = desk.project.kbuild("diff", f"{desk.mirror}/{REPO}@v1").stdout
        assert "- `relu` is gone (breaks callers)" in diff
        assert "must be raised to at least 2" in diff

    @pytest.mark.parametrize("option", ["--private", "--create-pr"])
    def test_options_of_the_hub(self, desk: Desk, option: str) -> None:
        assert "is for the Hub" in desk.publish(option, expect=2).stderr


class TestSecrets:
    @pytest.mark.parametrize(
        "url",
        [
            f"sftp://me:{CANARY}@127.0.0.1:9/kernels",
            f"nonsense://me:{CANARY}@host/kernels",
            f"https://127.0.0.1:9/kernels?token={CANARY}",
        ],
    )
    @pytest.mark.parametrize("verb", ["publish", "versions", "verify-mirror"])
    def test_of_addresses_are_never_said(self, desk: Desk, url: str, verb: str) -> None:
        arguments = ("--to", url) if verb == "publish" else (url,)
        done = desk.project.run(verb, *arguments, "--json", env={"KBUILD_TRACEBACK": "1"})
        assert done.returncode != 0
        assert CANARY not in done.stdout + done.stderr
        crashes = desk.project.cache / "crashes"
        kept = [p.read_text() for p in crashes.glob("*.txt")] if crashes.is_dir() else []
        assert not any(CANARY in text for text in kept)


class TestHub:
    """The same from the Hub, through the real client."""

    def run(self, desk: Desk, hub: HubBench, *arguments: str, expect: int = 0) -> Done:
        env = {"KBUILD_CACHE_DIR": str(desk.project.cache), "KBUILD_TOOLCHAIN": "host"}
        command = (sys.executable, "-m", "kbuild", *arguments)
        done = hub.run(*command, cwd=desk.root, env=env)
        assert done.returncode == expect, f"{done.stdout}\n{done.stderr}"
        return done

    def json(self, desk: Desk, hub: HubBench, *arguments: str) -> Any:
        return json.loads(self.run(desk, hub, *arguments, "--json").stdout)

    def test_from_publishing_to_differences(self, desk: Desk, hub: HubBench) -> None:
        pytest.importorskip("huggingface_hub")
        done = self.run(desk, hub, "publish", "--to", "hub:org/relu@v1")
        assert done.stdout.strip() == f"{hub.server.endpoint}/kernels/org/relu/tree/v1"
        assert "up to date" in self.run(desk, hub, "publish", "--to", "hub:org/relu").stderr
        self.run(desk, hub, "publish", "--to", str(desk.mirror), "--repo-id", "org/relu")

        (told,) = self.json(desk, hub, "versions", "org/relu")
        assert (told["where"], told["version"]) == ("hub:org/relu", "v1")
        assert told["date"]
        assert told["fits"] == VARIANT
        variants = {entry["variant"]: entry for entry in told["variants"]}
        assert variants["torch-cuda"]["here"] is False
        assert variants["torch-cuda"]["date"]
        mirrored = self.json(desk, hub, "versions", f"{desk.mirror}/org/relu")
        built = self.json(desk, hub, "versions", "build")
        assert told["size"] == mirrored[0]["size"] == built[0]["size"]

        for other in ("build", f"{desk.mirror}/org/relu@v1", "hub:org/relu@v1"):
            assert self.json(desk, hub, "diff", "org/relu@v1", other)["different"] is False
        head = hub.hub.repository("org/relu").resolve("v1").oid
        assert not self.json(desk, hub, "diff", f"hub:org/relu@{head}", "build")["different"]

        file = desk.root / f"build/{VARIANT}/_relu.py"
        file.write_text(file.read_text() + "# more\n")
        text = self.run(desk, hub, "diff", "org/relu@v1", "build").stdout
        assert f"~ build/{VARIANT}/_relu.py" in text
        assert "= 1 variant unchanged" in text
        self.run(desk, hub, "diff", "org/relu@v1", "build", "--exit-code", expect=1)

    def test_what_the_hub_does_not_have(self, desk: Desk, hub: HubBench) -> None:
        pytest.importorskip("huggingface_hub")
        assert (
            "no kernel `org/none`" in self.run(desk, hub, "versions", "org/none", expect=2).stderr
        )
        hub.create("org/relu", "v1", "v2")
        refused = self.run(desk, hub, "diff", "org/relu@v3", expect=2)
        assert "there are: v1, v2" in refused.stderr
        refused = self.run(
            desk, hub, "publish", "--to", "hub:org/relu", "--repo-id", "org/other", expect=2
        )
        assert "different places" in refused.stderr
