"""Pin the wheels that the flake uses: `python scripts/lock_nix.py nix/locks`.

They are what kbuild itself needs, and the environments that kernels are tested in: Torch, the
`kernels` client and pytest. uv resolves them through the user's index; nothing is installed. The files hold file names and digests, never where files are: that is the index's business.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging import tags
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""Interpreters that a package set may have."""
PLATFORM = "x86_64-manylinux_2_28"
TEST = ("kernels==0.17.2", "numpy", "pytest>=8")
_FLAVOURS = ("cpu", "cuda")


def wheels(python: str, requirements: Iterable[str]) -> list[dict[str, str]] | None:
    """The wheels that satisfy the requirements; None when the index has none."""
    command = [
        "uv", "pip", "compile", "-", "--quiet", "--no-header", "--only-binary=:all:",
        "--format=pylock.toml", f"--python-version={python}", f"--python-platform={PLATFORM}",
    ]  # fmt: skip
    asked = "\n".join(requirements)
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=asked)
    if done.returncode:
        print(f"Python {python}: {' '.join(requirements)}\n{done.stderr}", file=sys.stderr)
        return None
    found = (_pin(python, entry["wheels"]) for entry in tomllib.loads(done.stdout)["packages"])
    return sorted(found, key=lambda pin: pin["filename"].lower())


def _pin(python: str, offered: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The one of a release's wheels that fits the interpreter best."""
    files = {_file_name(wheel): wheel["hashes"]["sha256"] for wheel in offered}
    ranks = {tag: rank for rank, tag in enumerate(_tags(python))}
    best = min(files, key=lambda name: min(_ranks(name, ranks), default=len(ranks)))
    if not _ranks(best, ranks):
        raise SystemExit(f"no wheel for Python {python} among {', '.join(files)}")
    return {"filename": best, "sha256": files[best]}


def _file_name(wheel: dict[str, Any]) -> str:
    place = wheel.get("path") or urlsplit(wheel["url"]).path
    return unquote(place).rpartition("/")[2]


def _tags(python: str) -> list[tags.Tag]:
    """What an interpreter on manylinux_2_28 takes, the best first."""
    major, _, minor = python.partition(".")
    platforms = [
        *(f"manylinux_2_{glibc}_x86_64" for glibc in range(28, 4, -1)),
        *(f"manylinux{old}_x86_64" for old in (2014, 2010, 1)),
        "linux_x86_64",
    ]
    version = (int(major), int(minor))
    cpython = tags.cpython_tags(version, platforms=platforms)
    return [*cpython, *tags.compatible_tags(version, f"cp{major}{minor}", platforms)]


def _ranks(name: str, ranks: dict[tags.Tag, int]) -> list[int]:
    return [ranks[tag] for tag in parse_wheel_filename(name)[3] if tag in ranks]


def kbuild_requirements() -> list[str]:
    """Those of `pyproject.toml`, and pip: it is asked where wheels come from."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*map(str, project["dependencies"]), "pip"]


def torch_pins() -> dict[str, dict[str, str]]:
    """Release -> flavour -> exact version, of what kbuild's own lock has."""
    lock = json.loads((ROOT / "kbuild/toolchains/wheels/lock.json").read_text())
    found: dict[str, dict[str, str]] = {}
    for release, entry in lock["torch"].items():
        versions = {wheel["filename"].split("-")[1] for wheel in entry["wheels"]}
        flavours = {"cpu" if "+cpu" in version else "cuda": version for version in versions}
        found[release] = {name: flavours[name] for name in _FLAVOURS if name in flavours}
    return found


def environments(python: str) -> dict[str, dict[str, list[dict[str, str]]]]:
    """Flavour -> Torch release -> its wheels and those of the tests."""
    found: dict[str, dict[str, list[dict[str, str]]]] = {name: {} for name in _FLAVOURS}
    for release, flavours in torch_pins().items():
        for flavour, version in flavours.items():
            pins = wheels(python, (f"torch==={version}", *TEST))
            if pins:
                found[flavour][release] = pins
    return found


def main(arguments: Sequence[str]) -> int:
    """Write the lock files, one for each interpreter, into the folder that is named."""
    for python in PYTHONS:
        pins = {"kbuild": wheels(python, kbuild_requirements()), "test": environments(python)}
        Path(arguments[0], f"python-{python}.json").write_text(json.dumps(pins, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
