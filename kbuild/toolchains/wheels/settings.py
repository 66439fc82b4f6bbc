"""The settings of package indexes, as this user's pip has them.

The one place that says which of pip's settings count: those that decide where files come from and
how the index is reached. Constraints, targets, and whatever else a configuration holds do not.

Builders of Nix that fetch wheels run this file as a script, without kbuild: it needs nothing but
Python's own modules. See nix/fetching.nix.
"""

from __future__ import annotations

import ast
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbuild.system.processes import Runner

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
# `pip config list` takes options from the configuration that it lists: those that would hide a part
# of it, or write elsewhere.
_LISTING = dict.fromkeys(("QUIET", "VERBOSE", "USER", "GLOBAL", "SITE"), "0") | {"LOG": os.devnull}


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
    retries: int | None = None
    """None: as many as pip tries by itself."""

    @property
    def options(self) -> dict[str, str]:
        """The settings that are set, by the names and in the words of a `pip.conf`."""
        options = {
            "index-url": self.index_url,
            "extra-index-url": " ".join(self.extra_index_urls),
            "find-links": " ".join(self.find_links),
            "no-index": "1" if self.no_index else "",
            "trusted-host": " ".join(self.trusted_hosts),
            "cert": self.cert,
            "client-cert": self.client_cert,
            "proxy": self.proxy,
            "timeout": f"{self.timeout:g}",
            "retries": "" if self.retries is None else str(self.retries),
        }
        return {name: value for name, value in options.items() if value}

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables with which pip has these settings and reads no other."""
        own = {f"PIP_{name.replace('-', '_').upper()}": text for name, text in self.options.items()}
        return {"PIP_CONFIG_FILE": os.devnull, **own}


_PIP = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "import runpy; runpy.run_module('pip', run_name='__main__', alter_sys=True)"
)
"""`-m pip`, but for what the current folder, a project's, has of that name."""


def pip_settings(runner: Runner, environ: Mapping[str, str] = os.environ) -> IndexSettings:
    """The settings in `pip config list`; without pip, those of pip's and uv's variables."""
    asked = dict(environ) | {f"PIP_{name}": value for name, value in _LISTING.items()}
    done = runner.run((sys.executable, "-c", _PIP, "config", "list"), env=asked)
    settings = settings_from(done.output if done.ok else _as_listed(environ))
    bundle = environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE")  # as pip does
    return settings if settings.cert or not bundle else replace(settings, cert=bundle)


def settings_from(listing: str) -> IndexSettings:
    """The settings in the output of `pip config list`: lines such as `global.index-url='...'`."""
    # Option -> value, from the section that wins; an empty value is none, as for pip.
    sections: dict[str, dict[str, str]] = {}
    for line in listing.splitlines():
        key, equals, value = line.partition("=")
        section, dot, option = key.strip().rpartition(".")
        if equals and dot:
            sections.setdefault(section, {})[option.replace("_", "-")] = _unquoted(value.strip())
    options = {
        option: value
        for section in _SECTIONS
        for option, value in sections.get(section, {}).items()
        if value
    }
    # pip takes `host:port` as well.
    proxy = options.get("proxy")
    return IndexSettings(
        index_url=options.get("index-url"),
        extra_index_urls=tuple(options.get("extra-index-url", "").split()),
        find_links=tuple(options.get("find-links", "").split()),
        no_index=options.get("no-index", "").lower() in _TRUE,
        trusted_hosts=tuple(options.get("trusted-host", "").split()),
        cert=options.get("cert"),
        client_cert=options.get("client-cert"),
        proxy=f"http://{proxy}" if proxy and "://" not in proxy else proxy,
        timeout=_seconds(options.get("timeout") or options.get("default-timeout")),
        retries=_whole(options.get("retries")),
    )


def _unquoted(value: str) -> str:
    try:
        # pip lists values as literals of Python.
        return str(ast.literal_eval(value))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return value


def _seconds(text: str | None) -> float:
    """A large file needs more patience than pip's 15 s for a page."""
    try:
        return max(_TIMEOUT, float(text or 0))
    except ValueError:
        return _TIMEOUT


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


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


def main() -> None:
    """`pip config list | python settings.py`: shell lines that set the settings, and no others."""
    settings = settings_from(sys.stdin.read())
    for name, file in (("cert", settings.cert), ("client-cert", settings.client_cert)):
        if file and not Path(file).exists():
            sys.exit(
                f"error: pip's {name}, {file}, does not exist\n  hint: a file outside the sandbox "
                "must be listed in `extra-sandbox-paths` of nix.conf"
            )
    for variable, value in settings.variables.items():
        print(f"export {variable}={shlex.quote(value)}")  # noqa: T201 - a script's output


if __name__ == "__main__":
    main()
