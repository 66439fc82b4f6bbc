"""How this machine's distribution installs what kbuild asks for, out of `packages.toml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import tomli

OS_RELEASE = Path("/etc/os-release")
_LINE = re.compile(r'^(\w+)=["\']?([^"\'\n]*)["\']?$', re.MULTILINE)


@dataclass(frozen=True)
class Distribution:
    """A family of distributions with the same package names; an unknown one has no name."""

    family: str = ""

    def install(self, what: str, **values: str) -> str:
        """The command, or which package to look for, of an entry of `packages.toml`."""
        entry = _packages()[what]
        return entry.get(self.family, entry["other"]).format(**values)


def this_distribution(os_release: Path = OS_RELEASE) -> Distribution:
    """What os-release(5) says, in `ID` and then in `ID_LIKE`."""
    try:
        facts = dict(_LINE.findall(os_release.read_text("utf-8", "replace")))
    except OSError:
        return Distribution()
    names = (facts.get("ID", ""), *facts.get("ID_LIKE", "").split())
    known = {family for entry in _packages().values() for family in entry}
    return Distribution(next((name for name in names if name in known), ""))


@lru_cache(maxsize=1)
def _packages() -> Mapping[str, Mapping[str, str]]:
    return tomli.loads(Path(__file__).with_name("packages.toml").read_text("utf-8"))
