"""`kbuild toolchain`: what kbuild's store has, mostly compilers and libraries from wheels."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.cli.context import Context
from kbuild.cli.parser import add_json
from kbuild.cli.tools import add_torch_wheel, torch_wheels_of
from kbuild.errors import ToolchainError, UsageError

if TYPE_CHECKING:
    from kbuild.store import Entry
    from kbuild.toolchains.wheels.installer import Installer
    from kbuild.toolchains.wheels.lock import Lock

ACTIONS = ("list", "install", "prune", "verify", "lock")
UNUSED_DAYS = 30.0
_MEGABYTE = 1e6


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "action",
        choices=ACTIONS,
        help="list what is pinned and installed; install releases; remove unused ones; "
        "check every installed file; pin what the package index has now",
    )
    parser.add_argument(
        "name",
        nargs="*",
        help="install: cuda-13.0, torch-2.14, tvm-ffi-0.1, sycl-2026.0, debian-nvcc "
        "(default: what a plain build needs); "
        "verify: installed entries (default: all)",
    )
    parser.add_argument(
        "--days",
        type=float,
        default=UNUSED_DAYS,
        metavar="N",
        help="prune: remove what was not used for so long (default: 30)",
    )
    parser.add_argument("--all", action="store_true", help="prune: remove everything")
    parser.add_argument(
        "-d", "--dry-run", action="store_true", help="prune: say what would go and remove nothing"
    )
    parser.add_argument(
        "--lock-file",
        type=Path,
        metavar="FILE",
        help="read or write these pins (default: those that kbuild comes with)",
    )
    add_torch_wheel(parser)
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Do what was asked for; `verify` fails when an installed file is not as it was."""
    if args.name and args.action not in ("install", "verify"):
        raise UsageError(f"`kbuild toolchain {args.action}` takes no names")
    if args.torch_wheel and args.action != "install":
        raise UsageError(f"`kbuild toolchain {args.action}` takes no --torch-wheel")
    verbs: Mapping[str, Callable[[Namespace, Context], int]] = {
        "list": _list,
        "install": _install,
        "prune": _prune,
        "verify": _verify,
        "lock": _lock,
    }
    return verbs[args.action](args, ctx)


def _list(args: Namespace, ctx: Context) -> int:
    lock, entries = _pins(args, ctx), _installer(args, ctx).store.entries()
    pinned = _everything(lock)
    if args.json:
        installed = [entry.to_json() for entry in entries]
        ctx.ui.data_json({"pinned": pinned, "installed": installed})
        return 0
    rows = [(name, _where(version, name, entries), version) for name, version in pinned.items()]
    others = [_row(entry) for entry in entries if not _is_pinned(entry, pinned)]
    ctx.ui.table(("release", "installed", "version"), rows + others)
    for entry in entries:
        ctx.ui.detail(f"{entry.root}  {_size(entry)}")
    return 0


def _install(args: Namespace, ctx: Context) -> int:
    from kbuild.pipeline.torch_wheels import given_wheels

    installer = _installer(args, ctx)
    wheels = given_wheels(torch_wheels_of(args, ctx), ctx.cache, ctx.runner)
    names = args.name or ([] if wheels else _default_names(installer.lock))
    with installer.store.in_use():
        entries = [wheel.provide() for wheel in wheels]
        entries += [_installed(name, installer, ctx) for name in dict.fromkeys(names)]
    _answer(args, ctx, {"installed": [entry.to_json() for entry in entries]})
    if not args.json:
        ctx.ui.data("\n".join(str(entry.root) for entry in entries))
    return 0


def _installed(name: str, installer: Installer, ctx: Context) -> Entry:
    from kbuild.toolchains.debian_nvcc import DebianNvccToolkits

    if name == DebianNvccToolkits.name:
        return DebianNvccToolkits(installer, ctx.cache).install()
    return installer.install(name)


def _everything(lock: Lock) -> dict[str, str]:
    """What can be installed, and the version that is pinned."""
    from kbuild.toolchains.debian_nvcc import DebianNvccToolkits
    from kbuild.toolchains.debian_nvcc.pins import pins

    return lock.pinned | {DebianNvccToolkits.name: pins().nvcc}


def _prune(args: Namespace, ctx: Context) -> int:
    from kbuild.sharing import InUseError

    store = _installer(args, ctx).store
    try:
        removed = store.prune(0.0 if args.all else args.days, dry_run=args.dry_run)
    except InUseError:
        raise ToolchainError(
            f"a running kbuild command uses toolchains in `{store.root}`: nothing was removed",
            hint="prune again when it has ended",
        ) from None
    _answer(args, ctx, {"removed": list(removed), "dry_run": args.dry_run})
    if not args.json:
        ctx.ui.data("\n".join(removed))
        ctx.ui.say("" if removed else "nothing to remove")
    return 0


