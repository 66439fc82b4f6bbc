"""Which commit a tag was when it was first fetched: a tag that moves later is refused.

One file for each tag in a folder of kbuild's cache, `<folder>/<sha12>.json`. It outlives the
store's entry, so that headers that were pruned and fetched again are still the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from kbuild.errors import ToolchainError
from kbuild.fileset import replace_atomically, sha256
from kbuild.store import Store
from kbuild.untrusted import read_json, reading


@dataclass(frozen=True)
class Commits:
    """Trust on first use, for the tags of git repositories."""

    folder: Path
    store: Store
    """Entries of an earlier kbuild, which kept no such files, count as well."""

    def confirm(self, repository: str, tag: str, commit: str) -> None:
        """Compare with the commit of the first fetch, or remember it.

        Raises:
            ToolchainError: the tag is another commit than it was.
        """
        file = self._file(repository, tag)
        known = self._kept(file) or self._installed(repository, tag)
        if known in (None, commit):
            seen = {"repository": repository, "tag": tag, "commit": commit}
            replace_atomically(file, (json.dumps(seen, indent=1) + "\n").encode(), durable=True)
            return
        raise ToolchainError(
            f"tag {tag} of {repository} is commit {commit[:12]}, but was {known[:12]} when it was "
            f"first fetched; if it was moved for a good reason, delete {file}"
        )

    def _file(self, repository: str, tag: str) -> Path:
        return self.folder / f"{sha256(f'{repository} {tag}'.encode())[:12]}.json"

    def _kept(self, file: Path) -> str | None:
        kind, hint = "the record of a tag", "delete it if the tag may be taken as it is now"
        try:
            with reading(file, kind, hint=hint):
                return str(read_json(file, kind, hint=hint)["commit"])
        except FileNotFoundError:
            return None

    def _installed(self, repository: str, tag: str) -> str | None:
        for entry in self.store.entries():
            for source in entry.facts.get("sources", ()):
                if (source.get("repository"), source.get("tag")) == (repository, tag):
                    return str(source["commit"])
        return None
