"""Pin the packages of `debian-hip`: newest versions of the suite, their digests, HIP's symbols.

    python scripts/refresh_debian_hip.py

Runs on Debian: reads the suite's lists, signed, with an apt state of its own, from the mirror that
this machine uses. Afterwards build a ROCm variant; nothing tells that new packages work but that.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

from debian_pins import RUNNER, apt_with_lists, output, package, upstream
from elftools.elf.elffile import ELFFile

from kbuild.plugins.debian import deb_archive, debian_hip, debian_packages

SUITE = "forky"
ROCM = 7
LLVM = 21
DATA = Path(debian_hip.__file__).parent / "data"
PACKAGES = (
    *(f"clang-{LLVM}", f"clang-tools-{LLVM}", f"libclang-common-{LLVM}-dev", f"lld-{LLVM}"),
    *(f"libclang-cpp{LLVM}", f"libllvm{LLVM}", f"rocm-device-libs-{LLVM}"),
    *("libamdhip64-dev", "librocthrust-dev", "librocprim-dev", "libhipcub-dev"),
    # What the tools are linked against.
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libzstd1", "libxml2-16", "libz3-4"),
    *("libedit2", "libffi8", "libtinfo6", "libbsd0", "libmd0"),
)
RUNTIME = "libamdhip64-6"
_RUNTIME_FILE = re.compile(r"/libamdhip64\.so(\.\d+){3}$")
_HIDDEN_BIT_OFF = 0x7FFF


def symbols(library: Path) -> str:
    """`name version` of every versioned function that a library defines, sorted."""
    with library.open("rb") as file:
        elf = ELFFile(file)
        defined = elf.get_section_by_name(".gnu.version_d").iter_versions()
        names = {version.entry.vd_ndx: next(aux).name for version, aux in defined}
        index = elf.get_section_by_name(".gnu.version")
        found = [
            f"{symbol.name} {names[index.get_symbol(at).entry.ndx & _HIDDEN_BIT_OFF]}\n"
            for at, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols())
            if symbol.entry.st_shndx != "SHN_UNDEF" and symbol.entry.st_info.type == "STT_FUNC"
        ]
    return "".join(sorted(found))


def runtime_symbols(mirror: str, options: list[str], folder: Path) -> str:
    """The symbols of the suite's HIP runtime."""
    pin = package(RUNTIME, options)
    file = folder / "runtime.deb"
    wanted = (f"{mirror}/{pin['path']}", str(file), f"SHA256:{pin['sha256']}")
    output(
        str(debian_packages.APT_HELPER),
        *debian_packages.APT_SANDBOX_OPTIONS,
        "download-file",
        *wanted,
    )
    deb_archive.unpack_deb(
        file, folder, lambda path: "runtime.so" if _RUNTIME_FILE.search(path) else None
    )
    return symbols(folder / "runtime.so")


def main() -> None:
    """Write `packages.json` and `symbols.txt`."""
    mirror = debian_packages.find_mirror({}, RUNNER)
    with tempfile.TemporaryDirectory() as folder:
        options = apt_with_lists(Path(folder), mirror, SUITE, "main")
        packages = [package(name, options) for name in PACKAGES]
        (DATA / "symbols.txt").write_text(runtime_symbols(mirror, options, Path(folder)))
    by_name = {str(pin["name"]): str(pin["version"]) for pin in packages}
    data = {
        "suite": SUITE,
        "rocm": ROCM,
        "clang": upstream(by_name[f"clang-{LLVM}"]),
        "hip": upstream(by_name["libamdhip64-dev"]),
        "packages": packages,
    }
    (DATA / "packages.json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