def _verify(args: Namespace, ctx: Context) -> int:
    store = _installer(args, ctx).store
    entries = {entry.name: entry for entry in store.entries()}
    unknown = [name for name in args.name if name not in entries]
    if unknown:
        raise UsageError(f"not installed: {', '.join(unknown)}", hint="see `kbuild toolchain list`")
    chosen = args.name or list(entries)
    with store.in_use():
        found = {name: list(entries[name].differences()) for name in chosen}
    damaged = [name for name, differences in found.items() if differences]
    _answer(args, ctx, {"ok": not damaged, "entries": found})
    if not args.json:
        lines = [f"{name}: {'damaged' if name in damaged else 'as installed'}" for name in chosen]
        ctx.ui.data("\n".join(lines))
    if not damaged:
        return 0
    listed = "".join(f"\n    {name}: {what}" for name in damaged for what in found[name][:10])
    ctx.ui.error(
        ToolchainError(
            f"installed files are not as they were:{listed}",
            hint="`kbuild toolchain prune --all` removes them; the next build makes them again",
        )
    )
    return ToolchainError.code


def _lock(args: Namespace, ctx: Context) -> int:
    from kbuild.fileset import replace_atomically
    from kbuild.matrix.data import entries
    from kbuild.toolchains.wheels.lock import LOCK_FILE
    from kbuild.toolchains.wheels.refresh import Refresher

    old, target = _pins(args, ctx), ctx.path(args.lock_file) if args.lock_file else LOCK_FILE
    with _installer(args, ctx).fetcher() as fetcher:
        releases = {str(entry.torch) for entry in entries()}
        ffi = {str(entry.tvm_ffi) for entry in entries() if entry.tvm_ffi}
        new = Refresher(fetcher, ctx.ui.say).refresh(old, releases, _header_releases(), ffi)
    try:
        replace_atomically(target, new.dumps().encode(), durable=True)
    except OSError as error:
        raise UsageError(f"`{target}` cannot be written: {error.strerror}") from None
    _answer(args, ctx, {"file": str(target), "changed": new != old, "pinned": new.pinned})
    if not args.json:
        ctx.ui.say(f"{target} is {'new' if new != old else 'as it was'}")
    return 0


def _header_releases() -> dict[str, set[str]]:
    """The headers that type checks need, in the releases of the matrix."""
    from kbuild.backends import BACKENDS
    from kbuild.matrix.data import entries

    found: dict[str, set[str]] = {}
    for entry in entries():
        check = BACKENDS.get(entry.backend).type_check
        if check is not None and entry.backend_version is not None:
            for name in check.headers:
                found.setdefault(name, set()).add(entry.backend_version.release)
    return found


def _installer(args: Namespace, ctx: Context) -> Installer:
    from kbuild.store import store_of
    from kbuild.toolchains.wheels.installer import Installer

    return Installer(ctx.runner, store_of(ctx.cache), _pins(args, ctx), say=ctx.ui.say)


def _pins(args: Namespace, ctx: Context) -> Lock:
    from kbuild.toolchains.wheels.lock import packaged_lock, read_lock

    return read_lock(ctx.path(args.lock_file)) if args.lock_file else packaged_lock()


def _default_names(lock: Lock) -> list[str]:
    """What the default variants of this system need and the lock has."""
    from kbuild.matrix.data import entries
    from kbuild.matrix.selection import host_system

    wanted = [entry for entry in entries() if entry.default and entry.system == host_system()]
    toolkits = {f"{entry.backend}-{entry.backend_version}" for entry in wanted}
    return sorted((toolkits | {f"torch-{entry.torch}" for entry in wanted}) & set(lock.pinned))


def _where(version: str, name: str, entries: tuple[Entry, ...]) -> str:
    return next((_size(entry) for entry in entries if _is_of(entry, name, version)), "no")


def _is_of(entry: Entry, name: str, version: str) -> bool:
    kind, _, release = name.rpartition("-")
    return entry.name.startswith(f"{kind if version.startswith(release) else name}-{version}-")


def _is_pinned(entry: Entry, pinned: Mapping[str, str]) -> bool:
    return any(_is_of(entry, name, version) for name, version in pinned.items())


def _row(entry: Entry) -> tuple[str, str, str]:
    """An entry that is made on this machine, or was pinned once."""
    recipe = entry.facts["recipe"]
    return recipe["kind"], _size(entry), recipe["version"]


def _size(entry: Entry) -> str:
    size, linked = entry.facts["size"], entry.facts.get("linked", 0)
    more = f", {linked / _MEGABYTE:.0f} MB linked" if linked else ""
    return f"{size / _MEGABYTE:.0f} MB{more}"


def _answer(args: Namespace, ctx: Context, value: Mapping[str, Any]) -> None:
    if args.json:
        ctx.ui.data_json(dict(value))
