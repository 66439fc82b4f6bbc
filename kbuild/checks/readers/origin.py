"""Whether kbuild built a variant here: that very folder, with exactly these files.

A build notes the folder's path and the bytes of all its files in the user's cache, which no project
and no download can write to. A folder that was copied, fetched, unpacked or changed since is
foreign, even in `build/` of a project with a `.kbuild/` folder of its own.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from kbuild.checks.readers.memory import keep
from kbuild.checks.readers.question import contents
from kbuild.fileset import sha256

BUILT = "built"


def note_built(cache: Path, variant: Path, made: Path | None = None) -> None:
    """Remember that the folder `variant` was built here; `made` has its files as they were built.

    A cache that cannot be written to makes it foreign, and is no reason to fail.
    """
    with suppress(OSError):
        keep(cache / BUILT, _name(variant, made or variant), b"")


def is_built_here(cache: Path, variant: Path) -> bool:
    """True when a build of this user left the folder so."""
    try:
        return (cache / BUILT / _name(variant, variant)).is_file()
    except OSError:
        return False


def _name(variant: Path, made: Path) -> str:
    return sha256(f"{contents(made)} {variant.resolve()}".encode("utf-8", "surrogateescape"))
