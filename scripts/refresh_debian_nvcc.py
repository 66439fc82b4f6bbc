"""Pin the package of `debian-nvcc`: the newest version of the suite, and its digest.

    python scripts/refresh_debian_nvcc.py

Runs on Debian: reads the suite's lists, signed, with an apt state of its own, from the mirror that
this machine uses. A newer release of CUDA 12 wants its headers in the lock as well: name it in
`HEADER_RELEASES`, run `scripts/refresh_toolchain_lock.py`, and build a CUDA 12 variant.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from debian_pins import RUNNER, apt_with_lists, package, upstream

from kbuild.plugins.debian import nvcc

SUITE = "trixie"
PACKAGE = "nvidia-cuda-toolkit"
DATA = Path(nvcc.__file__).parent / "data"


def main() -> None:
    """Write `packages.json`."""
    mirror = nvcc.find_mirror({}, RUNNER)
    with tempfile.TemporaryDirectory() as folder:
        pinned = package(PACKAGE, apt_with_lists(Path(folder), mirror, SUITE, "non-free"))
    data = {"suite": SUITE, "nvcc": upstream(str(pinned["version"])), "packages": [pinned]}
    (DATA / "packages.json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
