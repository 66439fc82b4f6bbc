"""Builds whose files are edited meanwhile: is what they leave stale, mixed, or poisoned for others?

    python benchmarks/edits.py [--builds 200] [--minutes 60] [--seed 1] [--kbuild PYTHON] [--save]

Each round builds two projects at once, with one object cache, and edits each while it builds:
source, header, header of all units, generated header, or a file of the Python package; by a plain
save, `mv`, `cp -p`, `rsync -a`, `tar x`, git checkout, or a save that is taken back. All versions
have the same size, and those that are not saved have an old time. Half of the rounds have memory
for one compiler at a time, so that units wait after they were looked up, and the compiler pauses
before it reads and after it wrote. Afterwards:

- a library must not hold two versions of the header of all units (mixed);
- when `kbuild build` says up-to-date, the variant must hold what the files hold (stale);
- a copy of the project elsewhere, built with the same cache, must give the same bytes (poisoned).

An edited build may also end with an error that names the file; building again must then succeed.
`--kbuild` takes the interpreter of another kbuild. What it builds is not checked, which costs a
multiple of these compilations and is no part of this. Needs a C++ compiler and Torch.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from report import save, table

UNITS = 3
BUILD = """\
[general]
name = "edited"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.units]
backend = "cpu"
depends = []
include = ["units"]
src = [{sources}]
"""
BINDING = """\
#include "registration.h"
#ifdef EDITED_BY_HAND
__attribute__((used)) const char by_hand[] = "VERSION generated=0001;";
#endif
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
UNIT = """\
#include "own{n}.h"
#include <cstddef>
#include "shared.h"
extern "C" __attribute__((used)) const char mark{n}[] =
    "VERSION unit{n}={version} own{n}=" OWN " shared{n}=" SHARED ";";
"""
MARK = re.compile(rb"(unit|own|shared|generated)(\d*)=(\d{4})")
# Forks for each build, so that kbuild is imported once. What is built is taken as it is.
SERVER = """
import json, os, runpy, sys
import kbuild.build.compile, kbuild.build.unit_log, kbuild.cli.build, kbuild.pipeline.build
import kbuild.pipeline.variant as variant
variant._check_output = lambda *_: ()
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if not child:
        for name, stream in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
            os.dup2(os.open(job[name], os.O_RDWR | os.O_CREAT | os.O_TRUNC), stream)
        sys.argv = ["kbuild", *job["argv"]]
        try:
            runpy.run_module("kbuild", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code or 0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
# Between what kbuild does and what the compiler reads there is time for an edit.
COMPILER = """#!/bin/bash
[[ "$*" == *units/unit* ]] && sleep 0.$((RANDOM % 6))
{compiler} "$@"
code=$?
[[ "$*" == *units/unit* ]] && sleep 0.$((RANDOM % 3))
exit $code
"""
BY_HAND = "#define EDITED_BY_HAND 1\n"
PATIENCE = 6
"""Builds after which a project is to be up to date."""


@dataclass
class Project:
    """A project's folder, and the version that each of its files has."""

    root: Path
    versions: dict[str, int] = field(default_factory=dict)

    def text(self, path: str, version: int) -> str:
        """A file's content: of the same size for every version."""
        name = Path(path).stem
        if path.endswith(".cpp"):
            return UNIT.format(n=name.removeprefix("unit"), version=f"{version:04}")
        if path.endswith(".py"):
            return f"VERSION = '{version:04}'\n"
        macro = "SHARED" if name == "shared" else "OWN"
        return f'#define {macro} "{version:04}"\n'

    @property
    def files(self) -> list[str]:
        """What is edited, relative to the project."""
        units = [f"units/{kind}{n}{end}" for n in range(UNITS) for kind, end in KINDS]
        return [*units, "units/shared.h", "torch-ext/edited/extra.py"]

    def write(self) -> None:
        """All files, committed."""
        sources = ", ".join(f'"units/unit{n}.cpp"' for n in range(UNITS))
        fixed = {
            "build.toml": BUILD.format(sources=sources),
            "torch-ext/binding.cpp": BINDING,
            "torch-ext/edited/__init__.py": "__all__: list[str] = []\n",
            ".gitignore": "build/\n.kbuild/\n",
        }
        for path, text in fixed.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)
        for path in self.files:
            self.set(path, 1)
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "edited")):
            git(self.root, *words)

    def set(self, path: str, version: int) -> None:
        """A plain save."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(self.text(path, version))
        self.versions[path] = version

    def expected(self) -> dict[str, int]:
        """What the variant is to say."""
        names = {path: Path(path).stem for path in self.versions}
        found = {names[path]: version for path, version in self.versions.items()}
        shared = found.pop("shared")
        return found | {f"shared{n}": shared for n in range(UNITS)}

    def found(self) -> dict[str, int]:
        """What the variant says."""
        (folder,) = (self.root / "build").glob("*-linux")
        (library,) = folder.glob("*.so")
        marks = MARK.findall(library.read_bytes())
        extra = int((folder / "extra.py").read_text().split("'")[1])
        return {f"{a.decode()}{b.decode()}": int(c) for a, b, c in marks} | {"extra": extra}

    def library(self) -> bytes:
        """The bytes of the extension."""
        (library,) = (self.root / "build").glob("*-linux/*.so")
        return library.read_bytes()


KINDS = (("unit", ".cpp"), ("own", ".h"))


def git(root: Path, *words: str) -> None:
    """Run git, which must succeed."""
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.invalid")
    ran("git", *who, *words, cwd=root)


def ran(*words: str, cwd: Path) -> None:
    """Run a program, which must succeed."""
    subprocess.run(words, cwd=cwd, check=True, capture_output=True)  # noqa: TID251


def new_version(project: Project, path: str, version: int, chance: random.Random) -> Path:
    """The file's new version in a folder of its own, with an old time."""
    folder = project.root.parent / f"{project.root.name}-new"
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(project.text(path, version))
    moment = time.time() - chance.randrange(10**5, 10**7)
    os.utime(target, (moment, moment))
    return folder


