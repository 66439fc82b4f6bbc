"""Wheels from built variants: `pip install` and `import` without the `kernels` client.

The package of a wheel is an `__init__.py` that chooses a variant by the client's rules, and the
variants below it, byte for byte as they were built. The tags, the platform and the requirements
follow from the variants and their libraries. The same variants make the same bytes.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from kbuild import __version__
from kbuild.checks.base import Finding, Output
from kbuild.checks.libraries import ABI3_SUFFIX, is_extension, library_symbols
from kbuild.checks.manylinux import best_policy
from kbuild.checks.needed import NeededCheck
from kbuild.checks.policies import DEFAULT_PYTHON_ABI
from kbuild.checks.python_abi import PREFIXES, stable_since
from kbuild.checks.readers.elf import read_elf
from kbuild.checks.readers.macho import read_macho
from kbuild.plan.digest import differences, digest_variant
from kbuild.plan.metadata import METADATA_FILE, Metadata, read_metadata
from kbuild.project.config.dependencies import distribution_of
from kbuild.project.variant import System, Variant
from kbuild.system.errors import CheckError, UsageError
from kbuild.system.files import writing_atomically
from kbuild.system.rendering import render
from kbuild.system.version import Version

_TIME = (1980, 1, 1, 0, 0, 0)
_SIGNATURE = f"{METADATA_FILE}.sigstore"
_CPYTHON = re.compile(r"\.cpython-(\d+)\w*-")
_MACHINES = {"aarch64": "arm64"}
_FRAMEWORK_ORDER = {"torch-stable-abi": 0, "torch": 1}


@dataclass(frozen=True)
class PackagedVariant:
    """A built variant that a wheel is to hold."""

    folder: Path
    variant: Variant
    metadata: Metadata

    @classmethod
    def read(cls, folder: Path) -> PackagedVariant:
        """The variant in a folder.

        Raises:
            UsageError: the folder's name is no variant name, or the kernel needs the client.
            CheckError: the files are not those that were built.
            MetadataError: its `metadata.json` is wrong.
        """
        try:
            variant = Variant.parse(folder.name)
        except ValueError as error:
            raise UsageError(str(error), hint="wheels are made of folders in `build/`") from None
        metadata = read_metadata(folder)
        if metadata.kernel_depends:
            names = ", ".join(f"`{kernel.repo_id}`" for kernel in metadata.kernel_depends)
            what = f"`{folder.name}` needs other kernels ({names}), which only the client loads"
            raise UsageError(what, hint="publish it to the Hub: `kbuild upload`")
        changed = differences(folder, metadata.digest) if metadata.digest else ()
        if changed:
            listed = "".join(f"\n    {sentence}" for sentence in changed)
            what = f"`{folder.name}` is not as it was built:{listed}"
            raise CheckError(what, (), hint="build it again: `kbuild build`")
        return cls(folder, variant, metadata)

    @cached_property
    def output(self) -> Output:
        """The variant as checks read it."""
        return Output(self.folder, self.variant)

    @property
    def preference(self) -> tuple[Any, ...]:
        """Sorts as the client prefers: the stable ABI, Torch's own, the others; then the newest."""
        variant = self.variant
        release = backend = 0
        stable = variant.framework == "torch-stable-abi"
        if stable and variant.framework_version:
            release = -variant.framework_version.major * 1000 - variant.framework_version.minor
        if variant.backend_version:
            backend = -variant.backend_version.minor
        order = _FRAMEWORK_ORDER.get(variant.framework, len(_FRAMEWORK_ORDER))
        return order, release, backend, variant.is_legacy, variant.is_noarch, str(variant)

    @property
    def choice(self) -> tuple[Any, ...]:
        """The facts by which the wheel's `__init__.py` chooses."""
        variant = self.variant
        name, identity, framework = str(variant), self.metadata.id, variant.framework
        if variant.is_noarch:
            return name, identity, framework, None, name.removeprefix("torch-")
        release, system = variant.framework_version, variant.system
        assert release is not None and system is not None  # noqa: S101, PT018 - it has a name
        parts = (release.major, release.minor)
        return name, identity, framework, parts, variant.compute, system.cpu, system.os

    def files(self) -> Iterator[str]:
        """Paths below the folder: what the digest counts, the metadata and its signature."""
        yield from digest_variant(self.folder)["files"]
        yield METADATA_FILE
        if (self.folder / _SIGNATURE).is_file():
            yield _SIGNATURE

    def foreign_libraries(self) -> tuple[Finding, ...]:
        """Findings on libraries that neither the system, Torch nor the backend provides."""
        if self.variant.system is None or self.variant.system.os != "linux":
            return ()
        findings = NeededCheck().run(self.output)
        return tuple(f for f in findings if f.severity == "error" and f.what.startswith("needs `"))


