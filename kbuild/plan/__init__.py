"""From a project to plans of its variants, and to the files that are generated from a plan."""
