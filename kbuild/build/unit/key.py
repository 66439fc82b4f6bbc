"""What a translation unit is made of, as far as it is known before its headers are."""

from __future__ import annotations

import os

from kbuild.filestate import digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbuild.build.unit.command import Command
    from kbuild.build.unit.hashes import FileHashes

FORMAT = "kbuild-object 3"
CLOCKS = (b"__DATE__", b"__TIME__", b"__TIMESTAMP__")
"""Macros whose value is another one each time."""
COMPILER_ID = "KBUILD_COMPILER_ID"
"""Variable with a fingerprint that replaces the compilers' path and content."""
_ENVIRONMENT = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "SOURCE_DATE_EPOCH", "GCC_EXEC_PREFIX",
    "COMPILER_PATH", "SDKROOT", "MACOSX_DEPLOYMENT_TARGET", "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "ROCM_PATH", "HIP_PATH", COMPILER_ID,
)  # fmt: skip


def object_key(
    command: Command, environ: Mapping[str, str], files: FileHashes, versions: str = ""
) -> str:
    """Key of all objects that this command can give; their headers tell them apart.

    `files` say what source and compilers hold. `versions` are the compilers', as in
    `Settings.compilers`.
    """
    return _digest(
        FORMAT,
        *_compilers(command, environ, files),
        *_versions(command, versions),
        *(f"{name}={environ[name]}" for name in _ENVIRONMENT if name in environ),
        command.name(command.cwd),
        *_identity(command),
        str(files.of(command.absolute(command.source))),
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


def programs(command: Command, environ: Mapping[str, str]) -> list[str]:
    """The compilers' files; a name that leads to none stays as it is."""
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    return [_program(name, folders) for name in _names(command, environ)]


def _names(command: Command, environ: Mapping[str, str]) -> list[str]:
    names = [command.argv[0]]
    if command.language == "CUDA":
        asked = [
            word for word in command.words if word.startswith(("-ccbin=", "--compiler-bindir="))
        ]
        names.append(asked[-1].partition("=")[2] if asked else environ.get("NVCC_CCBIN", "g++"))
    return names


def _program(name: str, folders: list[str]) -> str:
    found = name
    if "/" not in name:
        candidates = (f"{folder}/{name}" for folder in folders)
        found = next((path for path in candidates if os.access(path, os.X_OK)), name)
    return os.path.realpath(found) if "/" in found else found


def _compilers(command: Command, environ: Mapping[str, str], files: FileHashes) -> list[str]:
    """What decides which compilers they are: a program may be called by several names."""
    names = _names(command, environ)
    if COMPILER_ID in environ:
        return names
    return [
        f"{os.path.basename(name)} {path} {files.of(path)}"
        for name, path in zip(names, programs(command, environ), strict=True)
    ]


def _versions(command: Command, versions: str) -> list[str]:
    """Those that matter: C++ is compiled by the C++ compiler alone."""
    entries = versions.split(";")
    return [entry for entry in entries if command.language != "CXX" or entry.startswith("c++=")]


def _digest(*parts: str) -> str:
    return digest("\0".join(parts).encode("utf-8", "surrogateescape"))
