"""Writes a merged program as the table of an op, in the language of `build.toml`."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbuild.capture.conditions import Tree, tree_of
from kbuild.capture.expression_values import CAPABILITIES, evaluated, names_of, truth
from kbuild.capture.programs import Buffer, CaptureError, Program, Step

BATCH = ("dim_0", "dim_1", "dim_2")
"""Names of the dimensions that `...` stands for in a run; ops take as many and no more."""
ROWS = "rows"
"""The product of these dimensions."""
_MOST_VALUES = 1 << 20
"""Combinations of sizes that are tried to find the values of a constant."""
_MOST_CHOICES = 64
_DIVISOR = 16
_MOST_COMBINATIONS = 64
"""Values of all constants of a launch; beyond that, those with the most values are arguments."""
_FEW_CHOICES = 5
"""Constants with fewer values stay constants."""
_MOST_CALLS = 1 << 16
"""Sizes for which the values of the constants are counted."""
_OPTIONS = (
    "num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim",
    "kpack", "schedule_hint", "enable_fp_fusion", "launch_pdl", "launch_cooperative_grid",
)  # fmt: skip
_WITHOUT_MEANING = ({"debug": "False"}, {"num_ctas": "1"})
"""Options that change nothing with these values."""


@dataclass(frozen=True)
class CapturedArgument:
    """An argument of an op."""

    name: str
    kind: str
    """Of the schema: `Tensor`, `Tensor?`, `float`, `int`, `bool`, `str`."""
    sizes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    """Of a tensor; the first path's configuration says more."""
    default: str = ""


