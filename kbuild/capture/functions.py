"""From the recorded runs of a function to its ops, and to the Python that joins them."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kbuild.capture.conditions import question_of
from kbuild.capture.expression_values import names_of
from kbuild.capture.programs import CaptureError, Configuration, Path, merged
from kbuild.capture.sections import BATCH, ROWS, CapturedArgument, OpWriter
from kbuild.capture.tuning import tuning_sizes

_NOT_FOLLOWED: Mapping[str, Any] = {
    "raises": "takes a path that was not followed", "place": "", "boundary": {}, "decisions": {},
    "hints": {}, "outputs": [], "saved": [], "gradients": [], "steps": [], "buffers": [],
}  # fmt: skip
"""A path for which no call was found: one that takes it is refused."""
_KERNEL_TABLES = ("args", "constants", "configs")
"""Keys of a launch whose tables have names of the kernel."""
_KINDS = {"float": "float", "int": "int"}


@dataclass(frozen=True)
class CapturedOp:
    """An op, and where its arguments and results belong."""

    name: str
    section: Mapping[str, Any]
    shapes: Mapping[str, Sequence[str]]
    """Of the results, in the names of the runs."""
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...]
    """For each of the function's values: `result` and its name, `argument` and its name, or
    `none`."""

    def to_json(self) -> dict[str, Any]:
        """What the Python around it needs."""
        return {
            "name": self.name,
            "arguments": list(self.arguments),
            "results": list(self.results),
            "outputs": [list(pair) for pair in self.outputs],
        }


@dataclass(frozen=True)
class CapturedWrapper:
    """A function with its ops."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    """Of the Python function: name and default, empty without one."""
    forward: CapturedOp
    backward: CapturedOp | None
    saved: tuple[str, ...]
    """Results of the forward op that only the backward op uses."""
    all_parameters: tuple[str, ...]
    """Of the Python function, those that are not arguments of the op as well."""
    tensors: tuple[str, ...]
    """Parameters that are tensors."""
    outputs: tuple[str, ...]
    """Names of the function's values."""
    sizes: Mapping[str, tuple[str, int]]
    """Arguments of the backward op that are sizes of tensors of the forward op."""

    def to_json(self) -> dict[str, Any]:
        """As `captured/*.json` has it."""
        forward = _distinct(self.forward)
        backward = _distinct(self.backward) if self.backward else None
        ops = [op.section for op in (forward, backward) if op is not None]
        return {
            "name": self.name,
            "schema": self.schema,
            "parameters": [list(pair) for pair in self.parameters],
            "all_parameters": list(self.all_parameters),
            "tensors": list(self.tensors),
            "outputs": list(self.outputs),
            "forward": forward.to_json(),
            "backward": {**backward.to_json(), "sizes": dict(self.sizes)} if backward else None,
            "ops": ops,
        }

    @property
    def schema(self) -> str:
        """Of the op that users call."""
        own = str(self.forward.section["schema"]).partition("(")[2].rpartition(" -> ")[0]
        returned = [value for kind, value in self.forward.outputs if kind != "none"]
        values = returned[: len(self.outputs)]
        result = "Tensor" if len(values) == 1 else f"({', '.join(['Tensor'] * len(values))})"
        return f"{self.name}({own} -> {result}"


def _distinct(op: CapturedOp) -> CapturedOp:
    """The op with other names for arguments that constants of its kernels are called like.

    It is then not the op that users call, whose arguments are those of the function.
    """
    launches = [step for step in op.section["launch"] if "function" in step]
    rows = [row for step in launches for row in step.get("configs", ()) if isinstance(row, dict)]
    constants = {name for step in launches for name in step.get("constants", ())}
    shared = (constants | {name for row in rows for name in row}) & {*op.arguments}
    if not shared:
        return op
    pattern = re.compile(rf"\b(?<!\.)({'|'.join(map(re.escape, sorted(shared)))})\b(?!')")
    section = _with_arguments(op.section, pattern)
    name = op.name if op.name.startswith("_") else f"_{op.name}_forward"
    section["schema"] = name + section["schema"][section["schema"].index("(") :]
    return replace(op, name=name, section=section)


def _with_arguments(value: Any, pattern: re.Pattern[str], *, keeps_keys: bool = False) -> Any:
    """A section with `name_argument` in its expressions for each `name` of the pattern."""
    if isinstance(value, dict):
        return {
            key if keeps_keys else pattern.sub(r"\1_argument", key): _with_arguments(
                inner, pattern, keeps_keys=key in _KERNEL_TABLES or keeps_keys
            )
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_with_arguments(inner, pattern, keeps_keys=keeps_keys) for inner in value]
    return pattern.sub(r"\1_argument", value) if isinstance(value, str) else value


