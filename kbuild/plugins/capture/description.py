"""The table that declares a captured function, and the file that describes it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from kbuild.ops.dtypes import DTYPES
from kbuild.ops.model import IssueCollector
from kbuild.plugins.capture.function_digests import SourceDigests, source_digests
from kbuild.plugins.capture.tables import (
    LARGEST_SIZE,
    CaptureSection,
    ChoicesTable,
    FixedTable,
    TensorTable,
)
from kbuild.project.config.model import Section
from kbuild.project.config.model_errors import table_issues
from kbuild.system.errors import ConfigError, Problem

FORMAT = 1
CAPTURED_FOLDER = "captured"
"""Folder of the files that `kbuild capture` writes, in the project."""


def wrapper_file(kernel: str, name: str) -> str:
    """The file of a captured function, relative to the project."""
    return f"{CAPTURED_FOLDER}/{kernel}.{name}.json"


def kernels_file(kernel: str, name: str) -> str:
    """The kernels of a captured function that a DSL has written, relative to the project."""
    module = re.sub(r"\W", "_", f"{kernel}_{name}")
    return f"{CAPTURED_FOLDER}/{module}.py"


@dataclass(frozen=True)
class Declaration:
    """A `[[kernel.<name>.capture]]` table with `function`."""

    function: str
    name: str
    arguments: Mapping[str, Mapping[str, Any]]
    """Arguments for the worker: parameter -> a tensor, a number, choices, or a value."""
    defaults: Mapping[str, str]
    """Parameter -> its default in the schema."""
    sizes: Mapping[str, tuple[int, int]]
    backward: bool

    @property
    def digest(self) -> str:
        """Digest of the declaration: a changed declaration requires a new capture."""
        text = json.dumps(vars(self), sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_declaration(section: CaptureSection, place: IssueCollector) -> Declaration | None:
    """The declaration of a table with `function`; None after an error, which `place` collects."""
    errors = place.errors
    function = str(section.function)
    module, _, attribute = function.partition(":")
    if not module or not attribute:
        place.at("function").error(f"`{function}` names no function", 'e.g. "my_ops.norm:rms_norm"')
    arguments: dict[str, Mapping[str, Any]] = {}
    defaults: dict[str, str] = {}
    for parameter, value in section.arguments.items():
        where = place.at("arguments", parameter)
        try:
            arguments[parameter], default = _argument(value, section.arguments, where)
        except ValidationError as error:
            model = _argument_type(value)
            where.issues.extend(table_issues(error, model, where.path))
            continue
        if default:
            defaults[parameter] = default
    if place.errors == errors and not any("shape" in each for each in arguments.values()):
        place.error("has no tensor among its `arguments`", 'e.g. `x = { shape = ["M", "N"], ... }`')
    for name, size in section.sizes.items():
        if not 0 <= size.min <= size.max <= LARGEST_SIZE:
            text = f"from {size.min} to {size.max} is no range of sizes"
            place.at("sizes", name).error(text)
    if place.errors > errors:
        return None
    return Declaration(
        function,
        section.name or snake_case(attribute.rpartition(".")[2]),
        arguments,
        defaults,
        {name: (size.min, size.max) for name, size in section.sizes.items()},
        section.backward,
    )


def snake_case(name: str) -> str:
    """`RMSNormFunction` is `rms_norm`."""
    short = name.removesuffix("Function") or name
    letters: list[str] = []
    for at, letter in enumerate(short):
        following = short[at + 1 : at + 2]
        starts = letter.isupper() and at > 0
        starts = starts and (not short[at - 1].isupper() or following.islower())
        letters.append(f"_{letter.lower()}" if starts and letters[-1:] != ["_"] else letter.lower())
    return "".join(letters).strip("_")


def _argument_type(table: Mapping[str, Any]) -> type[Section]:
    """The model of a parameter's table."""
    if "shape" in table:
        return TensorTable
    return ChoicesTable if "choices" in table else FixedTable


