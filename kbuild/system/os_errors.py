"""Errors of the operating system with an explanation and a remedy.

An `OSError` becomes a `StorageError`.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kbuild.system.errors import KbuildError, StorageError

STDOUT = "standard output"
"""Name of standard output as a place in errors."""
_FREE_SPACE_HINT = (
    "free some space there; `kbuild cache prune` and `kbuild toolchain prune` remove what can be "
    "made again, KBUILD_CACHE_DIR and TMPDIR move kbuild's cache and its temporary files"
)
_OTHER_FOLDER_HINT = (
    "use another folder: --output names the one for the result, KBUILD_CACHE_DIR the cache, TMPDIR "
    "that for temporary files"
)
_WORKSPACE = ".kbuild"
_WORKSPACE_HINT = (
    "kbuild keeps its files in the project, in `.kbuild`, which no option or variable moves: copy "
    "the project to a folder that can be written"
)
_MOVE_AWAY_HINT = "move it away, or use another folder"
_OPEN_FILES_HINT = "raise the limit (`ulimit -n`), or use fewer jobs (`-j`)"
_RETRY_HINT = "see what else uses it, and run the command again"
_DEVICE_HINT = "look at the device and its mount, e.g. with `dmesg`"
_REFUSALS: Mapping[int, tuple[str, str]] = {
    errno.ENOSPC: ("no space is left on the file system at `{mount}`", _FREE_SPACE_HINT),
    errno.EDQUOT: ("the disk quota on the file system at `{mount}` is used up", _FREE_SPACE_HINT),
    errno.EFBIG: (
        "the file would be larger than is allowed here",
        "raise the limit (`ulimit -f`), or use a file system that takes larger files",
    ),
    errno.EROFS: (
        "the file system is read-only there",
        f"make it writable, or {_OTHER_FOLDER_HINT}",
    ),
    errno.EACCES: ("{user} has no permission", f"give the permission, or {_OTHER_FOLDER_HINT}"),
    errno.EPERM: (
        "{user} is not permitted to do this",
        f"`ls -ld` and `lsattr -d` show what protects it; or {_OTHER_FOLDER_HINT}",
    ),
    errno.ENAMETOOLONG: (
        "the name is too long for the file system",
        "use shorter names: most file systems take 255 bytes for a name and 4,095 for a path",
    ),
    errno.ENOTDIR: ("a file is where a folder belongs", _MOVE_AWAY_HINT),
    errno.EEXIST: ("exists already", _MOVE_AWAY_HINT),
    errno.EISDIR: ("a folder is where a file belongs", _MOVE_AWAY_HINT),
    errno.ENOTEMPTY: ("the folder is not empty: another program writes to it", _RETRY_HINT),
    errno.ENOENT: ("no such file or folder", "see whether it was moved or deleted meanwhile"),
    errno.ELOOP: (
        "its symbolic links go in a circle",
        "replace the link by what it should lead to",
    ),
    errno.EMLINK: ("the file has too many links", "use a file system that takes more"),
    errno.EMFILE: ("kbuild has too many files open", _OPEN_FILES_HINT),
    errno.ENFILE: ("the system has too many files open", _OPEN_FILES_HINT),
    errno.EBUSY: ("it is in use", _RETRY_HINT),
    errno.ETXTBSY: ("it is a program that runs now", _RETRY_HINT),
    errno.EIO: ("the device reports an error", _DEVICE_HINT),
    errno.ENXIO: ("there is no device behind it", _DEVICE_HINT),
    errno.ENODEV: ("there is no device behind it", _DEVICE_HINT),
    errno.ESTALE: ("the network file system lost it", "run the command again"),
    errno.ENOTCONN: ("its file system does not answer", "mount it again"),
    errno.EOPNOTSUPP: ("its file system cannot do this", "use a folder of another file system"),
    errno.ENOLCK: ("its file system cannot lock files", "use a folder of another file system"),
    errno.ENOMEM: ("the system has no memory left", "use fewer jobs (`-j`), or close programs"),
    errno.EAGAIN: (
        "no further process can be started",
        "raise the limit (`ulimit -u`), or use fewer jobs (`-j`)",
    ),
}
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
_LITTLE = 1 << 20
"""Bytes of free space below which a file system counts as full."""
_LONGEST = 320
"""Largest number of characters of a path in a message."""
_NUMBERED = r"\[Errno (\d{1,9})\]"
_NO_TEMPORARY = "No usable temporary directory"
_REFUSAL_PATTERNS = {
    errno.ENOSPC: r"No space left on device",
    errno.EDQUOT: r"Disk quota exceeded",
    errno.EFBIG: r"File size limit exceeded|File too large|SIGXFSZ",
    errno.EROFS: r"Read-only file system",
    errno.EMFILE: r"Too many open files",
}
"""Patterns of what compilers and linkers print before they give up."""


@contextmanager
def errors_about(path: Path | str) -> Iterator[None]:
    """Name the file in errors of this context: a failed write names none, or a draft.

    Raises:
        OSError: as it was raised inside.
    """
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            error.filename, error.filename2 = os.fspath(path), None
        raise


def explain_os_error(error: BaseException, places: Iterable[Path] = ()) -> KbuildError | None:
    """The error as a message; None if it is no system error, or one that only a bug can cause."""
    if isinstance(error, MemoryError):
        hint = "close other programs, or run it on a machine with more memory"
        return StorageError("there is not enough memory", hint=hint)
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        problem = f"`{printable_path(error.object)}` has bytes that are not UTF-8"
        return StorageError(problem, hint="rename the file or folder, or write the name in UTF-8")
    if not isinstance(error, OSError):
        return None
    number, path = _facts(error)
    if number not in _REFUSALS:
        return None
    if _NO_TEMPORARY in str(error.strerror):
        hint = "set TMPDIR to a folder that exists, can be written and has room"
        return StorageError("there is no folder for temporary files", hint=hint)
    path = path or _written(error)
    if path is None and number in _FULL:
        path = next((place for place in places if _is_full(place)), None)
    message, hint = _sentence(number, path)
    return StorageError(message, hint=hint)


def system_refusal_in(lines: Sequence[str], folder: Path) -> tuple[str, str] | None:
    """Name the system's refusal that made a process of the build fail, with the remedy."""
    for number, pattern in _REFUSAL_PATTERNS.items():
        is_told = any(re.search(pattern, line) for line in lines)
        # Not every program says why it fails when the disk is full.
        if is_told or (number == errno.ENOSPC and _is_full(folder)):
            message, hint = _REFUSALS[number]
            return message.format(mount=_mount(folder), user=_user()), hint
    return None