@dataclass
class FunctionReader:
    """Reads the answer of the worker for one function."""

    name: str
    answer: Mapping[str, Any]
    described: Mapping[str, Mapping[str, Any]]
    bounds: Mapping[str, tuple[int, int]]
    defaults: Mapping[str, str] = field(default_factory=dict)
    batch: int = 2
    """How many dimensions `...` stood for in the runs."""
    extra_sizes: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Size that the backward op takes as an argument -> the tensor and the dimension it is of."""

    def read(self) -> CapturedWrapper:
        """Both ops.

        Raises:
            CaptureError: they cannot be written.
        """
        runs = list(self._runs())
        if all(trace["raises"] for _, trace in runs):
            _, trace = runs[0]
            raise CaptureError(f"ends in an error on every path: {trace['raises']}", trace["place"])
        good = next(trace for _, trace in runs if not trace["raises"])
        is_autograd = self.answer["kind"] == "autograd" and bool(good["boundary"])
        parameters = [p for p in self.answer["parameters"] if self._is_argument(p)]
        # Before an argument without a default there can be none with one.
        named = [(name, self.defaults.get(name, "")) for name in reversed(parameters)]
        self.defaults = dict(itertools.takewhile(lambda pair: pair[1], named))
        inputs = [CapturedArgument(p, *self._described(p)) for p in parameters]
        if not is_autograd:
            paths = [self._path(c, t, t["outputs"]) for c, t in runs]
            forward = self._op(self.name, inputs, paths, self._output_names(good))
            return self._wrapper(parameters, forward, None, (), self._output_names(good))
        split = [_Split(configuration, trace, tuple(parameters)) for configuration, trace in runs]
        saved = list(dict.fromkeys(name for s in split for name in s.saved))
        outs = self._output_names(good)
        forward_paths = [
            self._path(s.configuration, s.trace, s.forward_outputs(saved), s.forward) for s in split
        ]
        forward = self._op(f"_{self.name}_forward", inputs, forward_paths, [*outs, *saved])
        if mutated := re.findall(r"!\)\?? (\w+)", str(forward.section["schema"])):
            message = f"writes to `{'`, `'.join(mutated)}`, and Torch differentiates no such op"
            raise CaptureError(message, f"{self.answer['source']}:{self.answer['line']}")
        backward = self._backward(split, inputs, forward, outs, saved)
        return self._wrapper(parameters, forward, backward, saved, outs)

    def _wrapper(
        self,
        parameters: Sequence[str],
        forward: CapturedOp,
        backward: CapturedOp | None,
        saved: Sequence[str],
        outs: Sequence[str],
    ) -> CapturedWrapper:
        tensors = tuple(name for name in parameters if "shape" in self.described[name])
        return CapturedWrapper(
            self.name, self._python_parameters(parameters), forward, backward, tuple(saved),
            tuple(self.answer["parameters"]), tensors, tuple(outs), self.extra_sizes,
        )  # fmt: skip

    def _runs(self) -> Iterator[tuple[Configuration, Mapping[str, Any]]]:
        every = [run["configuration"] for run in self.answer["runs"]]
        for run in self.answer["runs"]:
            known = run["configuration"]
            answers = []
            for key, value in known.items():
                others = list(dict.fromkeys(json.dumps(other.get(key)) for other in every))
                if len(others) > 1:
                    kind, _, name = key.partition(":")
                    if kind == "dtype" and isinstance(self.described[name]["dtypes"], str):
                        continue
                    answers += _choice(kind, name, value, [json.loads(o) for o in others])
            dtypes = {
                k[6:]: v
                for k, v in known.items()
                if k.startswith("dtype:") and known.get(f"has:{k[6:]}", True)
            }
            for trace in run["traces"]:
                yield Configuration(dtypes, tuple(answers)), trace
            for conditions in run["unproven"]:
                yield Configuration(dtypes, tuple(answers)), {**_NOT_FOLLOWED, "guards": conditions}

    def _is_argument(self, name: str) -> bool:
        described = self.described.get(name, {"value": None})
        return "value" not in described

    def _described(self, name: str) -> tuple[str, tuple[str, ...], tuple[str, ...], str]:
        described = self.described[name]
        default = self.defaults.get(name, "")
        if "shape" in described:
            kind = "Tensor?" if described.get("optional") else "Tensor"
            dtypes = described["dtypes"]
            listed = tuple(dtypes) if isinstance(dtypes, list) else ()
            return kind, expanded(described["shape"], self.batch), listed, default
        if "choices" in described:
            kind = {"bool": "bool", "str": "str", "int": "int"}[
                type(described["choices"][0]).__name__
            ]
            return kind, (), (), default
        return _KINDS[described["kind"]], (), (), default

    def _python_parameters(self, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
        return tuple((name, self.defaults.get(name, "")) for name in names)

    def _output_names(self, trace: Mapping[str, Any]) -> list[str]:
        outputs = trace["outputs"]
        return ["out"] if len(outputs) == 1 else [f"out{at}" for at in range(len(outputs))]

    # paths

    def _path(
        self,
        configuration: Configuration,
        trace: Mapping[str, Any],
        outputs: Sequence[Any],
        part: Mapping[str, Any] | None = None,
    ) -> Path:
        part = part or {key: trace[key] for key in ("guards", "steps", "buffers")}
        questions = [*configuration.answers]
        questions += [
            (self._decision(name), answer)
            for name, answer in trace["decisions"].items()
            if part.get("decisions")
        ]
        questions += [question_of(guard) for guard in part["guards"]]
        copied = _with_copies(part, outputs)
        return Path(
            configuration, tuple(questions), copied["steps"], copied["buffers"], outputs,
            trace["hints"], trace["raises"], trace["place"],
        )  # fmt: skip

    def _decision(self, name: str) -> str:
        """`needs_input_grad[1]` is `needs_weight`."""
        match = re.fullmatch(r"needs_input_grad\[(\d+)\]", name)
        return f"needs_{self.answer['parameters'][int(match[1])]}" if match else name

    def _op(
        self,
        name: str,
        arguments: Sequence[CapturedArgument],
        paths: Sequence[Path],
        outputs: Sequence[str],
    ) -> CapturedOp:
        program = merged(paths, [argument.name for argument in arguments])
        writer = OpWriter(name, arguments, program, outputs, self.bounds, self.answer["contiguous"])
        section = writer.section()
        usual = {a.name: values for a in arguments if (values := self._values(a))}
        if sizes := tuning_sizes(section, arguments, program.steps, self.bounds, usual):
            section["tune"] = {"sizes": sizes}
        names = {argument.name for argument in arguments}
        places: list[tuple[str, str]] = []
        for position, output in enumerate(outputs):
            values = [outputs_[position] for outputs_ in program.outputs.values()]
            roots = {value["tensor"] for value in values if value}
            if not roots:
                places.append(("none", ""))
            elif roots <= names:
                if len(roots) > 1 or any(v is None for v in values):
                    raise CaptureError(
                        f"the result `{output}` is a different argument on each path"
                    )
                places.append(("argument", roots.pop()))
            else:
                places.append(("result", writer.same.get(output, output)))
        results = tuple(dict.fromkeys(writer.result_names.values()))
        return CapturedOp(
            name,
            section,
            writer.result_shapes,
            tuple(a.name for a in arguments),
            results,
            tuple(places),
        )

    def _values(self, argument: CapturedArgument) -> Sequence[Any]:
        """The values of an argument that is neither a tensor nor a size, the usual one first."""
        if argument.kind == "bool" and argument.name not in self.described:
            return (True,)
        described = self.described.get(argument.name, {})
        if "choices" in described:
            default = self.defaults.get(argument.name)
            return sorted(described["choices"], key=lambda choice: repr(choice) != default)
        return (described["example"],) if "example" in described else ()

    # the backward pass

    def _backward(
        self,
        split: Sequence[_Split],
        inputs: Sequence[CapturedArgument],
        forward: CapturedOp,
        outs: Sequence[str],
        saved: Sequence[str],
    ) -> CapturedOp:
        paths, used, names = [], set[str](), set[str]()
        gradients = [f"d_{name}" for name in self.answer["parameters"]]
        for one in split:
            part, outputs = one.backward(outs)
            path = self._path(one.configuration, one.trace, outputs, part)
            paths.append(path)
            used |= _roots(path.steps) | _roots(outputs)
            names |= _names_used(path)
        shapes = forward.shapes
        own = {argument.name: argument for argument in inputs}
        arguments: list[CapturedArgument] = []
        for at in range(len(outs)):
            value = next(s.trace["outputs"][at] for s in split if not s.trace["raises"])
            if value and f"grad_{at}" in used:
                arguments.append(CapturedArgument(f"grad_{at}", "Tensor", tuple(value["sizes"])))
        arguments += [
            own[name] for name in own if name in used and own[name].kind.startswith("Tensor")
        ]
        for name in (*outs, *saved):
            if name in used:
                arguments.append(CapturedArgument(name, "Tensor", tuple(map(str, shapes[name]))))
        available = {size for a in arguments for size in a.sizes} | {"sm_count()", "capability()"}
        if any(BATCH[0] in a.sizes for a in arguments):
            available.add(ROWS)
        available |= {
            f"stride({a.name}, {axis})" for a in arguments for axis in range(len(a.sizes))
        }
        names -= {a.name for a in inputs if a.kind.startswith("Tensor")}
        names -= {a.name for a in arguments}
        scalars = [a for a in inputs if not a.kind.startswith("Tensor")]
        scalars = [a for a in scalars if a.name in names]
        missing = sorted(
            n
            for n in names - available - {a.name for a in scalars}
            if n.isidentifier() and not n.startswith("needs_") and not _is_constant_name(n, paths)
        )
        for name in missing:
            self.extra_sizes[name] = next(
                (a.name, a.sizes.index(name)) for a in inputs if name in a.sizes
            )
        extra = [CapturedArgument(name, "int") for name in missing]
        needs = sorted(name for name in names if name.startswith("needs_"))
        extra += [CapturedArgument(name, "bool") for name in needs]
        arguments += [*(CapturedArgument(a.name, a.kind) for a in scalars), *extra]
        arguments = [CapturedArgument(a.name, a.kind, a.sizes, a.dtypes) for a in arguments]
        dtypes = [_backward_dtypes(path, one, outs) for path, one in zip(paths, split, strict=True)]
        paths = [
            Path(
                Configuration(known, path.configuration.answers), path.answers, path.steps,
                path.buffers, path.outputs, path.hints, path.raises, path.place,
            )
            for path, known in zip(paths, dtypes, strict=True)
        ]  # fmt: skip
        return self._op(f"_{self.name}_backward", arguments, paths, gradients)


@dataclass
class _Split:
    """A run with a backward pass, split between the two."""

    configuration: Configuration
    trace: Mapping[str, Any]
    parameters: tuple[str, ...]

    def __post_init__(self) -> None:
        trace, boundary = self.trace, self.trace["boundary"]
        ends = {key: boundary.get(key, len(trace[key])) for key in ("guards", "steps", "buffers")}
        self.forward = {key: trace[key][:end] for key, end in ends.items()}
        self.rest = {key: trace[key][end:] for key, end in ends.items()}
        buffers = {b["name"]: b for b in self.forward["buffers"]}
        self.copies = {name for name, b in buffers.items() if b.get("aliases")}
        used = _roots(self.rest["steps"]) | _roots(trace["gradients"])
        # A copy of an argument is made anew; what it is a copy of is what is kept.
        for name in reversed(list(buffers)):
            if name in used and name in self.copies:
                used.add(buffers[name]["aliases"])
        self.used = used
        outs = {v["tensor"]: at for at, v in enumerate(trace["outputs"]) if v}
        kept = [v["tensor"] for v in trace["saved"] if v]
        own = [name for name in buffers if name not in self.copies and name not in outs]
        self.own = {name: f"saved{kept.index(name)}" for name in own if name in kept}
        self.kept = {
            name: self.own.get(name, f"saved{len(kept) + list(buffers).index(name)}")
            for name in own
            if name in used
        }
        self.outs = outs

    @property
    def saved(self) -> list[str]:
        """Names of what the forward op gives to the backward op."""
        return [*self.kept.values()]

    def forward_outputs(self, saved: Sequence[str]) -> list[Any]:
        """The function's results, then what is saved."""
        # Also where this run's backward pass has no use for it: the forward op cannot know.
        places = {name: root for root, name in (*self.own.items(), *self.kept.items())}
        outputs = list(self.trace["outputs"])
        for name in saved:
            root = places.get(name)
            if root is None:
                outputs.append(None)
                continue
            buffer = next(b for b in self.forward["buffers"] if b["name"] == root)
            outputs.append({
                "tensor": root, "sizes": buffer["sizes"], "strides": buffer["strides"],
                "offset": "0", "dtype": buffer["dtype"],
            })  # fmt: skip
        return outputs

    def backward(self, outs: Sequence[str]) -> tuple[dict[str, Any], list[Any]]:
        """Guards, steps and buffers of the backward op, and its results."""
        trace = self.trace
        if trace["raises"]:
            part = {**self.rest, "guards": trace["guards"], "decisions": True}
            return part, [None] * len(trace["gradients"])
        names = {
            **self.kept,
            **{root: outs[at] for root, at in self.outs.items() if root not in self.parameters},
        }
        copies = self.copies & self.used
        steps = [s for s in self.forward["steps"] if "aten" in s and {*s["results"]} & copies]
        buffers = [b for b in self.forward["buffers"] if b["name"] in copies]
        part = {
            "guards": trace["guards"],
            "decisions": True,
            "steps": _with_names([*steps, *self.rest["steps"]], names),
            "buffers": _with_names([*buffers, *self.rest["buffers"]], names),
        }
        return part, _with_names(trace["gradients"], names)


