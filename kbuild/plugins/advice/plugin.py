"""The command `abi-advice`."""

from kbuild.cli import CommandEntry

COMMAND = CommandEntry(
    "Look and check",
    "abi-advice",
    "Report which uses in the sources prevent Torch's stable ABI",
    "kbuild.plugins.advice.cli",
)
