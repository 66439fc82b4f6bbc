"""Messages to workers: files of the project, a plan, and the kbuild that has to be there.

Nothing else does: no variable of the environment, no token.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import sys
import tarfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kbuild.dsl.aot_compiler import ImageRequest
from kbuild.ops.unit import KernelUnit
from kbuild.plan.plan import VariantPlan
from kbuild.sources.includes import CODE_SUFFIXES
from kbuild.system.code_digest import PACKAGE, files_digest, package_digest
from kbuild.system.errors import DamagedFileError
from kbuild.system.files import FileSet, replace_atomically
from kbuild.system.sourcetree import SourceTree
from kbuild.system.untrusted import reading

_INCLUDED_SUFFIXES = (*CODE_SUFFIXES, ".inc", ".ipp", ".tpp", ".txx", ".def", ".c", ".s", ".S")
"""Suffixes of files that a compiler may read without their being named in `build.toml`."""
IMAGE_SUFFIXES = (".d", ".o")
"""Suffixes of the record and the code of an image, after its key."""
GENERATED_FOLDER = "generated"
"""Folder in the archive of generated files."""
_MAX_BYTES = 4 << 30
"""Bytes of an archive when it is unpacked."""
_PROGRAM_MODE = 0o755


@dataclass(frozen=True)
class FileArchive:
    """Files below a folder, in one state."""

    digest: str
    """SHA-256 of names, modes and content."""
    data: bytes
    """A compressed tar archive."""


def archive_files(files: Mapping[str, Path | bytes]) -> FileArchive:
    """Pack files by the path that they get; of their modes, who may execute them.

    Raises:
        OSError: a file cannot be read.
    """
    stream = io.BytesIO()
    # In this format, paths may have more than 100 characters.
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, file in sorted(files.items()):
            data = file if isinstance(file, bytes) else file.read_bytes()
            # Without times and owners, so that the same files have the same digest.
            member = tarfile.TarInfo(path)
            member.size = len(data)
            if isinstance(file, Path) and file.stat().st_mode & 0o100:
                member.mode = _PROGRAM_MODE
            archive.addfile(member, io.BytesIO(data))
    content = stream.getvalue()
    return FileArchive(hashlib.sha256(content).hexdigest(), zlib.compress(content, 1))


def archive_sources(root: Path, plans: Mapping[str, VariantPlan]) -> FileArchive:
    """The sources of some plans, and every header that they may include.

    Raises:
        ConfigError: a source is no file of the project.
        OSError: a file cannot be read.
    """
    tree = SourceTree(root)
    walked = tree.walk(".", skip=("build",))
    paths = {
        path
        for path in walked
        # Hidden files stay here: some hold credentials.
        if path.endswith(_INCLUDED_SUFFIXES) and not PurePosixPath(path).name.startswith(".")
    }
    for plan in plans.values():
        paths |= {source.path for part in plan.components for source in part.sources}
    return archive_files({path: tree.read_bytes(path) for path in paths})


def unpack_archive(archive: FileArchive, folder: Path) -> None:
    """Write the files below a folder.

    Raises:
        DamagedFileError: the archive is not what its digest says, or a path leads out of it.
        OSError: a file cannot be written.
    """
    kind = "an archive of files"
    with reading("the archive", kind):
        stream = zlib.decompressobj()
        # With a limit, since few bytes can unpack to any number.
        content = stream.decompress(archive.data, _MAX_BYTES)
        if not stream.eof or hashlib.sha256(content).hexdigest() != archive.digest:
            raise ValueError("its digest is another one")
    with tarfile.open(fileobj=io.BytesIO(content)) as members:
        for member in members:
            path = PurePosixPath(member.name)
            file = members.extractfile(member) if member.isreg() else None
            if file is None or path.is_absolute() or ".." in path.parts:
                raise DamagedFileError(f"`{member.name[:100]}` is no file of {kind}")
            mode = _PROGRAM_MODE if member.mode & 0o100 else 0o644
            replace_atomically(folder / path, file.read(), mode=mode)


def read_generated(folder: Path) -> FileSet:
    """The files of an unpacked archive that were generated from images."""
    root = folder / GENERATED_FOLDER
    paths = [path for path in root.rglob("*") if path.is_file()]
    return FileSet({path.relative_to(root).as_posix(): path.read_bytes() for path in paths})


@dataclass(frozen=True)
class CompileJob:
    """The settings that the objects of one variant have in common."""

    plan: VariantPlan
    toolchain: str
    """See `BuildOptions.toolchain`."""
    project: str
    """Digest of the project's archive."""
    generated: str = ""
    """Digest of an archive of what was generated from images, below `GENERATED_FOLDER`."""

    def to_bytes(self) -> bytes:
        """The job as JSON; `parse_job` reads it."""
        digests = {"project": self.project, "generated": self.generated}
        facts = {"toolchain": self.toolchain, **digests, "plan": self.plan.to_json()}
        return json.dumps(facts, sort_keys=True).encode()