def expanded(shape: Sequence[Any], batch: int) -> tuple[str, ...]:
    """A shape with names for the dimensions of `...`."""
    return tuple(
        name for size in shape for name in (BATCH[:batch] if size == "..." else (str(size),))
    )


def _backward_dtypes(path: Path, split: _Split, outs: Sequence[str]) -> dict[str, str]:
    """Dtypes of the backward op's tensors in a configuration."""
    dtypes = dict(path.configuration.dtypes)
    for at, value in enumerate(split.trace["outputs"]):
        if value:
            dtypes[f"grad_{at}"] = value["dtype"]
            dtypes[outs[at]] = value["dtype"]
    for root, name in split.kept.items():
        dtypes[name] = next(b["dtype"] for b in split.forward["buffers"] if b["name"] == root)
    return dtypes


def _choice(kind: str, name: str, value: Any, others: Sequence[Any]) -> list[tuple[str, bool]]:
    if kind == "has":
        return [(f"has({name})", bool(value))]
    if isinstance(value, bool):
        return [(name, value)]
    subject = f"dtype({name})" if kind == "dtype" else name
    answers = []
    for other in others[:-1]:  # the last is what is left
        if other is None:
            continue
        answers.append((f"{subject} == {other!r}", other == value))
        if other == value:
            break
    return answers