@dataclass(frozen=True)
class DistributionFacts:
    """A project's description for a package index."""

    name: str = ""
    """Name of the distribution; the kernel's when empty."""
    version: str = ""
    """Public version (PEP 440); the kernel's when empty."""
    readme: str = ""
    """Long description, in Markdown; a list of the variants when empty."""
    licences: Mapping[str, bytes] | None = None


@dataclass(frozen=True)
class KernelWheel:
    """One wheel, of one variant or of several for one system."""

    variants: tuple[PackagedVariant, ...]
    facts: DistributionFacts
    combined: bool
    """True when the version does not name the variant."""

    @property
    def metadata(self) -> Metadata:
        """The metadata of the first variant; name, version and licence are those of all."""
        return self.variants[0].metadata

    @property
    def name(self) -> str:
        """Name of the distribution."""
        return self.facts.name or self.metadata.name

    @property
    def version(self) -> str:
        """`1`, or `1+torch213.cu130` for one variant."""
        public = self.facts.version or str(self.metadata.version)
        return public if self.combined else f"{public}+{local_version(self.variants[0].variant)}"

    @property
    def stem(self) -> str:
        """Name and version as file names have them: `relu-1+torch213.cu130`."""
        from packaging.utils import canonicalize_name
        from packaging.version import Version as PackageVersion

        name = canonicalize_name(self.name).replace("-", "_")
        return f"{name}-{PackageVersion(self.version)}"

    @property
    def file_name(self) -> str:
        """`relu-1+torch213.cu130-cp39-abi3-manylinux_2_28_x86_64.whl`."""
        return f"{self.stem}-{self.tag}.whl"

    @cached_property
    def tag(self) -> str:
        """`cp39-abi3-manylinux_2_28_x86_64`, `py3-none-any` where nothing is compiled.

        Raises:
            CheckError: a library belongs neither to CPython's stable ABI nor to one release.
        """
        tags = [tag for packaged in self.variants for tag in _extension_tags(packaged)]
        exact = {tag for tag in tags if tag[1] != "abi3"}
        if len(exact) > 1 or (exact and len(set(tags)) > 1):
            listed = ", ".join(sorted("-".join(tag) for tag in set(tags)))
            what = f"the variants are for different Python ABIs: {listed}"
            raise CheckError(what, (), hint="write one wheel for each variant")
        # `cp310` is older than `cp39` only as text.
        newest = max(tags, key=lambda tag: int(tag[0][3:]), default=("py3", "none"))
        return "-".join((*newest, self._platform()))

    def _platform(self) -> str:
        compiled = [packaged for packaged in self.variants if packaged.variant.system]
        system = next((packaged.variant.system for packaged in compiled), None)
        if system is None:
            return "any"
        if system.os == "windows":
            return {"x86_64": "win_amd64", "aarch64": "win_arm64"}[system.cpu]
        libraries = [path for packaged in compiled for path in packaged.output.libraries()]
        if system.os == "darwin":
            return _macos_platform(libraries, system)
        policies = [best_policy(read_elf(path)) for path in libraries]
        # manylinux promises that the library runs everywhere; with a foreign library it does not.
        if None in policies or any(packaged.foreign_libraries() for packaged in compiled):
            return f"linux_{system.cpu}"
        newest = max(filter(None, policies), key=lambda name: [int(n) for n in name.split("_")[1:]])
        return f"{newest}_{system.cpu}"

    @property
    def requirements(self) -> tuple[str, ...]:
        """Torch or TVM-FFI in the releases of the variants, and the kernel's own packages."""
        names = sorted({name for v in self.variants for name in v.metadata.python_depends})
        framework = framework_requirement([packaged.variant for packaged in self.variants])
        own = (distribution_of(name) for name in names)
        return (framework, *(name for name in own if not framework.startswith(name)))

    def write(self, folder: Path) -> Path:
        """Write the wheel, and return its path."""
        target = folder / self.file_name
        folder.mkdir(parents=True, exist_ok=True)
        package, info = self.metadata.python_name, f"{self.stem}.dist-info"
        files: dict[str, bytes | Path] = {f"{package}/__init__.py": self._loader()}
        for packaged in sorted(self.variants, key=lambda packaged: packaged.folder.name):
            for path in sorted(packaged.files()):
                files[f"{package}/{packaged.folder.name}/{path}"] = packaged.folder / path
        for name, text in sorted((self.facts.licences or {}).items()):
            files[f"{info}/licenses/{name}"] = text
        files |= {f"{info}/METADATA": self._metadata(), f"{info}/WHEEL": self._wheel_file()}
        with writing_atomically(target) as file, ZipFile(file, "w", ZIP_DEFLATED) as archive:
            records = [_add(archive, name, content) for name, content in files.items()]
            _add(archive, f"{info}/RECORD", _record(records, f"{info}/RECORD"))
        return target

    def _loader(self) -> bytes:
        builds = [repr(packaged.choice) for packaged in self.variants]
        return render("wheel/__init__.py.j2", name=self.metadata.name, builds=builds).encode()

    def _metadata(self) -> bytes:
        from packaging.metadata import Metadata as CoreMetadata
        from packaging.metadata import RawMetadata, RFC822Message

        raw: RawMetadata = {
            "metadata_version": "2.4",
            "name": self.name,
            "version": self.version,
            "summary": f"The compute kernel {self.metadata.name}",
            "license_expression": self.metadata.license,
            "requires_python": f">={DEFAULT_PYTHON_ABI}",
            "requires_dist": list(self.requirements),
        }
        if self.facts.licences:
            raw["license_files"] = sorted(self.facts.licences)
        links = {"Source": self.metadata.source, "Upstream": self.metadata.upstream}
        if urls := {name: url for name, url in links.items() if url}:
            raw["project_urls"] = urls
        names = "".join(f"* `{packaged.folder.name}`\n" for packaged in self.variants)
        raw["description"] = self.facts.readme or f"# {self.name}\n\nBuilt for:\n\n{names}"
        raw["description_content_type"] = "text/markdown"
        written = CoreMetadata.from_raw(raw).as_rfc822()
        message = RFC822Message()
        for name, value in written.items():  # twine looks for `Metadata-Version` in this spelling
            message[name.title()] = value
        message.set_payload(written.get_payload())
        return message.as_bytes()

    def _wheel_file(self) -> bytes:
        pure = "true" if self.tag.endswith("-none-any") else "false"
        lines = (
            "Wheel-Version: 1.0", f"Generator: kbuild {__version__}",
            f"Root-Is-Purelib: {pure}", f"Tag: {self.tag}",
        )  # fmt: skip
        return "".join(f"{line}\n" for line in lines).encode()

    def to_json(self) -> dict[str, Any]:
        """The wheel as a JSON object."""
        return {
            "file": self.file_name,
            "variants": [packaged.folder.name for packaged in self.variants],
            "requires": list(self.requirements),
        }


