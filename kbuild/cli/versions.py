"""`kbuild versions`, `diff` and `verify-mirror`: list, compare and verify published versions.

| location | meaning |
|---|---|
| `hub:org/relu`, `hub:org/relu@v1`, `hub:org/relu@<commit>` | on the Hub |
| `s3://bucket/kernels`, `s3://bucket/kernels/org/relu@v1` | in a mirror |
| `DIR`, `DIR/org/relu`, `DIR/org/relu@v1`, for a mirror in a folder | in that mirror |
| any other folder | the variants that were built there |
| `org/relu@v1`, where there is no such folder | on the Hub |
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.cli.parser import add_json
from kbuild.cli.variants import add_python, add_variant, chosen_python, find_variants
from kbuild.errors import CheckError, UsageError
from kbuild.services import Services

if TYPE_CHECKING:
    from kbuild.hub.repository import RetryPolicy
    from kbuild.mirror.verify import MirrorVerification
    from kbuild.versions.compatibility import VariantCompatibility
    from kbuild.versions.sources import KernelVersion, VersionSource


HUB_PREFIX = "hub:"
LOCATION_HELP = (
    "OWNER/NAME or hub:OWNER/NAME on the Hub, a mirror's folder or address with or without "
    "/OWNER/NAME, or a project or folder with built variants"
)
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", flags=re.ASCII)
_MIRROR_PATH = re.compile(r"(?:(.*)/)?([\w-][\w.-]*)/([\w-][\w.-]*)", flags=re.ASCII)


@dataclass(frozen=True)
class VersionLocation:
    """Where a text leads."""

    text: str
    """As given, without credentials."""
    sources: tuple[VersionSource, ...]
    """One kernel, or all of a mirror."""
    name: str | None
    """The version that was named."""

    def single_version(self) -> tuple[KernelVersion, str]:
        """The version that was named, else the newest; and how a person would name it.

        Raises:
            UsageError: the text names several kernels, or none with versions.
            HubError: the server does not answer.
        """
        if len(self.sources) != 1:
            known = ", ".join(source.title for source in self.sources)
            raise UsageError(f"`{self.text}` is a mirror of several kernels", hint=f"name {known}")
        (source,) = self.sources
        name = self.name or next(iter(source.names()[::-1]), None)
        if name is None:
            raise UsageError(f"{source.title} has no versions", hint="name a commit with @")
        return source.version(name), f"{source.title}@{name}"


def find_versions(text: str, ctx: Services, globs: Sequence[str] = ()) -> VersionLocation:
    """Where a text leads.

    Raises:
        UsageError: nowhere.
        HubError: the server does not answer.
    """
    from kbuild.mirror.store import is_url, without_credentials

    if text.startswith(HUB_PREFIX):
        return _on_hub(text, ctx)
    bare, name = _split_version(text)
    if not is_url(text):
        return _in_folder(bare, name, ctx, globs) or _named_on_hub(text, ctx)
    shown = without_credentials(bare)
    if sources := _in_mirror(bare, name, ctx):
        return VersionLocation(shown, sources, name)
    raise UsageError(f"{shown} is not a mirror of kernels", hint="`kbuild publish` makes one")


def _in_folder(
    bare: str, name: str | None, ctx: Services, globs: Sequence[str]
) -> VersionLocation | None:
    path = ctx.path(Path(bare))
    if sources := _in_mirror(bare, name, ctx):
        return VersionLocation(bare, sources, name)
    if not path.is_dir():
        return None
    from kbuild.project import BUILD_FILE
    from kbuild.versions.sources import BuiltVersions

    project = next((f for f in (path, path.parent) if (f / BUILD_FILE).is_file()), None)
    return VersionLocation(bare, (BuiltVersions(find_variants(path, globs), project, bare),), name)


def _in_mirror(bare: str, name: str | None, ctx: Services) -> tuple[VersionSource, ...]:
    """The kernels of the mirror at an address, or the one that its last two parts name."""
    from kbuild.hub.repository import Repo
    from kbuild.mirror import open_mirror
    from kbuild.mirror.layout import list_kernels
    from kbuild.mirror.store import parse_mirror_address
    from kbuild.versions.sources import MirrorVersions

    retry = mirror_retry_policy(ctx)
    root, owner, kernel = _split_mirror_path(bare)
    named: tuple[MirrorVersions, ...] = ()
    if kernel:
        store = open_mirror(parse_mirror_address(root, ctx.cwd))
        named = (MirrorVersions(store, Repo(f"{owner}/{kernel}"), retry),)
        if name and named[0].has(name):  # first of all: it needs no list
            return named
    store = open_mirror(parse_mirror_address(bare, ctx.cwd))
    kernels = retry.call(lambda: list_kernels(store))
    if kernels:
        return tuple(MirrorVersions(store, repo, retry) for repo in kernels)
    return named if named and not name and named[0].names() else ()


def mirror_retry_policy(ctx: Services) -> RetryPolicy:
    """How patient one is with a mirror."""
    from kbuild.hub.repository import RetryPolicy
    from kbuild.mirror.publish import STORE_TRIES

    return RetryPolicy(tries=STORE_TRIES, say=ctx.ui.say)


def _split_mirror_path(bare: str) -> tuple[str, str, str]:
    """`s3://bucket/kernels/org/relu` as root, owner and kernel; empty where there are too few."""
    match = _MIRROR_PATH.fullmatch(bare.rstrip("/"))
    return (_mirror_root(match[1]), match[2], match[3]) if match else ("", "", "")


def _mirror_root(path: str | None) -> str:
    return "." if path is None else path or "/"


def _split_version(text: str) -> tuple[str, str | None]:
    """An address and the version behind its last `@`; one before a slash belongs to a password."""
    bare, _, name = text.rpartition("@")
    scheme, _, rest = bare.rpartition("://")
    if not bare or not name or "/" in name or (scheme and "/" not in rest):
        return text, None
    return bare, name


def _on_hub(text: str, ctx: Services) -> VersionLocation:
    from kbuild.cli.upload import open_hub_session
    from kbuild.versions.sources import HubVersions

    repo, _, name = text.removeprefix(HUB_PREFIX).partition("@")
    if not _HUB_NAME.fullmatch(repo):
        hint = "write hub:OWNER/KERNEL or hub:OWNER/KERNEL@REVISION"
        raise UsageError(f"`{text}` is not a kernel on the Hub", hint=hint)
    desk = open_hub_session(ctx)
    return VersionLocation(text, (HubVersions(desk.hub, repo, desk.retry),), name or None)


def _named_on_hub(text: str, ctx: Services) -> VersionLocation:
    if _HUB_NAME.fullmatch(text.partition("@")[0]):
        return _on_hub(f"{HUB_PREFIX}{text}", ctx)
    raise UsageError(f"`{text}` does not exist", hint=f"name {LOCATION_HELP}")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "location", nargs="?", default=".", metavar="WHERE", help=f"{LOCATION_HELP} (default: here)"
    )
    add_python(parser, "would load the kernel")
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Print the versions, newest first."""
    location = find_versions(args.location, ctx)
    versions = [
        (source, source.version(name))
        for source in location.sources
        for name in ((location.name,) if location.name else source.names()[::-1])
    ]
    from kbuild.versions.compatibility import check_compatibility

    python = chosen_python(args.python, ctx)
    fits = check_compatibility([version.variants for _, version in versions], python, ctx.runner)
    all_entries = [_version_json(*pair, fit) for pair, fit in zip(versions, fits, strict=True)]
    if args.json:
        ctx.ui.data_json(all_entries)
        return 0
    for source in location.sources:
        ctx.ui.data(source.title)
        entries = [entry for entry in all_entries if entry["where"] == source.title]
        if not entries:
            ctx.ui.data("  no versions")
        for entry in entries:
            _print_version(entry, ctx)
    for reason in {entry["fits_unknown"] for entry in all_entries} - {None}:
        ctx.ui.warn(reason)
    return 0


def _version_json(
    source: VersionSource, version: KernelVersion, fits: VariantCompatibility
) -> dict[str, Any]:
    dates = version.dates()
    return {
        "kernel": version.kernel,
        "where": source.title,
        "version": version.name,
        "date": _date_text(max(dates.values(), default=None)),
        "size": version.size(),
        "fits": fits.chosen,
        "fits_unknown": fits.unknown or None,
        "variants": [_variant_json(name, version, fits, dates) for name in version.variants],
    }


def _variant_json(
    name: str, version: KernelVersion, fits: VariantCompatibility, dates: Mapping[str, datetime]
) -> dict[str, Any]:
    return {
        "variant": name,
        "size": version.size(name),
        "date": _date_text(dates.get(name)),
        "here": None if fits.unknown else name not in fits.refused,
        "reason": fits.refused.get(name),
        "word": fits.label(name),
    }


def _print_version(version_entry: Mapping[str, Any], ctx: Services) -> None:
    from kbuild.hub.preflight import format_size

    variants = version_entry["variants"]
    day = f", {version_entry['date'][:10]}" if version_entry["date"] else ""
    count = f"{len(variants)} variant{'s' * (len(variants) != 1)}"
    heading = f"{version_entry['version']}{day}: {count}, {format_size(version_entry['size'])}"
    ctx.ui.data(f"\n{ctx.ui.painted(heading, 'bold')}")
    rows = [
        (entry["variant"], format_size(entry["size"]), (entry["date"] or "-")[:10], entry["word"])
        for entry in variants
    ]
    if rows:
        ctx.ui.table(("variant", "size", "date", "this machine"), rows)


def _date_text(date: datetime | None) -> str | None:
    return date.isoformat() if date else None


_EXIT_DIFFERENT = 1


def configure_diff(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("old", metavar="OLD", help=f"{LOCATION_HELP}; @REVISION names a version")
    parser.add_argument(
        "new",
        nargs="?",
        default=".",
        metavar="NEW",
        help="as OLD (default: the variants built in the current folder)",
    )
    add_variant(parser)
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help="exit with status 1 if there are differences, as git does",
    )
    add_json(parser)


def execute_diff(args: Namespace, ctx: Services) -> int:
    """Say what differs; 0 also when something does, unless asked otherwise."""
    from kbuild.versions.difference import compare_versions, difference_lines

    old, before = find_versions(args.old, ctx, args.variant).single_version()
    new, after = find_versions(args.new, ctx, args.variant).single_version()
    difference = compare_versions(
        old.only(args.variant), new.only(args.variant), titles=(before, after)
    )
    if args.json:
        ctx.ui.data_json(difference.to_json())
    else:
        ctx.ui.data("\n".join(difference_lines(difference, everything=ctx.ui.verbosity > 0)))
    return _EXIT_DIFFERENT if difference and args.exit_code else 0


def configure_verify_mirror(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "mirror",
        metavar="MIRROR",
        help="folder or address of the mirror; append /OWNER/NAME or "
        "/OWNER/NAME@VERSION for a part of it",
    )
    add_json(parser)


def execute_verify_mirror(args: Namespace, ctx: Services) -> int:
    """Read everything; exit code 6 when something is not as it was published."""
    verdicts = tuple(_verify_versions(args, ctx))
    if args.json:
        ctx.ui.data_json([_verdict_json(verdict) for verdict in verdicts])
    else:
        ctx.ui.table(("version", "state", "files", "size"), [_verdict_row(v) for v in verdicts])
    for verdict in verdicts:
        if not verdict.is_listed:
            problem = "is not listed: files that nobody published would not be found"
            ctx.ui.warn(f"{verdict.place} {problem}")
        for fault in verdict.faults:
            ctx.ui.error(CheckError(f"{verdict.place}: {fault}", ()))
    return CheckError.code if any(verdict.faults for verdict in verdicts) else 0


def _verify_versions(args: Namespace, ctx: Services) -> Iterator[MirrorVerification]:
    from kbuild.mirror.layout import version_paths
    from kbuild.mirror.verify import verify_version
    from kbuild.versions.sources import MirrorVersions

    location = find_versions(args.mirror, ctx)
    for source in location.sources:
        if not isinstance(source, MirrorVersions):
            hint = "`kbuild verify` checks signatures of built variants"
            raise UsageError(f"`{location.text}` is not a mirror", hint=hint)
        for name in (location.name,) if location.name else source.names():
            ctx.ui.detail(f"reading {source.title}@{name}")
            yield verify_version(
                source.store, version_paths(source.repo, name), mirror_retry_policy(ctx)
            )


def _verdict_row(verdict: MirrorVerification) -> tuple[str, ...]:
    from kbuild.hub.preflight import format_size

    state = "damaged" if verdict.faults else "ok"
    return str(verdict.place), state, str(verdict.files), format_size(verdict.size)


def _verdict_json(verdict: MirrorVerification) -> dict[str, Any]:
    return {
        "kernel": verdict.place.repo.id,
        "version": verdict.place.branch,
        "files": verdict.files,
        "size": verdict.size,
        "faults": list(verdict.faults),
    }
