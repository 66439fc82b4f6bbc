"""What a translation unit is made of, as far as it is known before its headers are."""

from __future__ import annotations

import os

from kbuild.build.unit import hashes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbuild.build.unit.command import Command

FORMAT = "kbuild-object 2"
CLOCKS = (b"__DATE__", b"__TIME__", b"__TIMESTAMP__")
"""Macros whose value is another one each time."""
COMPILER_ID = "KBUILD_COMPILER_ID"
"""Variable with a fingerprint that replaces the compilers' path, size and time."""
_ENVIRONMENT = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "SOURCE_DATE_EPOCH", "GCC_EXEC_PREFIX",
    "COMPILER_PATH", "SDKROOT", "MACOSX_DEPLOYMENT_TARGET", "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "ROCM_PATH", "HIP_PATH", COMPILER_ID,
)  # fmt: skip


def object_key(
    command: Command, environ: Mapping[str, str], source: bytes, versions: str = ""
) -> str:
    """Key of all objects that this command can give; their headers tell them apart.

    `versions` are the compilers', as in `Settings.compilers`.
    """
    return _digest(
        FORMAT,
        *_compilers(command, environ),
        *_versions(command, versions),
        *(f"{name}={environ[name]}" for name in _ENVIRONMENT if name in environ),
        command.name(command.cwd),
        *_identity(command),
        hashes.digest(source),
    )


def unit_key(command: Command) -> str:
    """Key of the unit, whatever its source holds: for what was learned of it before."""
    return _digest(command.argv[0], *_identity(command))


def source_key(command: Command) -> str:
    """Key of the unit's source, whatever its flags and compiler are."""
    return _digest(*_identity(command)[:2])


def _identity(command: Command) -> tuple[str, ...]:
    source = command.name(command.absolute(command.source))
    return (command.language, source, "\n".join(command.words))


def _compilers(command: Command, environ: Mapping[str, str]) -> list[str]:
    programs = [command.argv[0]]
    if command.language == "CUDA":
        asked = [
            word for word in command.words if word.startswith(("-ccbin=", "--compiler-bindir="))
        ]
        programs.append(asked[-1].partition("=")[2] if asked else environ.get("NVCC_CCBIN", "g++"))
    if COMPILER_ID in environ:
        return programs
    return [_fingerprint(program, environ) for program in programs]


def _versions(command: Command, versions: str) -> list[str]:
    """Those that matter: C++ is compiled by the C++ compiler alone."""
    entries = versions.split(";")
    return [entry for entry in entries if command.language != "CXX" or entry.startswith("c++=")]


def _fingerprint(program: str, environ: Mapping[str, str]) -> str:
    found = program
    if "/" not in program:
        folders = environ.get("PATH", os.defpath).split(os.pathsep)
        candidates = (f"{folder}/{program}" for folder in folders)
        found = next((path for path in candidates if os.access(path, os.X_OK)), program)
    real = os.path.realpath(found)
    try:
        status = os.stat(real)
    except OSError:
        return real
    return f"{os.path.basename(found)} {real} {status.st_size} {status.st_mtime_ns}"


def _digest(*parts: str) -> str:
    return hashes.digest("\0".join(parts).encode("utf-8", "surrogateescape"))