@dataclass(frozen=True)
class ImageJob:
    """Images of one kernel in a DSL; its sources travel with it. A `CompilableKernel`."""

    name: str
    language: str
    toolchain: tuple[str, ...]
    flavour: str
    texts: tuple[tuple[str, bytes], ...]
    """Sources: path and content."""
    images: Mapping[str, ImageRequest]
    """Requests by key."""

    @property
    def sources(self) -> tuple[str, ...]:
        """See `CompilableKernel.sources`."""
        return tuple(path for path, _ in self.texts)

    def to_bytes(self) -> bytes:
        """The job as JSON; `parse_job` reads it."""
        facts = {
            "name": self.name,
            "language": self.language,
            "toolchain": self.toolchain,
            "flavour": self.flavour,
            "texts": [[path, b64encode(text).decode()] for path, text in self.texts],
            "images": {
                key: [image.unit.to_json(), image.request] for key, image in self.images.items()
            },
        }
        return json.dumps(facts).encode()


def parse_job(data: bytes) -> CompileJob | ImageJob:
    """Read what `to_bytes` of a job wrote.

    Raises:
        DamagedFileError: it is no job.
    """
    with reading("the job", "a job of a cluster"):
        facts = json.loads(data)
        if "images" in facts:
            texts = tuple((str(path), b64decode(text)) for path, text in facts["texts"])
            images = {
                str(key): ImageRequest(KernelUnit.from_json(unit), request)
                for key, (unit, request) in facts["images"].items()
            }
            toolchain = tuple(map(str, facts["toolchain"]))
            name, language, flavour = (str(facts[word]) for word in ("name", "language", "flavour"))
            return ImageJob(name, language, toolchain, flavour, texts, images)
        plan = VariantPlan.from_json(facts["plan"])
        return CompileJob(plan, *(str(facts[key]) for key in ("toolchain", "project", "generated")))


def job_digest(data: bytes) -> str:
    """The name of a job."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class MachineFacts:
    """Facts that must be the same on a worker, since objects and plans follow from them.

    What is empty may be anything: tests and measurements of a variant require the same kbuild only.
    """

    kbuild: str
    """Digest of kbuild and of the libraries that it reads with, see `package_digest`."""
    python: str = ""
    libc: str = ""
    machine: str = ""
    code: str = ""
    """Digest of kbuild's own files, whichever Python runs them."""

    def difference(self, other: MachineFacts) -> str:
        """The difference of another machine, for a message; empty when there is none."""
        names = {
            "code": "kbuild",
            "kbuild": "kbuild",
            "python": "Python",
            "libc": "libc",
            "machine": "processor",
        }
        for field, name in names.items():
            own, its = getattr(self, field), getattr(other, field)
            if own and own != its:
                detail = "" if name == "kbuild" else f" ({its}, not {own})"
                return f"it has another {name}{detail}"
        return ""

    @property
    def for_variants(self) -> MachineFacts:
        """The facts that must be the same where variants are only run."""
        return MachineFacts("", code=self.code)

    def to_json(self) -> dict[str, Any]:
        """The facts as a JSON object."""
        return asdict(self)


def machine_facts(cache: Path | None = None) -> MachineFacts:
    """The facts of this machine; `cache` is where kbuild's digest is remembered."""
    python = f"{sys.implementation.name} {platform.python_version()}"
    libc, digest = " ".join(platform.libc_ver()), package_digest(cache)
    return MachineFacts(digest, python, libc, platform.machine(), files_digest(PACKAGE))
