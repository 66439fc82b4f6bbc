"""A variant as others will see it: without what editors and interpreters left in its folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbuild.hub.layout import BUILD, variant_files
from kbuild.scratch import scratch_folder


@contextmanager
def as_sent(folder: Path) -> Iterator[Path]:
    """The variant's folder itself when all of it is uploaded, else one with what is.

    What lies beside the variant is beside that as well. Links stay links.
    """
    files = dict(variant_files(folder))
    there = {Path(base, name) for base, _, names in os.walk(folder) for name in names}
    if there <= {*files.values()}:
        yield folder
        return
    with scratch_folder("sent") as scratch:
        for path, file in files.items():
            target = scratch / path
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(file, target, follow_symlinks=False)
            except OSError:  # another file system
                shutil.copy2(file, target, follow_symlinks=False)
        yield scratch / BUILD / folder.name