def local_version(variant: Variant) -> str:
    """`torch213.cu130`, `torch.stable.abi210.cpu`, `torch.cuda`: the variant without its system."""
    name = str(variant).replace("-cxx11", "")
    if variant.system:
        name = name.removesuffix(f"-{variant.system}")
    return name.replace("-", ".")


def framework_requirement(variants: Sequence[Variant]) -> str:
    """The releases of Torch or TVM-FFI that at least one of the variants fits.

    `torch==2.13.*`, `torch<2.14,>=2.11,!=2.12.*`, `torch>=2.10` for the stable ABI.
    """
    package = "apache-tvm-ffi" if variants[0].framework == "tvm-ffi" else "torch"
    stable = [v.framework_version for v in variants if v.framework == "torch-stable-abi"]
    exact = {v.framework_version for v in variants} - {None, *stable}
    if any(variant.is_noarch for variant in variants):
        return package
    releases = sorted(release for release in exact if release)
    if not stable and len(releases) == 1:
        return f"{package}=={releases[0]}.*"
    oldest = min(release for release in (*stable, *releases) if release)
    newest = min((release for release in stable if release), default=releases[-1:] and releases[-1])
    assert newest  # noqa: S101 - a compiled variant has a release
    gaps = [
        f"!={newest.major}.{minor}.*"
        for minor in range(oldest.minor, newest.minor)
        if Version((newest.major, minor)) not in releases
    ]
    ceiling = [] if stable else [f"<{newest.major}.{newest.minor + 1}"]
    return package + ",".join((f">={oldest}", *ceiling, *gaps))


