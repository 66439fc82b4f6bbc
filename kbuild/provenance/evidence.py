"""The statement and the list of ingredients of a variant that was just built, written beside it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256 as hashed
from pathlib import Path
from typing import Any

from kbuild.errors import UsageError
from kbuild.fileset import replace_atomically, sha256_of_file
from kbuild.git import Repository
from kbuild.metadata import Builder, Provenance, read_metadata
from kbuild.plan import VariantPlan
from kbuild.provenance.bom import bom_text
from kbuild.provenance.folders import headers_on_this_machine
from kbuild.provenance.ingredient import Ingredient
from kbuild.provenance.installed import entries_used, ingredients_of
from kbuild.provenance.licences import licensed
from kbuild.provenance.programs import Programs
from kbuild.provenance.statement import Facts, statement_text
from kbuild.provenance.variantfiles import bom_of, digests, signature_of, statement_of
from kbuild.run import Runner
from kbuild.store import Entry, Store, store_of
from kbuild.toolchains import Toolchain
from kbuild.toolchains.facts import FactCache


@dataclass(frozen=True)
class Evidence:
    """One build, as the process that made it knows it."""

    plan: VariantPlan
    """With its toolchain."""
    toolchain: Toolchain
    variant: Path
    """The variant directory."""
    project: Path
    inputs: tuple[str, ...]
    """The project's files that went in, relative to it."""
    options: Mapping[str, Any]
    """See `Facts.options`."""

    def write(self, cache: Path, runner: Runner) -> tuple[Path, Path]:
        """Write both files; returns the statement's path and the list's.

        Args:
            cache: kbuild's cache folder.
            runner: starts git and compilers.

        Raises:
            UsageError: SOURCE_DATE_EPOCH is no number.
        """
        facts = self.facts(cache, runner)
        statement, bom = statement_of(self.variant), bom_of(self.variant)
        listed = bom_text(facts).encode()
        told = statement_text(facts, (bom.name, hashed(listed).hexdigest())).encode()
        if not statement.is_file() or statement.read_bytes() != told:
            signature_of(statement).unlink(missing_ok=True)  # it is about other words
        replace_atomically(bom, listed)
        replace_atomically(statement, told)
        return statement, bom

    def facts(self, cache: Path, runner: Runner) -> Facts:
        """Everything that is said, looked up now; see `write`."""
        repository = Repository(self.project, runner)
        made = self._made()
        inputs = tuple(path for path in sorted(self.inputs) if (self.project / path).is_file())
        return Facts(
            plan=self.plan,
            made=made,
            files=digests(self.variant),
            inputs={path: sha256_of_file(self.project / path) for path in inputs},
            uncommitted=repository.uncommitted(inputs) if made.kernel else (),
            ingredients=self._ingredients(cache, runner),
            options=self.options,
            time=_time(repository, made),
        )

    def _made(self) -> Provenance:
        """What the variant itself says, so that the two cannot disagree."""
        metadata = read_metadata(self.variant)
        return metadata.provenance or Provenance(Builder(""))

    def _ingredients(self, cache: Path, runner: Runner) -> tuple[Ingredient, ...]:
        if not self.plan.is_compiled:
            return ()
        store = store_of(cache)
        found = [
            *(part for e in entries_used(self.toolchain, store) for part in ingredients_of(e)),
            *(part for e in self._environments(store, runner) for part in ingredients_of(e)),
            *headers_on_this_machine(self.toolchain, store.root),
            *Programs(runner, FactCache(cache)).of(self.toolchain, store.root),
        ]
        return tuple(sorted(map(licensed, _distinct(found))))

    def _environments(self, store: Store, runner: Runner) -> Iterator[Entry]:
        """Where kernels in Python DSLs were compiled."""
        if not self.plan.aot:
            return
        from kbuild.languages.base import LANGUAGES
        from kbuild.languages.environment import Environments
        from kbuild.toolchains.wheels.installer import Installer

        known = Environments(Installer(runner, store))
        for kernel in self.plan.aot:
            pins = LANGUAGES.get(kernel.language).environment(kernel.toolchain, kernel.flavour)
            entry = store.find(known.recipe(kernel.language, pins))
            if entry is not None:
                yield entry


def _distinct(found: Iterable[Ingredient]) -> list[Ingredient]:
    """The same thing once, e.g. what two compilers of one release add; versions lose paths."""
    return list(dict.fromkeys(replace(part, version=part.version.strip()) for part in found))


def source_date(environ: Mapping[str, str]) -> int | None:
    """SOURCE_DATE_EPOCH, seconds since the epoch; None when it is not set.

    Raises:
        UsageError: it is no number.
    """
    given = environ.get("SOURCE_DATE_EPOCH", "")
    if given and not given.isdecimal():
        raise UsageError(f"SOURCE_DATE_EPOCH is `{given}`", hint="it takes seconds since the epoch")
    return int(given) if given else None


def _time(repository: Repository, made: Provenance) -> int | None:
    """SOURCE_DATE_EPOCH, else when the commit was made."""
    given = source_date(os.environ)
    if given is not None or made.kernel is None:
        return given
    return repository.time_of(made.kernel.commit)
