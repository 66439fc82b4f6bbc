"""Files of other tools as entries: named numbers of a call, and the configuration it ran best."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli

from kbuild.errors import ConfigError, DamagedFileError, Problem
from kbuild.languages.spec.values import Scalar
from kbuild.untrusted import parse_json, read_bytes, reading, reason_of

_DEVICE = "device_name"
_PAIR = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>[^,]+)")
_SIZE = re.compile(r"[0-9]{1,18}")
_WORD = re.compile(r"[A-Za-z0-9]")


@dataclass(frozen=True)
class Entry:
    """One configuration."""

    call: Mapping[str, int]
    """Names of numbers of the call -> values."""
    config: Mapping[str, Scalar]
    line: int = 0


@dataclass(frozen=True)
class Imported:
    """What a file says."""

    path: str
    entries: tuple[Entry, ...]
    device: str = ""
    """The device that the file's name says."""


def read_import(path: Path, columns: Sequence[str], constants: Sequence[str]) -> Imported:
    """Read a file by its ending.

    Args:
        path: `.json` or `.csv`.
        columns: for a CSV: names of the numbers in the first line of each pair.
        constants: for a CSV: names of the numbers in the second.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with reading(path, "a table"):
            text = read_bytes(path, "a table").decode("utf-8")
    except (OSError, DamagedFileError) as error:
        raise _problem(path, 0, reason_of(error)) from error
    if path.suffix == ".csv":
        return Imported(str(path), tuple(_pairs(path, text, columns, constants)))
    named = {match["name"]: match["value"] for match in _PAIR.finditer(path.stem)}
    fixed = {name: int(value) for name, value in named.items() if _SIZE.fullmatch(value)}
    entries = tuple(_by_m(path, text, fixed))
    return Imported(str(path), entries, named.get(_DEVICE, "").replace("_", " "))


def arch_of(device: str) -> str | None:
    """The arch of a GPU by its marketing name; None when it is unknown."""
    table = tomli.loads(files(__package__).joinpath("devices.toml").read_text("utf-8"))
    found = (arch for name, arch in table.items() if _is_part(name, device))
    return next(found, None)


def _is_part(name: str, device: str) -> bool:
    """`L4` is no part of `NVIDIA L40S`, but `RTX 40` is one of `RTX 4090`."""
    at = device.lower().find(name.lower())
    if at < 0 or (at > 0 and _WORD.match(device[at - 1])):
        return False
    after = device[at + len(name) :]
    return not after[:1].isdigit() or " " in name


def _by_m(path: Path, text: str, fixed: Mapping[str, int]) -> Iterator[Entry]:
    """A table from M to a configuration; words among the keys are the writer's own."""
    try:
        data = parse_json(text, path, "a table from sizes to configurations")
    except DamagedFileError as error:
        line = getattr(error.__cause__, "lineno", 0)
        words = f"no table from sizes to configurations: {reason_of(error)}"
        raise _problem(path, line, words) from error
    lines = text.splitlines()
    for key, config in data.items():
        if not _SIZE.fullmatch(key):
            continue
        line = next((at for at, one in enumerate(lines, 1) if f'"{key}"' in one), 0)
        if not isinstance(config, dict) or not all(_is_scalar(v) for v in config.values()):
            raise _problem(path, line, f"`{key}` has no configuration of numbers")
        yield Entry({**fixed, "M": int(key)}, config, line)


def _pairs(
    path: Path, text: str, columns: Sequence[str], constants: Sequence[str]
) -> Iterator[Entry]:
    """Pairs of lines: the numbers of a call, and those that are best.

    The first pair is no call's own but the default.
    """
    lines = text.splitlines()
    for at in range(0, len(lines) - 1, 2):
        call, config = (_numbers(path, at + 1 + n, lines[at + n]) for n in (0, 1))
        if at == 0 and not call and columns:
            continue
        for found, names, what in ((call, columns, "--key"), (config, constants, "--columns")):
            if len(found) != len(names):
                line = at + 1 + (names is constants)
                words = f"{len(found)} numbers for {len(names)} names ({', '.join(names)})"
                raise _problem(path, line, words, f"name them with {what}")
        pairs = dict(zip(columns, call, strict=True)), dict(zip(constants, config, strict=True))
        yield Entry(*pairs, at + 1)


def _numbers(path: Path, line: int, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise _problem(path, line, f"`{text}` is no list of integers") from error


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def _problem(path: Path, line: int, words: str, hint: str = "") -> ConfigError:
    hint = hint or "a .csv of pairs of lines, or a .json from M to configurations"
    return ConfigError([Problem(str(path), line, "", words, hint)])
