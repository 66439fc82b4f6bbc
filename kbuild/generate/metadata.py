"""From a plan to the value of its `metadata.json`."""

from __future__ import annotations

from typing import cast

from kbuild import __version__
from kbuild.metadata import Builder, GitState, KernelDependency, Metadata, Provenance
from kbuild.plan import VariantPlan


def metadata_of(plan: VariantPlan, builder: Builder | None = None) -> Metadata:
    """Everything that `metadata.json` says but the digest, which needs the built files.

    Args:
        plan: the variant's.
        builder: the kbuild that builds it, with its commit; its release alone when None.
    """
    kernel = plan.kernel
    return Metadata(
        name=kernel.name,
        id=plan.ops_name,
        version=kernel.version,
        license=kernel.license,
        backend=plan.backend,
        python_depends=kernel.python_depends,
        kernel_depends=tuple(_dependency(entry) for entry in kernel.kernel_depends),
        archs=plan.archs or None,
        upstream=kernel.upstream,
        source=kernel.source,
        provenance=Provenance(
            builder or Builder(__version__),
            GitState(plan.commit, plan.dirty) if plan.commit else None,
        ),
    )


def metadata_text(plan: VariantPlan) -> str:
    """The file's text as it is known before the build."""
    return metadata_of(plan).to_json_text()


def _dependency(entry: object) -> KernelDependency:
    fields = cast("dict[str, str | int]", entry)
    version, revision = fields.get("version"), fields.get("revision")
    return KernelDependency(
        repo_id=str(fields["repo-id"]),
        version=int(version) if version is not None else None,
        revision=str(revision) if revision is not None else None,
    )
