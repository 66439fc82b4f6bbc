"""A variant is as small as it was promised to be, in bytes and in files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.libraries import device_code_rows
from kbuild.system.quantities import size_text

MANY_FILES = 200
"""More files than this make every download of the kernel slow."""


@CHECKS.add
class SizeCheck(Check):
    """Bytes are those of the files; `--max-size` is the limit, and without it there is none."""

    name = "size"
    summary = f"The variant stays within `--max-size`, and has at most {MANY_FILES} files."
    group = "files"

    def run(self, output: Output) -> Iterator[Finding]:
        """Report at most one finding on bytes, and one on the number of files."""
        sizes = sizes_of(output.root)
        limit, total = output.limits.max_size, sum(sizes.values())
        if limit is not None and total > limit:
            largest = max(sizes, key=lambda name: sizes[name])
            share = f"{size_text(sizes[largest])} of {size_text(total)}"
            what = f"{share}, and the limit is {size_text(limit)}"
            hint = "build fewer archs, strip the libraries, or raise `--max-size`"
            yield Finding(self.name, "error", largest, what, hint)
        if len(sizes) > MANY_FILES:
            what = f"{len(sizes)} files; more than {MANY_FILES} make downloads slow"
            hint = "join small files, or omit what is not needed at run time"
            yield Finding(self.name, "warning", ".", what, hint)

    def facts(self, output: Output) -> Mapping[str, Any]:
        """`total`, `files` (name -> bytes, largest first), `archs` (a list of what devices run)."""
        sizes = sizes_of(output.root)
        files = dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))
        return {"total": sum(sizes.values()), "files": files, "archs": device_code_rows(output)}


def sizes_of(root: Path) -> dict[str, int]:
    """Bytes of each file below a folder, by its path relative to it."""
    return {
        path.relative_to(root).as_posix(): path.lstat().st_size
        for base, _, names in os.walk(root)
        for path in (Path(base, name) for name in names)
    }