def printable_path(path: Path | str) -> str:
    """A path as a message can show it: in one line, with characters that everybody can print."""
    text = os.fspath(path)
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}...{text[-_LONGEST // 4 :]}"
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def _facts(error: OSError) -> tuple[int, Path | None]:
    """Number and path; 0 for errors of libraries, whose numbers mean something else."""
    if isinstance(error, shutil.Error):
        # Copying a folder gathers (source, target, words), without the numbers.
        entries = error.args[0] if error.args and isinstance(error.args[0], list) else []
        for _, target, message in entries:
            if number := re.search(_NUMBERED, str(message)):
                return int(number[1]), Path(target)
        return 0, None
    if type(error).__module__ != "builtins" or error.errno is None:
        return 0, None
    # Where two files are named, ENOENT is about the source, other errors about the target.
    name = error.filename if error.filename2 is None else error.filename2
    if error.errno == errno.ENOENT and error.filename is not None:
        name = error.filename
    return error.errno, Path(os.fsdecode(name)) if isinstance(name, (str, bytes)) else None


def _written(error: OSError) -> Path | None:
    """The file that was being written, when the innermost function that writes one can tell."""
    import traceback

    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        path = frame.f_locals.get("self")
        if isinstance(path, Path):  # `write_text` and `write_bytes`
            return path
        name = getattr(frame.f_locals.get("file"), "name", None)
        if isinstance(name, str):
            return Path(name)
    return None


def _sentence(number: int, path: Path | None) -> tuple[str, str]:
    message, hint = _REFUSALS[number]
    if path is None or path == Path(STDOUT):
        text = message.format(mount="?", user=_user()).replace(" at `?`", "")
        return text if path is None else f"{STDOUT}: {text}", hint
    if number in {errno.EROFS, errno.EACCES, errno.EPERM} and _WORKSPACE in path.parts:
        hint = _WORKSPACE_HINT
    if number == errno.ENOTDIR or (number == errno.EEXIST and not path.is_dir()):
        message, path = _REFUSALS[errno.ENOTDIR][0], _blocker(path)
    return f"`{printable_path(path)}`: {message.format(mount=_mount(path), user=_user())}", hint


def _blocker(path: Path) -> Path:
    """The file where a folder belongs: the path or its first parent that is not a folder."""
    for place in (*reversed(path.parents), path):
        with suppress(OSError):
            if place.exists() and not place.is_dir():
                return place
    return path


def _mount(path: Path) -> Path:
    """Root of the file system that a path is on."""
    place = Path(os.path.abspath(path))  # noqa: PTH100 - links are resolved below, where they can be
    with suppress(OSError, RuntimeError):
        place = place.resolve()
    for folder in (place, *place.parents):
        with suppress(OSError):
            if folder.is_mount():
                return folder
    return Path(place.anchor)


def _is_full(place: Path) -> bool:
    for folder in (place, *place.parents):
        with suppress(OSError):
            room = os.statvfs(folder)
            return room.f_bavail * room.f_frsize < _LITTLE
    return False


def _user() -> str:
    import pwd

    try:
        return f"user `{pwd.getpwuid(os.geteuid()).pw_name}`"
    except KeyError:
        return f"user {os.geteuid()}"
