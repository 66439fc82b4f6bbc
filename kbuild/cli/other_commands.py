"""What to type instead of a command that there is not."""

from __future__ import annotations

from kbuild.cli import ALIASES, COMMANDS
from kbuild.config.issue import closest

_ADVICE = {
    "explain": "`kbuild plan --variant NAME` shows how a variant is built, `kbuild doctor` what is "
    "missing, and docs/reference/checks.md what each check means",
    "why": "`kbuild list-variants --reasons` says which variants cannot be built here, and why",
    "migrate": "`kbuild update-build` rewrites an older build.toml; "
    "docs/how-to/migrate-from-kernel-builder.md describes the rest",
    "run": "`kbuild test` runs the project's tests; `python example.py` its example",
    "install": "`kbuild toolchain install` installs toolchains; packages load from the Hub",
    "list": "`kbuild list-variants` lists variants, `kbuild versions` published versions",
    "info": "`kbuild doctor` reports on this machine, `kbuild plan` on the project",
    "prune": "`kbuild cache prune` makes the cache smaller, `kbuild clean` the project",
    "gc": "`kbuild cache prune` makes the cache smaller, `kbuild clean` the project",
    "push": "`kbuild upload` sends variants to the Hub, `kbuild publish` to a mirror",
    "deploy": "`kbuild upload` sends variants to the Hub, `kbuild publish` to a mirror",
    "shell": "`kbuild devshell` opens a shell to build in, `kbuild testshell` one to test in",
    "profile": "`kbuild tune` measures candidates of DSL kernels",
    "lint": "`kbuild check` checks sources, `kbuild check-config` checks build.toml",
    "format": "`kbuild update-build` rewrites build.toml in the current edition",
    "setup": "`kbuild init` writes a project, `kbuild toolchain install` installs toolchains",
    "compare": "`kbuild diff` compares two versions, `kbuild reproduce` two builds",
}
"""What people type -> what does it here."""


def advice_for(name: str) -> str:
    """What was probably meant by a word in a command's place."""
    if name.lower() in _ADVICE:
        return _ADVICE[name.lower()]
    known = [command.name for command in COMMANDS]
    aliases = {other: command for other, command in ALIASES.items() if command in known}
    meant = closest(name, [*known, *_ADVICE, *aliases])
    if meant in _ADVICE:
        return _ADVICE[meant]
    return f"did you mean `{meant}`?" if meant else "`kbuild --help` lists the commands"
