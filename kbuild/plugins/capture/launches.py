"""Reads and writes `captured/*.json`: which launches of an author's kernels are compiled.

Each kernel function has a list of launches, and each launch the kinds of its arguments, its
constants and its options. They become ops that launch one function, `read_section`'s input.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_serializer, field_validator

from kbuild.dsl.python_package import source_module
from kbuild.ops.dtypes import DTYPES
from kbuild.plugins.capture.description import CAPTURED_FOLDER
from kbuild.system.errors import ConfigError, Problem

SCALARS = ("int", "int64", "float", "bool", "none")
"""Kinds of arguments beside pointers (`*float16`) and descriptors."""
_TYPES = {"int": "SymInt", "int64": "SymInt", "float": "float", "bool": "bool"}
_SPARSE = ("archs",)
"""Keys of a launch that a file leaves out where they are empty."""
_MAX_ASSUMED = 3
"""Sets of assumptions that an op has images for."""
_FORM = "launch_form"
"""The argument of an op that says which of its candidates is launched."""


class Assumptions(BaseModel, frozen=True):
    """Facts about the integers of a call that an image may assume."""

    divisible: tuple[str, ...] = ()
    """Integer parameters that were divisible by 16."""
    ones: tuple[str, ...] = ()
    """Integer parameters that were 1."""

    @property
    def order(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """A key to sort by."""
        return self.divisible, self.ones

    @property
    def count(self) -> int:
        """Number of facts."""
        return len({*self.divisible}) + len({*self.ones})

    def common(self, other: Assumptions) -> Assumptions:
        """The assumptions that both have."""
        return Assumptions(
            divisible=tuple(name for name in self.divisible if name in other.divisible),
            ones=tuple(name for name in self.ones if name in other.ones),
        )


class CapturedLaunch(BaseModel, frozen=True):
    """Types, constants and options that one launch of a kernel function is compiled for."""

    arguments: dict[str, Any]
    """Parameter -> `*float16`, one of `SCALARS`, or `{tensor = "float16", block = [...]}`, which
    may have a `padding` and a `layout`."""
    constants: dict[str, Any]
    """Parameter -> a number, a boolean, None, `{string = ...}`, `{dtype = ...}`, or
    `{choices = [...]}`, which means a launch with each."""
    options: dict[str, Any]
    assumptions: frozenset[Assumptions] = frozenset()
    """Assumptions of the calls that were seen; an image may rely on them."""
    archs: frozenset[str] = frozenset()
    """Archs, such as `9.0a`, for which the author's code compiled this; empty for any."""

    @field_validator("arguments")
    @classmethod
    def _validate_arguments(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        for name, kind in arguments.items():
            dtype = kind["tensor"] if isinstance(kind, Mapping) else str(kind)
            if dtype not in SCALARS and dtype.removeprefix("*") not in DTYPES:
                raise ValueError(f"`{name}` is a `{dtype}`, which no kernel takes")
        return arguments

    @field_serializer("options")
    def _sorted_options(self, options: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(options.items()))

    @field_serializer("assumptions")
    def _sorted_assumptions(self, known: frozenset[Assumptions]) -> list[dict[str, Any]]:
        ordered = sorted(known, key=lambda each: each.order)
        return [each.model_dump(exclude_defaults=True) for each in ordered]

    @field_serializer("archs")
    def _sorted_archs(self, archs: frozenset[str]) -> list[str]:
        return sorted(archs)

    @property
    def key(self) -> str:
        """Launches with the same key are one."""
        return json.dumps([self.arguments, self.constants, self.options], sort_keys=True)

    def spread(self) -> Iterator[CapturedLaunch]:
        """A launch for each combination of choices."""
        tables = [self.constants, self.options]
        names = [
            (at, name)
            for at, table in enumerate(tables)
            for name, value in table.items()
            if isinstance(value, Mapping) and "choices" in value
        ]
        for values in itertools.product(*(tables[at][name]["choices"] for at, name in names)):
            constants, options = chosen = [dict(table) for table in tables]
            for (at, name), value in zip(names, values, strict=True):
                chosen[at][name] = value
            yield self.model_copy(update={"constants": constants, "options": options})


class CapturedFunction(BaseModel, frozen=True):
    """A kernel function with its launches."""

    source: str
    """The file, relative to the project."""
    name: str = Field(alias="function")
    digest: str = ""
    """Digest of the function and of the code that it calls; see `SourceDigests.of`."""
    launches: tuple[CapturedLaunch, ...]
    tuned: tuple[dict[str, Any], ...] = ()
    """The fastest candidates: `device`, `key` and `config`."""

    def merged(self, other: CapturedFunction) -> CapturedFunction:
        """Combine both; the digest and the candidates of `other` count."""
        launches: dict[str, CapturedLaunch] = {}
        for launch in (*self.launches, *other.launches):
            known = launches.get(launch.key, launch)
            both = {
                "assumptions": known.assumptions | launch.assumptions,
                "archs": known.archs | launch.archs,
            }
            launches[launch.key] = known.model_copy(update=both)
        tuned = {
            json.dumps([row["device"], row["key"]]): row for row in (*self.tuned, *other.tuned)
        }
        return CapturedFunction(
            source=self.source,
            function=self.name,
            digest=other.digest or self.digest,
            launches=tuple(launches[key] for key in sorted(launches)),
            tuned=tuple(tuned[key] for key in sorted(tuned)),
        )


class CapturedLaunches(BaseModel, frozen=True):
    """A file `captured/<kernel>.json`."""

    format: Literal[1] = 1
    functions: tuple[CapturedFunction, ...] = ()

    def merged(self, functions: Iterable[CapturedFunction]) -> CapturedLaunches:
        """The same with more functions and launches."""
        known = {(function.source, function.name): function for function in self.functions}
        for function in functions:
            place = (function.source, function.name)
            # Also one that is new: its launches are sorted.
            known[place] = known.get(place, function).merged(function)
        return CapturedLaunches(functions=tuple(known[place] for place in sorted(known)))

    def text(self) -> str:
        """The file's text: one line for a launch."""
        functions = []
        for function in self.functions:
            # Not by pydantic's JSON, which has no infinity: a constant may be one.
            data = function.model_dump(by_alias=True)
            data["launches"] = [
                {key: value for key, value in launch.items() if value or key not in _SPARSE}
                for launch in data["launches"]
            ]
            rows = {key: entries for key in ("launches", "tuned") if (entries := data.pop(key))}
            rows = {"launches": [], **rows}
            lines = [f'      "{key}": {json.dumps(value)}' for key, value in data.items()]
            for key, entries in rows.items():
                items = ",\n".join(f"        {json.dumps(entry)}" for entry in entries)
                lines.append(f'      "{key}": [\n{items}\n      ]')
            functions.append("    {\n" + ",\n".join(lines) + "\n    }")
        inner = ",\n".join(functions)
        return f'{{\n  "format": {self.format},\n  "functions": [\n{inner}\n  ]\n}}\n'


def captured_file(kernel: str) -> str:
    """The file of a section, relative to the project."""
    return f"{CAPTURED_FOLDER}/{kernel}.json"


def wrapper_kernel(kernel: str, name: str) -> str:
    """Name of the kernel that holds the ops of a captured function."""
    return f"{kernel}_{name}"


def module_of(source: str) -> str:
    """The module that a source is: `src/my/ops.py` and `torch-ext/my/ops.py` are `my.ops`."""
    return source_module(source).removeprefix("src.")


def packaged_module(source: str, package: str) -> str:
    """The file of a package that stands for a source.

    `package` is the package's own folder in the project, such as `torch-ext/my_ops`.
    """
    if source.startswith(f"{package}/"):
        return source.removeprefix(f"{package}/")
    path = module_of(source).replace(".", "/")
    return f"{path}/__init__.py" if source.endswith("/__init__.py") else f"{path}.py"


def parse_captured(text: str, file: str) -> CapturedLaunches:
    """The content of a file.

    Raises:
        ConfigError: it is not one that `kbuild capture` writes.
    """
    try:
        return CapturedLaunches.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        message = f"is no file of captured launches: {where}: {first['msg']}"
        hint = "write it with `kbuild capture --record -- COMMAND`"
        raise ConfigError([Problem(file, 0, "", message, hint)]) from error


@dataclass(frozen=True)
class LaunchOps:
    """The ops of the functions of one source, and what a package knows of them."""

    source: str
    ops: tuple[Mapping[str, Any], ...]
    """`[[kernel.<name>.op]]` tables."""
    functions: tuple[Mapping[str, Any], ...]
    """Launches for the package: each with its `op` and `form`."""


def launch_ops(kernel: str, functions: Sequence[CapturedFunction]) -> Iterator[LaunchOps]:
    """Ops for all launches, by source; each launches a function with certain kinds of arguments."""
    numbers: dict[str, itertools.count[int]] = {}
    for source, group in itertools.groupby(
        sorted(functions, key=lambda function: (function.source, function.name)),
        key=lambda function: function.source,
    ):
        ops: list[Mapping[str, Any]] = []
        tables = []
        for function in group:
            launches: list[Mapping[str, Any]] = []
            stem = re.sub(r"\W", "_", f"launch_{kernel}_{function.name}")
            number = numbers.setdefault(stem, itertools.count())
            for writer in _op_writers(function):
                name = f"{stem}_{next(number)}"
                ops.append(writer.op(name))
                launches += writer.entries(name)
            tables.append(
                {
                    "source": source,
                    "function": function.name,
                    "launches": tuple(launches),
                    "tuned": function.tuned,
                }
            )
        yield LaunchOps(source, tuple(ops), tuple(tables))


def _op_writers(function: CapturedFunction) -> Iterable[_OpWriter]:
    writers: dict[str, _OpWriter] = {}
    # Launches may be equal after their choices are spread; their order numbers the ops.
    launches_by_key = {each.key: each for launch in function.launches for each in launch.spread()}
    for _, launch in sorted(launches_by_key.items()):
        fixed = {n: v for n, v in launch.constants.items() if not _is_candidate_value(v)}
        # Launches of one op become its candidates, which all have to set the same constants.
        key = [launch.arguments, fixed, [*launch.constants]]
        text = json.dumps(key)
        writer = writers.setdefault(text, _OpWriter(function, launch.arguments, fixed))
        writer.launches.append(launch)
    return writers.values()


def _is_candidate_value(value: Any) -> bool:
    """True if a candidate may set a constant to the value; an op fixes the other kinds."""
    return not isinstance(value, Mapping) or "string" in value


@dataclass
class _OpWriter:
    """Writes the op for launches with the same kinds of arguments."""

    function: CapturedFunction
    arguments: Mapping[str, Any]
    fixed: Mapping[str, Any]
    launches: list[CapturedLaunch] = field(default_factory=list)

    def op(self, name: str) -> dict[str, Any]:
        """The `[[kernel.<name>.op]]` table: a launch per set of assumptions, and one without."""
        parameters = [f"int {_FORM}"]
        dtypes: dict[str, list[str]] = {}
        args: dict[str, Any] = {}
        for at, (parameter, kind) in enumerate(self.arguments.items()):
            own = f"arg{at}"
            args[parameter] = "None" if kind == "none" else own
            if isinstance(kind, Mapping):
                parameters.append(f"Tensor(set{at}!) {own}")
                dtypes[own] = [kind["tensor"]]
                more = {key: kind[key] for key in ("padding", "layout") if key in kind}
                args[parameter] = {"tensor": own, "block": list(kind["block"]), **more}
            elif kind.startswith("*"):
                parameters.append(f"Tensor(set{at}!) {own}")
                dtypes[own] = [kind.removeprefix("*")]
            elif kind != "none":
                parameters.append(f"{_TYPES[kind]} {own}")
        axes = [f"grid_{axis}" for axis in range(3)]
        parameters += [f"SymInt {axis}" for axis in axes]
        shared = {
            "function": self.function.name,
            "args": args,
            "constants": dict(self.fixed),
            "grid": axes,
            "int64": [name for name, kind in self.arguments.items() if kind == "int64"],
        }
        head = {"schema": f"{name}({', '.join(parameters)}) -> ()", "dtypes": dtypes}
        launches = list(self._launches(args))
        if len(launches) == 1:
            return {**head, **shared, **launches[0]}
        return {**head, "launch": [{**shared, **launch} for launch in launches]}

    def _launches(self, args: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Variants of the launch with their conditions; only the last one has plain images."""
        before: list[str] = []
        pointers = [n for n, kind in self.arguments.items() if str(kind).startswith("*")]
        for assumed in self._assumed():
            forms = [at for at, launch in enumerate(self.launches) if assumed in launch.assumptions]
            forms = forms or [*range(len(self.launches))]
            tests = [f"{args[parameter]} % 16 == 0" for parameter in assumed.divisible]
            tests += [f"{args[parameter]} == 1" for parameter in assumed.ones]
            # An aligned image assumes this of all pointers, as Triton's specialized kernels do.
            tests += [f"address({args[parameter]}) % 16 == 0" for parameter in pointers]
            if len(forms) < len(self.launches):
                tests.append(f"({' or '.join(f'{_FORM} == {at}' for at in forms)})")
            yield {
                "when": " and ".join((*before, *tests)),
                "configs": [{**self._candidate(at), "aligned": True} for at in forms],
                "divisible": list(assumed.divisible),
                "ones": list(assumed.ones),
            }
            # Every launch whose condition holds is run, so each one excludes those before it.
            before.append(f"not ({' and '.join(tests)})")
        every = [self._candidate(at) for at in range(len(self.launches))]
        yield {**({"when": " and ".join(before)} if before else {}), "configs": every}

    def _assumed(self) -> list[Assumptions]:
        """The sets that images assume: those of most integers, and what they have in common."""
        known = {each for launch in self.launches for each in launch.assumptions if each.count}
        most = sorted(known, key=lambda each: (-each.count, each.order))[:_MAX_ASSUMED]
        common = functools.reduce(Assumptions.common, most) if len(known) > len(most) else None
        return [*most, common] if common and common.count and common not in most else most

    def _candidate(self, at: int) -> dict[str, Any]:
        launch = self.launches[at]
        # TOML has no null.
        constants = {n: "None" if v is None else v for n, v in launch.constants.items()}
        for name in self.fixed:
            del constants[name]
        return {**constants, **launch.options, "when": f"{_FORM} == {at}"}

    def entries(self, name: str) -> Iterator[Mapping[str, Any]]:
        """The launches as a package looks them up."""
        for at, launch in enumerate(self.launches):
            yield {
                "arguments": dict(launch.arguments),
                "constants": dict(launch.constants),
                "options": dict(launch.options),
                "op": name,
                "form": at,
            }
