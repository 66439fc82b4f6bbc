"""Headers in a folder of the user's: named on the command line, or in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kbuild.errors import ToolchainError
from kbuild.toolchains.sources.pins import Pin
from kbuild.toolchains.sources.tree import HeaderSource, digest_of, fault, source_of

OPTION = "--with-source"


def given_folder(pin: Pin, folder: Path) -> HeaderSource:
    """The folder that the command line names; it must be right.

    Raises:
        ToolchainError: it is something else, or another release.
    """
    wrong = fault(pin, folder)
    if wrong is None:
        return _source(pin, folder)
    raise ToolchainError(
        f"{OPTION} {pin.name}={folder}: the folder {wrong}",
        hint=f"{pin.name} is {pin.title}: give the top folder of its source tree, which holds "
        f"{', '.join(f'`{name}`' for name in (*pin.check.files, *pin.library.include))}",
    )


def folder_of_environment(pin: Pin, environ: Mapping[str, str]) -> HeaderSource | str:
    """The folder that the dependency's variable names, or why it is not used.

    One variable serves all releases of a library, so another release there is no mistake.
    """
    name = pin.library.source_dir
    if name is None:
        return f"no variable names a folder with {pin.library.title}"
    if not environ.get(name):
        return f"${name} is not set"
    folder = Path(os.path.expanduser(environ[name])).absolute()  # noqa: PTH111 - never fails
    wrong = fault(pin, folder)
    return _source(pin, folder) if wrong is None else f"${name}: `{folder}` {wrong}"


def _source(pin: Pin, folder: Path) -> HeaderSource:
    plain = source_of(pin, folder, "", "")
    digest = digest_of(plain.include_dirs)
    return source_of(pin, folder, f"{folder}, sha256 {digest[:12]}", f"sha256:{digest}")
