"""What a build says about where its result comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.build.state import read_state
from kbuild.build.workspace import Workspace
from kbuild.errors import BuildError
from kbuild.filestate import NEVER, unchanged
from kbuild.git import Repository
from kbuild.plan import VariantPlan
from kbuild.project import BUILD_FILE, KBUILD_FILE
from kbuild.toolchains import Toolchain

if TYPE_CHECKING:
    from kbuild.pipeline.options import BuildOptions
    from kbuild.pipeline.variant import Site

_SHOWN = 3


def told_truly(site: Site, made: VariantPlan, inputs: Sequence[str]) -> VariantPlan:
    """The plan, dirty when the compiler read a project file that is not in the commit.

    Which headers a build reads is known only after it. The id of a build that git was not asked
    about is not judged.
    """
    if made.commit is None or made.dirty or site.options.identity is not None:
        return made
    new = Repository(site.project.root, site.doors.runner).uncommitted((BUILD_FILE, *inputs))
    if not new:
        return made
    listed = ", ".join(f"`{path}`" for path in new[:_SHOWN]) + (", ..." if new[_SHOWN:] else "")
    site.doors.ui.warn(
        f"{made.variant}: made from {listed}, which no commit holds; its provenance says dirty"
    )
    return replace(made, dirty=True)


def evidence(site: Site, made: VariantPlan, toolchain: Toolchain) -> tuple[Path, ...]:
    """Write what was asked for about the variant that is in place now; nothing when nothing was.

    Raises:
        BuildError: the project's files are not those any more that the variant was made from.
    """
    if not site.options.provenance:
        return ()
    from kbuild.provenance.evidence import Evidence

    root = site.project.root
    state = read_state(Workspace(root, made.variant).state)
    read = state.inputs if state else dict.fromkeys(made.inputs, NEVER)
    inputs = (BUILD_FILE, KBUILD_FILE, *(path for path, then in read.items() if then is not None))
    told = Evidence(made, toolchain, site.target_of(made), root, inputs, _options(site.options))
    written = told.write(site.doors.cache, site.doors.runner)
    if state is not None and not unchanged(root, state.inputs):
        for path in written:
            path.unlink(missing_ok=True)
        raise BuildError(
            f"{made.variant}: a file that it was made from has changed since, so its provenance "
            "cannot be told",
            hint="build again",
        )
    return written


def discard(site: Site, made: VariantPlan) -> None:
    """Remove what an older build left beside the variant, unless it is about these very files."""
    from kbuild.provenance.variantfiles import discard_evidence

    removed = discard_evidence(site.target_of(made))
    if removed:
        names = ", ".join(path.name for path in removed)
        site.doors.ui.say(f"{made.variant}: removed {names} of an older build")


def _options(options: BuildOptions) -> Mapping[str, Any]:
    """What was asked for and can change the result; folders of this machine are left out."""
    return {
        "toolchain": options.toolchain,
        "archs": list(options.archs),
        "with-source": sorted(options.sources),
        "torch-wheel": [path.name for path in options.torch_wheels],
        "python": options.python is not None,
        "identity": options.identity is not None,
        "allow": dict(sorted(options.allowed.items())),
    }
