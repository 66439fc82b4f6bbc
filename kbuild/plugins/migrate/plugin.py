"""The command `migrate`."""

from kbuild.cli import CommandEntry

COMMAND = CommandEntry(
    "Start",
    "migrate",
    "Write a project that takes over a package with kernels",
    "kbuild.plugins.migrate.cli",
)
