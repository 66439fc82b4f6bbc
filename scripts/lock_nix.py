"""Pin the wheels that the flake uses: `python scripts/lock_nix.py nix/locks`.

They are what kbuild itself needs, and the environments that kernels are tested in: Torch, the
`kernels` client and pytest. uv resolves them through the user's index, pip fetches the small ones
to hash them together: Nix then starts one builder for all of them. The files hold names and
digests, never where files are: that is the index's business.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import tomli
from packaging import tags
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""Interpreters that a package set may have."""
PLATFORM = "x86_64-manylinux_2_28"
TEST = ("kernels==0.17.2", "numpy", "pytest>=8")
_FLAVOURS = ("cpu", "cuda")
LARGE = ("torch", "triton", "nvidia", "cuda")
"""How projects begin that are fetched one by one, and only where they are used."""

Pin = dict[str, str]


def wheels(python: str, requirements: Iterable[str]) -> list[Pin] | None:
    """The wheels that satisfy the requirements; None when the index has none."""
    command = [
        "uv", "pip", "compile", "-", "--quiet", "--no-header", "--only-binary=:all:",
        "--format=pylock.toml", f"--python-version={python}", f"--python-platform={PLATFORM}",
    ]  # fmt: skip
    asked = "\n".join(requirements)
    done = subprocess.run(  # noqa: TID251
        command, check=False, capture_output=True, text=True, input=asked
    )
    if done.returncode:
        print(f"Python {python}: {' '.join(requirements)}\n{done.stderr}", file=sys.stderr)
        return None
    found = (_pin(python, entry["wheels"]) for entry in tomli.loads(done.stdout)["packages"])
    return sorted(found, key=lambda pin: pin["filename"].lower())


def _pin(python: str, offered: Sequence[dict[str, Any]]) -> Pin:
    """The one of a release's wheels that fits the interpreter best."""
    files = {_file_name(wheel): wheel["hashes"]["sha256"] for wheel in offered}
    ranks = {tag: rank for rank, tag in enumerate(_tags(python))}
    best = min(files, key=lambda name: min(_ranks(name, ranks), default=len(ranks)))
    if not _ranks(best, ranks):
        raise SystemExit(f"no wheel for Python {python} among {', '.join(files)}")
    return {"filename": best, "sha256": files[best]}


def grouped(python: str, pins: list[Pin]) -> dict[str, Any]:
    """`{"large": [pin, ...], "small": {"narHash": ..., "wheels": [pin, ...]}}`."""
    large = [pin for pin in pins if pin["filename"].startswith(LARGE)]
    small = [pin for pin in pins if pin not in large]
    lines = tuple(requirement(pin) for pin in small)
    return {"large": large, "small": {"narHash": nar_hash(python, lines), "wheels": small}}


@cache
def nar_hash(python: str, lines: Sequence[str]) -> str:
    """Of the folder that the lines of a requirements file stand for."""
    with tempfile.TemporaryDirectory() as folder:
        fetch(python, lines, Path(folder))
        digest = hashlib.sha256(archive(Path(folder))).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def fetch(python: str, lines: Iterable[str], folder: Path) -> None:
    """Fetch exactly these wheels into a folder."""
    wanted = folder / "requirements.txt"
    wanted.write_text("\n".join(lines) + "\n")
    tag = f"cp{python.replace('.', '')}"
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes",
        "--only-binary=:all:", f"--requirement={wanted}", f"--dest={folder}",
        f"--python-version={python}", "--implementation=cp",
        *(f"--abi={abi}" for abi in (tag, "abi3", "none")),
        *(f"--platform={platform}" for platform in _platforms()),
    ]  # fmt: skip
    subprocess.run(command, check=True)  # noqa: TID251
    wanted.unlink()


def requirement(pin: Pin) -> str:
    """A line of a requirements file."""
    name, version = pin["filename"].split("-")[:2]
    return f"{name}=={version} --hash=sha256:{pin['sha256']}"


def archive(folder: Path) -> bytes:
    """A folder of plain files as Nix serialises it (NAR): what `narHash` is the hash of."""
    parts = [_text("nix-archive-1"), _text("("), _text("type"), _text("directory")]
    for file in sorted(folder.iterdir(), key=lambda path: path.name.encode()):
        words = ("entry", "(", "name", file.name, "node", "(", "type", "regular", "contents")
        parts += [*map(_text, words), _padded(file.read_bytes()), _text(")"), _text(")")]
    return b"".join((*parts, _text(")")))


def _text(word: str) -> bytes:
    return _padded(word.encode())


def _padded(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data + bytes(-len(data) % 8)


def _file_name(wheel: dict[str, Any]) -> str:
    place = wheel.get("path") or urlsplit(wheel["url"]).path
    return unquote(place).rpartition("/")[2]


def _tags(python: str) -> list[tags.Tag]:
    """What an interpreter on manylinux_2_28 takes, the best first."""
    major, _, minor = python.partition(".")
    platforms = _platforms()
    version = (int(major), int(minor))
    cpython = tags.cpython_tags(version, platforms=platforms)
    return [*cpython, *tags.compatible_tags(version, f"cp{major}{minor}", platforms)]


def _platforms() -> list[str]:
    return [
        *(f"manylinux_2_{glibc}_x86_64" for glibc in range(28, 4, -1)),
        *(f"manylinux{old}_x86_64" for old in (2014, 2010, 1)),
        "linux_x86_64",
    ]


def _ranks(name: str, ranks: dict[tags.Tag, int]) -> list[int]:
    return [ranks[tag] for tag in parse_wheel_filename(name)[3] if tag in ranks]


def kbuild_requirements() -> list[str]:
    """Those of `pyproject.toml` with the Hub's, and pip: it is asked where wheels come from."""
    project = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]
    hub = project["optional-dependencies"]["hub"]
    return [*map(str, (*project["dependencies"], *hub)), "pip"]


def torch_pins() -> dict[str, dict[str, str]]:
    """Release -> flavour -> exact version, of what kbuild's own lock has."""
    lock = json.loads((ROOT / "kbuild/toolchains/wheels/lock.json").read_text())
    found: dict[str, dict[str, str]] = {}
    for release, entry in lock["torch"].items():
        versions = {wheel["filename"].split("-")[1] for wheel in entry["wheels"]}
        flavours = {"cpu" if "+cpu" in version else "cuda": version for version in versions}
        found[release] = {name: flavours[name] for name in _FLAVOURS if name in flavours}
    return found


def environments(python: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Flavour -> Torch release -> its wheels and those of the tests."""
    found: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in _FLAVOURS}
    for release, flavours in torch_pins().items():
        for flavour, version in flavours.items():
            pins = wheels(python, (f"torch==={version}", *TEST))
            if pins:
                found[flavour][release] = grouped(python, pins)
    return found


def main(arguments: Sequence[str]) -> int:
    """Write the lock files, one for each interpreter, into the folder that is named first."""
    for python in arguments[1:] or PYTHONS:
        own = wheels(python, kbuild_requirements())
        if own is None:
            return 1
        pins = {"kbuild": grouped(python, own), "test": environments(python)}
        Path(arguments[0], f"python-{python}.json").write_text(json.dumps(pins, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
