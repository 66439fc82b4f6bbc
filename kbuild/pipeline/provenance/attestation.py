"""Collects what went into a built variant, and writes the statement and the SBOM beside it.

The statement names the running kbuild: its release, and the commit it was taken from. That is known
from git when it runs from a checkout (an editable installation is one), from the record that pip
leaves (PEP 610) when it was installed from a repository, and not at all otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256 as hashed
from pathlib import Path
from typing import Any

import kbuild
from kbuild.pipeline.provenance.documents import (
    Material,
    ProvenanceFacts,
    sbom_text,
    statement_text,
)
from kbuild.pipeline.provenance.files import file_digests, sbom_path, signature_path, statement_path
from kbuild.pipeline.provenance.materials import (
    ProgramInspector,
    local_headers,
    materials_of_entry,
    store_entries_used,
    with_licence,
)
from kbuild.plan.metadata import COMMIT, Builder, GitState, Provenance, read_metadata
from kbuild.plan.plan import VariantPlan
from kbuild.system.errors import UsageError
from kbuild.system.files import replace_atomically, sha256_of_file
from kbuild.system.git import Repository
from kbuild.system.processes import Runner
from kbuild.system.store import Store, open_store
from kbuild.system.untrusted import read_cache_file
from kbuild.toolchains.base import Toolchain
from kbuild.toolchains.facts import FactCache

PACKAGE = Path(kbuild.__file__).parent
_PARTS = ("kbuild", "templates", "pyproject.toml")
"""Folders and files that a checkout is run from."""


def running_builder(runner: Runner, package: Path = PACKAGE) -> Builder:
    """This kbuild, for the provenance of what it builds."""
    state = _checkout(package, runner) or _installed_from(package)
    return Builder(kbuild.__version__, git=state)


def _checkout(package: Path, runner: Runner) -> GitState | None:
    """The checkout's state; None when git does not know the package.

    A virtual environment below some repository is none of that repository's.
    """
    repository = Repository(package.parent, runner)
    if repository.ask("ls-files", "--error-unmatch", f"{package.name}/__init__.py") is None:
        return None
    commit = repository.ask("rev-parse", "--verify", "HEAD")
    if commit is None:
        return None
    parts = [name for name in _PARTS if (package.parent / name).exists()]
    new = repository.ask("ls-files", "--others", "--exclude-standard", "--", *parts)
    return GitState(commit, dirty=bool(new) or repository.is_changed(*parts))


def _installed_from(package: Path) -> GitState | None:
    for record in sorted(package.parent.glob(f"{package.name}-*.dist-info/direct_url.json")):
        commit = read_cache_file(
            record, lambda record_json: str(record_json["vcs_info"]["commit_id"]).lower()
        )
        if commit is not None and COMMIT.fullmatch(commit):
            return GitState(commit, dirty=False)
    return None


@dataclass(frozen=True)
class Attestation:
    """The provenance of one build, from the process that made it."""

    plan: VariantPlan
    """Plan with its toolchain."""
    toolchain: Toolchain
    variant: Path
    """The variant directory."""
    project: Path
    inputs: tuple[str, ...]
    """The project's files that went in, relative to it."""
    options: Mapping[str, Any]
    """See `ProvenanceFacts.options`."""

    def write(self, cache: Path, runner: Runner) -> tuple[Path, Path]:
        """Write both files; returns the statement's path and the list's.

        Raises:
            UsageError: SOURCE_DATE_EPOCH is no number.
        """
        facts = self.facts(cache, runner)
        statement, bom = statement_path(self.variant), sbom_path(self.variant)
        listed = sbom_text(facts).encode()
        document = statement_text(facts, (bom.name, hashed(listed).hexdigest())).encode()
        if not statement.is_file() or statement.read_bytes() != document:
            signature_path(statement).unlink(missing_ok=True)  # it is about other words
        replace_atomically(bom, listed)
        replace_atomically(statement, document)
        return statement, bom

    def facts(self, cache: Path, runner: Runner) -> ProvenanceFacts:
        """Collect all facts of the statement now; see `write`."""
        repository = Repository(self.project, runner)
        # From the variant itself, so that the two cannot disagree.
        provenance = read_metadata(self.variant).provenance or Provenance(Builder(""))
        inputs = tuple(path for path in sorted(self.inputs) if (self.project / path).is_file())
        return ProvenanceFacts(
            plan=self.plan,
            provenance=provenance,
            files=file_digests(self.variant),
            inputs={path: sha256_of_file(self.project / path) for path in inputs},
            uncommitted=repository.uncommitted(inputs) if provenance.kernel else (),
            ingredients=self._ingredients(cache, runner),
            options=self.options,
            time=_document_time(repository, provenance),
        )

    def _ingredients(self, cache: Path, runner: Runner) -> tuple[Material, ...]:
        if not self.plan.is_compiled:
            return ()
        store = open_store(cache)
        materials = [
            *(
                part
                for e in store_entries_used(self.toolchain, store)
                for part in materials_of_entry(e)
            ),
            *self._environment_materials(store, runner),
            *local_headers(self.toolchain, store.root),
            *ProgramInspector(runner, FactCache(cache)).of(self.toolchain, store.root),
        ]
        # Two compilers of one release add the same materials.
        unique = {replace(part, version=part.version.strip()): None for part in materials}
        return tuple(sorted(map(with_licence, unique)))

    def _environment_materials(self, store: Store, runner: Runner) -> Iterator[Material]:
        """The materials that kernels in Python DSLs were compiled with."""
        if not self.plan.aot:
            return
        from kbuild.dsl.environment import DslEnvironments
        from kbuild.ops.language import LANGUAGES
        from kbuild.toolchains.wheels.installer import WheelInstaller

        known = DslEnvironments(WheelInstaller(runner, store))
        for kernel in self.plan.aot:
            language = LANGUAGES.get(kernel.language)
            pins = language.environment(kernel.toolchain, kernel.flavour)
            entry = store.find(known.recipe(kernel.language, pins))
            for part in materials_of_entry(entry) if entry is not None else ():
                yield replace(part, **language.materials.get(part.name.lower(), {}))


def source_date_epoch(environ: Mapping[str, str]) -> int | None:
    """SOURCE_DATE_EPOCH, seconds since the epoch; None when it is not set.

    Raises:
        UsageError: it is not a number.
    """
    epoch = environ.get("SOURCE_DATE_EPOCH", "")
    if epoch and not epoch.isdecimal():
        raise UsageError(f"SOURCE_DATE_EPOCH is `{epoch}`", hint="it takes seconds since the epoch")
    return int(epoch) if epoch else None


def _document_time(repository: Repository, provenance: Provenance) -> int | None:
    """SOURCE_DATE_EPOCH, else the time of the commit."""
    epoch = source_date_epoch(os.environ)
    if epoch is not None or provenance.kernel is None:
        return epoch
    return repository.time_of(provenance.kernel.commit)
