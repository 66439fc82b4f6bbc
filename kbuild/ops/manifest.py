"""`aot.json` in a variant that was built for tuning: its ops, and the candidates that it contains.

Sections are stored as `build.toml` had them, so that one reader defines their meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbuild.ops.expression import ExpressionError, parse
from kbuild.ops.model import OpSpec, TuneProposal
from kbuild.ops.section import DslSection
from kbuild.ops.steps import Candidate, FillValue, numbers_of
from kbuild.system.errors import DamagedFileError, UsageError
from kbuild.system.untrusted import read_json, reading, reason_of

MANIFEST_FILE = "aot.json"
MANIFEST_FORMAT = 1
_KIND = "a description of ops"
CHOOSE_OP = "_kbuild_choose"
"""The control op: `(int launch, int candidate) -> ()`; -1 is the normal choice.

Launches are counted over all kernels, which are in the order of their names."""


@dataclass(frozen=True)
class ManifestKernel:
    """One `[kernel.*]` section in a variant."""

    section: DslSection
    candidates: tuple[tuple[Candidate, ...], ...]
    """Candidates of each launch, of all ops in order."""
    keys: tuple[tuple[str, ...], ...] = ()
    """Key of each op, which may come from the kernel; empty if the section's keys apply."""
    proposals: tuple[tuple[str, tuple[TuneProposal, ...]], ...] = ()
    """Op -> sizes that its kernel is compiled for."""
    resets: tuple[tuple[str, tuple[tuple[str, FillValue], ...]], ...] = ()
    """Op -> values of its arguments before a candidate runs."""

    @property
    def name(self) -> str:
        """The section's name."""
        return self.section.name

    def ops(self) -> tuple[OpSpec, ...]:
        """Return the ops with their final candidates.

        Raises:
            ValueError: the section and the candidates have different launches.
        """
        count = sum(len(op.launches) for op in self.section.ops)
        if count != len(self.candidates):
            raise ValueError(f"`kernel.{self.name}` has {count} launches")
        rest, proposals, resets = iter(self.candidates), dict(self.proposals), dict(self.resets)
        keys = self.keys or tuple(tuple(map(str, op.key)) for op in self.section.ops)
        ops = []
        for op, key in zip(self.section.ops, keys, strict=True):
            own = {"proposals": proposals.get(op.name, ()), "resets": resets.get(op.name, ())}
            launches = tuple(replace(launch, candidates=next(rest)) for launch in op.launches)
            tune = replace(op.tune, **own)  # type: ignore[arg-type]
            ops.append(replace(op, key=tuple(map(parse, key)), tune=tune, launches=launches))
        return tuple(ops)


@dataclass(frozen=True)
class OpManifest:
    """The contents of a variant, for tuning it."""

    namespace: str
    """Namespace of its Torch ops."""
    kernels: tuple[ManifestKernel, ...]
    versions: tuple[tuple[str, str], ...] = ()
    """Distribution or program -> version, to be recorded in tables: `triton`, `ptxas`."""
    images: str = ""
    """Digest of the device code; empty if it is unknown."""

    def to_json(self) -> dict[str, Any]:
        """The description as a JSON object."""
        return {
            "format": MANIFEST_FORMAT,
            "namespace": self.namespace,
            "versions": dict(self.versions),
            "images": self.images,
            "kernels": [
                _kernel_to_json(kernel)
                for kernel in sorted(self.kernels, key=lambda kernel: kernel.name)
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OpManifest:
        """Parse the JSON object of `to_json`.

        Raises:
            ValueError: it is not a description, or has another format.
        """
        known = data.get("format")
        if known != MANIFEST_FORMAT:
            raise ValueError(f"its format is {known!r}, this kbuild reads {MANIFEST_FORMAT}")
        try:
            kernels = tuple(map(_kernel_from_json, data["kernels"]))
            versions = tuple(
                (str(name), str(version)) for name, version in data["versions"].items()
            )
            return cls(str(data["namespace"]), kernels, versions, str(data["images"]))
        except (KeyError, TypeError, AttributeError, ExpressionError) as error:
            raise ValueError(f"it is not a description of ops: {error}") from error

    def measured(self) -> str:
        """Text of everything that times depend on, without the namespace and the tuning cases."""
        data = self.to_json()
        for kernel in data["kernels"]:
            ops = kernel["section"].get("op", ())
            kept = [{name: op[name] for name in op if name != "tune"} for op in ops]
            kernel["section"] = {**kernel["section"], "op": kept}
            del kernel["proposals"]
        return json.dumps({**data, "namespace": ""}, sort_keys=True)

    def text(self) -> str:
        """Content of the file; keys keep their order, which matters in `let`."""
        return json.dumps(self.to_json(), indent=1) + "\n"


def read_manifest(variant: Path) -> OpManifest:
    """Read the description in a variant's folder.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    file = variant / MANIFEST_FILE
    hint = "`kbuild build --keep-all` builds variants that can be tuned"
    try:
        with reading(file, _KIND):
            description = OpManifest.from_json(read_json(file, _KIND))
            # Read once here, so that a damaged file is reported as such.
            _ = [kernel.ops() for kernel in description.kernels]
            description.text()
    except OSError as error:
        message = f"`{variant.name}` cannot be tuned: it has no `{MANIFEST_FILE}`"
        raise UsageError(message, hint=hint) from error
    except DamagedFileError as error:
        raise UsageError(f"`{file}`: {reason_of(error)}", hint=hint) from error
    return description


def _kernel_to_json(kernel: ManifestKernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "section": kernel.section.table,
        "launches": [list(map(_candidate_to_json, launch)) for launch in kernel.candidates],
        "keys": [list(key) for key in kernel.keys],
        "proposals": {
            op: [
                {"sizes": dict(proposal.sizes), "bounds": dict(proposal.bounds)}
                for proposal in proposals
            ]
            for op, proposals in kernel.proposals
        },
        "resets": {op: dict(values) for op, values in kernel.resets},
        **({"origin": kernel.section.origin} if kernel.section.origin else {}),
    }


def _kernel_from_json(data: Mapping[str, Any]) -> ManifestKernel:
    launches = tuple(tuple(map(_candidate_from_json, launch)) for launch in data["launches"])
    keys = tuple(tuple(map(str, key)) for key in data.get("keys", ()))
    proposals = tuple(
        (op, tuple(TuneProposal(*(tuple(p[k].items()) for k in ("sizes", "bounds"))) for p in some))
        for op, some in data.get("proposals", {}).items()
    )
    resets = tuple((op, tuple(values.items())) for op, values in data.get("resets", {}).items())
    section = DslSection.from_json(data)
    return ManifestKernel(section, launches, keys, proposals, resets)


def _candidate_to_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "constants": [list(pair) for pair in candidate.constants],
        "options": [list(pair) for pair in candidate.options],
        "when": str(candidate.when) if candidate.when is not None else None,
        "archs": list(candidate.archs),
        "aligned": candidate.aligned,
    }


def _candidate_from_json(data: Mapping[str, Any]) -> Candidate:
    constants = tuple((str(name), value) for name, value in data["constants"])
    when = parse(data["when"]).bind(numbers_of(constants)) if data["when"] is not None else None
    options = tuple((str(name), value) for name, value in data["options"])
    aligned = bool(data.get("aligned", False))
    return Candidate(constants, options, when, tuple(data["archs"]), aligned)
