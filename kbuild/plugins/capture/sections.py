"""Writes a merged program as the table of an op, in the language of `build.toml`."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.plugins.capture.conditions import tree_of
from kbuild.plugins.capture.constants import ConstantWriter, dtype_rule
from kbuild.plugins.capture.programs import (
    Buffer,
    CapturedArgument,
    CaptureError,
    Program,
    Step,
    roots_of,
    written_roots,
)
from kbuild.plugins.capture.results import OpResults
from kbuild.plugins.capture.values import (
    BATCH,
    CAPABILITIES,
    ROWS,
    is_contiguous,
    launch_number,
    literal,
    names_of,
    number_of,
    usual,
    with_batch,
)

# Triton compiles another kernel for integers that are divisible by it.
_DIVISOR = 16
_LARGEST = 2**31 - 1
"""Upper bound of a size that has none in `sizes`."""


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

    def __post_init__(self) -> None:
        self.views: dict[str, dict[str, Any]] = {}
        self.given: list[str] = []
        """Requirements: a tensor that may be None is there wherever a step uses it."""
        self.tree = tree_of({leaf: p.answers for leaf, p in enumerate(self.program.paths)})
        # The author's errors are leaves that no call may take.
        refused = {leaf for leaf, path in enumerate(self.program.paths) if path.raises}
        names = [argument.name for argument in self.arguments]
        writes = bool(self.mutated())
        self.results = OpResults(self.program, self.tree, refused, names, writes)
        tensors = [a.name for a in self.arguments if a.kind.startswith("Tensor")]
        self.constants = ConstantWriter(
            self.program, self.tree, refused, self.bounds, names, tensors
        )

    def section(self) -> dict[str, Any]:
        """The op's table.

        Raises:
            CaptureError: something cannot be written.
        """
        # Steps refer to results by name, and add views and requirements: the order matters.
        self.results.read(self.outputs)
        self.views |= self.results.views
        launches = [self._step(step) for step in self.program.steps]
        launches += self.results.steps(self._tensor)
        temporaries = [b.name for b in self._temporaries()]
        # An op returns a view of a temporary alone.
        results = self.results.all()
        temporaries += [name for name in self.results.shapes if name not in results]
        needed = {"schema": self._schema(), "shapes": self._shapes(), "dtypes": self._dtypes()}
        more = {
            "contiguous": [a.name for a in self.arguments if a.name in self.contiguous],
            "require": self._requirements(),
            "temporaries": temporaries,
            "fill": self._fills(),
            "views": self.views,
            "returned": self.results.returned,
        }
        given = {key: value for key, value in more.items() if value}
        table: dict[str, Any] = {**needed, **given, "launch": launches}
        owner = next((a for a in self.arguments if BATCH[0] in a.sizes), None)
        return with_batch(table, owner.name, owner.sizes) if owner is not None else table

    def _fills(self) -> dict[str, Any]:
        fills: dict[str, Any] = {}
        for buffer in self.program.buffers.values():
            if buffer.fill is not None:
                value = literal(buffer.fill)
                if fills.setdefault(self.results.tensor_name(buffer.name), value) != value:
                    message = "a result has other values in the beginning on other paths"
                    raise CaptureError(message, buffer.line)
        return fills

    def _temporaries(self) -> list[Buffer]:
        return [b for b in self.program.buffers.values() if b.name not in self.results.names]

    def mutated(self) -> set[str]:
        """Arguments that a step may write to."""
        tensors = {a.name for a in self.arguments if a.kind.startswith("Tensor")}
        written: set[str] = set()
        for step in self.program.steps:
            written |= {self._origin(name) for name in written_roots(step.step)}
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
        names = [
            f"Tensor{'?' * (name in self.results.returned)} {name}" for name in self.results.all()
        ]
        return f"{self.name}({', '.join(parts)}) -> ({', '.join(names)})"

    def _shapes(self) -> dict[str, Any]:
        shapes: dict[str, Any] = {
            a.name: list(a.sizes) for a in self.arguments if a.sizes or a.kind.startswith("Tensor")
        }
        for buffer in self._temporaries():
            shapes[buffer.name] = list(buffer.sizes)
        return {**shapes, **self.results.shapes}

    def _dtypes(self) -> dict[str, Any]:
        configurations = {leaf: path.configuration.dtypes for leaf, path in self.program.taken()}
        inputs = [a.name for a in self.arguments if a.kind.startswith("Tensor")]
        rules: dict[str, Any] = {}
        for name in inputs:
            values = {leaf: dtypes.get(name) for leaf, dtypes in configurations.items()}
            rules[name] = dtype_rule(name, values, configurations, [*rules]) or sorted(
                {value for value in values.values() if value}
            )
        for buffer in self.program.buffers.values():
            rule = dtype_rule(buffer.name, buffer.dtypes, configurations, inputs)
            if rule is None:
                raise CaptureError("the dtype of a tensor depends on the path", buffer.line)
            if rules.setdefault(self.results.tensor_name(buffer.name), rule) != rule:
                raise CaptureError("the dtype of a result depends on the path", buffer.line)
        for name, copies in self.results.copies.items():
            kinds = [rules[self.results.tensor_name(value["tensor"])] for value, _ in copies]
            if any(kind != kinds[0] for kind in kinds):
                raise CaptureError(f"the dtype of the result `{name}` depends on the path")
            rules[name] = kinds[0]
        return rules

    def _requirements(self) -> list[str]:
        requirements = []
        available = {size for argument in self.arguments for size in argument.sizes}
        for name, (least, most) in self.bounds.items():
            if name in available:
                if least > 0:
                    requirements.append(f"{name} >= {least}")
                if most < _LARGEST:
                    requirements.append(f"{name} <= {most}")
        requirements += self.results.equal_sizes
        # The GPU that a path was captured for; none if it is for all those of NVIDIA.
        archs = [
            {q for q, yes in path.configuration.answers if yes and q.startswith("capability() == ")}
            for path in self.program.paths
        ]
        if all(archs):
            requirements.append(" or ".join(sorted(set().union(*archs))))
        elif not any(archs) and any(
            "capability()" in question
            for path in self.program.paths
            for question, _ in path.answers
        ):
            requirements.append(f"capability() >= {CAPABILITIES[0]}")
        taken = {leaf for leaf, _ in self.program.taken()}
        return [*requirements, *self.tree.requirements(taken), *dict.fromkeys(self.given)]

    def _step(self, step: Step) -> dict[str, Any]:
        table = self._launch(step) if "launch" in step.step else self._aten(step)
        when = self.results.when(step.leaves)
        roots = roots_of([step.step])
        for argument in self.arguments:
            given = f"has({argument.name})"
            if argument.kind != "Tensor?" or argument.name not in roots or given in when:
                continue
            # The step runs only with the tensor, although its condition does not name it: without
            # `has`, an image would be compiled for a call that lacks the tensor.
            without = f"{given} or not ({when})"
            self.given.append(given if when == "True" else without)
            when = given if when == "True" else f"({when}) and {given}"
        if when != "True":
            table["when"] = when
        return table

    def _aten(self, step: Step) -> dict[str, Any]:
        return {
            "aten": step.step["aten"],
            "arguments": [
                # A dtype may be another one on each path.
                {
                    "dtype": self.constants.dtype_constant(
                        {leaf: own["arguments"][at] for leaf, own in step.variants.items()}
                    )
                }
                if value and "dtype" in value and "tensor" not in value
                else self._aten_argument(value)
                for at, value in enumerate(step.step["arguments"])
            ],
            "results": [self.results.tensor_name(name) for name in step.step["results"]],
        }

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
        return number_of(text) if kind != "bool" else text == "True"

    def _tensor(self, value: Mapping[str, Any], *, is_array: bool = False) -> str:
        """The name of a tensor, or of a view of it."""
        root = value["tensor"]
        name = self.results.tensor_name(root)
        buffer = self.program.buffers.get(root)
        if buffer is not None:
            same = [*value["sizes"]] == [*buffer.sizes] and [*value["strides"]] == [*buffer.strides]
            # The op allocates dense memory; only what ATen produces has the strides of the run.
            same = same and (buffer.produced or is_contiguous(value))
            # A result may have a conditional shape, which the sizes on this path are not.
            if root in self.results.names and name in self.results.shapes:
                same = same and [*value["sizes"]] == self.results.shapes[name]
        else:
            argument = next(a for a in self.arguments if a.name == root)
            own = [f"stride({root}, {axis})" for axis in range(len(argument.sizes))]
            same = [*value["sizes"]] == [*argument.sizes] and (
                [*value["strides"]] == own or (root in self.contiguous and is_contiguous(value))
            )
        # An array has as many dimensions as in the run, whatever `...` stands for.
        has_batch = any(names_of(size) & {*BATCH, ROWS} for size in value["sizes"])
        same = same and not (is_array and has_batch)
        if same and value["offset"] == "0":
            return name
        view: dict[str, Any] = {"of": name, "shape": [*map(number_of, value["sizes"])]}
        if not is_contiguous(value):
            view["strides"] = [*map(number_of, value["strides"])]
        if value["offset"] != "0":
            view["offset"] = number_of(value["offset"])
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
            table["args"][name] = self._launch_argument(value, is_array=bool(launch.get("arrays")))
            if value and "int" in value and name in launch.get("specialized", (name,)):
                integers.append((name, usual(value["int"])))
            if value and "tensor" in value and launch.get("arrays"):
                integers += self._array_parts(name, value)
        table["grid"] = [number_of(text) for text in launch["grid"]]
        constants, rows, open_ = self.constants.constants(step)
        varying = {name: None for row in rows for name in row} if rows else {}
        self._judge_names(launch, {**varying, **constants})
        if launch["key"] is not None and rows:
            options = ", ".join(sorted({name for row in rows for name in row} - {"when"}))
            message = f"launches an autotuned kernel with the option `{options}`"
            raise CaptureError(f"{message}: set it in its candidates", launch["line"])
        for name, text in open_.items():
            table["args"][name] = text
            if "float" not in launch["constants"][name]:
                integers.append((name, text))
        table |= self._assumptions(integers)
        if launch["key"] is not None:
            rows = "autotune"
        if constants:
            table["constants"] = constants
        if rows:
            table["configs"] = rows
        return table

    def _assumptions(self, integers: Sequence[tuple[str, str]]) -> dict[str, list[Any]]:
        """Integers that are 1 or divisible by 16 in ordinary calls, for aligned images.

        Triton decides it for each argument of each call. Strides of last dimensions are 1; sizes of
        last dimensions, other strides and products of them are divisible in most calls. Sizes of
        outer dimensions, such as a number of tokens, often are not: an image assumes it only where
        no size of a last dimension is passed, and then another one does without.
        """
        inner = {f"stride({a.name}, {len(a.sizes) - 1})" for a in self.arguments}
        sizes = {size for size in self._names() - {*BATCH, ROWS} if size.isidentifier()}
        ones = [name for name, text in integers if text in inner or text == "1"]
        last = self._last_dimensions()
        every: list[str] = []
        usual: list[str] = []
        has_last = False
        for name, text in integers:
            # Torch writes `max(N, 1)` for a stride.
            parts = re.sub(r"max\(([^(),]+), 1\)", r"\1", text).split(" * ")
            product = math.prod(int(part) for part in parts if part.isdigit())
            own = {p for p in parts if not p.isdigit() and not p.startswith("stride(")}
            if name in ones or not own <= sizes or (text.isdigit() and product % _DIVISOR):
                continue
            is_certain = not own or product % _DIVISOR == 0
            has_last = has_last or (not is_certain and bool(own & last))
            every.append(name)
            usual.extend([name] if is_certain or own & last else [])
        lists = [usual] if has_last or usual == every else [every, usual]
        table = {"divisible": lists if len(lists) > 1 else lists[0], "ones": ones}
        return {key: names for key, names in table.items() if names}

    def _last_dimensions(self) -> set[str]:
        """Sizes that are the last dimension of as many tensors as they are another one of."""
        tensors = [(a.sizes, a.dtypes) for a in self.arguments]
        tensors += [(b.sizes, tuple(b.dtypes.values())) for b in self.program.buffers.values()]
        votes: Counter[str] = Counter()
        for sizes, dtypes in tensors:
            if dtypes and all(dtype.startswith(("int", "uint", "bool")) for dtype in dtypes):
                continue
            votes.subtract({name for size in sizes[:-1] for name in re.findall(r"\w+", size)})
            votes.update({name for size in sizes[-1:] for name in re.findall(r"\w+", size)})
        return {name for name, count in votes.items() if count >= 0}

    def _judge_names(self, launch: Mapping[str, Any], constants: Mapping[str, Any]) -> None:
        """A constant with the name of a dimension has to be that dimension."""
        for name in sorted(self._names() & constants.keys()):
            value = constants[name]
            if not isinstance(value, dict) or value.get("value") != name:
                message = f"has a constant `{name}` in `{launch['launch']}`: name the dimension"
                raise CaptureError(f"{message} of the same name otherwise", launch["line"])

    def _names(self) -> set[str]:
        return {size for argument in self.arguments for size in argument.sizes}

    def _array_parts(self, name: str, value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """The sizes of an array that no image has as a constant, and strides it is not dense by."""
        words = [("shape", value["sizes"])]
        if not is_contiguous(value):
            words.append(("stride", value["strides"]))
        for word, texts in words:
            for axis, text in enumerate(texts):
                if word == "stride" or not text.isdigit():
                    yield f"{name}.{word}.{axis}", usual(text)

    def _launch_argument(self, value: Any, *, is_array: bool = False) -> Any:
        if value is None:
            return "None"
        if "descriptor" in value:
            return {"tensor": self._tensor(value), **value["descriptor"]}
        if "tensor" in value:
            # Triton has sizes and strides as arguments of their own.
            if value["offset"] == "0" and not is_array:
                return self.results.tensor_name(value["tensor"])
            return self._tensor(value, is_array=is_array)
        if "list" in value:
            return [self._launch_argument(item) for item in value["list"]]
        return launch_number(value)
