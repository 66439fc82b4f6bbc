"""What the scripts that pin Debian's packages share: an apt of their own, and one package's pin."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from kbuild.system.processes import LocalRunner

RUNNER = LocalRunner()
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def output(*argv: str) -> str:
    """What a command says; the script ends when it fails."""
    done = RUNNER.run(argv)
    if not done.ok:
        sys.exit(f"{done.command}\n{done.output}")
    return done.output


def apt_with_lists(state: Path, mirror: str, suite: str, component: str) -> list[str]:
    """Options for an apt that knows this suite and nothing of this machine, its lists fetched."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True)
    (state / "status").touch()
    source = f"deb [signed-by={_KEYRING}] {mirror} {suite} {component}\n"
    (state / "sources.list").write_text(source)
    settings = {
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "APT::Sandbox::User": "root",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    output("apt-get", "-qq", *options, "update")
    return options


def package(name: str, options: list[str]) -> dict[str, str | int]:
    """One package's pin."""
    shown = output("apt-cache", *options, "show", "--no-all-versions", name)
    fields = dict(line.split(": ", 1) for line in shown.splitlines() if ": " in line)
    return {
        "name": name,
        "version": fields["Version"],
        "path": fields["Filename"],
        "size": int(fields["Size"]),
        "sha256": fields["SHA256"],
    }


def upstream(version: str) -> str:
    """`21.1.8` of `1:21.1.8-13`, `12.4.131` of `12.4.131~12.4.1-2`."""
    return re.sub(r"^\d+:|[-+~].*", "", version)
