"""The table that declares a captured function, and the file that describes it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.ops.dtypes import DTYPES
from kbuild.ops.model import IssueCollector
from kbuild.plugins.capture.function_digests import SourceDigests, source_digests
from kbuild.project.config.issue import KeyPath
from kbuild.system.errors import ConfigError, Problem

FORMAT = 1
CAPTURED_FOLDER = "captured"
"""Folder of the files that `kbuild capture` writes, in the project."""
_TENSOR_KEYS = {"shape", "dtypes", "optional", "contiguous"}
_LARGEST = 2**31 - 1


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


def read_declaration(
    table: Mapping[str, Any], path: KeyPath, collector: IssueCollector
) -> Declaration | None:
    """The declaration; None after an error.

    Args:
        table: as TOML gives it, with `function`.
        path: where it is.
        collector: of issues.
    """
    place = IssueCollector(path, collector.issues)
    errors = place.errors
    function = str(table["function"])
    module, _, attribute = function.partition(":")
    if not module or not attribute:
        place.at("function").error(f"`{function}` names no function", 'e.g. "my_ops.norm:rms_norm"')
    name = str(table.get("name") or snake_case(attribute.rpartition(".")[2]))
    arguments: dict[str, Mapping[str, Any]] = {}
    defaults: dict[str, str] = {}
    for parameter, value in dict(table.get("arguments", {})).items():
        where = place.at("arguments", parameter)
        described, default = _argument(value, table["arguments"], where)
        arguments[parameter] = described
        if default:
            defaults[parameter] = default
    if not any("shape" in described for described in arguments.values()):
        place.error("has no tensor among its `arguments`", 'e.g. `x = { shape = ["M", "N"], ... }`')
    sizes: dict[str, tuple[int, int]] = {}
    for size, span in dict(table.get("sizes", {})).items():
        least, most = span.get("min", 0), span.get("max", _LARGEST)
        if not 0 <= least <= most <= _LARGEST:
            place.at("sizes", size).error(f"from {least} to {most} is no range of sizes")
        sizes[size] = (least, most)
    if place.errors > errors:
        return None
    return Declaration(
        function, name, arguments, defaults, sizes, bool(table.get("backward", True))
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


def _argument(
    value: Any, every: Mapping[str, Any], place: IssueCollector
) -> tuple[dict[str, Any], str]:
    """A parameter for the worker, and its default in the schema."""
    if isinstance(value, Mapping):
        return _tensor(value, every, place) if "shape" in value else _choices_or_value(value, place)
    if isinstance(value, bool):
        return {"choices": [True, False]}, str(value)
    if isinstance(value, (int, float)):
        kind = "int" if isinstance(value, int) else "float"
        return {"kind": kind, "example": value}, repr(value)
    if isinstance(value, str):
        return {"choices": [value]}, json.dumps(value)
    place.error("must be a table, a number, a boolean or a string")
    return {"value": None}, ""


def _tensor(
    value: Mapping[str, Any], every: Mapping[str, Any], place: IssueCollector
) -> tuple[dict[str, Any], str]:
    for key in sorted(value.keys() - _TENSOR_KEYS):
        place.at(key).error("unknown key", f"tensors have {', '.join(sorted(_TENSOR_KEYS))}")
    dtypes = value.get("dtypes")
    listed = [dtypes] if isinstance(dtypes, str) else dtypes or []
    for dtype in listed:
        if dtype not in DTYPES and not (isinstance(dtypes, str) and dtype in every):
            place.at("dtypes").error(f"`{dtype}` is neither a dtype nor another argument")
    if not listed:
        place.error("has no `dtypes`", 'e.g. `dtypes = ["float16", "bfloat16"]`')
    described = {
        **value,
        "dtypes": [dtypes] if isinstance(dtypes, str) and dtypes in DTYPES else dtypes,
    }
    return described, "None" if value.get("optional") else ""


def _choices_or_value(
    value: Mapping[str, Any], place: IssueCollector
) -> tuple[dict[str, Any], str]:
    if "choices" in value:
        default = value.get("default")
        text = json.dumps(default) if isinstance(default, str) else repr(default)
        return {"choices": list(value["choices"])}, "" if default is None else text
    if value.keys() == {"value"}:
        fixed = value["value"]
        return {"value": None if fixed == "None" else fixed}, ""
    place.error("has neither `shape`, `choices` nor `value`")
    return {"value": None}, ""


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
