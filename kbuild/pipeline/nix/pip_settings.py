"""The user's pip settings for builders in Nix's sandbox.

A configuration of its own, copies of the files that it names, and the folders of wheels, all
under the same path inside and outside.

Nothing that Nix stores names any of it.
"""

from __future__ import annotations

import netrc
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from kbuild.system.temporary import temporary_base, temporary_folder

if TYPE_CHECKING:
    from kbuild.pipeline.nix.program import Nix
    from kbuild.system.processes import Runner
    from kbuild.toolchains.wheels.settings import IndexSettings


_CA_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/ssl/cert.pem",  # Alpine, macOS
)
_LINK = re.compile(r"""<a\b[^>]*\bhref\s*=\s*["']([^"'#]+)""", re.IGNORECASE)
_PAGES = 2000
"""Pages of an index on this machine that are read for the folders of its files."""
_FOLDERS = 16
"""Number of folders of files above which their common parent is lent instead."""
_UNSUPPORTED_CHARACTERS = re.compile(r"[\s=?]")
"""Characters that a path in `sandbox-paths` cannot have."""
_READ = 0o005
"""Permission of other users to read a folder and to enter it."""
_PLAIN = re.compile(r"[\w.~@%+/:-]+", re.ASCII)


@dataclass(frozen=True)
class SandboxPipSettings:
    """Settings with which Nix builds: environment and lent folders."""

    environment: Mapping[str, str]
    """The whole environment: this process's, with pip's variables replaced."""
    places: tuple[str, ...]
    """Folders for `sandbox-paths`, of which none lies in another."""
    unreadable: tuple[str, ...] = ()
    """Paths that builders, who are other users, cannot read."""

    @property
    def options(self) -> tuple[str, ...]:
        """Arguments of every command of Nix that builds."""
        return ("--option", "extra-sandbox-paths", " ".join(self.places)) if self.places else ()


@contextmanager
def sandbox_pip_settings(nix: Nix, runner: Runner) -> Iterator[SandboxPipSettings]:
    """See `write_pip_settings`; the copies are removed afterwards.

    A daemon has an environment of its own and lets few lend anything: it is given nothing.
    """
    if not nix.is_own_store:
        yield SandboxPipSettings(os.environ, ())
        return
    from kbuild.toolchains.wheels.settings import pip_settings  # loads toolchains

    settings = pip_settings(runner, os.environ)
    base = temporary_base()
    # Nix cannot lend a folder whose path has such characters.
    place = "/tmp" if _UNSUPPORTED_CHARACTERS.search(base) else base  # noqa: S108 - the folder is private
    with temporary_folder("lent", place) as folder:
        yield write_pip_settings(settings, folder, os.environ, nix.sandbox.group)


def write_pip_settings(
    settings: IndexSettings, folder: Path, environ: Mapping[str, str], group: str = ""
) -> SandboxPipSettings:
    """Write what builders need of the settings.

    Args:
        settings: what pip is set up for.
        folder: gets the files; nobody but builders looks into it.
        environ: this process's environment.
        group: builders are its members; empty when they are this user.
    """
    own = folder / "pip"
    own.mkdir(exist_ok=True)
    options = settings.options
    for name, location in (("cert", options.get("cert") or _ca_bundle(environ)),
                        ("client-cert", options.get("client-cert"))):  # fmt: skip
        if location:
            options[name] = _copied(Path(location).expanduser(), own / name)
    local = [_folder(place) for place in settings.find_links]
    options["find-links"] = " ".join(
        location if path is None or "://" in location else str(path)
        for location, path in zip(settings.find_links, local, strict=True)
    )
    lines = (f"{name} = {text}" for name, text in options.items() if text)
    (own / "pip.conf").write_text("\n".join(("[global]", *lines, "")), "utf-8")
    # pip's variables would take precedence over the file that is written here.
    environment = {key: text for key, text in environ.items() if not key.startswith("PIP_")}
    environment["PIP_CONFIG_FILE"] = str(own / "pip.conf")
    _write_credentials(settings, own / "pip.conf.netrc", environ)
    _open_for(group, folder)
    places = [own, *_wheel_folders(path for path in local if path)]
    urls = (settings.index_url, *settings.extra_index_urls)
    places += _index_folders(path for url in urls if url and (path := _folder(url)))
    lent = tuple(_sandbox_paths(places))
    # In `NAME=TARGET`, the target is what lies on this machine's disk.
    real = (place.partition("=")[2] or place for place in lent) if group else ()
    closed = tuple(place for place in real if Path(place).stat().st_mode & _READ != _READ)
    return SandboxPipSettings(environment, lent, closed)


