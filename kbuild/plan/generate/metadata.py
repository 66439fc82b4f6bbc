"""The value of a plan's `metadata.json`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import cast

from kbuild import __version__
from kbuild.plan.metadata import (
    Builder,
    GitState,
    KernelDependency,
    Metadata,
    Provenance,
    UsedToolchain,
)
from kbuild.plan.plan import VariantPlan

_PLACE = re.compile(r"\(/.*, sha256")


def metadata_of(plan: VariantPlan, builder: Builder | None = None) -> Metadata:
    """Everything that `metadata.json` says but the digest, which needs the built files."""
    kernel = plan.kernel
    return Metadata(
        name=kernel.name,
        id=plan.ops_name,
        version=kernel.version,
        kernels_minver=kernel.kernels_minver,
        license=kernel.license,
        backend=plan.backend,
        python_depends=kernel.python_depends,
        kernel_depends=tuple(_dependency(entry) for entry in kernel.kernel_depends),
        archs=plan.archs or None,
        upstream=kernel.upstream,
        source=kernel.source,
        provenance=Provenance(
            replace(builder or Builder(__version__), toolchain=_toolchain(plan)),
            GitState(plan.commit, plan.dirty) if plan.commit else None,
        ),
    )


def metadata_text(plan: VariantPlan) -> str:
    """The file's text as it is known before the build."""
    return metadata_of(plan).to_json_text()


def _toolchain(plan: VariantPlan) -> UsedToolchain | None:
    """The toolchain that compiled the plan; paths of header folders are left out."""
    used = plan.toolchain
    if used is None or not plan.is_compiled:
        return None
    versions = {name: _PLACE.sub("(sha256", version) for name, version in used.versions}
    return UsedToolchain(used.source, dict(sorted(versions.items())))


def _dependency(entry: object) -> KernelDependency:
    fields = cast("dict[str, str | int]", entry)
    version, revision = fields.get("version"), fields.get("revision")
    return KernelDependency(
        repo_id=str(fields["repo-id"]),
        version=int(version) if version is not None else None,
        revision=str(revision) if revision is not None else None,
    )
