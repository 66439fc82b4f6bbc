"""`aot.json` in a variant that was built for tuning: its ops, and the candidates that are in it.

The sections are told as `build.toml` had them, so that their meaning has one reader. Candidates
are listed, since some are known only to the kernel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbuild.errors import DamagedFileError, UsageError
from kbuild.languages.expression import ExpressionError, parse
from kbuild.languages.spec.section import read_section
from kbuild.languages.spec.values import Candidate, FillValue, OpSpec, Proposal, numbers_of
from kbuild.untrusted import read_json, reading, reason_of

FILE = "aot.json"
FORMAT = 1
_KIND = "a description of ops"
CHOOSE = "_kbuild_choose"
"""The control op: `(int launch, int candidate) -> ()`; -1 is the normal choice.

Launches are counted over all kernels, these in the order of their names."""


@dataclass(frozen=True)
class DescribedKernel:
    """One `[kernel.*]` section in a variant."""

    name: str
    section: Mapping[str, Any]
    """As `build.toml` says it."""
    candidates: tuple[tuple[Candidate, ...], ...]
    """Of each launch, all ops after another."""
    keys: tuple[tuple[str, ...], ...] = ()
    """Of each op: its key, which may be the kernel's own; that of the section when empty."""
    proposals: tuple[tuple[str, tuple[Proposal, ...]], ...] = ()
    """Op -> what its kernel says of the sizes that it is made for."""
    resets: tuple[tuple[str, tuple[tuple[str, FillValue], ...]], ...] = ()
    """Op -> what its arguments have to be before a candidate runs."""

    def ops(self) -> tuple[OpSpec, ...]:
        """The ops with their real candidates.

        Raises:
            ValueError: the section is wrong, or of other launches than the candidates.
        """
        reading = read_section(self.name, self.section)
        errors = [issue.message for issue in reading.issues if issue.severity == "error"]
        if errors:
            raise ValueError(f"`kernel.{self.name}`: {errors[0]}")
        count = sum(len(op.launches) for op in reading.ops)
        if count != len(self.candidates):
            raise ValueError(f"`kernel.{self.name}` has {count} launches")
        rest, proposals = iter(self.candidates), dict(self.proposals)
        resets = dict(self.resets)
        keys = self.keys or tuple(tuple(map(str, op.key)) for op in reading.ops)
        return tuple(
            replace(
                op,
                key=tuple(map(parse, key)),
                tune=replace(
                    op.tune,
                    proposals=proposals.get(op.name, ()),
                    resets=resets.get(op.name, ()),
                ),
                launches=tuple(replace(launch, candidates=next(rest)) for launch in op.launches),
            )
            for op, key in zip(reading.ops, keys, strict=True)
        )


@dataclass(frozen=True)
class Description:
    """What a variant has in it."""

    namespace: str
    """Of its Torch ops."""
    kernels: tuple[DescribedKernel, ...]
    versions: tuple[tuple[str, str], ...] = ()
    """Distribution or program -> version, for the tables: `triton`, `ptxas`."""
    images: str = ""
    """A digest of the device code; empty when it is not known."""

    def to_json(self) -> dict[str, Any]:
        """The description as a JSON object."""
        return {
            "format": FORMAT,
            "namespace": self.namespace,
            "versions": dict(self.versions),
            "images": self.images,
            "kernels": [
                {
                    "name": kernel.name,
                    "section": kernel.section,
                    "launches": [
                        [_candidate_to_json(one) for one in launch] for launch in kernel.candidates
                    ],
                    "keys": [list(key) for key in kernel.keys],
                    "proposals": {
                        op: [_proposal_to_json(one) for one in some]
                        for op, some in kernel.proposals
                    },
                    "resets": {op: dict(values) for op, values in kernel.resets},
                }
                for kernel in sorted(self.kernels, key=lambda kernel: kernel.name)
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Description:
        """The inverse of `to_json`.

        Raises:
            ValueError: it is no description, or of another format.
        """
        if data.get("format") != FORMAT:
            raise ValueError(f"its format is {data.get('format')!r}, this kbuild reads {FORMAT}")
        try:
            return cls(
                str(data["namespace"]),
                tuple(_kernels(data["kernels"])),
                tuple((str(name), str(version)) for name, version in data["versions"].items()),
                str(data["images"]),
            )
        except (KeyError, TypeError, AttributeError, ExpressionError) as error:
            raise ValueError(f"it is no description of ops: {error}") from error

    def measured(self) -> str:
        """What times depend on, as text: neither the namespace nor what is to be measured."""
        data = self.to_json()
        for kernel in data["kernels"]:
            ops = kernel["section"].get("op", ())
            kept = [{name: op[name] for name in op if name != "tune"} for op in ops]
            kernel["section"] = {**kernel["section"], "op": kept}
            del kernel["proposals"]
        return json.dumps({**data, "namespace": ""}, sort_keys=True)

    def text(self) -> str:
        """The file's content; keys stay in their order, which counts in `let`."""
        return json.dumps(self.to_json(), indent=1) + "\n"


def read_description(variant: Path) -> Description:
    """The description in a variant's folder.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    file = variant / FILE
    hint = "`kbuild build --keep-all` builds variants that can be tuned"
    try:
        with reading(file, _KIND):
            description = Description.from_json(read_json(file, _KIND))
            _ = [kernel.ops() for kernel in description.kernels]
            description.text()
    except OSError as error:
        words = f"`{variant.name}` cannot be tuned: it has no `{FILE}`"
        raise UsageError(words, hint=hint) from error
    except DamagedFileError as error:
        raise UsageError(f"`{file}`: {reason_of(error)}", hint=hint) from error
    return description


def _kernels(data: Sequence[Any]) -> Iterator[DescribedKernel]:
    for kernel in data:
        launches = tuple(tuple(map(_candidate_of, launch)) for launch in kernel["launches"])
        keys = tuple(tuple(map(str, key)) for key in kernel.get("keys", ()))
        proposals = tuple(
            (op, tuple(map(_proposal_of, some))) for op, some in kernel.get("proposals", {}).items()
        )
        resets = tuple(
            (op, tuple((str(name), value) for name, value in values.items()))
            for op, values in kernel.get("resets", {}).items()
        )
        yield DescribedKernel(kernel["name"], kernel["section"], launches, keys, proposals, resets)


def _proposal_to_json(proposal: Proposal) -> dict[str, Any]:
    return {"sizes": dict(proposal.sizes), "bounds": dict(proposal.bounds)}


def _proposal_of(data: Mapping[str, Any]) -> Proposal:
    return Proposal(tuple(data["sizes"].items()), tuple(data["bounds"].items()))


def _candidate_to_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "constants": [list(pair) for pair in candidate.constants],
        "options": [list(pair) for pair in candidate.options],
        "when": str(candidate.when) if candidate.when is not None else None,
        "archs": list(candidate.archs),
        "aligned": candidate.aligned,
    }


def _candidate_of(data: Mapping[str, Any]) -> Candidate:
    constants = tuple((str(name), value) for name, value in data["constants"])
    when = parse(data["when"]).bind(numbers_of(constants)) if data["when"] is not None else None
    options = tuple((str(name), value) for name, value in data["options"])
    aligned = bool(data.get("aligned", False))
    return Candidate(constants, options, when, tuple(data["archs"]), aligned)
