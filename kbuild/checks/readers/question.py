"""What a probe is asked, as a name: two questions have one name only when they have one answer."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from kbuild import __version__
from kbuild.checks.readers.probing import PROGRAMS, environment
from kbuild.fileset import sha256, sha256_of_file

_LOADING = re.compile(
    r"(?:LD|DYLD|PYTHON|TORCH|PYTORCH|ATEN|C10|KINETO|TRITON|TVM|CUDA|CUDNN|CUBLAS|NCCL|NVIDIA|NV"
    r"|HIP|HSA|ROCM|ROCR|GPU|AMD|MIOPEN|SYCL|ZE|ONEAPI|UR|OMP|GOMP|KMP|MKL|DNNL|ONEDNN|OPENBLAS"
    r"|HF|HUGGINGFACE|KERNELS|LOCAL|GLIBC|MALLOC|LC)_?\w*|PATH|HOME|LANG|LANGUAGE|VIRTUAL_ENV"
)
"""Variables that the loader, Python, frameworks, device runtimes and the client listen to."""
_CPUINFO = Path("/proc/cpuinfo")
_CPU = re.compile(rb"^(?:vendor_id|model name|flags|CPU \w+|Features)\s*:.*$", re.MULTILINE)
_DEVICES = ("nvidia[0-9]*", "kfd", "dri/*")


@dataclass(frozen=True)
class Question:
    """One call of a probe."""

    python: Path
    probe: str
    arguments: tuple[str | Path, ...]
    """Paths stand for what they lead to."""
    general: tuple[str, ...] = ()
    """What decides when no byte does: for answers that many kernels share."""

    @cached_property
    def general_name(self) -> str | None:
        """The same whatever the probe is to look at; None when there is no general answer."""
        return _named([*self._around, "general", self.general]) if self.general else None

    @cached_property
    def name(self) -> str | None:
        """The question about exactly these bytes; None when they cannot all be read."""
        try:
            exact = [
                {"bytes": _contents(part)} if isinstance(part, Path) else part
                for part in self.arguments
            ]
        except OSError:
            return None
        return _named([*self._around, "exact", exact])

    def is_named_in(self, facts: Mapping[str, Any]) -> bool:
        """True when an answer speaks of the place, which says nothing about another."""
        text = json.dumps(facts, ensure_ascii=False)
        paths = (part for part in self.arguments if isinstance(part, Path))
        return any(str(path.resolve()) in text for path in paths)

    @cached_property
    def _around(self) -> list[Any]:
        """Values are only ever hashed: variables may hold secrets."""
        variables = {k: v for k, v in sorted(environment().items()) if _LOADING.fullmatch(k)}
        asked = [__version__, self.probe, _programs(), str(self.python)]
        return [*asked, variables, *_machine()]


def _named(asked: list[Any]) -> str:
    return sha256(json.dumps(asked).encode())


def _programs() -> str:
    """Every probe: they use each other."""
    programs = (one for one in files(PROGRAMS).iterdir() if one.name.endswith(".py"))
    return sha256(b"\0".join(one.read_bytes() for one in sorted(programs, key=lambda p: p.name)))


def _machine() -> Iterator[Any]:
    """Processor, kernel and devices: a cache may be shared between machines."""
    yield (platform.machine(), platform.release())
    try:
        with _CPUINFO.open("rb") as file:
            first = file.read(8192).partition(b"\n\n")[0]
    except OSError:
        first = b""
    yield [line.decode(errors="replace") for line in _CPU.findall(first)]
    yield sorted(str(path) for pattern in _DEVICES for path in Path("/dev").glob(pattern))


def _contents(root: Path) -> str:
    """Names and bytes of every file, following links to files.

    Raises:
        OSError: one cannot be read, or a folder is a link, which may lead anywhere.
    """
    found = hashlib.sha256()
    for path in sorted(_files(root)):
        name = os.fsencode(path.relative_to(root))
        found.update(b"%d:%s%s" % (len(name), name, sha256_of_file(path).encode()))
    return found.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    for base, folders, names in os.walk(root, onerror=_refuse):
        if any(Path(base, name).is_symlink() for name in folders):
            raise OSError(f"`{base}` holds a link to a folder")
        yield from (Path(base, name) for name in names)


def _refuse(error: OSError) -> None:
    raise error
