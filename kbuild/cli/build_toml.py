"""`kbuild check-config`: checks `build.toml`, updates it, or prints its schema.

While no input has changed, a check answers from the cache, without pydantic and tomli.
"""

from __future__ import annotations

import hashlib
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.project.config.display import display_path, project_path
from kbuild.system.cache import CONFIG_CHECKS, Cache
from kbuild.system.code_digest import package_digest
from kbuild.system.errors import ConfigError, Problem, UsageError
from kbuild.system.record import Record, read_record
from kbuild.system.services import Services

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kbuild.system.file_state import FileState
    from kbuild.system.sourcetree import SourceTree


class ConfigCheckResult:
    """The problems of a project, as JSON objects in the order in which they are shown."""

    def __init__(self, problems: Iterable[Mapping[str, Any]]) -> None:
        self.problems = tuple(dict(problem) for problem in problems)

    @property
    def ok(self) -> bool:
        """True when there are warnings at most."""
        return all(problem["severity"] != "error" for problem in self.problems)


def cached_result(root: Path, cache_dir: Path) -> ConfigCheckResult | None:
    """The problems of `root` if checking the project again would read the same files."""
    root = Path(os.path.abspath(root))  # noqa: PTH100 - without resolving links
    record = read_record(Cache(cache_dir, CONFIG_CHECKS), _key(root))
    if record is None or not record.holds(root, cache_dir):
        return None
    problems = record.answer["problems"]
    return ConfigCheckResult({**p, "file": display_path(root, p["file"])} for p in problems)


def store_result(
    root: Path, cache_dir: Path, issues: Iterable[Problem], observed: Mapping[str, FileState]
) -> ConfigCheckResult:
    """Keep the problems of `root`, which follow from the `observed` files."""
    root = Path(os.path.abspath(root))  # noqa: PTH100 - without resolving links
    result = ConfigCheckResult(problem.to_json() for problem in issues)
    problems = [{**p, "file": project_path(root, p["file"])} for p in result.problems]
    record = Record({"problems": problems}, observed, package_digest(cache_dir))
    record.write(Cache(cache_dir, CONFIG_CHECKS), _key(root))
    return result


def _key(root: Path) -> str:
    return hashlib.sha256(os.fsencode(root)).hexdigest()


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--update",
        action="store_true",
        help="rewrite build.toml in the current edition; comments stay",
    )
    instead.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of build.toml for editors"
    )
    parser.add_argument(
        "-d", "--dry-run", action="store_true", help="with --update: print the difference only"
    )
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Check the file, unless something else is asked for.

    Raises:
        UsageError: `--dry-run` without `--update`.
    """
    if args.dry_run and not args.update:
        raise UsageError("--dry-run needs --update")
    if args.schema:
        from kbuild.plan.project import backend_catalog
        from kbuild.project.config.schema import json_schema

        ctx.ui.data_json(json_schema(backend_catalog(plugins=True)))
        return 0
    return _update(args, ctx) if args.update else _check(args, ctx)


def _check(args: Namespace, ctx: Services) -> int:
    """Exit code 0 with warnings at most."""
    root = ctx.folder(args.kernel_dir)
    verdict = cached_result(root, ctx.cache) or _validate(root, ctx.cache)
    if args.json:
        ctx.ui.data_json({"ok": verdict.ok, "problems": list(verdict.problems)})
    _report_problems([Problem(**problem) for problem in verdict.problems], ok=verdict.ok, ctx=ctx)
    return 0 if verdict.ok else ConfigError.code


def _validate(root: Path, cache: Path) -> ConfigCheckResult:
    from kbuild.backends import BACKENDS
    from kbuild.plan.project import KBUILD_FILE, open_project
    from kbuild.system.sourcetree import SourceTree

    tree = SourceTree(root)
    problems: list[Problem] = []
    backends: tuple[str, ...] = ()
    allowed: Mapping[str, str] = {}
    try:
        project = open_project(root, tree)
        problems += project.warnings
        backends = project.file.general.backends
    except ConfigError as error:
        problems += error.problems
    if tree.is_file(KBUILD_FILE) or tree.fault(KBUILD_FILE):
        from kbuild.checks.allow import allowed_checks

        try:
            allowed = allowed_checks(tree)
        except ConfigError as error:
            problems += error.problems
    if not all(BACKENDS.get(name).in_client for name in backends):
        problems += _client_problems(backends, allowed, tree)
    return store_result(root, cache, problems, tree.observed)


def _client_problems(
    backends: Sequence[str], allowed: Mapping[str, str], tree: SourceTree
) -> Iterator[Problem]:
    """The problems that the `client` check finds in the project's backends, with lines."""
    from kbuild.checks.client import HINT, ClientCheck, unloadable_reason
    from kbuild.project.config.issue import Issue
    from kbuild.project.config.load import locate_issues

    overruled = allowed.get(ClientCheck.name)
    for index, name in enumerate(backends):
        if reason := unloadable_reason(name):
            path = ("general", "backends", index)
            refusal = Issue(path, reason, HINT)
            remark = Issue(path, f"{reason} (overruled: {overruled})", severity="warning")
            yield from locate_issues([remark if overruled else refusal], tree)


def _report_problems(problems: Sequence[Problem], *, ok: bool, ctx: Services) -> None:
    if not ok:
        ctx.ui.error(ConfigError(problems))
        return
    ctx.ui.warn_all(problems)
    count = f"{len(problems)} warning{'s' if len(problems) != 1 else ''}"
    ctx.ui.say(f"build.toml is valid{f', {count}' if problems else ''}")


def _update(args: Namespace, ctx: Services) -> int:
    """Rewrite the file, or show what would change."""
    from kbuild.plan.project import BUILD_FILE
    from kbuild.project.config.display import display_path
    from kbuild.project.config.load import read_build_file
    from kbuild.project.config.update import update_text
    from kbuild.system.sourcetree import SourceTree

    root = ctx.folder(args.kernel_dir)
    name = display_path(root, BUILD_FILE)
    before = read_build_file(SourceTree(root), BUILD_FILE)
    after = update_text(before, name)
    from difflib import unified_diff

    old, new = (text.splitlines(keepends=True) for text in (before, after))
    difference = "".join(unified_diff(old, new, name, name))
    if difference and not args.dry_run:
        _replace_file(root / BUILD_FILE, after)
    if args.json:
        ctx.ui.data_json({"file": name, "changed": bool(difference), "diff": difference})
    elif args.dry_run:
        ctx.ui.data(difference)
    ctx.ui.say(_outcome_text(name, changed=bool(difference), dry=args.dry_run))
    return 0


def _replace_file(target: Path, text: str) -> None:
    """Write through links, with the file's own line ends and mode."""
    from kbuild.system.files import replace_atomically

    target = target.resolve()
    if b"\r\n" in target.read_bytes():
        text = text.replace("\n", "\r\n")
    mode = target.stat().st_mode & 0o777
    replace_atomically(target, text.encode(), mode=mode, durable=True)


def _outcome_text(name: str, *, changed: bool, dry: bool) -> str:
    if not changed:
        return f"{name} is in the current edition already"
    return f"{name} would be rewritten" if dry else f"{name} is in the current edition now"
