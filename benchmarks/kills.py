"""Kills with SIGKILL at random moments of builds and fetches: what is lost, wrong, stuck or left.

    python benchmarks/kills.py [--kills 200] [--seconds S] [--kbuild DIR] [--save] [--json]

Each kill hits a build in one of these situations: everything cold; a new workspace with a warm
cache; an existing variant that is replaced; the link; the moments in which the variant comes into
place; toolchains that are fetched from a package index on this machine. What is killed is kbuild
alone, so that its compilers go on; its process group; or every process of its session. Then the
same is run again, and must end well within two minutes, with the bytes of a build that nobody
disturbed. When that run has ended, and the last orphan of the killed one, there may be nothing in
TMPDIR, in `build/` only the variant, and in `.kbuild/` and the cache only files that undisturbed
builds make as well. --kbuild names another checkout of kbuild, whose builds are killed instead.

Needs Linux, g++, git, torch and ninja (`pip install -e '.[dev]'`); exit code 1 when a target is
missed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from report import save, table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.tiny_project import write_tiny  # noqa: E402
from tests.support.toolkit_wheels import fill  # noqa: E402
from tests.support.wheel_index import serve  # noqa: E402

PATIENCE = 120.0
"""Seconds that the run after a kill may take."""
SHARES = {"cold": 2, "warm": 4, "replacing": 4, "link": 3, "place": 4, "fetch": 4}
"""How the kills are spread over the situations."""
COUNTED = ("kills", "ended before", "lost", "wrong", "stuck", "left")
WAYS = ("alone", "group", "session")
LINKERS = {"collect2", "ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold", "lto-wrapper", "lto1-ltrans"}
CHANGED = 'if (std::getenv("TINY_SAYS_MORE")) { std::puts("more"); }\n'
FETCH = """
import sys
from pathlib import Path
from kbuild.plan.plan import Requirements
from kbuild.system.processes import LocalRunner
from kbuild.toolchains.from_wheels import WheelToolchains
from kbuild.toolchains.wheels.lock import read_lock
from kbuild.toolchains.wheels.settings import IndexSettings
cache, lock, url = sys.argv[1:]
settings = IndexSettings(index_url=url)
wheels = WheelToolchains(LocalRunner(), Path(cache), lock=read_lock(Path(lock)), settings=settings)
wheels.installer.cuda("13.0")
wheels.provision(Requirements("cpu", torch="2.14", system="x86_64-linux"))
wheels.provision(Requirements("cpu", tvm_ffi="0.1", system="x86_64-linux"))
"""
ENTRIES = """
import sys
from pathlib import Path
from kbuild.system.store import open_store
wrong = [line for entry in open_store(Path(sys.argv[1])).entries() for line in entry.differences()]
sys.exit("\\n".join(wrong) or 0)
"""


class StuckError(Exception):
    """A run that did not end in time."""


@dataclass(frozen=True)
class KillRun:
    """A project with two states of its source, `first` and `second`, and a kbuild to build it."""

    folder: Path
    checkout: Path

    @property
    def project(self) -> Path:
        """Its folder, where processes start."""
        return self.folder / "tiny"

    @property
    def cache(self) -> Path:
        """kbuild's cache folder."""
        return self.folder / "cache"

    @property
    def fetched(self) -> Path:
        """kbuild's cache folder for what is fetched."""
        return self.folder / "fetched"

    @property
    def temporary(self) -> Path:
        """TMPDIR."""
        return self.folder / "tmp"

    @property
    def environment(self) -> dict[str, str]:
        """Of every process."""
        return {
            **os.environ,
            "PYTHONPATH": str(self.checkout),
            "KBUILD_CACHE_DIR": str(self.cache),
            "KBUILD_TOOLCHAIN": "host",
            "TMPDIR": str(self.temporary),
            "NO_COLOR": "1",
        }

    def start(self, argv: tuple[str, ...]) -> subprocess.Popen[bytes]:  # noqa: TID251
        """A process that is the first of a session of its own."""
        with (self.folder / "said").open("wb") as said:
            return subprocess.Popen(  # noqa: TID251
                (sys.executable, *argv),
                cwd=self.project,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def finish(self, argv: tuple[str, ...]) -> str:
        """Run to the end; what it said when it failed.

        Raises:
            StuckError: it did not end in time.
        """
        process = self.start(argv)
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            kill(process, "session")
            raise StuckError from None
        words = (self.folder / "said").read_text(errors="replace")
        return f"exit {code}: {words}" if code else ""

    def check_out(self, state: str) -> None:
        """Change the source, as git does."""
        words = ("git", "checkout", "-q", state)
        subprocess.run(words, cwd=self.project, check=True)  # noqa: TID251

    @property
    def output(self) -> Path:
        """Where variants come to be."""
        return self.project / "build"

    def variant(self) -> str:
        """A digest of the one variant's names, modes and bytes; empty when it is not there."""
        found = [path for path in self.output.glob("*") if not path.name.startswith(".")]
        return digest_of(found[0]) if len(found) == 1 else ""


BUILD = ("-m", "kbuild", "build", "--backend", "cpu", "-q")


def digest_of(folder: Path) -> str:
    """Of names, modes and bytes."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_mode}\0".encode() + data)
    return digest.hexdigest()


def members(session: int) -> dict[int, str]:
    """Processes of a session that have not ended, and their programs' names."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            head, _, tail = status.read_text().rpartition(")")
            fields = tail.split()
            if int(fields[3]) == session and fields[0] != "Z":
                found[int(status.parent.name)] = head.partition("(")[2]
    return found


def kill(process: subprocess.Popen[bytes], way: str) -> None:  # noqa: TID251
    """SIGKILL: to the process alone, to its group, or to all of its session."""
    if way == "alone":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    while way == "session" and (living := members(process.pid)):
        for pid in living:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait()


def wait_for_orphans(session: int) -> None:
    """Wait until nothing of a killed run lives any more.

    Raises:
        StuckError: something does not end.
    """
    ends = time.monotonic() + PATIENCE
    while members(session):
        if time.monotonic() > ends:
            raise StuckError
        time.sleep(0.02)


@dataclass
class Situation:
    """Something to be killed, and how to know afterwards that all is well."""

    bench: KillRun
    argv: tuple[str, ...] = BUILD
    prepare: Callable[[], None] = lambda: None
    """Brings about what there is before."""
    begins: Callable[[int], bool] = lambda _: True
    """Whether the moments have come in which this is killed, given the process."""
    is_right: Callable[[], bool] = lambda: True
    is_torn: Callable[[], bool] = lambda: False
    """Looked at right after the kill, before anything can mend it."""
    seconds: float = 0.0
    """How long these moments last."""

    def hit(self, chance: random.Random, way: str) -> int | None:
        """Start and kill; the session that was killed, or None when it had ended before."""
        self.prepare()
        process = self.bench.start(self.argv)
        while not self.begins(process.pid):
            if process.poll() is not None:
                return None
            time.sleep(0.0005)
        ends = time.monotonic() + chance.uniform(0, self.seconds)
        while time.monotonic() < ends:
            if process.poll() is not None:
                return None
            time.sleep(min(0.002, max(0.0, ends - time.monotonic())))
        kill(process, way)
        return process.pid if process.returncode == -signal.SIGKILL else None


@dataclass
class Campaign:
    """All kills, and what became of them."""

    bench: KillRun
    chance: random.Random
    known: set[str] = field(default_factory=set)
    """Files that undisturbed runs make."""
    rows: dict[str, dict[str, int]] = field(
        default_factory=lambda: {name: dict.fromkeys(COUNTED, 0) for name in SHARES}
    )
    troubles: list[str] = field(default_factory=list)

    def run(self, order: Sequence[str], found: Mapping[str, Situation], ends: float) -> None:
        """Kill in this order, as long as there is time."""
        for done, name in enumerate(order):
            session = None
            while session is None:
                if time.monotonic() > ends:
                    return
                way = WAYS[self.rows[name]["kills"] % len(WAYS)]
                session = found[name].hit(self.chance, way)
                if session is None:
                    self.rows[name]["ended before"] += 1
                    self.bench.finish(found[name].argv)
            self.rows[name]["kills"] += 1
            print(f"\r{done + 1} of {len(order)} ", end="", file=sys.stderr, flush=True)
            self._judge(name, way, found[name], session)

    def _judge(self, name: str, way: str, situation: Situation, session: int) -> None:
        note = partial(self._note, name, way)
        if situation.is_torn():
            note("lost", "no whole variant after the kill")
        try:
            trouble = self.bench.finish(situation.argv)
            if members(session):  # what it writes now, the next run after its end removes
                wait_for_orphans(session)
                trouble = trouble or self.bench.finish(situation.argv)
        except StuckError:
            note("stuck", f"after {PATIENCE:.0f} s")
            return
        if trouble:
            note("lost", trouble)
        elif not situation.is_right():
            note("wrong", "other bytes")
        left = sorted(listing(self.bench) - self.known)
        if left:
            note("left", ", ".join(left))
            for path in left:  # or the next kill would be blamed for it
                remove(self.bench.folder / path)
                (self.bench.folder / path).unlink(missing_ok=True)

    def _note(self, name: str, way: str, kind: str, words: str) -> None:
        self.rows[name][kind] += 1
        self.troubles.append(f"{kind}: {name}, {way}, kill {self.rows[name]['kills']}: {words}")
        print(f"\n{self.troubles[-1]}", file=sys.stderr)


def listing(bench: KillRun) -> set[str]:
    """Every file and folder in TMPDIR, `build/`, `.kbuild/` and the cache."""
    roots = (bench.temporary, bench.output, bench.project / ".kbuild", bench.cache, bench.fetched)
    return {
        path.relative_to(bench.folder).as_posix()
        for root in roots
        for path in root.rglob("*")
        # Of headers are remembered those that had not changed for a while.
        if "/hashes/" not in str(path) or path.suffix
    }


def remove(*folders: Path) -> None:
    """Delete folders, write-protected ones too."""
    for folder in folders:
        if folder.is_dir():
            subprocess.run(("chmod", "-R", "u+w", str(folder)), check=True)  # noqa: TID251
            shutil.rmtree(folder)


def must(trouble: str) -> None:
    """End the script when an undisturbed run fails."""
    if trouble:
        sys.exit(f"an undisturbed run failed: {trouble}")


def two_states(bench: KillRun) -> None:
    """A second commit of the project."""
    write_tiny(bench.folder, "cpu")
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid")
    source = bench.project / "cpu" / "quiet.cpp"

    def run(*words: str) -> None:
        subprocess.run((*git, *words), cwd=bench.project, check=True)  # noqa: TID251

    run("tag", "first")
    source.write_text(source.read_text().replace("  Said() {\n", f"  Said() {{\n    {CHANGED}"))
    run("commit", "-qam", "more")
    run("tag", "second")


def undisturbed(bench: KillRun) -> tuple[dict[str, str], dict[str, float], set[str]]:
    """Digests of both states, seconds of each situation, and every file that comes to be."""
    digests, seconds, known = {}, {}, set()

    def timed(name: str) -> None:
        began = time.monotonic()
        must(bench.finish(BUILD))
        seconds[name] = time.monotonic() - began
        known.update(listing(bench))

    for state in ("first", "second"):
        bench.check_out(state)
        remove(bench.cache, bench.output, bench.project / ".kbuild")
        timed("cold")
        digests[state] = bench.variant()
    timed("unchanged")
    bench.check_out("first")
    timed("compiled")
    bench.check_out("second")
    timed("replacing")
    if bench.variant() != digests["second"] or digests["first"] == digests["second"]:
        sys.exit("two undisturbed builds of one state differ, or those of two states do not")
    remove(bench.output, bench.project / ".kbuild")
    timed("warm")
    return digests, seconds, known


def situations(bench: KillRun) -> tuple[dict[str, Situation], set[str]]:
    """All of them by name, and the files that are there without any kill."""
    digests, seconds, known = undisturbed(bench)
    build, state = bench.project / ".kbuild", {"now": "second"}

    def cleared(*folders: Path) -> None:
        remove(bench.output, build, *folders)

    def turned() -> None:
        state["now"] = "first" if state["now"] == "second" else "second"
        bench.check_out(state["now"])

    def is_right() -> bool:
        return bench.variant() == digests[state["now"]]

    def is_torn() -> bool:
        return bench.variant() not in digests.values()

    def links(session: int) -> bool:
        return any(name in LINKERS for name in members(session).values())

    def places(_: int) -> bool:
        return any(bench.output.glob(".*.new"))

    make = partial(Situation, bench, is_right=is_right)
    return {
        "cold": make(prepare=lambda: cleared(bench.cache), seconds=seconds["cold"]),
        "warm": make(prepare=cleared, seconds=seconds["warm"]),
        "replacing": make(prepare=turned, is_torn=is_torn, seconds=seconds["replacing"]),
        "link": make(prepare=cleared, begins=links, seconds=0.3),
        "place": make(prepare=turned, is_torn=is_torn, begins=places, seconds=0.03),
    }, known


def fetching(bench: KillRun, lock: Path, url: str) -> tuple[Situation, set[str]]:
    """Toolchains from an index on this machine; and the files of an undisturbed fetch."""
    argv = ("-c", FETCH, str(bench.fetched), str(lock), url)
    began = time.monotonic()
    must(bench.finish(argv))
    seconds = time.monotonic() - began
    entries = {path.name: digest_of(path / "root") for path in _entries(bench)}

    def is_right() -> bool:
        found = {path.name: digest_of(path / "root") for path in _entries(bench)}
        return found == entries and not bench.finish(("-c", ENTRIES, str(bench.fetched)))

    return Situation(
        bench,
        argv,
        prepare=lambda: remove(bench.fetched),
        is_right=is_right,
        seconds=seconds,
    ), listing(bench)


def _entries(bench: KillRun) -> Iterator[Path]:
    return (path for path in (bench.fetched / "store").glob("[!.]*") if path.is_dir())


def measured(kills: int, seed: int, checkout: Path, seconds: float) -> dict[str, Any]:
    """The whole campaign."""
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        bench = KillRun(Path(name).resolve(), checkout)
        bench.temporary.mkdir()
        two_states(bench)
        chance = random.Random(seed)  # noqa: S311
        found, known = situations(bench)
        shelf, lock = bench.folder / "shelf", bench.folder / "lock.json"
        lock.write_text(fill(shelf).dumps())
        with serve(shelf) as served:
            found["fetch"], fetched = fetching(bench, lock, f"{served.url}/simple")
            campaign = Campaign(bench, chance, known | fetched)
            order = [name for name, share in shares(kills).items() for _ in range(share)]
            chance.shuffle(order)
            campaign.run(order, found, time.monotonic() + seconds)
        return {
            "kbuild": revision(checkout),
            "seed": seed,
            "situations": campaign.rows,
            "troubles": [text.replace(str(bench.folder), "") for text in campaign.troubles],
        }


def shares(kills: int) -> dict[str, int]:
    """Kills by situation; they sum up."""
    whole, given = sum(SHARES.values()), 0
    parts = {}
    for name, share in SHARES.items():
        parts[name] = kills * share // whole
        given += parts[name]
    parts["fetch"] += kills - given
    return parts


def revision(checkout: Path) -> str:
    """The commit that is examined."""
    words = ("git", "rev-parse", "--short", "HEAD")
    done = subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=False)  # noqa: TID251
    return done.stdout.strip()


def targets(result: Mapping[str, Any], kills: int) -> list[dict[str, Any]]:
    """What was found beside what was promised."""
    rows = result["situations"].values()
    done = sum(row["kills"] for row in rows)
    sums = {what: sum(row[what] for row in rows) for what in ("lost", "wrong", "stuck", "left")}
    missing = [{"what": "kills that are missing", "value": kills - done, "target": 0}]
    return missing + [
        {"what": f"{what}, of {done} kills", "value": value, "target": 0}
        for what, value in sums.items()
    ]


def main() -> None:
    """Kill, and print what it came to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=3600.0, help="start no kill afterwards")
    parser.add_argument("--kbuild", type=Path, default=ROOT, metavar="DIR")
    parser.add_argument("--save", action="store_true", help="write results/kills.json")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    began = time.monotonic()
    result = measured(args.kills, args.seed, args.kbuild.resolve(), args.seconds)
    result |= {"seconds": round(time.monotonic() - began), "targets": targets(result, args.kills)}
    if args.save:
        save("kills", result)
    print(json.dumps(result, indent=1) if args.json else table(result["targets"]))
    sys.exit(any(row["value"] > row["target"] for row in result["targets"]))


if __name__ == "__main__":
    main()
