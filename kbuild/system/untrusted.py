"""Reads bytes that kbuild did not write.

Whatever goes wrong becomes one error, and what is unpacked is limited.

Every reader of metadata, manifests, locks, libraries or archives runs inside `reading`.
"""

from __future__ import annotations

import io
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import EINVAL
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from kbuild.system.errors import DamagedFileError, KbuildError

if TYPE_CHECKING:
    from pathlib import Path


T = TypeVar("T")

MAX_DOCUMENT_BYTES = 32 << 20
"""Largest document that is read. Most documents have some kilobytes; the list of a large
toolchain's members has three million bytes."""
_DEEPEST = 64
"""Levels of lists and objects: what is deeper would end in a RecursionError somewhere else."""

_INTEGERS = 2**63
"""TOML's integers are from minus this to one less than this."""
_SHOWN = 500


@contextmanager
def reading(file: Path | str, kind: str, *, hint: str = "") -> Iterator[None]:
    """Turn every failure to understand a file into `DamagedFileError` with the file's name.

    Args:
        file: what is read, as the user would name it.
        kind: what it should be, with its article: "a variant's metadata", "an ELF library".
        hint: the remedy, when there is a better one than to replace the file.

    Raises:
        DamagedFileError: the bytes are not what they should be, or ask for more memory or
            recursion than there is.
        KbuildError: as it was raised inside.
        OSError: as it was raised inside: the file cannot be read at all.
    """
    try:
        yield
    except KbuildError:
        raise
    except Exception as error:
        # The system calls an offset invalid that a file states and no file has; an error without
        # a number is a decompressor's.
        if isinstance(error, OSError) and error.errno not in {EINVAL, None}:
            raise
        raise DamagedFileError(
            f"`{os.fspath(file)}` is not {kind} that can be read: {reason_of(error)}",
            hint=hint or "replace the file, or delete it if it can be made again",
        ) from error


def reason_of(error: BaseException) -> str:
    """The reason in an exception about a file, as text for a message.

    Of an error that `reading` raised: what the one behind it says.
    """
    match error:
        case DamagedFileError() if error.__cause__ is not None:
            return reason_of(error.__cause__)
        case KbuildError():
            text = error.message
        case RecursionError():
            text = "nested too deeply"
        case MemoryError():
            text = "asks for more memory than there is"
        case KeyError():
            text = f"has no {error}"
        case UnicodeDecodeError():
            text = f"not UTF-8 text (byte {error.start})"
        case json.JSONDecodeError():
            text = f"not JSON: {error}"
        case _:
            text = str(error) or type(error).__name__
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def read_bytes(path: Path, kind: str, *, limit: int = MAX_DOCUMENT_BYTES, hint: str = "") -> bytes:
    """A regular file of at most `limit` bytes.

    Raises:
        DamagedFileError: it is larger, or a folder, pipe or device.
        OSError: it cannot be read.
    """
    with reading(path, kind, hint=hint):
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("not a regular file")
        with path.open("rb") as file:
            # One byte more than allowed tells that the file is longer, whatever `stat` said.
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ValueError(f"more than {limit >> 20} MiB")
        return data


