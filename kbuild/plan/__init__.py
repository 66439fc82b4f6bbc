"""From a project and its variants to plans: components, archs, shipped files, requirements."""
