"""Device images of kernels in Python DSLs say nothing of the machine that compiled them."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output
from kbuild.checks.libraries import first_names, libraries_with_device_code


@CHECKS.add
class ImagesCheck(LibraryCheck):
    """Line tables hold absolute paths, which differ from machine to machine and tell of it."""

    name = "images"
    summary = "Images of kernels in Python DSLs name no files of the machine that compiled them."
    group = "archs"

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per library."""
        for holder in libraries_with_device_code(output):
            if holder.code.paths:
                what = f"its device code names {first_names(list(holder.code.paths), 3)}"
                hint = "build the variant again: kbuild compiles images without line tables"
                yield Finding(self.name, "error", holder.where, what, hint)
