"""`kbuild skills`: instructions for coding agents, copied to where they look for them."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path

from kbuild.cli.parser import add_json
from kbuild.system.errors import UsageError
from kbuild.system.services import Services

DEFAULT_SKILL = "cuda-kernels"
_AGENTS = {"claude": ".claude", "codex": ".codex", "opencode": ".opencode"}
"""Folder of each agent, in a project and at home."""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("action", choices=("add", "list"), help="copy a skill, or list them")
    parser.add_argument(
        "--skill",
        default=DEFAULT_SKILL,
        metavar="NAME",
        help=f"which one (default: {DEFAULT_SKILL}); `all` for all",
    )
    for agent in _AGENTS:
        parser.add_argument(f"--{agent}", action="store_true", help=f"for {agent}")
    parser.add_argument(
        "-g",
        "--global",
        dest="for_user",
        action="store_true",
        help="for all projects of the user instead of the current folder's",
    )
    parser.add_argument("--dest", type=Path, metavar="DIR", help="another folder of skills")
    parser.add_argument("--force", action="store_true", help="replace skills that are there")
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Copy the skills; nothing is written when one of them is in the way."""
    from kbuild.cli.scaffold import validate_no_conflicts
    from kbuild.system.files import FileSet
    from kbuild.system.rendering import template_root

    root = template_root() / "skills"
    names = sorted(path.name for path in root.iterdir() if path.is_dir())
    if args.action == "list":
        if args.json:
            ctx.ui.data_json({"skills": names})
        else:
            ctx.ui.data("\n".join(names))
        return 0
    if args.skill not in (*names, "all"):
        known = ", ".join(names)
        raise UsageError(f"there is no skill `{args.skill}`", hint=f"choose from {known} or `all`")
    chosen = names if args.skill == "all" else [args.skill]
    files = FileSet(
        {
            path.relative_to(root).as_posix(): path.read_bytes()
            for name in chosen
            for path in sorted((root / name).rglob("*"))
            if path.is_file()
        }
    )
    folders = tuple(_folders(args, ctx, os.environ))
    if not folders:
        raise UsageError(
            "no place for the skill was given",
            hint="add --claude, --codex, --opencode or --dest DIR",
        )
    if not args.force:
        for folder in folders:
            validate_no_conflicts(files, folder, option="--force")
    for folder in folders:
        files.write(folder, manifest=False)
    paths = [str(folder / name) for folder in folders for name in chosen]
    if args.json:
        ctx.ui.data_json({"paths": paths})
    else:
        ctx.ui.data("\n".join(paths))
    return 0


def _folders(args: Namespace, ctx: Services, environ: Mapping[str, str]) -> Iterator[Path]:
    """The folders that hold skills of the agents that were asked for."""
    for agent, folder in _AGENTS.items():
        if not getattr(args, agent):
            continue
        if not args.for_user:
            yield ctx.cwd / folder / "skills"
        elif agent == "opencode":
            config = environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
            yield Path(config) / agent / "skills"
        else:
            yield Path.home() / folder / "skills"
    if args.dest:
        yield ctx.path(args.dest)