@dataclass
class OpWriter:
    """Writes one op."""

    name: str
    arguments: Sequence[CapturedArgument]
    program: Program
    outputs: Sequence[str]
    """Names of the results; those that are arguments of the op are not returned by it."""
    bounds: Mapping[str, tuple[int, int]]
    contiguous: Sequence[str] = ()
    """Arguments that must be contiguous."""
    toplevel: Tree = field(init=False)
    views: dict[str, dict[str, Any]] = field(default_factory=dict)
    result_names: dict[str, str] = field(default_factory=dict)
    """Buffer -> result."""
    result_shapes: dict[str, list[str]] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    """Result that is another result once more -> that result."""
    equal_sizes: dict[str, None] = field(default_factory=dict)
    """Conditions under which memory has room for results of another shape."""
    returned: dict[str, str] = field(default_factory=dict)
    """Result that may be None -> the condition under which it is not."""

    def __post_init__(self) -> None:
        self.toplevel = tree_of({leaf: p.answers for leaf, p in enumerate(self.program.paths)})
        # The author's errors are leaves that no call may take.
        self.refused = {leaf for leaf, path in enumerate(self.program.paths) if path.raises}

    # the table

    def section(self) -> dict[str, Any]:
        """The op's table.

        Raises:
            CaptureError: something cannot be written.
        """
        self._name_results()
        launches = [self._step(step) for step in self.program.steps]
        schema = self._schema()
        table: dict[str, Any] = {
            "schema": schema,
            "shapes": self._shapes(),
            "dtypes": self._dtypes(),
        }
        contiguous = [a.name for a in self.arguments if a.name in self.contiguous]
        if contiguous:
            table["contiguous"] = contiguous
        requirements = self._requirements()
        if requirements:
            table["require"] = requirements
        temporaries = [b.name for b in self._temporaries()]
        # An op returns a view of a temporary alone.
        temporaries += [name for name in self.result_shapes if name not in self._results()]
        if temporaries:
            table["temporaries"] = temporaries
        if fills := self._fills():
            table["fill"] = fills
        if self.views:
            table["views"] = self.views
        if self.returned:
            table["returned"] = self.returned
        table["launch"] = launches
        return self._with_batch(table)

    def _fills(self) -> dict[str, Any]:
        fills: dict[str, Any] = {}
        for buffer in self.program.buffers.values():
            if buffer.fill is not None:
                value = _literal(buffer.fill)
                if fills.setdefault(self._tensor_name(buffer.name), value) != value:
                    message = "a result has other values in the beginning on other paths"
                    raise CaptureError(message, buffer.line)
        return fills

    def _with_batch(self, table: dict[str, Any]) -> dict[str, Any]:
        """With `...` for its dimensions, where the op depends on their product alone."""
        owner = next((a for a in self.arguments if BATCH[0] in a.sizes), None)
        if owner is None:
            return table
        batch = [name for name in owner.sizes if name in BATCH]
        table["shapes"] = {
            name: _with_dots(shape, batch) for name, shape in table["shapes"].items()
        }
        if len(batch) == 1:  # it is the product, too
            text = re.sub(rf"\b{batch[0]}\b", ROWS, json.dumps(table))
            table = json.loads(text)
        left = [name for name in batch if re.search(rf"\b{name}\b", json.dumps(table))]
        if left:
            raise CaptureError("depends on single dimensions of `...`: name them in `shape`")
        if re.search(rf"\b{ROWS}\b", json.dumps(table)):
            rest = " * ".join(size for size in owner.sizes if size not in BATCH) or "1"
            rows = (
                f"numel({owner.name}) // max({rest}, 1)" if rest != "1" else f"numel({owner.name})"
            )
            table["shapes"] = {
                name: [
                    re.sub(rf"\b{ROWS}\b", f"({rows})", size) if size != ROWS else rows
                    for size in shape
                ]
                for name, shape in table["shapes"].items()
            }
            table = {**table, "let": {ROWS: rows}}
        fixed = len(owner.sizes) - len(batch)
        ranks = (f"dim({owner.name}) > {fixed}", f"dim({owner.name}) <= {fixed + len(BATCH)}")
        return {**table, "require": [*table.get("require", ()), *ranks]}

    def _temporaries(self) -> list[Buffer]:
        return [b for b in self.program.buffers.values() if b.name not in self.result_names]

    def mutated(self) -> set[str]:
        """Arguments that a step may write to."""
        tensors = {a.name for a in self.arguments if a.kind.startswith("Tensor")}
        written: set[str] = set()
        for step in self.program.steps:
            written |= {self._origin(name) for name in _written_roots(step.step)}
        return written & tensors

    def _origin(self, name: str) -> str:
        """The tensor that a chain of copies begins with."""
        buffer = self.program.buffers.get(name)
        return self._origin(buffer.aliases) if buffer is not None and buffer.aliases else name

    def _schema(self) -> str:
        mutated = self.mutated()
        letters = iter("abcdefghijklmnopqrstuvwxyz")
        parts = []
        for argument in self.arguments:
            kind = argument.kind
            if argument.name in mutated:
                kind = kind.replace("Tensor", f"Tensor({next(letters)}!)")
            default = f"={argument.default}" if argument.default else ""
            parts.append(f"{kind} {argument.name}{default}")
        names = [f"Tensor{'?' * (name in self.returned)} {name}" for name in self._results()]
        return f"{self.name}({', '.join(parts)}) -> ({', '.join(names)})"

    # results

    def _results(self) -> list[str]:
        return list(dict.fromkeys(self.result_names.values()))

    def _name_results(self) -> None:
        """Results that the op allocates in their own shape, and those that are views."""
        arguments = {argument.name for argument in self.arguments}
        for position, name in enumerate(self.outputs):
            if not name:
                continue
            self._cast_everywhere(position)
            values = {leaf: outputs[position] for leaf, outputs in self.program.outputs.items()}
            roots = {value["tensor"] for value in values.values() if value}
            if not roots or roots & arguments:
                continue
            present = self._when({leaf for leaf, value in values.items() if value})
            if present != "True":
                self.returned[name] = present
            shapes = {tuple(value["sizes"]) for value in values.values() if value}
            if len(shapes) != 1:
                raise CaptureError(f"the result `{name}` has different shapes on different paths")
            for root in sorted(roots):
                value = next(v for v in values.values() if v and v["tensor"] == root)
                self._name_result(name, value, self.program.buffers[root])

    def _cast_everywhere(self, position: int) -> None:
        """Copy `x` where `x.to(dtype)` is `x` itself: the result is one tensor on all paths."""
        roots = {
            outputs[position]["tensor"]: None
            for outputs in self.program.outputs.values()
            if outputs[position]
        }
        for step in self.program.steps:
            value, *_ = step.step.get("arguments", ()) if "aten" in step.step else (None,)
            if not value or step.step["aten"] != "_to_copy" or value["tensor"] not in roots:
                continue
            (copy,) = step.step["results"]
            for leaf, outputs in self.program.outputs.items():
                own = outputs[position]
                if copy in roots and own and own["tensor"] == value["tensor"]:
                    dtype = {"dtype": own["dtype"]}
                    step.variants[leaf] = {
                        **step.step,
                        "arguments": [value, dtype, *step.step["arguments"][2:]],
                    }
                    self.program.buffers[copy].dtypes[leaf] = own["dtype"]
                    outputs[position] = {**own, "tensor": copy}

    def _name_result(self, name: str, value: Mapping[str, Any], buffer: Buffer) -> None:
        """A result in the memory of a buffer."""
        if buffer.aliases:
            raise CaptureError(f"the result `{name}` may be an argument's memory", buffer.line)
        if buffer.name in self.result_names:
            self.same[name] = self.result_names[buffer.name]
            return
        if not self._is_whole(value, buffer):
            raise CaptureError(f"the result `{name}` is a part of a tensor", buffer.line)
        is_first = name not in self.result_names.values()
        self.result_names[buffer.name] = name
        sizes, memory, view = list(value["sizes"]), name, None
        if sizes != list(buffer.sizes) and not _is_contiguous(value):
            memory = f"{name}_memory"
            strides = _numbers(value["strides"])
            view = {"of": memory, "shape": _numbers(sizes), "strides": strides}
            sizes = list(buffer.sizes)
        if is_first:
            self.result_shapes[memory] = sizes
            if view is not None:
                self.views[name] = view
        elif self.views.get(name) != view or self.result_shapes.get(memory) != sizes:
            message = f"the result `{name}` lies in memory of other shapes on other paths"
            raise CaptureError(message, buffer.line)

    def _is_whole(self, value: Mapping[str, Any], buffer: Buffer) -> bool:
        """Whether a value is all of a buffer, in whatever shape."""
        if value["offset"] != "0":
            return False
        if _product(value["sizes"]) == _product(buffer.sizes):
            return True
        first, second = (
            " * ".join(f"({s})" for s in sizes) for sizes in (value["sizes"], buffer.sizes)
        )
        hints = [path.hints for _, path in self.program.taken()]
        if not all(evaluated(f"{first} == {second}", known) for known in hints):
            return False
        self.equal_sizes[f"{first} == {second}"] = None
        return True

    def _tensor_name(self, root: str) -> str:
        name = self.result_names.get(root, root)
        return f"{name}_memory" if f"{name}_memory" in self.result_shapes else name

    # shapes and dtypes

    def _shapes(self) -> dict[str, Any]:
        shapes: dict[str, Any] = {
            a.name: list(a.sizes) for a in self.arguments if a.sizes or a.kind.startswith("Tensor")
        }
        for buffer in self._temporaries():
            shapes[buffer.name] = list(buffer.sizes)
        return {**shapes, **self.result_shapes}

    def _dtypes(self) -> dict[str, Any]:
        configurations = {leaf: path.configuration.dtypes for leaf, path in self.program.taken()}
        inputs = [a.name for a in self.arguments if a.kind.startswith("Tensor")]
        rules: dict[str, Any] = {}
        for name in inputs:
            values = {leaf: dtypes.get(name) for leaf, dtypes in configurations.items()}
            rules[name] = self._dtype_rule(name, values, configurations, [*rules]) or sorted(
                {value for value in values.values() if value}
            )
        for buffer in self.program.buffers.values():
            rule = self._dtype_rule(buffer.name, buffer.dtypes, configurations, inputs)
            if rule is None:
                raise CaptureError("the dtype of a tensor depends on the path", buffer.line)
            if rules.setdefault(self._tensor_name(buffer.name), rule) != rule:
                raise CaptureError("the dtype of a result depends on the path", buffer.line)
        return rules

    @staticmethod
    def _dtype_rule(
        name: str,
        values: Mapping[int, str | None],
        configurations: Mapping[int, Mapping[str, str]],
        inputs: Sequence[str],
    ) -> str | None:
        for other in inputs:
            if other != name and all(
                configurations[leaf].get(other) == value
                for leaf, value in values.items()
                if value is not None
            ):
                kinds = {dtypes.get(other) for dtypes in configurations.values()}
                if len(kinds) > 1:
                    return other
        kinds = {value for value in values.values() if value is not None}
        return kinds.pop() if len(kinds) == 1 else None

    def _requirements(self) -> list[str]:
        requirements = []
        available = {size for argument in self.arguments for size in argument.sizes}
        for name, (least, most) in self.bounds.items():
            if name in available:
                if least > 1:
                    requirements.append(f"{name} >= {least}")
                if most < 2**31 - 1:
                    requirements.append(f"{name} <= {most}")
        requirements += self.equal_sizes
        if any("capability()" in question for p in self.program.paths for question, _ in p.answers):
            requirements.append(f"capability() >= {CAPABILITIES[0]}")
        taken = {leaf for leaf, _ in self.program.taken()}
        condition = self.toplevel.condition(taken)
        if condition != "True":
            requirements.append(condition)
        return requirements

    # steps

    def _when(self, leaves: Collection[int]) -> str:
        return self.toplevel.condition(leaves, self.refused)

    def _step(self, step: Step) -> dict[str, Any]:
        table = self._launch(step) if "launch" in step.step else self._aten(step)
        when = self._when(step.leaves)
        if when != "True":
            table["when"] = when
        return table

    def _aten(self, step: Step) -> dict[str, Any]:
        return {
            "aten": step.step["aten"],
            "arguments": [
                self._aten_dtype(step, at)
                if value and "dtype" in value and "tensor" not in value
                else self._aten_argument(value)
                for at, value in enumerate(step.step["arguments"])
            ],
            "results": [self._tensor_name(name) for name in step.step["results"]],
        }

    def _aten_dtype(self, step: Step, position: int) -> dict[str, str]:
        values = {leaf: variant["arguments"][position] for leaf, variant in step.variants.items()}
        return {"dtype": self._dtype_constant(values)}

    def _aten_argument(self, value: Any) -> Any:
        if value is None:
            return "None"
        if "tensor" in value:
            return self._tensor(value)
        if "list" in value:
            return [self._aten_argument(item) for item in value["list"]]
        for kind in ("string", "dtype", "layout", "memory_format"):
            if kind in value:
                text = value[kind].removeprefix("torch.")
                return {"dtype" if kind == "dtype" else "string": text}
        if "device" in value:
            return "None"  # that of the op's tensors
        ((kind, text),) = value.items()
        return _number(text) if kind != "bool" else text == "True"

    def _tensor(self, value: Mapping[str, Any]) -> str:
        """The name of a tensor, or of a view of it."""
        root = value["tensor"]
        name = self._tensor_name(root)
        buffer = self.program.buffers.get(root)
        if buffer is not None:
            same = [*value["sizes"]] == [*buffer.sizes] and [*value["strides"]] == [*buffer.strides]
            same = same and (
                root not in self.result_names
                or name not in self.result_shapes
                or [*value["sizes"]] == self.result_shapes[name]
            )
        else:
            argument = next(a for a in self.arguments if a.name == root)
            own = [f"stride({root}, {axis})" for axis in range(len(argument.sizes))]
            same = [*value["sizes"]] == [*argument.sizes] and (
                [*value["strides"]] == own or (root in self.contiguous and _is_contiguous(value))
            )
        if same and value["offset"] == "0":
            return name
        view: dict[str, Any] = {"of": name, "shape": _numbers(value["sizes"])}
        if not _is_contiguous(value):
            view["strides"] = _numbers(value["strides"])
        if value["offset"] != "0":
            view["offset"] = _number(value["offset"])
        for known, other in self.views.items():
            if other == view:
                return known
        label = next(
            f"{name}_{at}" for at in itertools.count(1) if f"{name}_{at}" not in self.views
        )
        self.views[label] = view
        return label

    def _launch(self, step: Step) -> dict[str, Any]:
        launch = step.step
        table: dict[str, Any] = {"function": launch["launch"], "args": {}}
        integers = []
        for name, value in launch["arguments"].items():
            table["args"][name] = self._launch_argument(value)
            if value and "int" in value and name in launch.get("specialized", (name,)):
                integers.append((name, value["int"]))
        table["grid"] = [_number(text) for text in launch["grid"]]
        constants, rows, open_ = self._constants(step)
        if launch["autotune"] and rows:
            options = ", ".join(sorted({name for row in rows for name in row} - {"when"}))
            message = f"launches an autotuned kernel with the option `{options}`"
            raise CaptureError(f"{message}: set it in its candidates", launch["line"])
        for name, text in open_.items():
            table["args"][name] = text
            if "float" not in launch["constants"][name]:
                integers.append((name, text))
        table |= self._assumptions(integers)
        if launch["autotune"]:
            rows = "autotune"
        if constants:
            table["constants"] = constants
        if rows:
            table["configs"] = rows
        return table

    def _assumptions(self, integers: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
        """Integers that are 1 or divisible by 16 in ordinary calls, for aligned images.

        Triton decides it for each argument of each call. Strides of last dimensions are 1; sizes,
        other strides and products of them are divisible.
        """
        inner = {f"stride({a.name}, {len(a.sizes) - 1})" for a in self.arguments}
        sizes = {size for size in self._names() - {*BATCH, ROWS} if size.isidentifier()}
        ones = [name for name, text in integers if text in inner or text == "1"]
        divisible = [
            name
            for name, text in integers
            if name not in ones
            and (
                int(text) % _DIVISOR == 0
                if text.isdigit()
                else all(
                    part in sizes or part.isdigit() or part.startswith("stride(")
                    for part in text.split(" * ")
                )
            )
        ]
        named = {"divisible": divisible, "ones": ones}
        return {key: names for key, names in named.items() if names}

    def _names(self) -> set[str]:
        return {size for argument in self.arguments for size in argument.sizes}

    def _launch_argument(self, value: Any) -> Any:
        if value is None:
            return "None"
        if "tensor" in value:
            # Sizes and strides are arguments of their own.
            if value["offset"] == "0":
                return self._tensor_name(value["tensor"])
            return self._tensor(value)
        if "list" in value:
            return [self._launch_argument(item) for item in value["list"]]
        return _launch_number(value)

    # constants and options

    def _constants(self, step: Step) -> tuple[dict[str, Any], Any, dict[str, str]]:
        """What is the same for all candidates, the candidates, and what becomes an argument.

        A constant with more values than images can be compiled for is an argument in its place.
        """
        open_: dict[str, str] = {}
        fixed: dict[str, Any] = {}
        varying: list[str] = []
        variants = step.variants
        for name in step.step["constants"]:
            values = {leaf: variant["constants"][name] for leaf, variant in variants.items()}
            distinct = {repr(value): value for value in values.values()}
            if all(value and "dtype" in value for value in values.values()):
                fixed[name] = {"dtype": self._dtype_constant(values)}
            elif len(distinct) == 1:
                value = next(iter(distinct.values()))
                try:
                    fixed[name] = self._fixed(value, step)
                except _TooManyValuesError:
                    ((_, open_[name]),) = value.items()
            elif all(_is_literal(value) for value in values.values()):
                varying.append(name)
            else:
                text = self._conditional(name, values, step)
                try:
                    fixed[name] = self._chosen(text, step)
                except _TooManyValuesError:
                    open_[name] = text
        while self._combinations(fixed) > _MOST_COMBINATIONS:
            counts = {name: _plain_choices(value) for name, value in fixed.items()}
            name = max(counts, key=lambda key: counts[key])
            if counts[name] < _FEW_CHOICES:
                break
            open_[name] = fixed.pop(name)["value"]
        if step.step["autotune"]:  # each of the kernel's own candidates, for every path
            fixed |= self._coded(step, varying)
            varying = []
        return fixed, self._rows(step, varying), open_

    def _coded(self, step: Step, names: Sequence[str]) -> dict[str, Any]:
        """Constants that depend on the path alone, by the number of their combination."""
        rows: dict[str, tuple[list[Any], set[int]]] = {}
        for leaf, variant in step.variants.items():
            row = [_literal(variant["constants"][name]) for name in names]
            rows.setdefault(repr(row), (row, set()))[1].add(leaf)
        text = self._joined_by_path(
            {str(at): own for at, (_, own) in enumerate(rows.values())}, step
        )
        coded = {}
        for position, name in enumerate(names):
            values = {str(at): row[position] for at, (row, _) in enumerate(rows.values())}
            coded[name] = {"value": text, "choices": values}
        return coded

    def _combinations(self, constants: Mapping[str, Any]) -> int:
        """How many values the constants of a launch have together."""
        chosen = [
            value for value in constants.values() if isinstance(value, dict) and "choices" in value
        ]
        names = sorted({name for value in chosen for name in names_of(value["value"])})
        spans = [self._span(name, [()]) for name in names]
        if math.prod(len(span) for span in spans) > _MOST_CALLS:
            return math.prod(len(value["choices"]) for value in chosen)
        calls = (dict(zip(names, values, strict=True)) for values in itertools.product(*spans))
        return len({tuple(evaluated(v["value"], call) for v in chosen) for call in calls})

    def _rows(self, step: Step, varying: Sequence[str]) -> list[dict[str, Any]]:
        """The candidates of a launch: constants and options that depend on the path."""
        rows: dict[str, tuple[dict[str, Any], set[int]]] = {}
        for leaf, variant in step.variants.items():
            row = {name: _literal(variant["constants"][name]) for name in varying}
            for option, value in variant["options"].items():
                if value is None or {option: next(iter(value.values()))} in _WITHOUT_MEANING:
                    continue
                if option not in _OPTIONS:
                    raise CaptureError(f"has the launch option `{option}`", step.step["line"])
                row[option] = _literal(value)
            rows.setdefault(repr(row), (row, set()))[1].add(leaf)
        others = set(self.program.outputs) - step.leaves | self.refused
        candidates = []
        for row, leaves in rows.values():
            # Also of the last: no tuned table may choose it for other calls.
            when = self.toplevel.condition(leaves, others)
            candidates.append({**row, **({"when": when} if when != "True" else {})})
        return candidates if any(candidates) else []

    def _dtype_constant(self, values: Mapping[int, Any]) -> str:
        dtypes = {leaf: value["dtype"] for leaf, value in values.items()}
        configurations = {leaf: self.program.paths[leaf].configuration.dtypes for leaf in dtypes}
        inputs = [a.name for a in self.arguments if a.kind.startswith("Tensor")]
        rule = self._dtype_rule("", dtypes, configurations, inputs)
        if rule is None:
            raise CaptureError("a constant that is a dtype depends on the path")
        return rule

    def _fixed(self, value: Any, step: Step) -> Any:
        if _is_literal(value):
            literal = _literal(value)
            return {"string": literal} if value and "string" in value else literal
        ((kind, text),) = value.items()
        if kind == "bool":
            return text
        if kind == "float":
            raise _TooManyValuesError
        return self._chosen(text, step)

    def _conditional(self, name: str, values: Mapping[int, Any], step: Step) -> str:
        """A constant that is one expression on some paths and another on others."""
        groups: dict[str, set[int]] = {}
        for leaf, value in values.items():
            if value is None or next(iter(value)) not in ("int", "bool"):
                raise CaptureError(f"the constant `{name}` is of several kinds", step.step["line"])
            groups.setdefault(next(iter(value.values())), set()).add(leaf)
        return self._joined_by_path(groups, step)

    def _joined_by_path(self, groups: Mapping[str, set[int]], step: Step) -> str:
        """One expression of several, each with the paths that it is for."""
        others = set(self.program.outputs) - step.leaves | self.refused
        text = ""
        for expression, leaves in groups.items():
            if not text:
                text = expression
                continue
            condition = self.toplevel.condition(leaves, others)
            text = f"{expression} if {condition} else ({text})"
        return text

    def _chosen(self, text: str, step: Step) -> dict[str, Any]:
        """An expression with all values that it has within the bounds."""
        choices: set[int] = set()
        conditions = [
            [
                question if answer else f"not ({question})"
                for question, answer in self.program.paths[leaf].answers
            ]
            for leaf in step.leaves
        ]
        names = sorted(names_of(text))
        spans = [self._span(name, conditions) for name in names]
        if math.prod(len(span) for span in spans) > _MOST_VALUES:
            found = self._powers(text)
            if found is None:
                raise _TooManyValuesError
            return {"value": text, "choices": found}
        decidable = [[c for c in condition if names_of(c) <= {*names}] for condition in conditions]
        for values in itertools.product(*spans):
            known = dict(zip(names, values, strict=True))
            if any(all(_holds(c, known) for c in condition) for condition in decidable):
                choices.add(int(evaluated(text, known)))
                if len(choices) > _MOST_CHOICES:
                    raise _TooManyValuesError
        return {"value": text, "choices": sorted(choices)}

    def _span(self, name: str, conditions: Sequence[Sequence[str]]) -> Sequence[int]:
        """The values of a size on the paths with these conditions."""
        known = {"capability()": CAPABILITIES, **self.bounds}
        least, most = known.get(name, (1, 2**31 - 1))
        equalities = [
            {int(c.partition(" == ")[2]) for c in condition if re.fullmatch(rf"{name} == \d+", c)}
            for condition in conditions
        ]
        if all(equalities):
            return sorted(set().union(*equalities))
        return range(least, most + 1)

    def _powers(self, text: str) -> list[int] | None:
        """Powers of two, where the expression can be nothing else."""
        if re.fullmatch(r"next_pow2\([^()]*(\([^()]*\)[^()]*)*\)", text):
            return [1 << at for at in range(21)]
        return None


def _launch_number(value: Mapping[str, str]) -> Any:
    """A number or a boolean as an argument of a launch."""
    ((kind, text),) = value.items()
    if kind not in ("bool", "float", "int"):
        raise CaptureError(f"passes the argument `{text}` of the kind {kind}")
    if kind == "bool":
        return text == "True" if text in ("True", "False") else text
    if kind == "float":
        return float(text) if _is_number(text) else text
    return _number(text)


def _with_dots(shape: Any, batch: Sequence[str]) -> Any:
    if not isinstance(shape, list):
        return shape
    for at in range(len(shape) - len(batch) + 1):
        if [*map(str, shape[at : at + len(batch)])] == [*batch]:
            return [*shape[:at], "...", *shape[at + len(batch) :]]
    return shape


class _TooManyValuesError(Exception):
    """A constant that images cannot be compiled for each value of."""


def _holds(condition: str, known: Mapping[str, int | float]) -> bool:
    try:
        return truth(condition, known)
    except ArithmeticError:
        return False


def _written_roots(step: Mapping[str, Any]) -> Iterator[str]:
    if "launch" in step:
        for name in step["written"]:
            value = step["arguments"].get(name)
            if value and "tensor" in value:
                yield value["tensor"]
    else:
        yield from step["written"]


def _product(sizes: Sequence[str]) -> tuple[str, ...]:
    parts = [part for size in sizes for part in size.split(" * ")]
    number = math.prod(int(part) for part in parts if part.isdigit())
    parts = [part for part in parts if not part.isdigit()] + [str(number)] * (number != 1)
    rows = [part for part in parts if part in BATCH]
    if len(rows) > 1 or rows == [BATCH[0]]:
        parts = [part for part in parts if part not in BATCH] + [ROWS]
    return tuple(sorted(parts))


def _is_contiguous(value: Mapping[str, Any]) -> bool:
    expected: list[str] = []
    for size, stride in zip(reversed(value["sizes"]), reversed(value["strides"]), strict=True):
        if _product([stride]) != _product(expected):
            return False
        expected.append(size)
    return True


def _is_literal(value: Any) -> bool:
    if value is None or "string" in value:
        return True
    kind, text = next(iter(value.items()))
    return (
        text in ("True", "False")
        if kind == "bool"
        else kind in ("int", "float") and _is_number(text)
    )


def _literal(value: Any) -> Any:
    if value is None:
        return "None"
    ((kind, text),) = value.items()
    if kind == "bool":
        return text == "True"
    return text if kind == "string" else _number(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(text: str) -> int | float | str:
    """A number where the text is one; `inf` and `nan` stay texts."""
    try:
        return int(text)
    except ValueError:
        pass
    return float(text) if _is_number(text) and math.isfinite(float(text)) else text


def _numbers(texts: Sequence[str]) -> list[Any]:
    return [_number(text) for text in texts]


def _plain_choices(value: Any) -> int:
    """How many values a constant has, if it need not be one: block sizes are powers of two."""
    choices = value.get("choices", ()) if isinstance(value, dict) else ()
    is_block = all(choice & (choice - 1) == 0 for choice in choices)
    return 0 if is_block else len(choices)
