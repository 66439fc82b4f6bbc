"""Kernels from a Hub, as `huggingface_hub` fetches them from a server on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.plan.digest import digest_variant
from kbuild.plan.metadata import Metadata
from kbuild.system.processes import LocalRunner, ProcessResult
from tests.support.hub.fixture import STRANGER, WRITE, HubBench, running_hub

pytest.importorskip("huggingface_hub")

CPU, CUDA = "torch213-cxx11-cpu-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux"
FILES = {
    "README.md": b"# relu\n",
    f"build/{CPU}/__init__.py": b"x = 1\n",
    f"build/{CPU}/layers/__init__.py": b"y = 1\n",
    f"build/{CUDA}/__init__.py": b"x = 2\n",
}
# `huggingface_hub` reads its environment when it is imported: each test has a process of its own.
ASK = """
import sys
from pathlib import Path
from kbuild.system.errors import KbuildError
from kbuild.publish.hub.fetch import fetch_revision
try:
    found = fetch_revision(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
except KbuildError as error:
    sys.exit(f"{type(error).__name__}: {error}")
for path in sorted(p for p in found.rglob("*") if p.is_file()):
    print(path.relative_to(found).as_posix(), path.is_symlink())
"""
Fetch = Callable[..., ProcessResult]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubBench]:
    with running_hub(tmp_path / "hub") as bench:
        bench.publish("org/relu", FILES)
        yield bench


@pytest.fixture
def python(hub: HubBench, tmp_path: Path) -> Fetch:
    """Another Python, which knows no Hub but this machine's."""

    def ran(*argv: str, **environ: str) -> ProcessResult:
        env = {**hub.environ(None), "TMPDIR": str(tmp_path), **environ}
        return LocalRunner().run([sys.executable, *argv], env=env)

    return ran


@pytest.fixture
def fetch(python: Fetch, tmp_path: Path) -> Fetch:
    """`fetch("hub:org/relu@v1")` in another process."""
    number = iter(range(100))

    def asked(spec: str, *variants: str, **environ: str) -> ProcessResult:
        into = tmp_path / f"into{next(number)}"
        into.mkdir()
        return python("-c", ASK, spec, str(into), *variants, **environ)

    return asked


def files(done: ProcessResult) -> list[str]:
    assert done.ok, done.output
    return [line.split()[0] for line in done.output.splitlines() if line.startswith("build/")]


def test_a_branch(fetch: Fetch) -> None:
    done = fetch("hub:org/relu@v1")
    assert files(done) == sorted(name for name in FILES if name.startswith("build/"))
    assert "True" not in done.output  # files, not links into the cache


def test_a_listing_that_leads_elsewhere(fetch: Fetch, hub: HubBench) -> None:
    hub.publish("org/evil", {**FILES, f"build/{CPU}/../../../evil.py": b"x"})
    done = fetch("hub:org/evil@v1")
    assert not done.ok
    assert "DamagedFileError: org/evil@v1: " in done.output
    assert "it is not in `build`" in done.output


def test_more_files_than_a_kernel_has(fetch: Fetch, hub: HubBench) -> None:
    """Counted before any is downloaded."""
    hub.publish("org/deep", {f"build/{CPU}/{'a/' * 70}b.py": b"x"})
    done = fetch("hub:org/deep@v1")
    assert "its path has more than 64 parts" in done.output
    assert not hub.log.matching("/resolve/")


@pytest.mark.parametrize(
    ("spec", "variants", "words"),
    [
        ("hub:org/gone@v1", (), "UsageError: the Hub has no kernel `org/gone`"),
        ("hub:org/relu@v9", (), "UsageError: org/relu has no revision `v9`"),
        ("hub:org/relu@v1", ("*rocm*",), f"there are: {CPU}, {CUDA}"),
    ],
)
def test_what_there_is_not(fetch: Fetch, spec: str, variants: tuple[str, ...], words: str) -> None:
    done = fetch(spec, *variants)
    assert done.returncode == 1
    assert words in done.output


def test_nobody_answers(fetch: Fetch) -> None:
    done = fetch("hub:org/relu@v1", HF_ENDPOINT="http://127.0.0.1:9")
    assert (
        "org/relu@v1 cannot be fetched: the Hub at http://127.0.0.1:9 cannot be reached"
        in done.output
    )
    assert "is there a network?" in done.output


def test_offline_takes_what_was_fetched_before(fetch: Fetch, hub: HubBench) -> None:
    done = fetch("hub:org/relu@v1", HF_HUB_OFFLINE="1")
    assert "is not in the cache" in done.output
    assert hub.log.records == []
    online = files(fetch("hub:org/relu@v1"))
    hub.log.clear()
    assert files(fetch("hub:org/relu@v1", HF_HUB_OFFLINE="1")) == online
    assert hub.log.records == []


def test_a_token_is_used_and_never_shown(fetch: Fetch, hub: HubBench) -> None:
    hub.publish("org/private", FILES, private=True)
    assert len(files(fetch("hub:org/private@v1", HF_TOKEN=WRITE))) == 3
    for environ in ({}, {"HF_TOKEN": STRANGER}):
        refused = fetch("hub:org/private@v1", **environ)
        assert "the Hub has no kernel `org/private`" in refused.output
        assert STRANGER not in refused.output


def test_check(python: Fetch, hub: HubBench, tmp_path: Path) -> None:
    root = tmp_path / "torch-cpu"
    root.mkdir()
    for name in ("__init__.py", "_ops.py"):
        (root / name).write_text("")
    metadata = Metadata("relu", "_relu_cpu_0a1b2c3", 1, "Apache-2.0", "cpu")
    sealed = replace(metadata, digest=digest_variant(root)).to_json_text()
    files = {"build/torch-cpu/__init__.py": b"", "build/torch-cpu/_ops.py": b""}
    hub.publish("org/good", {**files, "build/torch-cpu/metadata.json": sealed.encode()})
    hub.publish("org/bad", files)
    check = ("-m", "kbuild", "check", "--no-load", "--json")
    done = python(*check, "hub:org/good@v1")
    assert done.returncode == 0, done.output
    (target,) = json.loads(done.output.rpartition("}")[0] + "}")["targets"]
    assert (target["kind"], target["target"]) == ("hub", "hub:org/good@v1")
    assert target["outputs"][0]["checks"]["layout"] == "ok"
    assert not Path(target["path"]).exists()
    assert python(*check, "hub:org/bad@v1").returncode == 6
