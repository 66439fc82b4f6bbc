"""Write the symbol lists that link stubs are made from: what a policy's system libraries export.

    python scripts/manylinux_symbols.py x86_64 LIBRARY_FOLDER...

The folders hold the shared libraries of a system of that CPU, at best of the policy's own age
(a manylinux_2_28 image's `/lib64`). Newer ones do: symbols of versions above the policy's ceilings
are left out, and a symbol never changes its version. glibc before 2.34 keeps threads in
`libpthread.so.0`, newer ones in `libc.so.6`: glibc's libraries should be of the policy's layout,
which is also what `zig cc -target x86_64-linux-gnu.2.28` links against.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from kbuild.checks.policies import find_policy
from kbuild.toolchains.manylinux.compiler import DEFAULT_POLICY, LINKER_NAMES, symbols_file

MARKS = {"STT_OBJECT": "=", "STT_TLS": "~"}
BINDINGS = ("STB_GLOBAL", "STB_WEAK", "STB_LOOS", "STB_GNU_UNIQUE")


def main() -> None:
    """Write `data/<policy>-<cpu>.json.gz`."""
    cpu, *folders = sys.argv[1:]
    found = {
        soname: exported(path, cpu)
        for soname in (*LINKER_NAMES, *LOADERS)
        for path in [first(soname, folders)]
        if path is not None
    }
    write(cpu, found)


LOADERS = ("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")


def first(soname: str, folders: list[str]) -> Path | None:
    """The library in the first folder that has it."""
    return next((path for f in folders if (path := Path(f, soname)).is_file()), None)


def exported(path: Path, cpu: str) -> dict[str, list[str]]:
    """Version -> symbols, as `name`, `name=<bytes>` for data and `name~<bytes>` for TLS."""
    allowed = find_policy("manylinux_2_28").versions.get(cpu, {})
    versions: dict[str, list[str]] = defaultdict(list)
    with path.open("rb") as file:
        for name, version, mark in symbols(ELFFile(file)):
            family, _, number = version.partition("_")
            if number in allowed.get(family, ()) and name != version:
                versions[version].append(name + mark)
    return {version: sorted(set(names)) for version, names in sorted(versions.items())}


def symbols(elf: Any) -> Any:
    """(name, version, mark) of every defined dynamic symbol."""
    table = elf.get_section_by_name(".dynsym")
    indices = elf.get_section_by_name(".gnu.version")
    definitions = elf.get_section_by_name(".gnu.version_d")
    names = {d["vd_ndx"]: next(iter(aux)).name for d, aux in definitions.iter_versions()}
    for number, symbol in enumerate(table.iter_symbols()):
        index = indices.get_symbol(number)["ndx"]
        if symbol["st_shndx"] == "SHN_UNDEF" or not isinstance(index, int):
            continue
        if symbol["st_info"]["bind"] in BINDINGS:
            mark = MARKS.get(symbol["st_info"]["type"], "")
            size = str(symbol["st_size"]) if mark else ""
            yield symbol.name, names.get(index & 0x7FFF, ""), mark + size


def write(cpu: str, libraries: dict[str, dict[str, list[str]]]) -> None:
    """The same lists give the same bytes."""
    policy = DEFAULT_POLICY
    document = {"policy": policy, "cpu": cpu, "libraries": libraries}
    text = json.dumps(document, indent=0, sort_keys=True)
    symbols_file(policy, cpu).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