def _extension_tags(packaged: PackagedVariant) -> Iterator[tuple[str, str]]:
    """Python and ABI of each library that Python imports: `("cp39", "abi3")`.

    Raises:
        CheckError: it claims CPython's stable ABI and uses something else.
    """
    if packaged.variant.system is None:
        return
    for symbols in library_symbols(packaged.output):
        if not is_extension(symbols.where, packaged.output):
            continue
        if release := _CPYTHON.search(symbols.where):
            yield f"cp{release[1]}", f"cp{release[1]}"
            continue
        needed = {
            name: stable_since(name) for name in symbols.undefined if name.startswith(PREFIXES)
        }
        unstable = sorted(name for name, since in needed.items() if since is None)
        if unstable:
            what = f"`{symbols.where}` uses `{unstable[0]}`, which is not in CPython's stable ABI"
            hint = f"`kbuild check` lists all; a library for one Python is not `*{ABI3_SUFFIX}`"
            raise CheckError(what, (), hint=hint)
        floor = max(since for since in (DEFAULT_PYTHON_ABI, *needed.values()) if since)
        yield f"cp{floor.compact}", "abi3"


def _macos_platform(libraries: Iterable[Path], system: System) -> str:
    """The newest of the oldest macOS that the libraries load on."""
    parts = [part for path in libraries for part in read_macho(path)]
    oldest = max((part.minos for part in parts if part.minos), default=Version((11, 0)))
    return f"macosx_{oldest.major}_{oldest.minor}_{_MACHINES.get(system.cpu, system.cpu)}"


def _add(archive: ZipFile, name: str, content: bytes | Path) -> tuple[str, str, int]:
    """Add a file with fixed times and modes; returns its row of RECORD."""
    info = ZipInfo(name, _TIME)
    info.compress_type = ZIP_DEFLATED
    info.create_system = 3  # Unix, wherever it is written
    mode = 0o755 if name.endswith((".so", ".dylib", ".pyd")) else 0o644
    info.external_attr = (stat.S_IFREG | mode) << 16
    data = content.read_bytes() if isinstance(content, Path) else content
    archive.writestr(info, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return name, f"sha256={digest}", len(data)


def _record(rows: Iterable[tuple[str, str, int]], own: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(sorted(rows))
    writer.writerow((own, "", ""))
    return text.getvalue().encode()


def plan_wheels(
    variants: Sequence[PackagedVariant], facts: DistributionFacts, *, combined: bool
) -> tuple[KernelWheel, ...]:
    """One wheel for each variant, or one with all variants for each system.

    Python-only variants go into every combined wheel.

    Raises:
        UsageError: the variants are not of one kernel in one version.
    """
    kinds = {(v.metadata.name, v.metadata.version, v.metadata.license) for v in variants}
    if len(kinds) > 1:
        shown = ", ".join(sorted(f"{name} {version} ({text})" for name, version, text in kinds))
        raise UsageError(
            f"the variants are not of one kernel: {shown}",
            hint="choose with --variant, or build them again",
        )
    ordered = sorted(variants, key=lambda packaged: packaged.preference)
    if not combined:
        return tuple(KernelWheel((packaged,), facts, combined=False) for packaged in ordered)
    systems = sorted({str(v.variant.system) for v in ordered if v.variant.system}) or ["None"]
    return tuple(
        KernelWheel(
            tuple(v for v in ordered if str(v.variant.system) in {system, "None"}),
            facts, combined=True,
        )
        for system in systems
    )  # fmt: skip
