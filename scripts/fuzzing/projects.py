"""What a project says: build.toml and the small languages in it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from functools import cache
from pathlib import Path

from fuzzing.common import EXAMPLES, put, text_of

from kbuild.ops.expression import EvaluationError


def build_toml(data: bytes, folder: Path) -> object:
    """Load a project, then plan every variant of it."""
    from kbuild.plan.project import open_project
    from kbuild.plan.selection import Selection
    from kbuild.plan.variant import Identity, Planner
    from kbuild.system.errors import ConfigError
    from kbuild.system.processes import LocalRunner
    from kbuild.system.sourcetree import SourceTree

    root = folder / "project"
    shutil.copytree(_project(data), root)
    put(root, "build.toml", data)
    try:
        project = open_project(root)
    except ConfigError as error:
        return str(error)
    identity = Identity("0" * 7, "0" * 40, dirty=False)
    planner = Planner(project, SourceTree(root), LocalRunner(), identity)
    return planner.select(Selection())


@cache
def _projects() -> dict[str, Path]:
    """Examples by name, for the files that a `build.toml` names."""
    return {path.parent.name: path.parent for path in sorted(EXAMPLES.glob("*/build.toml"))}


def _project(data: bytes) -> Path:
    """The example whose files a changed `build.toml` most likely names."""
    for name, folder in _projects().items():
        if name.replace("-", "_").encode() in data or name.encode() in data:
            return folder
    return EXAMPLES / "relu"


def build_toml_rules(data: bytes, folder: Path) -> object:
    """Load alone, of a project without other files."""
    from kbuild.plan.project import open_project
    from kbuild.system.errors import ConfigError

    put(folder, "build.toml", data)
    try:
        return open_project(folder)
    except ConfigError as error:
        return str(error)


def expression(data: bytes, _folder: Path) -> object:
    from kbuild.ops.expression import parse

    expression = parse(text_of(data))
    names = dict.fromkeys(expression.names(), 7)
    text = str(expression)
    _ = expression.bind({"M": 3}), expression.constant, expression.is_condition
    with suppress(EvaluationError):
        expression.evaluate(names)
    return parse(text)


def schema(data: bytes, _folder: Path) -> object:
    from kbuild.ops.schema.parser import parse_schema

    return str(parse_schema(text_of(data)))


def variant_name(data: bytes, _folder: Path) -> object:
    from kbuild.project.variant import System, Variant

    for parse in (Variant.parse, System.parse):
        try:
            str(parse(text_of(data)))
        except ValueError as error:
            str(error)
    return None


def hub_spec(data: bytes, _folder: Path) -> object:
    from kbuild.publish.hub.fetch import HubSpec

    return str(HubSpec.parse(text_of(data)))


def version(data: bytes, _folder: Path) -> object:
    from kbuild.system.version import Version

    version = Version.parse(text_of(data))
    return str(version), hash(version), version.compact, version < Version((1,))


def arch(data: bytes, _folder: Path) -> object:
    from kbuild.backends import BACKENDS

    for backend in BACKENDS.load():
        if backend.arch_key is not None:
            try:
                backend.check_arch(text_of(data))
            except ValueError as error:
                str(error)
    return None
