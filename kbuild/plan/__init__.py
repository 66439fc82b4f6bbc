"""Plans of a project's variants, and the files that are generated from a plan."""