def by_save(project: Project, path: str, version: int, _: random.Random) -> None:
    """What most editors do."""
    (project.root / path).write_text(project.text(path, version))


def by_mv(project: Project, path: str, version: int, chance: random.Random) -> None:
    """Another file with an older time."""
    (new_version(project, path, version, chance) / path).rename(project.root / path)


def by_cp(project: Project, path: str, version: int, chance: random.Random) -> None:
    """The same inode, with an older time."""
    folder = new_version(project, path, version, chance)
    ran("cp", "-p", str(folder / path), path, cwd=project.root)


def by_rsync(project: Project, path: str, version: int, chance: random.Random) -> None:
    """Another inode, with an older time."""
    folder = new_version(project, path, version, chance)
    ran("rsync", "-a", str(folder / path), str(Path(path).parent) + "/", cwd=project.root)


def by_tar(project: Project, path: str, version: int, chance: random.Random) -> None:
    """Another inode, with an older time in whole seconds."""
    folder = new_version(project, path, version, chance)
    ran("tar", "cf", "new.tar", path, cwd=folder)
    ran("tar", "xf", str(folder / "new.tar"), cwd=project.root)


def by_checkout(project: Project, path: str, version: int, _: random.Random) -> None:
    """From a commit that another clone made."""
    clone = project.root.parent / f"{project.root.name}-clone"
    if not clone.exists():
        git(project.root, "clone", "-q", ".", str(clone))
    (clone / path).write_text(project.text(path, version))
    git(clone, "commit", "-qam", f"version {version}")
    git(project.root, "fetch", "-q", str(clone))
    git(project.root, "checkout", "-q", "FETCH_HEAD", "--", path)


def by_undo(project: Project, path: str, version: int, chance: random.Random) -> None:
    """Saved, and taken back a moment later."""
    before = project.versions[path]
    by_save(project, path, version, chance)
    time.sleep(chance.uniform(0.01, 0.6))
    by_save(project, path, before, chance)


Way = Callable[[Project, str, int, random.Random], None]
WAYS: dict[str, Way] = {
    "save": by_save,
    "mv": by_mv,
    "cp -p": by_cp,
    "rsync -a": by_rsync,
    "tar x": by_tar,
    "git checkout": by_checkout,
    "save, undo": by_undo,
}


Server: TypeAlias = "subprocess.Popen[str]"  # noqa: TID251