def _with_copies(part: Mapping[str, Any], outputs: Sequence[Any]) -> dict[str, Any]:
    """Contiguous copies that are written to or returned are always copies."""
    copies = {b["name"] for b in part["buffers"] if b.get("aliases")}
    written = {root for step in part["steps"] for root in _written(step)}
    changed = copies & (written | _roots(outputs))
    steps = [
        {
            **step,
            "aten": "clone",
            "arguments": [step["arguments"][0], {"string": "contiguous_format"}],
        }
        if step.get("aten") == "contiguous" and {*step["results"]} & changed
        else step
        for step in part["steps"]
    ]
    buffers = [{**b, "aliases": ""} if b["name"] in changed else b for b in part["buffers"]]
    return {"steps": steps, "buffers": buffers}


def _written(step: Mapping[str, Any]) -> Iterator[str]:
    if "launch" not in step:
        yield from step["written"]
        return
    for name in step["written"]:
        value = step["arguments"].get(name)
        if value and "tensor" in value:
            yield value["tensor"]


def _roots(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        roots = {value["tensor"]} if "tensor" in value else set()
        return roots.union(*(_roots(item) for item in value.values()))
    return (
        set().union(*(_roots(item) for item in value))
        if isinstance(value, (list, tuple))
        else set()
    )


def _with_names(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        result = {key: _with_names(item, names) for key, item in value.items()}
        for key in ("tensor", "name", "aliases"):
            if isinstance(value.get(key), str):
                result[key] = names.get(value[key], value[key])
        for key in ("results", "written"):
            if "aten" in value and key in value:
                result[key] = [names.get(name, name) for name in value[key]]
        return result
    return (
        [_with_names(item, names) for item in value] if isinstance(value, (list, tuple)) else value
    )


def _names_used(path: Path) -> set[str]:
    """Names in the expressions of a path."""
    names: set[str] = set()

    def visit(value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                if key in ("int", "float", "bool", "offset") and isinstance(item, str):
                    names.update(names_of(item))
                elif key in ("sizes", "strides", "grid") and isinstance(item, list):
                    for text in item:
                        names.update(names_of(text))
                else:
                    visit(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                visit(item)

    visit(path.steps)
    visit(path.buffers)
    visit(path.outputs)
    for question, _ in path.answers:
        names |= names_of(question)
    return names


def _is_constant_name(name: str, paths: Sequence[Path]) -> bool:
    """Whether a name is a constant of a kernel's own candidates."""
    return any(name in step.get("autotune", ()) for path in paths for step in path.steps)
