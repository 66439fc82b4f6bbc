"""A project driven by the real command, with a cache of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COMMIT_DATE = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-01-01T00:00:00Z")
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid")


def run(
    argv: tuple[str, ...], *, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: TID251
        argv,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts by their paths in a folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@dataclass(frozen=True)
class CommandProject:
    """A project's folder, and a kbuild with a cache of its own."""

    root: Path
    cache: Path

    def kbuild(
        self, *arguments: str, expect: int = 0, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The command, which must end with the exit code `expect`."""
        done = self.run(*arguments, env=env)
        assert done.returncode == expect, f"{done.stdout}\n{done.stderr}"
        return done

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The command, however it ends."""
        own = {
            "KBUILD_CACHE_DIR": str(self.cache),
            "KBUILD_TOOLCHAIN": "host",  # what is installed, and no network
            "NO_COLOR": "1",
            **(env or {}),
        }
        return run((sys.executable, "-m", "kbuild", *arguments), cwd=self.root, env=own)

    def build(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """Outcomes by variant of `kbuild build --json`."""
        done = self.kbuild("build", "--json", *arguments)
        return {entry["variant"]: entry for entry in json.loads(done.stdout)["variants"]}

    def built(self, *arguments: str) -> dict[str, Any]:
        """The one variant that this machine builds."""
        found = [entry for entry in self.build(*arguments).values() if entry["path"]]
        assert len(found) == 1
        return found[0]

    def git(self, *arguments: str) -> None:
        """A git command; the same content gives the same commit."""
        done = run((*GIT, *arguments), cwd=self.root, env=COMMIT_DATE)
        assert done.returncode == 0, done.stderr

    def commit(self) -> None:
        """Commit everything, in a new repository where there is none."""
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
            self.git(*words)

    def python(self, code: str, env: Mapping[str, str] | None = None) -> str:
        done = run((sys.executable, "-B", "-c", code), cwd=self.cache, env=env)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout
