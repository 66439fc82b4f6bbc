"""`pyproject.toml` and `setup.py`: the kernel as a Python distribution."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from kbuild.config.curated import distribution_of
from kbuild.frameworks import FRAMEWORKS
from kbuild.generate import templates
from kbuild.plan import VariantPlan


def pyproject_text(plans: Sequence[VariantPlan], away: str = "") -> str:
    """`pyproject.toml` for all variants together.

    Args:
        plans: of one kernel, sorted by variant.
        away: the way from the file to the source tree; empty when it lies there.
    """
    common, extras = _requirements(plans)
    framework = FRAMEWORKS.get(plans[0].framework)
    requires = {name for plan in plans for name in FRAMEWORKS.get(plan.framework).build_requires}
    return templates.render(
        "project/pyproject.toml.j2",
        compiled=_is_compiled(plans),
        build_requires=sorted(requires),
        kernel=plans[0].kernel,
        dependencies=common,
        extras=extras,
        package_root=f"{away}/{framework.package_root}" if away else framework.package_root,
        package_data=_data_globs(plans),
    )


def setup_text(plans: Sequence[VariantPlan]) -> str:
    """`setup.py`, which decides nothing."""
    return templates.render("project/setup.py.j2", compiled=_is_compiled(plans))


def _is_compiled(plans: Sequence[VariantPlan]) -> bool:
    return any(plan.is_compiled for plan in plans)


def _requirements(
    plans: Sequence[VariantPlan],
) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """What every backend needs, and what each needs beyond that."""
    by_backend = {
        plan.backend: set(map(distribution_of, plan.kernel.python_depends)) for plan in plans
    }
    common = set.intersection(*by_backend.values())
    extras = [(name, sorted(needs - common)) for name, needs in sorted(by_backend.items())]
    return sorted(common), [(name, needs) for name, needs in extras if needs]


def _data_globs(plans: Sequence[VariantPlan]) -> list[str]:
    """Globs of the packaged files that are not Python modules."""
    files = {PurePosixPath(file.target) for plan in plans for file in plan.files}
    return sorted({f"**/*{path.suffix}" for path in files if path.suffix != ".py"})
