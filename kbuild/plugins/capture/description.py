"""The `[[kernel.<name>.capture]]` tables of `build.toml`, and the files that describe functions."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import (
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from kbuild.ops.arguments import RESERVED
from kbuild.ops.dtypes import DTYPES
from kbuild.plugins.capture.function_digests import SourceDigests, source_digests
from kbuild.plugins.capture.values import BATCH, ROWS
from kbuild.project.config.file_model import TuneSection
from kbuild.project.config.issue import IssueCollector
from kbuild.project.config.model import Section
from kbuild.project.config.model_errors import table_issues
from kbuild.system.errors import ConfigError, Problem

LARGEST_SIZE = 2**31 - 1


class SizeRange(Section):
    """The values of a dimension for which a function is captured."""

    min: StrictInt = 0
    """The smallest value."""
    max: StrictInt = LARGEST_SIZE
    """The largest value."""


class TensorTable(Section):
    """A parameter of a captured function that is a tensor."""

    shape: tuple[Any, ...]
    """Dimensions: names, sizes, and `...` for any number of them."""
    dtypes: Any = ()
    """Names of dtypes, or another argument that has the same dtype."""
    optional: StrictBool = False
    contiguous: StrictBool = False

    @field_validator("shape")
    @classmethod
    def _validate_shape(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if any(isinstance(size, bool) or not isinstance(size, (int, str)) for size in value):
            raise ValueError('must be a list of names and sizes, e.g. `["M", "N"]`')
        return value

    @field_validator("dtypes")
    @classmethod
    def _validate_dtypes(cls, value: Any) -> Any:
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, (list, tuple)) or not all(
            isinstance(name, str) for name in listed
        ):
            raise ValueError("must be a list of dtypes, or the name of another argument")
        return value


class ChoicesTable(Section):
    """A parameter of a captured function with a few values."""

    choices: tuple[Any, ...]
    default: Any = None

    @field_validator("choices")
    @classmethod
    def _validate_choices(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if not value or not all(isinstance(choice, (bool, int, float, str)) for choice in value):
            raise ValueError("must be a list of numbers, booleans and strings")
        return value

    @model_validator(mode="after")
    def _validate_default(self) -> Self:
        if self.default is not None and self.default not in self.choices:
            raise ValueError(f"the default `{self.default}` is not one of the choices")
        return self


class FixedTable(Section):
    """A parameter of a captured function that is the same in every call."""

    value: Any


class CaptureSection(Section):
    """One `[[kernel.<name>.capture]]` table: ops that follow from the author's Python."""

    function: StrictStr | None = None
    """`module:function` that becomes an op."""
    launches: tuple[StrictStr, ...] = ()
    """Modules whose launches become ops, such as `my_ops.loss` or `my_ops.*`; the section's Python
    files are shipped, and call them."""
    factories: tuple[StrictStr, ...] = ()
    """Functions that make classes, functions and objects for `cute.compile`, such as
    `my_ops.mods:make_*` or `my_ops.mods:Mod.make_class`; records have their arguments."""
    tuners: tuple[StrictStr, ...] = ()
    """Classes like Triton's `Autotuner` that choose a candidate for each call of `cute.compile`'s
    functions, such as `my_ops.autotuner:Autotuner`. Packages have the chosen ones alone."""
    fallback: Literal["none", "jit"] = "none"
    """`jit`: run Triton for other launches if the user has it; `none`: refuse them."""
    name: StrictStr | None = None
    """The op of `function`; the function's own name in lower case when absent."""
    arguments: Mapping[str, Any] = {}
    """Parameter of `function` -> `{ shape = [...], dtypes = [...] }` for a tensor (with `optional`
    and `contiguous`), a default (a number or boolean), `{ choices = [...] }`, or `{ value = ... }`
    for every call."""
    sizes: Mapping[str, SizeRange] = {}
    """Dimension -> `min` and `max` of the calls that are captured, such as `{ max = 65536 }`;
    others are refused. Without `min`, a size may be 0."""
    backward: StrictBool = True
    """`false` captures no backward pass."""
    tune: TuneSection | None = None
    """Calls that `kbuild tune` measures, in place of those that `kbuild capture` proposes; without
    `reference`."""


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
    def attribute(self) -> str:
        """The name in its module that has the function."""
        return self.function.partition(":")[2].partition(".")[0]

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
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", short)
    return parts.lower().strip("_")


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
    # Before numbers: to Python, a boolean is an `int`.
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
    return data  # type: ignore[no-any-return]


