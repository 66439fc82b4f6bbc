"""A built variant as something to upload: what it says of itself, and whether that is true."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kbuild.checks.allow import can_be_overruled
from kbuild.checks.base import Finding, Output
from kbuild.checks.layout import TUNABLE
from kbuild.checks.policies import DEFAULT_POLICY, CheckLimits
from kbuild.checks.report import CheckSelection, run_selected_checks
from kbuild.plan.digest import differences, unaccounted
from kbuild.plan.metadata import METADATA_FILE, Metadata, MetadataError, read_metadata
from kbuild.project import DEVELOPMENT_ID
from kbuild.project.licences import ACCEPT_VARIABLE, licensed_parts
from kbuild.project.variant import variant_named
from kbuild.publish.hub.layout import BUILD, is_leftover, variant_files
from kbuild.publish.hub.preflight import UploadObstacle
from kbuild.system.files import link_file
from kbuild.system.temporary import temporary_folder


@contextmanager
def folder_as_uploaded(folder: Path) -> Iterator[Path]:
    """The variant's folder itself when all of it is uploaded, else one with what is.

    Links stay links.
    """
    files = dict(variant_files(folder))
    there = {Path(base, name) for base, _, names in os.walk(folder) for name in names}
    if there <= {*files.values()}:
        yield folder
        return
    with temporary_folder("sent") as scratch:
        for path, file in files.items():
            link_file(file, scratch / path)
        yield scratch / BUILD / folder.name


_REBUILD = "build it again; `kbuild sign --hash` takes the files as they are"


@dataclass(frozen=True)
class UploadCandidate:
    """One variant."""

    folder: Path
    metadata: Metadata | None
    """None when it cannot be read."""
    reasons: tuple[UploadObstacle, ...] = ()
    """Reasons against an upload, whatever is allowed."""
    findings: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        """The variant."""
        return self.folder.name

    @property
    def dirty(self) -> bool:
        """True when it was made from sources that no commit holds."""
        provenance = self.metadata.provenance if self.metadata else None
        return bool(provenance and provenance.kernel and provenance.kernel.dirty)

    @property
    def overruled(self) -> Mapping[str, str]:
        """Checks that its author overruled, with reasons."""
        return self.metadata.overruled if self.metadata else {}

    @property
    def compliant(self) -> bool:
        """True when it passes all checks."""
        return not self.findings


def examine_candidate(folder: Path) -> UploadCandidate:
    """Look at a variant: metadata, digest, and every check that needs no Python."""
    try:
        metadata = read_metadata(folder)
    except (OSError, MetadataError) as error:
        message = f"{METADATA_FILE} cannot be read: {error}"
        return UploadCandidate(
            folder, None, (UploadObstacle(folder.name, message, "build it again"),)
        )
    strays = (stray for stray in unaccounted(folder) if not is_leftover(stray.path))
    with folder_as_uploaded(folder) as seen:
        untrue = (*((str(s), s.hint) for s in strays), *_false_claims(seen, metadata))
        reasons = tuple(UploadObstacle(folder.name, *reason) for reason in untrue)
        return UploadCandidate(folder, metadata, reasons, failed_checks(seen, metadata.overruled))


def failed_checks(folder: Path, overruled: Mapping[str, str]) -> tuple[Finding, ...]:
    """The errors that checks find; what is published promises to load everywhere."""
    allowed = {name: why for name, why in overruled.items() if can_be_overruled(name)}
    wanted = CheckSelection(slow=False, allowed=allowed)
    output = Output(folder, variant_named(folder.name), asked=CheckLimits(manylinux=DEFAULT_POLICY))
    findings = run_selected_checks(output, wanted.checks(), wanted).findings
    return tuple(finding for finding in findings if finding.severity == "error")


def upload_obstacles(
    candidates: Sequence[UploadCandidate], *, dirty: bool = False, noncompliant: bool = False
) -> Iterator[UploadObstacle]:
    """The obstacles to uploading these together, given what is allowed."""
    for candidate in candidates:
        yield from candidate.reasons
        if candidate.metadata and candidate.metadata.id.endswith(f"_{DEVELOPMENT_ID}"):
            message = "a development build: other versions have the same op namespace"
            yield UploadObstacle(candidate.name, message, "build it without --dev")
        if candidate.dirty and not dirty:
            message = "built from uncommitted sources"
            yield UploadObstacle(
                candidate.name, message, "commit and build again, or give --allow-dirty"
            )
        if not candidate.compliant and not noncompliant:
            for finding in _unreported_findings(candidate):
                hint = f"{finding.hint}; " if finding.hint else ""
                message = f"{finding.where}: {finding.what} [{finding.check}]"
                yield UploadObstacle(
                    candidate.name, message, f"{hint}--allow-noncompliant lets it pass"
                )
    versions = {c.metadata.version: c.name for c in candidates if c.metadata}
    if len(versions) > 1:
        listed = ", ".join(
            f"{name} is version {number}" for number, name in sorted(versions.items())
        )
        yield UploadObstacle("version", f"the variants differ: {listed}", "build all of them again")


def unaccepted_licences(
    candidates: Sequence[UploadCandidate], accepted: frozenset[str]
) -> Iterator[UploadObstacle]:
    """One reason for each licence of others' code in the variants that nobody accepted."""
    variants: dict[str, list[str]] = {}
    parts: dict[str, str] = {}
    for candidate in candidates:
        provenance = candidate.metadata.provenance if candidate.metadata else None
        used = provenance.builder.toolchain if provenance else None
        for name, what in licensed_parts(used.versions if used else {}).items():
            variants.setdefault(name, []).append(candidate.name)
            parts[name] = what
    for name in sorted(variants.keys() - accepted):
        from kbuild.ops.language import find_licence

        licence = find_licence(name)
        where = f" ({licence.text})" if licence.text else ""
        more = f" and {len(variants[name]) - 1} more" if len(variants[name]) > 1 else ""
        place = f"{variants[name][0]}{more}"
        message = f"{parts[name]} is linked into {place}: its terms bind the publisher"
        hint = f"read {licence.title}{where}; then give --accept-license {name}, or set "
        yield UploadObstacle("license", message, f"{hint}{ACCEPT_VARIABLE}={name}")


def _unreported_findings(candidate: UploadCandidate) -> Iterator[Finding]:
    """The findings that no reason about the same files repeats: no option overrules a reason."""
    known = {reason.message for reason in candidate.reasons}
    return (
        finding
        for finding in candidate.findings
        if not {finding.what, f"`{finding.where}` {finding.what}"} & known
    )


def _false_claims(folder: Path, metadata: Metadata) -> Iterator[tuple[str, str]]:
    if (folder / TUNABLE).is_file():
        yield (
            "it was built for `kbuild tune` and contains every candidate",
            "build it without --keep-all",
        )
    if metadata.digest is None:
        yield "it has no digest", "`kbuild sign --hash` records it"
        return
    for sentence in differences(folder, metadata.digest):
        yield sentence, _REBUILD
