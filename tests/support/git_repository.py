"""Git repositories of tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(root: Path, *arguments: str) -> str:
    config = (
        *("-c", "user.name=t", "-c", "user.email=t@example.invalid"),
        *("-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"),
    )
    command = ("git", *config, *arguments)
    return subprocess.run(  # noqa: TID251
        command, cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(root: Path, message: str = "one") -> str:
    """Everything below the folder, as one commit; its id."""
    git(root, "add", "-A")
    git(root, "commit", "-qm", message)
    return git(root, "rev-parse", "HEAD")