def _argument(
    value: Any, every: Mapping[str, Any], place: IssueCollector
) -> tuple[dict[str, Any], str]:
    """A parameter for the worker, and its default in the schema.

    Raises:
        ValidationError: a table has wrong keys or values.
    """
    if isinstance(value, Mapping):
        return _described(value, every, place)
    if isinstance(value, bool):
        return {"choices": [True, False]}, str(value)
    if isinstance(value, (int, float)):
        kind = "int" if isinstance(value, int) else "float"
        return {"kind": kind, "example": value}, repr(value)
    if isinstance(value, str):
        return {"choices": [value]}, json.dumps(value)
    place.error("must be a table, a number, a boolean or a string")
    return {"value": None}, ""


def _described(
    value: Mapping[str, Any], every: Mapping[str, Any], place: IssueCollector
) -> tuple[dict[str, Any], str]:
    """A parameter that has a table."""
    if not value:
        place.error("has neither `shape`, `choices` nor `value`")
        return {"value": None}, ""
    table = _argument_type(value).model_validate(value)
    if isinstance(table, TensorTable):
        return _tensor(table, every, place), "None" if table.optional else ""
    if isinstance(table, ChoicesTable):
        default = table.default
        text = json.dumps(default) if isinstance(default, str) else repr(default)
        return {"choices": list(table.choices)}, "" if default is None else text
    fixed = value["value"]
    return {"value": None if fixed == "None" else fixed}, ""


def _tensor(tensor: TensorTable, every: Mapping[str, Any], place: IssueCollector) -> dict[str, Any]:
    """A tensor for the worker."""
    dtypes = tensor.dtypes
    for dtype in [dtypes] if isinstance(dtypes, str) else dtypes:
        if dtype not in DTYPES and not (isinstance(dtypes, str) and dtype in every):
            place.at("dtypes").error(f"`{dtype}` is neither a dtype nor another argument")
    if not dtypes:
        place.error("has no `dtypes`", 'e.g. `dtypes = ["float16", "bfloat16"]`')
    is_dtype = isinstance(dtypes, str) and dtypes in DTYPES
    described = tensor.model_dump(mode="json", exclude_unset=True)
    return {**described, "dtypes": [dtypes] if is_dtype else dtypes}


def read_description(text: str, file: str) -> Mapping[str, Any]:
    """The content of a file.

    Raises:
        ConfigError: it is not one that `kbuild capture` writes.
    """
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    known = isinstance(data, dict) and data.get("format") == FORMAT
    if not known or not {"source", "digest", "ops", "forward"} <= data.keys():
        hint = "write it with `kbuild capture`"
        raise ConfigError([Problem(file, 0, "", "does not describe a captured function", hint)])
    description: Mapping[str, Any] = data
    return description


def staleness(declaration: Declaration, data: Mapping[str, Any], texts: SourceDigests) -> str:
    """Reason why a description is out of date; empty if it is not.

    Args:
        declaration: what `build.toml` says now.
        data: the description.
        texts: the section's sources.
    """
    name = declaration.function
    if data["declaration"] != declaration.digest:
        return f"what `build.toml` says of `{name}` has changed since it was captured"
    attribute = name.partition(":")[2].partition(".")[0]
    if texts.of(data["source"], attribute) != data["digest"]:
        return f"`{name}`, or what it calls, has changed since it was captured"
    return ""


def description_text(
    declaration: Declaration,
    wrapper: Mapping[str, Any],
    source: str,
    texts: Mapping[str, str],
    notes: Sequence[str],
) -> str:
    """The text of the file.

    Args:
        declaration: what was asked for.
        wrapper: what was found, `CapturedWrapper.to_json`.
        source: the file that has the function.
        texts: the section's sources.
        notes: what users should know, such as conditions that were not proven unreachable.
    """
    attribute = declaration.function.partition(":")[2].partition(".")[0]
    content = {
        "format": FORMAT,
        "function": declaration.function,
        "declaration": declaration.digest,
        "source": source,
        "digest": source_digests(texts).of(source, attribute),
        "notes": list(notes),
        **wrapper,
    }
    return json.dumps(content, indent=1) + "\n"