def parse_json(
    data: bytes | str, file: Path | str, kind: str, *, strict: bool = True, hint: str = ""
) -> dict[str, Any]:
    """A JSON object in UTF-8 that is not nested deeply and whose text can be written again.

    Args:
        data: the text.
        file: where it is from, as the user would name it.
        kind: see `reading`.
        strict: refuse `NaN` and `Infinity`, which Python writes and JSON does not have.
        hint: see `reading`.

    Raises:
        DamagedFileError: it is none.
    """
    with reading(file, kind, hint=hint):
        text = data if isinstance(data, str) else data.decode("utf-8")
        document = json.loads(text, parse_constant=_no_number if strict else None)
        if not isinstance(document, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 - of the file, not of a caller
        # With fewer brackets it cannot be that deep, so most documents are not walked.
        if text.count("[") + text.count("{") > _DEEPEST:
            _refuse_nested(document)
        if "\\u" in text:  # half a surrogate pair is not a text
            json.dumps(document, ensure_ascii=False).encode("utf-8")
        return document


def parse_toml(text: str) -> dict[str, Any]:
    """A TOML document whose integers are TOML's: a hexadecimal one of Python's may have any size.

    Raises:
        ValueError: it is none; `tomli.TOMLDecodeError` where it says at which line.
        RecursionError: it is nested too deeply.
    """
    import tomli

    document = tomli.loads(text)
    inside: list[Any] = [document]
    while inside:
        container = inside.pop()
        for value in container.values() if isinstance(container, dict) else container:
            if isinstance(value, (dict, list)):
                inside.append(value)
            elif isinstance(value, int) and not -_INTEGERS <= value < _INTEGERS:
                raise ValueError(f"an integer has more than 64 bits: `{value:#x}`"[:_SHOWN])
    return document


def read_json(
    path: Path, kind: str, *, limit: int = MAX_DOCUMENT_BYTES, hint: str = ""
) -> dict[str, Any]:
    """The JSON object in a file, see `read_bytes` and `parse_json`.

    Raises:
        DamagedFileError: it is none, or too large.
        OSError: it cannot be read.
    """
    return parse_json(read_bytes(path, kind, limit=limit, hint=hint), path, kind, hint=hint)


def read_cache_file(path: Path, understand: Callable[[Mapping[str, Any]], T]) -> T | None:
    """Read a JSON file that may be missing or damaged; None then.

    Args:
        path: the file.
        understand: takes the object; whatever it raises means that the file is damaged.
    """
    try:
        document = read_json(path, "a cache's entry")
        with reading(path, "a cache's entry"):
            return understand(document)
    except (OSError, KbuildError):
        return None


def read_json_lines(path: Path, kind: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a log that programs append lines to; other lines are left out."""
    try:
        data = read_bytes(path, kind, limit=8 * MAX_DOCUMENT_BYTES)
    except (OSError, DamagedFileError):
        return
    for line in io.BytesIO(data):
        try:
            yield parse_json(line, path, kind)
        except DamagedFileError:
            continue


def _no_number(word: str) -> float:
    raise ValueError(f"`{word}` is not a number")


def _refuse_nested(document: object) -> None:
    level = [document]
    for _ in range(_DEEPEST):
        level = [
            value
            for container in level
            for value in (container.values() if isinstance(container, dict) else container)  # type: ignore[attr-defined]
            if isinstance(value, (dict, list))
        ]
        if not level:
            return
    raise ValueError("nested too deeply")


def special_file_kind(mode: int) -> str:
    """The kind of a path that is neither a file, a folder nor a link, with its article."""
    kinds = (
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((kind for is_kind, kind in kinds if is_kind(mode)), "not a regular file")


@dataclass
class UnpackLimit:
    """The size that an archive may unpack to, counted while it is unpacked.

    Torch's wheels for CUDA, the largest that are unpacked, have over 15,000 members and unpack to
    over 2 GB, a few times their own size.
    """

    archive: str
    packed: int
    """Bytes of the archive."""
    size: int = 0
    """Bytes that were unpacked so far."""
    members: int = 0
    """Members that were seen so far."""
    most: int = field(init=False)
    """Bytes that it may unpack to."""

    MOST_BYTES = 64 << 30
    MOST_TIMES = 100
    """Largest unpacked size, as a multiple of the archive's own size."""
    LEAST_BYTES = 256 << 20
    """Unpacked size that is allowed for every archive, however small."""
    MOST_MEMBERS = 200_000
    MOST_DEPTH = 64
    """Largest number of parts of a member's path."""
    MOST_TEXT = 64 << 20
    """Bytes of a member that is read into memory."""

    def __post_init__(self) -> None:
        self.most = min(self.MOST_BYTES, max(self.LEAST_BYTES, self.MOST_TIMES * self.packed))

    def add(self, member: str, size: int) -> None:
        """Count bytes of a member.

        Raises:
            DamagedFileError: they are more than the archive may unpack to.
        """
        self.size += size
        if self.size > self.most:
            raise self.refusal(
                member, f"with it, the archive would unpack to more than {self.most >> 20} MB"
            )

    def enter(self, member: str) -> None:
        """Count a member.

        Raises:
            DamagedFileError: there are too many, it has no name, or its path has too many parts.
        """
        self.members += 1
        if self.members > self.MOST_MEMBERS:
            raise self.refusal(member, f"there are more than {self.MOST_MEMBERS} members")
        if not member:
            raise self.refusal(member, "it has no name")
        if len(PurePosixPath(member).parts) > self.MOST_DEPTH:
            raise self.refusal(member, f"its path has more than {self.MOST_DEPTH} parts")

    def refusal(self, member: str, reason: str) -> DamagedFileError:
        """The error for a member that is not unpacked."""
        hint = "kbuild uses nothing from this file; check that it is what its name says"
        return DamagedFileError(f"{self.archive}: `{shorten_name(member)}`: {reason}", hint=hint)


def shorten_name(text: str) -> str:
    """A name from an untrusted file, as long as one may be in a message."""
    longest = 200
    return text if len(text) <= longest else f"{text[:longest]}..."
