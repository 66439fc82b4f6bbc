"""A built variant as something to upload: what it says of itself, and whether that is true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbuild.checks.allow import can_be_overruled
from kbuild.checks.base import Finding, Output
from kbuild.checks.examination import Wanted, examine
from kbuild.checks.layout import TUNABLE
from kbuild.checks.limits import POLICY, Limits
from kbuild.digest import differences, unaccounted
from kbuild.hub.layout import is_left_behind
from kbuild.hub.reasons import Reason
from kbuild.hub.sent import as_sent
from kbuild.licences import LICENCES, VARIABLE, Licence, licensed_parts
from kbuild.metadata import METADATA_FILE, Metadata, MetadataError, read_metadata
from kbuild.provenance.variantfiles import bom_is_told, bom_of, is_about, statement_of
from kbuild.variant import Variant

_REBUILD = "build it again; `kbuild hash` takes the files as they are"
_EVIDENCE = "`kbuild build --provenance` writes it anew"


@dataclass(frozen=True)
class Candidate:
    """One variant."""

    folder: Path
    metadata: Metadata | None
    """None when it cannot be read."""
    reasons: tuple[Reason, ...] = ()
    """Why it is not uploaded, whatever is allowed."""
    findings: tuple[Finding, ...] = ()
    """Promises that it breaks."""

    @property
    def name(self) -> str:
        """The variant."""
        return self.folder.name

    @property
    def dirty(self) -> bool:
        """True when it was made from sources that no commit holds."""
        made = self.metadata.provenance if self.metadata else None
        return bool(made and made.kernel and made.kernel.dirty)

    @property
    def overruled(self) -> Mapping[str, str]:
        """Checks that its author overruled, with reasons."""
        return self.metadata.overruled if self.metadata else {}

    @property
    def compliant(self) -> bool:
        """True when it keeps its promises."""
        return not self.findings


def candidate_of(folder: Path) -> Candidate:
    """Look at a variant: metadata, digest, provenance, and every check that needs no Python."""
    try:
        metadata = read_metadata(folder)
    except (OSError, MetadataError) as error:
        words = f"{METADATA_FILE} cannot be read: {error}"
        return Candidate(folder, None, (Reason(folder.name, words, "build it again"),))
    strays = (stray for stray in unaccounted(folder) if not is_left_behind(stray.path))
    with as_sent(folder) as seen:
        untrue = (*((str(s), s.hint) for s in strays), *_untrue(seen, metadata))
        reasons = tuple(Reason(folder.name, *told) for told in untrue)
        return Candidate(folder, metadata, reasons, broken_promises(seen, metadata.overruled))


def broken_promises(folder: Path, overruled: Mapping[str, str]) -> tuple[Finding, ...]:
    """The errors that checks find; what is published promises to load everywhere.

    Args:
        folder: the variant's.
        overruled: checks whose errors its author knows of, with reasons.
    """
    allowed = {name: why for name, why in overruled.items() if can_be_overruled(name)}
    wanted = Wanted(slow=False, allowed=allowed)
    output = Output(folder, _parsed(folder.name), asked=Limits(manylinux=POLICY))
    found = examine(output, wanted.checks(), wanted).findings
    return tuple(finding for finding in found if finding.severity == "error")


def objections(
    candidates: Sequence[Candidate], *, dirty: bool = False, noncompliant: bool = False
) -> tuple[Reason, ...]:
    """Why these are not uploaded together, given what is allowed."""
    return tuple(_objections(candidates, dirty=dirty, noncompliant=noncompliant))


def _objections(
    candidates: Sequence[Candidate], *, dirty: bool, noncompliant: bool
) -> Iterator[Reason]:
    for candidate in candidates:
        yield from candidate.reasons
        if candidate.dirty and not dirty:
            words = "made from sources that are in no commit"
            yield Reason(candidate.name, words, "commit and build again, or give --allow-dirty")
        if not candidate.compliant and not noncompliant:
            for finding in _not_said_yet(candidate):
                hint = f"{finding.hint}; " if finding.hint else ""
                words = f"{finding.where}: {finding.what} [{finding.check}]"
                yield Reason(candidate.name, words, f"{hint}--allow-noncompliant lets it pass")
    versions = {c.metadata.version: c.name for c in candidates if c.metadata}
    if len(versions) > 1:
        told = ", ".join(f"{name} is version {number}" for number, name in sorted(versions.items()))
        yield Reason("version", f"the variants differ: {told}", "build all of them again")


def unaccepted(candidates: Sequence[Candidate], accepted: frozenset[str]) -> Iterator[Reason]:
    """One reason for each licence of others' code in the variants that nobody accepted."""
    found: dict[str, list[str]] = {}
    parts: dict[str, str] = {}
    for candidate in candidates:
        made = candidate.metadata.provenance if candidate.metadata else None
        used = made.builder.toolchain if made else None
        for name, what in licensed_parts(used.versions if used else {}).items():
            found.setdefault(name, []).append(candidate.name)
            parts[name] = what
    for name in sorted(found.keys() - accepted):
        licence = LICENCES.get(name, Licence(name, name, ""))
        where = f" ({licence.text})" if licence.text else ""
        more = f" and {len(found[name]) - 1} more" if len(found[name]) > 1 else ""
        words = (
            f"{parts[name]} is linked into {found[name][0]}{more}: its terms bind who publishes it"
        )
        hint = f"read {licence.title}{where}; then give --accept-license {name}, or set "
        yield Reason("license", words, f"{hint}{VARIABLE}={name}")


def _not_said_yet(candidate: Candidate) -> Iterator[Finding]:
    """Without what is said of the files already, which nothing allows."""
    said = {reason.words for reason in candidate.reasons}
    return (
        finding
        for finding in candidate.findings
        if not {finding.what, f"`{finding.where}` {finding.what}"} & said
    )


def _untrue(folder: Path, metadata: Metadata) -> Iterator[tuple[str, str]]:
    if (folder / TUNABLE).is_file():
        yield "it is for `kbuild tune`, with every candidate in it", "build it without --keep-all"
    if metadata.digest is None:
        yield "it has no digest", "`kbuild hash` records it"
        return
    for sentence in differences(folder, metadata.digest):
        yield sentence, _REBUILD
    statement = statement_of(folder)
    if statement.is_file() and not is_about(statement, folder):
        yield f"`{statement.name}` is not about its files", _EVIDENCE
    elif statement.is_file() and not bom_is_told(statement, bom_of(folder)):
        yield f"`{bom_of(folder).name}` is not the list that the provenance names", _EVIDENCE


def _parsed(name: str) -> Variant | None:
    try:
        return Variant.parse(name)
    except ValueError:
        return None
