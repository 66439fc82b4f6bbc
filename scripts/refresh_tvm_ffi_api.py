"""Refresh `kbuild/checks/data/tvm_ffi_api.json` from wheels of TVM-FFI.

    python scripts/refresh_tvm_ffi_api.py [--check] WHEEL...

Give wheels for Linux of every release of one `major.minor`. A C function has the first release
whose `libtvm_ffi.so` offers it.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from elftools.elf.elffile import ELFFile

TARGET = Path(__file__).parent.parent / "kbuild/checks/data/tvm_ffi_api.json"
LIBRARY = "tvm_ffi/lib/libtvm_ffi.so"
FUNCTION = re.compile(r"TVMFFI[A-Z]\w*")


def offered(wheel: Path) -> set[str]:
    """The C functions that the wheel's library has."""
    with ZipFile(wheel) as archive:
        elf = ELFFile(BytesIO(archive.read(LIBRARY)))
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    defined = (symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF")
    return set(filter(FUNCTION.fullmatch, defined))


def release_of(wheel: Path) -> tuple[int, ...]:
    """`0.1.15.post2` is the release 0.1.15."""
    version = wheel.name.split("-")[1]
    return tuple(int(part) for part in version.split(".post")[0].split("."))


def document(wheels: list[Path]) -> dict[str, object]:
    """Which release brought each function."""
    found = sorted((release_of(wheel), offered(wheel)) for wheel in wheels)
    since: dict[str, str] = {}
    for release, names in found:
        for name in names:
            since.setdefault(name, ".".join(map(str, release)))
    by_release: dict[str, list[str]] = defaultdict(list)
    for name, text in sorted(since.items()):
        by_release[text].append(name)
    order = sorted(by_release, key=lambda text: tuple(map(int, text.split("."))))
    return {
        "source": "libtvm_ffi.so of the wheels of apache-tvm-ffi",
        "oldest": ".".join(map(str, found[0][0])),
        "newest": ".".join(map(str, found[-1][0])),
        "since": {release: by_release[release] for release in order},
    }


def main() -> int:
    """Write the file; with `--check`, say whether it is stale."""
    wheels = [Path(argument) for argument in sys.argv[1:] if argument != "--check"]
    if not wheels:
        print(__doc__)
        return 2
    text = json.dumps(document(wheels), indent=1) + "\n"
    if "--check" in sys.argv[1:]:
        same = TARGET.read_text("utf-8") == text
        print(f"{TARGET.name} is {'up to date' if same else 'stale'}")
        return 0 if same else 1
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
