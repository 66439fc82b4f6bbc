"""Where packages come from, as this user's pip is set up to find them."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kbuild.run import Runner

# Later ones win, as in pip: https://pip.pypa.io/en/stable/topics/configuration/
_SECTIONS = ("global", "install", "download", ":env:")
# https://docs.astral.sh/uv/reference/environment/
_UV = {
    "UV_INDEX_URL": "index-url",
    "UV_DEFAULT_INDEX": "index-url",
    "UV_EXTRA_INDEX_URL": "extra-index-url",
    "UV_INDEX": "extra-index-url",
    "UV_FIND_LINKS": "find-links",
    "UV_NO_INDEX": "no-index",
}
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
    """What `pip config list` says; without pip, what its and uv's environment variables say."""
    done = runner.run((sys.executable, "-m", "pip", "config", "list"), env=environ)
    found = settings_from(done.output if done.ok else _as_listed(environ))
    bundle = environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE")  # as pip does
    return found if found.cert or not bundle else replace(found, cert=bundle)


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
        proxy=_with_scheme(found.get("proxy")),
        timeout=_seconds(found.get("timeout") or found.get("default-timeout")),
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


def _with_scheme(proxy: str | None) -> str | None:
    """pip takes `host:port` as well."""
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def _seconds(text: str | None) -> float:
    """A large file needs more patience than pip's 15 s for a page."""
    try:
        return max(float(text or 0), _TIMEOUT)
    except ValueError:
        return _TIMEOUT


def _as_listed(environ: Mapping[str, str]) -> str:
    """The environment as pip would list it. An environment of uv's has no pip: uv's names too."""
    known = {uv: pip for uv, pip in _UV.items() if environ.get(uv)}
    known |= {
        name: name.removeprefix("PIP_").lower()
        for name, value in environ.items()
        if name.startswith("PIP_") and value
    }
    return "\n".join(f":env:.{option}={_plain(environ[name])!r}" for name, option in known.items())


def _plain(value: str) -> str:
    """uv separates by commas as well, and allows `name=url`."""
    parts = value.replace(",", " ").split()
    return " ".join(part.partition("=")[2] if "=http" in part else part for part in parts)
