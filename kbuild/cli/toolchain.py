"""`kbuild toolchain`: what kbuild's store has, mostly compilers and libraries from wheels."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.cli.parser import add_json
from kbuild.system.errors import ToolchainError, UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.system.store import StoreEntry
    from kbuild.toolchains.wheels.installer import WheelInstaller
    from kbuild.toolchains.wheels.lock import ToolchainLock

ACTIONS = ("list", "install", "prune", "verify")
UNUSED_DAYS = 30.0
_MEGABYTE = 1e6


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "action",
        choices=ACTIONS,
        help="list releases; install them; prune unused ones; verify every installed file",
    )
    parser.add_argument(
        "name",
        nargs="*",
        help="install: e.g. cuda-13.0, torch-2.14, tvm-ffi-0.1, debian-nvcc (default: "
        "what a plain build needs); verify: entries (default: all)",
    )
    parser.add_argument(
        "--days",
        type=float,
        default=UNUSED_DAYS,
        metavar="N",
        help="prune: remove what was not used for N days (default: 30)",
    )
    parser.add_argument("--all", action="store_true", help="prune: remove everything")
    parser.add_argument(
        "-d",
        "--dry-run",
        action="store_true",
        help="prune: list what would be removed, without removing it",
    )
    parser.add_argument(
        "--lock-file",
        type=Path,
        metavar="FILE",
        help="take the pins in FILE (default: those that come with kbuild)",
    )
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Execute the action; `verify` fails when an installed file is not as it was."""
    if args.name and args.action not in ("install", "verify"):
        raise UsageError(f"`kbuild toolchain {args.action}` takes no names")
    commands: Mapping[str, Callable[[Namespace, Services], int]] = {
        "list": _list,
        "install": _install_releases,
        "prune": _prune,
        "verify": _verify,
    }
    return commands[args.action](args, ctx)


def _list(args: Namespace, ctx: Services) -> int:
    from kbuild.toolchains.plugins import plugin_cuda_toolkits

    installer = _installer(args, ctx)
    entries = installer.store.entries()
    toolkits = plugin_cuda_toolkits(installer, ctx.cache)
    # What can be installed, and the version that is pinned.
    pinned = installer.lock.pinned | {toolkit.name: toolkit.version for toolkit in toolkits}
    if args.json:
        listed = [entry.to_json() for entry in entries]
        ctx.ui.data_json({"pinned": pinned, "installed": listed})
        return 0
    rows, others = [], list(entries)
    for name, version in pinned.items():
        installed = [entry for entry in entries if _is_release_of(entry, name, version)]
        rows.append((name, _size_of_entry(installed[0]) if installed else "no", version))
        others = [entry for entry in others if entry not in installed]
    for entry in others:  # made on this machine, or pinned once
        recipe = entry.facts["recipe"]
        rows.append((recipe["kind"], _size_of_entry(entry), recipe["version"]))
    ctx.ui.table(("release", "installed", "version"), rows)
    for entry in entries:
        ctx.ui.detail(f"{entry.root}  {_size_of_entry(entry)}")
    return 0


def _install_releases(args: Namespace, ctx: Services) -> int:
    installer = _installer(args, ctx)
    names = args.name or _default_names(installer.lock)
    with installer.store.in_use():
        entries = [_install_release(name, installer, ctx) for name in dict.fromkeys(names)]
    _print_json(args, ctx, {"installed": [entry.to_json() for entry in entries]})
    if not args.json:
        ctx.ui.data("\n".join(str(entry.root) for entry in entries))
    return 0


def _install_release(name: str, installer: WheelInstaller, ctx: Services) -> StoreEntry:
    from kbuild.toolchains.plugins import plugin_cuda_toolkits

    toolkits = plugin_cuda_toolkits(installer, ctx.cache)
    own = next((toolkit for toolkit in toolkits if toolkit.name == name), None)
    return installer.install(name) if own is None else own.install()


def _prune(args: Namespace, ctx: Services) -> int:
    store = _installer(args, ctx).store
    removed = store.prune(0.0 if args.all else args.days, dry_run=args.dry_run)
    _print_json(args, ctx, {"removed": list(removed), "dry_run": args.dry_run})
    if not args.json:
        ctx.ui.data("\n".join(removed))
        ctx.ui.say("" if removed else "nothing to remove")
    return 0


def _verify(args: Namespace, ctx: Services) -> int:
    store = _installer(args, ctx).store
    entries = {entry.name: entry for entry in store.entries()}
    unknown = [name for name in args.name if name not in entries]
    if unknown:
        raise UsageError(f"not installed: {', '.join(unknown)}", hint="see `kbuild toolchain list`")
    chosen = args.name or list(entries)
    with store.in_use():
        differences_by_entry = {name: list(entries[name].differences()) for name in chosen}
    damaged = [name for name, differences in differences_by_entry.items() if differences]
    _print_json(args, ctx, {"ok": not damaged, "entries": differences_by_entry})
    if not args.json:
        lines = [f"{name}: {'damaged' if name in damaged else 'as installed'}" for name in chosen]
        ctx.ui.data("\n".join(lines))
    if not damaged:
        return 0
    listed = "".join(
        f"\n    {name}: {what}" for name in damaged for what in differences_by_entry[name][:10]
    )
    ctx.ui.error(
        ToolchainError(
            f"installed files have been modified:{listed}",
            hint="`kbuild toolchain prune --all` removes them; the next build installs them again",
        )
    )
    return ToolchainError.code


def _installer(args: Namespace, ctx: Services) -> WheelInstaller:
    from kbuild.system.store import open_store
    from kbuild.toolchains.wheels.installer import WheelInstaller
    from kbuild.toolchains.wheels.lock import packaged_lock, read_lock

    store = open_store(ctx.cache)
    # Nix installs each release by itself, with a lock that names no other.
    pins = read_lock(ctx.path(args.lock_file)) if args.lock_file else packaged_lock()
    return WheelInstaller(ctx.runner, store, pins, downloads=ctx.ui.downloads)


def _default_names(lock: ToolchainLock) -> list[str]:
    """The releases that the default variants of this system need and the lock has."""
    from kbuild.project.matrix import matrix_entries
    from kbuild.project.variant import host_system

    wanted = [
        entry for entry in matrix_entries() if entry.default and entry.system == host_system()
    ]
    toolkits = {f"{entry.backend}-{entry.backend_version}" for entry in wanted}
    return sorted((toolkits | {f"torch-{entry.torch}" for entry in wanted}) & set(lock.pinned))


def _is_release_of(entry: StoreEntry, name: str, version: str) -> bool:
    kind, _, release = name.rpartition("-")
    return entry.name.startswith(f"{kind if version.startswith(release) else name}-{version}-")


def _size_of_entry(entry: StoreEntry) -> str:
    size, linked = entry.facts["size"], entry.facts.get("linked", 0)
    more = f", {linked / _MEGABYTE:.0f} MB linked" if linked else ""
    return f"{size / _MEGABYTE:.0f} MB{more}"


def _print_json(args: Namespace, ctx: Services, value: Mapping[str, Any]) -> None:
    if args.json:
        ctx.ui.data_json(dict(value))
