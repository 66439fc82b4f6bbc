"""The command `capture`."""

from kbuild.cli import CommandEntry

COMMAND = CommandEntry(
    "Build and test",
    "capture",
    "Describe ops that follow from Python that launches kernels",
    "kbuild.plugins.capture.cli",
)
