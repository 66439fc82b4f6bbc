"""From a project and its variants to plans: components, archs, shipped files, requirements."""

from kbuild.planning.variant import make_plan, make_plans

__all__ = ["make_plan", "make_plans"]
