"""Uploads that go wrong: builds made up from a seed, faults at random points, and who watches.

Each try is a process of its own, as a user's would be. Some are killed in the middle of a request;
all others meet faults that the Hub makes up. Tries follow each other until one succeeds.
"""

from __future__ import annotations

import base64
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbuild.plan.digest import digest_variant
from tests.support.hub.faults import KINDS
from tests.support.hub.fixture import HubBench, running_hub
from tests.support.hub.log import Record
from tests.support.hub.state import HEADS, Change

REPO = "org/kernel"
VARIANTS = (
    "torch213-cxx11-cpu-x86_64-linux",
    "torch213-cxx11-cu130-x86_64-linux",
    "torch213-cxx11-cpu-aarch64-linux",
    "torch-cuda",
    "torch-rocm",
)
CARD = "---\nlicense: apache-2.0\nlibrary_name: kernels\n---\n\n# Kernel {}\n"
MOST_TRIES = 40
# What a try runs; small waits, since what is tested is not how long it waits.
_TRY = """
import sys
from pathlib import Path
from kbuild.system.errors import KbuildError
from kbuild.publish.hub.huggingface import open_hub
from kbuild.publish.hub.layout import read_layout
from kbuild.publish.hub.repository import Repo, RetryPolicy
from kbuild.publish.hub.upload import UploadRun, UploadTarget, upload
project = Path(sys.argv[1])
folders = sorted(path.parent for path in project.glob("build/*/metadata.json"))
card = {"README.md": project / "build" / "CARD.md"}
try:
    layout = read_layout(folders, project, card)
    target = UploadTarget(Repo(sys.argv[2]), "v1", pull="pull" in sys.argv[3:])
    retry = RetryPolicy(tries=4, first_wait_s=0.01)
    outcome = upload(UploadRun(open_hub(), target, layout, retry, lambda text: None))
except KbuildError as error:
    sys.exit(f"{type(error).__name__}: {error.message}")
print(outcome.status)
"""


@dataclass(frozen=True)
class Fate:
    """How one upload went."""

    seed: int
    start: str
    """What the repository was before: `nothing`, `older` or `others`."""
    tries: int
    killed: int
    faults: dict[str, int]
    identical: bool
    complaints: tuple[str, ...]
    """What the watcher saw that nobody may see."""
    commits: int


@dataclass
class Watcher:
    """Looks at version branches whenever a ref changes: every variant there must be complete."""

    complaints: list[str] = field(default_factory=list)

    def __call__(self, change: Change) -> None:
        if not change.ref.startswith(f"{HEADS}v") or change.after is None:
            return
        files = change.repository.resolve(change.after).files
        names = {
            path.split("/")[1]
            for path in files
            if path.startswith("build/") and path.count("/") > 1
        }
        if not names:
            self.complaints.append(f"{change.ref} has no variant")
        for name in sorted(names):
            top = f"build/{name}/"
            own = {p.removeprefix(top): e for p, e in files.items() if p.startswith(top)}
            if not self._is_complete(own):
                self.complaints.append(f"{change.ref}: {name} is incomplete")

    def _is_complete(self, own: dict[str, Any]) -> bool:
        if "metadata.json" not in own:
            return False
        told = json.loads(own.pop("metadata.json").data)["digest"]["files"]
        there = {path: entry.sha256 for path, entry in own.items()}
        return there == {path: _hex(digest) for path, digest in told.items()}


def _hex(digest: str) -> str:
    return base64.b64decode(digest).hex()


def write_variant(build: Path, name: str, source: random.Random, files: int = 4) -> Path:
    """A variant with libraries that go to LFS and Python files that do not."""
    folder = build / name
    (folder / "layers").mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(f"value = {source.random()}\n")
    (folder / "_ops.py").write_text("")
    (folder / "layers" / "__init__.py").write_text("")
    (folder / f"_kernel_{source.randrange(1000)}.abi3.so").write_bytes(source.randbytes(20_000))
    for number in range(files - 4):
        (folder / f"data_{number}.json").write_text(json.dumps(source.random()))
    metadata = {
        "name": "kernel",
        "id": f"_kernel_{source.randrange(1 << 30):07x}",
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
        "digest": digest_variant(folder),
        "provenance": {
            "kernel-builder": {"name": "kbuild", "version": "1.0"},
            "kernel": {"commit": "1" * 40, "dirty": False},
        },
    }
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return folder


