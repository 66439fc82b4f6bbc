"""Where packages come from, as this user's pip is set up to find them."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from kbuild.run import Runner

# Later ones win, as in pip: https://pip.pypa.io/en/stable/topics/configuration/
_SECTIONS = ("global", "install", "download", ":env:")
_TRUE = {"1", "true", "yes", "on", "y", "t"}
_TIMEOUT = 30.0


@dataclass(frozen=True)
class IndexSettings:
    """pip's options of the same names."""

    index_url: str | None = None
    """None: the public index."""
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    timeout: float = _TIMEOUT
    """Seconds."""


def pip_settings(runner: Runner, environ: Mapping[str, str] = os.environ) -> IndexSettings:
    """What `pip config list` says; without pip, what its environment variables say."""
    done = runner.run((sys.executable, "-m", "pip", "config", "list"), env=environ)
    return settings_from(done.output if done.ok else _as_listed(environ))


def settings_from(listing: str) -> IndexSettings:
    """The settings in the output of `pip config list`: lines such as `global.index-url='...'`."""
    found = _merged(listing)
    return IndexSettings(
        index_url=found.get("index-url"),
        extra_index_urls=tuple(found.get("extra-index-url", "").split()),
        find_links=tuple(found.get("find-links", "").split()),
        no_index=found.get("no-index", "").lower() in _TRUE,
        trusted_hosts=tuple(found.get("trusted-host", "").split()),
        cert=found.get("cert"),
        client_cert=found.get("client-cert"),
        proxy=found.get("proxy"),
        timeout=max(float(found.get("default-timeout") or found.get("timeout") or 0), _TIMEOUT),
    )


def _merged(listing: str) -> dict[str, str]:
    """Option -> value, from the section that wins."""
    sections: dict[str, dict[str, str]] = {}
    for line in listing.splitlines():
        key, equals, value = line.partition("=")
        section, dot, option = key.strip().rpartition(".")
        if equals and dot:
            sections.setdefault(section, {})[option.replace("_", "-")] = _unquoted(value.strip())
    return {
        option: value
        for section in _SECTIONS
        for option, value in sections.get(section, {}).items()
    }


def _unquoted(value: str) -> str:
    try:
        return str(ast.literal_eval(value))
    except (ValueError, SyntaxError):
        return value


def _as_listed(environ: Mapping[str, str]) -> str:
    return "\n".join(
        f":env:.{name.removeprefix('PIP_').lower().replace('_', '-')}={value!r}"
        for name, value in environ.items()
        if name.startswith("PIP_") and value
    )