def _ca_bundle(environ: Mapping[str, str]) -> str | None:
    """The certificates of this machine, where pip has none: a proxy may need its own."""
    paths = (environ.get("NIX_SSL_CERT_FILE"), environ.get("SSL_CERT_FILE"), *_CA_BUNDLES)
    return next((path for path in paths if path and Path(path).is_file()), None)


def _copied(source: Path, target: Path) -> str:
    """A copy that builders can read; the source where that is not possible: pip then says so."""
    try:
        if source.is_dir():
            shutil.copytree(source, target, ignore_dangling_symlinks=True, dirs_exist_ok=True)
        else:
            target.write_bytes(source.read_bytes())
    except OSError:
        return str(source)
    return str(target)


def _write_credentials(settings: IndexSettings, target: Path, environ: Mapping[str, str]) -> None:
    """Write the entries of this user's netrc for the hosts that wheels come from."""
    variable = environ.get("NETRC")
    names = (variable,) if variable else ("~/.netrc", "~/_netrc")
    paths = (Path(os.path.expanduser(name)) for name in names)  # noqa: PTH111 - it never fails
    file = next((path for path in paths if path.is_file()), None)
    urls = (settings.index_url, *settings.extra_index_urls, *settings.find_links)
    hosts = dict.fromkeys(urlsplit(url).hostname for url in urls if url and "://" in url)
    lines = []
    with suppress(netrc.NetrcParseError, OSError):  # as pip does
        known = netrc.netrc(str(file or os.devnull))
        for host in filter(None, hosts):
            entry = known.authenticators(host)
            if entry:
                login, _, password = map(_quoted, entry)
                lines.append(f"machine {host} login {login} password {password}\n")
    if lines:
        target.write_text("".join(lines), "utf-8")


def _quoted(text: str | None) -> str:
    if text and _PLAIN.fullmatch(text):
        return text
    escaped = (text or "").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _open_for(group: str, folder: Path) -> None:
    """Let builders read the files; other users cannot enter the folder."""
    for base, _, files in os.walk(folder / "pip"):
        Path(base).chmod(0o755)
        for name in files:
            Path(base, name).chmod(0o644)
    folder.chmod(0o700)
    if group:
        with suppress(OSError, LookupError):  # not root: then builders are this user
            shutil.chown(folder, group=group)
            # The group may pass through, and list nothing.
            folder.chmod(0o710)


def _folder(place: str) -> Path | None:
    """A place on this machine as an absolute path; None for one elsewhere."""
    if place.startswith("file:"):
        return Path(unquote(urlsplit(place).path))
    return None if "://" in place else Path(place).expanduser().absolute()


def _wheel_folders(places: Iterable[Path]) -> Iterator[Path]:
    """Folders with wheels, and those that links in them lead to."""
    for place in places:
        folder = place.parent if place.is_file() else place
        yield folder
        with suppress(OSError):
            links = [path for path in folder.glob("*.whl") if path.is_symlink()]
            yield from {path.resolve().parent for path in links}


def _index_folders(places: Iterable[Path]) -> Iterator[Path]:
    """Folders of indexes, and those of the files that their pages link to."""
    for place in places:
        yield place
        linked: set[str] = set()
        for page in sorted(place.glob("*/index.html"))[:_PAGES]:
            with suppress(OSError):
                for link in _LINK.findall(page.read_text("utf-8", "replace")):
                    if "://" not in link or link.startswith("file:"):
                        path = unquote(urlsplit(link).path)
                        linked.add(os.path.normpath(page.parent / Path(path).parent))
        outside = [
            path for path in sorted(linked) if place not in (Path(path), *Path(path).parents)
        ]
        yield from map(Path, outside[:_FOLDERS])
        if len(outside) > _FOLDERS:
            yield Path(os.path.commonpath(outside))


def _sandbox_paths(places: Iterable[Path]) -> Iterator[str]:
    """Folders as `sandbox-paths` writes them, each once, without those inside another."""
    there = [place for place in dict.fromkeys(places) if place.is_dir() and place != Path("/")]
    for place in there:
        if any(other in place.parents for other in there):
            continue
        real = place.resolve()
        entry = str(place) if real == place else f"{place}={real}"
        if not _UNSUPPORTED_CHARACTERS.search(f"{place}{real}"):
            yield entry
