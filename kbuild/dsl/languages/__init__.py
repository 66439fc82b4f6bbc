"""One package per DSL; `LANGUAGES` finds them, and those of the group `kbuild.languages`."""