class Campaign:
    """Two projects, one cache, and what was seen."""

    def __init__(self, folder: Path, python: str, seed: int) -> None:
        self.folder, self.python = folder, python
        self.chance = random.Random(seed)  # noqa: S311 - a benchmark
        self.counts: collections.Counter[str] = collections.Counter()
        self.faults: list[str] = []
        self.last = 1
        self.seconds = 3.0
        self.projects = [Project(folder / name / "edited") for name in ("one", "two")]
        self.servers = {name: self._server() for name in ("one", "two")}
        self.ways = {name: way for name, way in WAYS.items() if _has(name)}

    def run(self, builds: int, minutes: float) -> None:
        """As many edited builds, or as many as there is time for."""
        until = time.monotonic() + 60 * minutes
        for project in self.projects:
            project.write()
        self.all_current("at the start")
        while self.counts["edited builds"] < builds and time.monotonic() < until:
            self.round()
        for server in self.servers.values():
            server.communicate()

    def build(self, project: Project, *options: str) -> dict[str, Any]:
        """The outcome of `kbuild build --json`."""
        words = ("--json", "-j", "4", "--unique-id", "edited", "--driver", "local", *options)
        place = project.root.parent
        answer, said = place / "answer", place / "said"
        job = {"argv": ["build", str(project.root), *words], "stdin": os.devnull}
        server = self.servers[self._name(project)]
        print(
            json.dumps(job | {"stdout": str(answer), "stderr": str(said)}),
            file=server.stdin,
            flush=True,
        )
        code = server.stdout.readline().strip()
        try:
            variants = json.loads(answer.read_text())["variants"]
            (built,) = [one for one in variants if one["status"] != "skipped"]
        except (ValueError, KeyError):
            built = {"status": f"exit {code}"}
        return {**built, "said": said.read_text()}

    def _name(self, project: Project) -> str:
        return project.root.relative_to(self.folder).parts[0]

    def _server(self) -> Server:
        compiler = self.folder / "c++"
        real = shutil.which(os.environ.get("CXX", "c++")) or "c++"
        compiler.write_text(COMPILER.format(compiler=real))
        compiler.chmod(0o755)
        env = {
            **os.environ,
            "KBUILD_CACHE_DIR": str(self.folder / "cache"),
            "KBUILD_TOOLCHAIN": "host",
            "CXX": str(compiler),
        }
        return subprocess.Popen(  # noqa: TID251
            [self.python, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            cwd=self.folder,  # a kbuild that lies here is not meant
        )

    def round(self) -> None:
        """Edit two builds, then see what they left."""
        short = self.chance.random() < 0.5
        options = ("--memory", "100M") if short else ()
        self._change_before()
        edits = [self._edit(project) for project in self.projects]
        began = time.monotonic()
        work = [
            functools.partial(self._edited, *each, options)
            for each in zip(self.projects, edits, strict=True)
        ]
        together(work)
        self.seconds = (self.seconds + time.monotonic() - began) / 2
        self.counts["edited builds"] += len(self.projects)
        self.counts["with memory for one compiler"] += len(self.projects) * short
        told = "; ".join(edit[0] for edit in edits) + (", short of memory" if short else "")
        self.all_current(told)
        together([functools.partial(self._compare, project, told) for project in self.projects])

    def _change_before(self) -> None:
        """Something to compile, in both the same."""
        self.last += 1
        path = self.chance.choice(["units/shared.h", "units/shared.h", *self.projects[0].files])
        versions = dict(self.projects[0].versions) if self.chance.random() < 0.7 else None
        for project in self.projects:
            for known, version in (versions or {}).items():
                if project.versions[known] != version:
                    project.set(known, version)
            project.set(path, self.last)

    def _edit(self, project: Project) -> tuple[str, Callable[[], None]]:
        """Its name, and doing it."""
        self.last += 1
        version, moment = self.last, self.chance.uniform(0.2, 1.0) * self.seconds
        if self.chance.random() < 0.1:
            self.counts["edit: generated file"] += 1
            return "generated file", functools.partial(edit_generated, project, moment)
        path = self.chance.choice([*project.files, *["units/shared.h"] * 6])
        name = self.chance.choice(list(self.ways))
        kind = "header of all units" if "shared" in path else Path(path).suffix.lstrip(".")
        self.counts[f"edit: {kind}"] += 1
        self.counts[f"by {name}"] += 1
        seed = random.Random(version)  # noqa: S311 - a benchmark

        def edit() -> None:
            time.sleep(moment)
            self.ways[name](project, path, version, seed)
            if name != "save, undo":
                project.versions[path] = version

        return f"{path} by {name}", edit

    def _edited(
        self, project: Project, edit: tuple[str, Callable[[], None]], options: tuple[str, ...]
    ) -> None:
        thread = threading.Thread(target=edit[1])
        thread.start()
        built = self.build(project, *options)
        thread.join()
        self.counts[f"edited build: {built['status']}"] += 1
        if built["status"] in {"built", "up-to-date"}:
            self._judge_mixed(project, edit[0])
        elif "changed each time" not in built["said"]:
            self._fault("unclear", edit[0], built["said"][-800:])

    def all_current(self, told: str) -> None:
        """Build both until they are up to date, then look whether they are."""
        together([functools.partial(self._current, project, told) for project in self.projects])

    def _current(self, project: Project, told: str) -> None:
        for _ in range(PATIENCE):
            built = self.build(project)
            if built["status"] == "up-to-date":
                break
            if built["status"] == "built":
                self._judge_mixed(project, told)
        else:
            self._fault("never up to date", told, built["said"][-800:])
            return
        if project.found() != project.expected():
            wrong = dict(project.found().items() - project.expected().items())
            self._fault("stale", told, f"holds {wrong} of {project.expected()}")

    def _judge_mixed(self, project: Project, told: str) -> None:
        shared = {v for name, v in project.found().items() if name.startswith("shared")}
        if len(shared) > 1:
            self._fault("mixed", told, f"versions {sorted(shared)} of one header")

    def _compare(self, project: Project, told: str) -> None:
        """A copy without anything of kbuild's, with the same cache."""
        root = self.folder / self._name(project) / "copy" / "edited"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(project.root, root, ignore=shutil.ignore_patterns("build", ".kbuild"))
        copy = Project(root, dict(project.versions))
        built = self.build(copy)
        self.counts["clean copies"] += 1
        self.counts["objects of copies from the cache"] += built.get("from_cache", 0)
        if built["status"] != "built":
            self._fault("unclear", told, built["said"][-800:])
        elif copy.found() != copy.expected():
            wrong = dict(copy.found().items() - copy.expected().items())
            self._fault("poisoned", told, f"a copy holds {wrong} of {copy.expected()}")
            shutil.rmtree(self.folder / "cache" / "objects")  # each fault counts once
        elif project.found() == project.expected() and copy.library() != project.library():
            self._fault("other bytes", told, "")

    def _fault(self, kind: str, told: str, words: str) -> None:
        self.counts[kind] += 1
        self.faults.append(f"{kind}: {told}: {words}")
        print(self.faults[-1], file=sys.stderr)


def edit_generated(project: Project, moment: float) -> None:
    """By hand, in kbuild's own folder; nothing of it may stay."""
    time.sleep(moment)
    for path in (project.root / ".kbuild").glob("*/project/**/registration.h"):
        path.write_text(path.read_text() + BY_HAND)


def together(work: list[Callable[[], None]]) -> None:
    """Do all at once."""
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _has(way: str) -> bool:
    program = way.split(maxsplit=1)[0]
    if shutil.which(program) is None and program in {"rsync", "tar"}:
        print(f"`{program}` is not installed: no edits by it", file=sys.stderr)
        return False
    return True


KINDS_OF_FAULTS = ("stale", "mixed", "poisoned", "other bytes", "never up to date", "unclear")


def main() -> int:
    """Exit code 1 when there was a fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--builds", type=int, default=200, help="edited builds (default: 200)")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after (default: 60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kbuild", default=sys.executable, help="the interpreter of a kbuild")
    parser.add_argument("--name", default="edits", help="of the file in benchmarks/results/")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder), arguments.kbuild, arguments.seed)
        began = time.monotonic()
        campaign.run(arguments.builds, arguments.minutes)
    counts = campaign.counts
    result = {
        "builds": counts["edited builds"],
        "seed": arguments.seed,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "counts": dict(sorted(counts.items())),
        "faults": [line.replace(folder, "") for line in campaign.faults],
        "targets": [
            {"what": f"edits: {kind}", "value": counts[kind], "target": 0}
            for kind in KINDS_OF_FAULTS
        ],
    }
    if arguments.save:
        sys.argv = ["PYTHON" if word == arguments.kbuild else word for word in sys.argv]
        save(arguments.name, result)
    print(json.dumps(result, indent=1) if arguments.json else table(result["targets"]))
    return int(any(counts[kind] for kind in KINDS_OF_FAULTS))


if __name__ == "__main__":
    sys.exit(main())
