"""Write a stand-in for nixpkgs, and a Nix configuration, for this machine: `stand_in.py FOLDER`.

    FOLDER/nixpkgs/    flake that offers the host's programs under nixpkgs' names
    FOLDER/nix.conf    sandbox on, the host's folders lent to it: use as NIX_CONF_DIR=FOLDER
    FOLDER/fetching/   this user's settings of pip, for builders that fetch wheels
    FOLDER/environment.json   the variables that Nix is started with, so that they find these

Running it again writes the same while the machine is the same.

What is lent must never nest. Nix makes the mount point of a file by writing an empty one, as root:
inside a folder that is lent as well, that empties the host's own file. So `/etc/ssl`, where newer
releases of Nix put certificates for builders that fetch, is not lent, and certificates are a copy
in a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from kbuild.pipeline.nix.pip_settings import SandboxPipSettings, write_pip_settings
from kbuild.system.processes import LocalRunner
from kbuild.toolchains.wheels.settings import pip_settings

HERE = Path(__file__).resolve().parent
FOLDERS = ("/bin", "/usr", "/lib", "/lib64", "/etc/alternatives")
COMPILE_CACHE = "/var/cache/kbuild"


def main() -> None:
    """Write the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compile-cache", type=Path, help="lent to every build as a cache")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    write_packages(folder / "nixpkgs")
    fetching = lent(folder)
    (folder / "environment.json").write_text(json.dumps(pip_variables(fetching), indent=1) + "\n")
    places = topmost((*FOLDERS, sys.base_prefix, *fetching.places))
    if arguments.compile_cache:
        places.append(f"{COMPILE_CACHE}={arguments.compile_cache.resolve()}")
    (folder / "nix.conf").write_text(nix_conf(places))


def write_packages(folder: Path) -> None:
    """The stand-in with this machine's facts."""
    shutil.copytree(HERE / "nixpkgs", folder, dirs_exist_ok=True)
    facts = {
        "python": {
            "prefix": sys.base_prefix,
            "version": ".".join(platform.python_version_tuple()[:2]),
        },
        "versions": {
            "c++": first_line("c++", "--version"),
            "ld": first_line("ld", "--version"),
            "libc": " ".join(platform.libc_ver()),
            "python": platform.python_version(),
        },
    }
    (folder / "host.json").write_text(json.dumps(facts, indent=1) + "\n")


def first_line(*command: str) -> str:
    """What a program says first; empty when it is not there."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: TID251
    except OSError:
        return ""
    return done.stdout.partition("\n")[0]


def lent(folder: Path) -> SandboxPipSettings:
    """What kbuild lends to builders that fetch wheels, for a Nix that kbuild does not start."""
    keep = folder / "fetching"
    keep.mkdir(exist_ok=True)
    return write_pip_settings(pip_settings(LocalRunner(), os.environ), keep, os.environ, "nixbld")


def pip_variables(fetching: SandboxPipSettings) -> dict[str, str]:
    """pip's own; it passes over the empty ones, which hide those of this process."""
    hidden = dict.fromkeys((name for name in os.environ if name.startswith("PIP_")), "")
    return hidden | {"PIP_CONFIG_FILE": fetching.environment["PIP_CONFIG_FILE"]}


def topmost(places: Iterable[str]) -> list[str]:
    """Those that are there, without those inside another."""
    there = [Path(place) for place in dict.fromkeys(places) if Path(place.split("=")[-1]).exists()]
    return [str(place) for place in there if not any(p in place.parents for p in there)]


def nix_conf(places: list[str]) -> str:
    """No substituters: nothing is asked for that this machine cannot make itself."""
    return "\n".join(
        (
            "experimental-features = nix-command flakes",
            "build-users-group = nixbld",
            "sandbox = true",
            "sandbox-fallback = false",
            f"sandbox-paths = {' '.join(places)}",
            "substituters =",
            "flake-registry =",
            "warn-dirty = false",
            "",
        )
    )


if __name__ == "__main__":
    main()
