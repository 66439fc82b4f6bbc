"""How a command line names a kernel on the Hub: `hub:org/kernel@v1`, `hub:org/kernel@<commit>`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kbuild.errors import UsageError

PREFIX = "hub:"
_FORM = re.compile(
    r"hub:(?P<repo>[\w][\w.-]*/[\w][\w.-]*)@(?P<revision>[\w][\w./-]*)", flags=re.ASCII
)
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubSpec:
    """A repository at a revision."""

    repo: str
    """`org/kernel`."""
    revision: str
    """A branch such as `v1`, a tag, or a commit."""

    @classmethod
    def parse(cls, text: str) -> HubSpec:
        """Read `hub:org/kernel@v1`.

        Raises:
            UsageError: the text is not written like that.
        """
        match = _FORM.fullmatch(text)
        if match is None or ".." in text:
            hint = "write hub:OWNER/KERNEL@REVISION, e.g. hub:my-org/relu@v1"
            missing = "names no revision" if "@" not in text else "is no kernel on the Hub"
            raise UsageError(f"`{text}` {missing}", hint=hint)
        return cls(match["repo"], match["revision"])

    @property
    def is_commit(self) -> bool:
        """True when the revision can never mean anything else."""
        return _COMMIT.fullmatch(self.revision) is not None

    def __str__(self) -> str:
        return f"{self.repo}@{self.revision}"
