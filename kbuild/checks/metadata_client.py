"""`metadata.json` is read by the `kernels` client itself, not only by kbuild's model of it."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.checks.base import CHECKS, Finding, MetadataFileCheck, Output
from kbuild.checks.client import unloadable_reason
from kbuild.checks.libraries import metadata_of
from kbuild.plan.metadata import METADATA_FILE
from kbuild.system.processes import LocalRunner, Runner


@CHECKS.add
class MetadataClientCheck(MetadataFileCheck):
    """Asks the client that is installed beside the Torch in use."""

    name = "metadata-client"
    summary = f"The `kernels` client reads `{METADATA_FILE}`."
    protects = True
    slow = True
    runner: Runner = LocalRunner()

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding when the client rejects the variant, or is missing."""
        if output.python is None:
            yield self._unread("no interpreter was given")
            return
        metadata = metadata_of(output)
        if metadata is not None and (reason := unloadable_reason(metadata.backend)):
            yield Finding(self.name, "info", METADATA_FILE, f"not read by the client: {reason}")
            return
        path = output.root / METADATA_FILE
        answer = output.probe_cache.ask(self.runner, output.python, "metadata_probe", path)
        if answer.state == "absent":
            yield self._unread(answer.reason)
        elif answer.state != "ok":
            what = f"the client rejects it: {answer.reason}"
            yield Finding(self.name, "error", METADATA_FILE, what, "write it with `kbuild build`")

    def _unread(self, reason: str) -> Finding:
        what = f"not read by the client: {reason}"
        hint = "`pip install kernels` into that interpreter"
        return Finding(self.name, "info", METADATA_FILE, what, hint)