def write_build(root: Path, source: random.Random, variants: tuple[str, ...] = VARIANTS) -> Path:
    """A project's folder with built variants, a card and benchmarks."""
    build = root / "build"
    for name in variants:
        write_variant(build, name, source)
    (build / "CARD.md").write_text(CARD.format(source.randrange(1000)))
    (root / "benchmarks").mkdir(exist_ok=True)
    (root / "benchmarks" / "benchmark.py").write_text(f"x = {source.random()}\n")
    return root


def expected(root: Path) -> dict[str, bytes]:
    """What the version branch has to hold of a build."""
    files = [path for path in root.rglob("*") if path.is_file() and path.name != "CARD.md"]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def suffer(seed: int, folder: Path) -> Fate:
    """One upload with faults from a seed, tried until it succeeds."""
    source = random.Random(seed)  # noqa: S311
    with running_hub(folder) as hub:
        start = source.choice(("nothing", "older", "others"))
        kept = _prepare(hub, start, folder, source)
        project = write_build(folder / "new", source)
        watcher = Watcher()
        hub.hub.listen(watcher)
        killer = Killer(source.randrange(1, 25) if source.random() < 0.5 else 0)
        hub.server.follow = killer
        _plan_faults(hub, source)
        tries = _try_until_done(hub, project, killer)
        fired = Counter(kind for kind, _ in hub.faults.fired)
        hub.faults.clear()
        content = hub.content(REPO, "v1")
        content.pop("README.md", None)
        card = hub.content(REPO, "main").get("README.md")
        identical = content == {**expected(project), **kept}
        identical = identical and card == (project / "build" / "CARD.md").read_bytes()
        branches = {*hub.hub.repository(REPO).refs}
        identical = identical and branches == {f"{HEADS}main", f"{HEADS}v1"}
        commits = len(hub.log.commits)
    told = tuple(watcher.complaints)
    return Fate(seed, start, tries, killer.killed, dict(fired), identical, told, commits)


@dataclass
class Killer:
    """Ends a process with SIGKILL once so many requests were answered; the next lives longer."""

    after: int
    """Requests; 0 for never."""
    killed: int = 0
    process: subprocess.Popen[str] | None = None  # noqa: TID251
    _seen: int = 0

    def __call__(self, record: Record) -> None:
        self._seen += 1
        if self.after and self._seen == self.after and self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.killed += 1
            self._seen, self.after = 0, self.after * 2 if self.killed < 3 else 0


def attempt(
    hub: HubBench, project: Path, killer: Killer | None = None, *, pull: bool = False
) -> tuple[int, str]:
    """One try, with `pull` as a pull request; exit code and what it said."""
    command = [sys.executable, "-c", _TRY, str(project), REPO, *["pull"] * pull]
    process = subprocess.Popen(  # noqa: TID251
        command, env=hub.environ(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if killer is not None:
        killer.process = process
    out, _ = process.communicate()
    return process.returncode, out


def _try_until_done(hub: HubBench, project: Path, killer: Killer) -> int:
    for number in range(1, MOST_TRIES + 1):
        code, _ = attempt(hub, project, killer)
        if code == 0:
            return number
    return MOST_TRIES


def _prepare(hub: HubBench, start: str, folder: Path, source: random.Random) -> dict[str, bytes]:
    """Publish what was there before; what of it has to stay."""
    if start == "nothing":
        return {}
    names = VARIANTS[:3] if start == "older" else (*VARIANTS[1:2], "torch-xpu")
    older = write_build(folder / "old", source, names)
    code, said = attempt(hub, older)
    assert code == 0, said
    files = expected(older).items()
    return {path: data for path, data in files if "torch-xpu" in path}


def _plan_faults(hub: HubBench, source: random.Random) -> None:
    if source.random() < 0.3:
        hub.faults.add(source.choice(KINDS), after=source.randrange(30))
    else:
        hub.faults.at_random(source.randrange(1 << 30), source.uniform(0.03, 0.35), times=30)
