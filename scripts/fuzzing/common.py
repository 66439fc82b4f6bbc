"""What the targets of `fuzz.py` are, and the small functions that they share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzzing.mutations import Mutation, mutate_bytes, mutate_elf, mutate_json, mutate_text

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(ROOT))

VARIANT = "torch213-cxx11-cpu-x86_64-linux"
NAME = "my-kernel"
IDENTIFIER = "_my_kernel_cpu_0a1b2c3"
SHA = "0" * 64
JSON = (mutate_json, mutate_json, mutate_json, mutate_bytes, mutate_text)
TEXT = (mutate_text, mutate_text, mutate_bytes)
BYTES = (mutate_bytes,)
ELF = (mutate_elf, mutate_elf, mutate_bytes)


@dataclass(frozen=True)
class Target:
    """One reader."""

    name: str
    run: Callable[[bytes, Path], object]
    seeds: Callable[[], Sequence[bytes]]
    mutations: tuple[Mutation, ...] = JSON
    share: float = 1.0
    """Of each thousand executions of all, about as many; a slow target gets few."""
    raises: tuple[type[Exception], ...] = ()
    """What its docstring lists beside `KbuildError`: errors of kbuild's own, or `ValueError` where
    every caller turns it into words."""


def json_of(*documents: object) -> Callable[[], Sequence[bytes]]:
    return lambda: [json.dumps(document).encode() for document in documents]


def texts_of(*texts: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [text.encode() for text in texts]


def files_of(*patterns: str, most: int = 40) -> Callable[[], Sequence[bytes]]:
    """The small files of the project that match, one of each content."""

    def read() -> Sequence[bytes]:
        paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
        contents = dict.fromkeys(path.read_bytes() for path in paths if path.is_file())
        return [data for data in contents if len(data) < 1 << 15][:most]

    return read


def put(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")
