"""Write a stand-in for nixpkgs, and a Nix configuration, for this machine: `stand_in.py FOLDER`.

    FOLDER/nixpkgs/    flake that offers the host's programs under nixpkgs' names
    FOLDER/nix.conf    sandbox on, the host's folders lent to it: use as NIX_CONF_DIR=FOLDER
    FOLDER/pip.conf    this user's settings of pip, for builders that fetch wheels
    FOLDER/ca.crt      a copy of the certificates that pip uses

Running it again writes the same while the machine is the same.

What is lent must never nest. Nix makes the mount point of a file by writing an empty one, as root:
inside a folder that is lent as well, that empties the host's own file. So `/etc/ssl`, where newer
releases of Nix put certificates for builders that fetch, is not lent, and certificates are a copy.
"""

from __future__ import annotations

import argparse
import ast
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDERS = ("/bin", "/usr", "/lib", "/lib64", "/etc/alternatives")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
COMPILE_CACHE = "/var/cache/kbuild"
_FETCHING = ("global.", "install.", "download.", ":env:.")


def main() -> None:
    """Write the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compile-cache", type=Path, help="lent to every build as a cache")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    write_packages(folder / "nixpkgs")
    settings = pip_settings()
    (folder / "pip.conf").write_text(pip_conf(settings))
    (folder / "ca.crt").write_bytes(certificates(settings))
    places = lent(settings, folder)
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


def pip_settings() -> dict[str, str]:
    """Option -> value, as this user's pip sees them."""
    command = (sys.executable, "-m", "pip", "config", "list")
    listing = subprocess.check_output(command, text=True)
    found = {}
    for section in _FETCHING:
        for line in listing.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(section):
                found[key.removeprefix(section)] = str(ast.literal_eval(value))
    return found


def certificates(settings: dict[str, str]) -> bytes:
    """Those that pip is told to use, else the distribution's; empty where there are none."""
    for place in (settings.get("cert"), CERTIFICATES):
        if place and Path(place).is_file():
            return Path(place).read_bytes()
    return b""


def pip_conf(settings: dict[str, str]) -> str:
    """The same as a file; the certificates are where the builder sees them."""
    seen = settings | ({"cert": CERTIFICATES} if settings.get("cert") else {})
    lines = (f"{key} = {value}" for key, value in sorted(seen.items()))
    return "\n".join(("[global]", *lines, ""))


def lent(settings: dict[str, str], folder: Path) -> list[str]:
    """What `sandbox-paths` lends: programs, certificates, and where wheels lie on this machine."""
    places = [*FOLDERS, sys.base_prefix, *_local_places(settings)]
    there = [Path(place) for place in dict.fromkeys(places) if Path(place).exists()]
    topmost = [str(place) for place in there if not any(p in place.parents for p in there)]
    mapped = {"/etc/pip.conf": folder / "pip.conf", CERTIFICATES: folder / "ca.crt"}
    mapped |= {cert: folder / "ca.crt" for cert in [settings.get("cert")] if cert}
    for target in mapped:
        if any(Path(place) in Path(target).parents for place in topmost):
            raise SystemExit(f"{target} lies in a folder that is lent: Nix would empty it")
    return [*topmost, *(f"{target}={source}" for target, source in mapped.items())]


def _local_places(settings: dict[str, str]) -> list[str]:
    """Folders among the places that pip looks at; of a file-based index its parent as well."""
    found = list(settings.get("find-links", "").split())
    urls = f"{settings.get('index-url', '')} {settings.get('extra-index-url', '')}".split()
    found += [str(Path(url[7:]).parent) for url in urls if url.startswith("file://")]
    return [place.removeprefix("file://") for place in found if place.startswith(("/", "file:"))]


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