def staleness(declaration: Declaration, data: Mapping[str, Any], texts: SourceDigests) -> str:
    """Reason why a description is out of date; empty if it is not."""
    name = declaration.function
    if data["declaration"] != declaration.digest:
        return f"what `build.toml` says of `{name}` has changed since it was captured"
    if texts.of(data["source"], declaration.attribute) != data["digest"]:
        return f"`{name}`, or what it calls, has changed since it was captured"
    return ""


def description_text(
    declaration: Declaration,
    wrapper: Mapping[str, Any],
    source: str,
    texts: Mapping[str, str],
    notes: Sequence[str],
) -> str:
    """The text of the file."""
    content = {
        "format": FORMAT,
        "function": declaration.function,
        "declaration": declaration.digest,
        "source": source,
        "digest": source_digests(texts).of(source, declaration.attribute),
        "notes": list(notes),
        **wrapper,
    }
    return json.dumps(content, indent=1) + "\n"


_WRAPPER_NAMES = {"ctx", "ops", ROWS, *BATCH}
"""Names of the Python around an op, and of dimensions of `...`."""
_GENERATED = re.compile(r"grad_\d+|saved\d+|needs_\w+")
"""Names that backward ops have."""


def op_names(declaration: Declaration) -> dict[str, str]:
    """Parameters whose names mean something else in an op -> what they are called there."""
    own = {name for name, d in declaration.arguments.items() if "value" not in d}
    names = {}
    for name in sorted(own):
        # The backward op calls the gradient of `x` `d_x`.
        is_gradient = name.startswith("d_") and name.removeprefix("d_") in own
        # Names of kbuild's own start with `_`.
        public = name.lstrip("_")
        is_private = public != name and public.isidentifier()
        is_taken = name in RESERVED or name in _WRAPPER_NAMES or _GENERATED.fullmatch(name)
        if is_taken or is_gradient or is_private:
            names[name] = next(
                f"{public}{'_' * n}" for n in range(1, 9) if f"{public}{'_' * n}" not in own
            )
    return names


def with_names(declaration: Declaration, names: Mapping[str, str]) -> Declaration:
    """A declaration with other names of parameters."""
    arguments = {}
    for name, described in declaration.arguments.items():
        dtypes = described.get("dtypes")
        of_other = {"dtypes": names[dtypes]} if isinstance(dtypes, str) and dtypes in names else {}
        arguments[names.get(name, name)] = {**described, **of_other}
    defaults = {names.get(name, name): text for name, text in declaration.defaults.items()}
    return replace(declaration, arguments=arguments, defaults=defaults)


def with_own_kernels(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """An answer with names of their own for generated kernels, which may be of one application."""
    owners: dict[str, str] = {}
    texts: dict[str, str] = {}
    names: dict[str, dict[str, str]] = {}
    for number, (file, text) in enumerate(answer.get("kernels", {}).items()):
        own = {getattr(node, "name", "") for node in ast.parse(text).body} - {""}
        # The same text once more is the same kernel, and is written once.
        others = {n: f"{n}_{number}" for n in sorted(own) if owners.setdefault(n, text) != text}
        names[file], texts[file] = others, text
        for name, other in others.items():
            # Not an attribute of that name, such as `tl.maximum`.
            texts[file] = re.sub(rf"(?<![\w.]){name}\b", other, texts[file])
    if not any(names.values()):
        return answer

    def renamed(step: Mapping[str, Any]) -> Mapping[str, Any]:
        if "launch" not in step:
            return step
        # A random call that no path covers may launch a kernel that is not kept.
        return {**step, "launch": names.get(step["file"], {}).get(step["launch"], step["launch"])}

    def with_steps(trace: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**trace, "steps": [*map(renamed, trace["steps"])]}

    runs = [{**run, "traces": [*map(with_steps, run["traces"])]} for run in answer["runs"]]
    samples = [{**one, "trace": with_steps(one["trace"])} for one in answer.get("samples", ())]
    return {**answer, "runs": runs, "samples": samples, "kernels": texts}
