"""Reads a function's recorded runs as ops, and as the Python that calls them."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kbuild.plugins.capture.backward import (
    BackwardOp,
    SplitRun,
    backward_paths,
    place_of,
    with_copy,
    written_arguments,
)
from kbuild.plugins.capture.conditions import choice_conditions, question_of
from kbuild.plugins.capture.programs import (
    CapturedArgument,
    CaptureError,
    Configuration,
    Path,
    merged,
    roots_of,
    with_copies,
    with_sizes,
)
from kbuild.plugins.capture.questions import BACKWARD_PREFIX, PREFIX, asked_by, schema_of
from kbuild.plugins.capture.results import in_python, origin_of
from kbuild.plugins.capture.sections import OpWriter
from kbuild.plugins.capture.tuning import tuning_sizes
from kbuild.plugins.capture.values import expanded, names_in, names_of
from kbuild.plugins.capture.wrappers import CapturedOp, CapturedWrapper

_NOT_FOLLOWED: Mapping[str, Any] = {
    "raises": "takes a path that was not followed", "place": "", "boundary": {}, "decisions": {},
    "hints": {}, "outputs": [], "saved": [], "gradients": [], "steps": [], "buffers": [],
    "structure": "", "classes": {}, "without_gradient": [],
}  # fmt: skip
"""A path for which no call was found: one that takes it is refused."""


@dataclass
class FunctionReader:
    """Reads the answer of the worker for one function."""

    name: str
    answer: Mapping[str, Any]
    described: Mapping[str, Mapping[str, Any]]
    bounds: Mapping[str, tuple[int, int]]
    defaults: Mapping[str, str] = field(default_factory=dict)
    batch: int = 2
    """Number of dimensions that `...` stood for in the runs."""
    extra_sizes: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Size that the backward op takes as an argument -> the tensor and the dimension it is of."""

    @property
    def _place(self) -> str:
        """The author's line with the function."""
        return f"{self.answer['source']}:{self.answer['line']}"

    def read(self) -> CapturedWrapper:
        """Build the forward op and the backward op.

        Raises:
            CaptureError: they cannot be written.
        """
        sizes = {str(size) for d in self.described.values() for size in d.get("shape", ())}
        for name in sorted(sizes & {*self.answer["parameters"]}):
            raise CaptureError(f"has a parameter `{name}`: name the dimension `{name}` otherwise")
        self._rename(sizes)
        runs = list(self._runs())
        if all(trace["raises"] for _, trace in runs):
            # The path with the most decisions is the one that comes closest to an end.
            _, trace = max(runs, key=lambda run: len(run[1]["guards"]))
            raise CaptureError(f"ends in an error on every path: {trace['raises']}", trace["place"])
        good = next(trace for _, trace in runs if not trace["raises"])
        described = {name for name, table in self.described.items() if "value" not in table}
        parameters = [p for p in self.answer["parameters"] if p in described]
        # Before an argument without a default there can be none with one.
        named = [(name, self.defaults.get(name, "")) for name in reversed(parameters)]
        self.defaults = dict(itertools.takewhile(lambda pair: pair[1], named))
        inputs = [CapturedArgument(p, *self._described(p)) for p in parameters]
        structure = self._structure([trace for _, trace in runs if not trace["raises"]])
        inputs += self._asked(trace for _, trace in runs)
        outs = self._output_names(good)
        more = {"structure": structure, "classes": good["classes"]}
        split = self._split(runs, parameters)
        refused = self._refused_gradients(split)
        if not good["boundary"] or refused:
            paths = [
                self._path(s.configuration, s.trace, s.trace["outputs"], s.forward) for s in split
            ]
            forward = self._op(self.name, inputs, paths, outs)
            wrapper = self._wrapper(parameters, forward, None, (), outs)
            return replace(wrapper, refused_gradients=refused, **more)
        runs, places = self._with_copies(runs, inputs)
        split = self._split(runs, parameters)
        saved = list(dict.fromkeys(name for s in split for name in s.kept.values()))
        forward_paths = [
            self._path(s.configuration, s.trace, s.forward_outputs(saved), s.forward) for s in split
        ]
        forward = self._op(f"_{self.name}_forward", inputs, forward_paths, [*outs, *saved])
        backward = self._backward(split, inputs, forward, outs, saved)
        taken = [s.trace["without_gradient"] for s in split if not s.trace["raises"]]
        marked = set(taken[0]).intersection(*taken)
        results = tuple(forward.outputs[at][1] for at in sorted(marked))
        wrapper = self._wrapper(parameters, forward, backward, saved, outs)
        copied = {forward.outputs[at][1]: name for name, at in places.items()}
        return replace(wrapper, without_gradient=results, copied=copied, **more)

    def _split(
        self,
        runs: Sequence[tuple[Configuration, Mapping[str, Any]]],
        parameters: Sequence[str],
    ) -> list[SplitRun]:
        names: dict[str, str] = {}
        return [SplitRun(known, trace, tuple(parameters), names) for known, trace in runs]

    def _structure(self, traces: Sequence[Mapping[str, Any]]) -> str:
        """The Python expression that the function returns, with placeholders for its tensors.

        Raises:
            CaptureError: that depends on the path.
        """
        structures = dict.fromkeys(trace["structure"] for trace in traces)
        if len(structures) > 1:
            texts = " and ".join(re.sub(r"{\d+}", "...", text) for text in structures)
            texts = re.sub(r"{(\w+)}", r"\1", texts)
            message = f"returns `{texts}` on different paths: return the same on all of them"
            raise CaptureError(message, self._place)
        return str(next(iter(structures)))

    def _refused_gradients(self, split: Sequence[SplitRun]) -> tuple[str, ...]:
        """Arguments with a gradient by calls of ATen alone, which no op computes."""
        if any("launch" in step for s in split for step in s.rest["steps"]):
            return ()
        gradients = [s.trace["gradients"] for s in split if s.trace["gradients"]]
        names = self.answer["parameters"]
        return tuple(name for at, name in enumerate(names) if any(g[at] for g in gradients))

    def _asked(self, traces: Iterable[Mapping[str, Any]]) -> Iterator[CapturedArgument]:
        """Arguments of the forward op that are asked for at each call."""
        names = {name.partition(" ")[0] for trace in traces for name in trace["decisions"]}
        for name in sorted(names):
            if _is_asked_forward(name):
                kind, default = schema_of(name)
                yield CapturedArgument(name, kind, default=default)

    def _with_copies(
        self,
        runs: Sequence[tuple[Configuration, Mapping[str, Any]]],
        inputs: Sequence[CapturedArgument],
    ) -> tuple[list[tuple[Configuration, Mapping[str, Any]]], dict[str, int]]:
        """Runs that write to no argument, and arguments with the output that each of them is."""
        arguments = {a.name: a for a in inputs if a.kind.startswith("Tensor")}
        places = {}
        changed = [(configuration, dict(trace)) for configuration, trace in runs]
        for name in written_arguments([trace for _, trace in runs], arguments):
            is_contiguous = (
                self.described[name].get("contiguous") or name in self.answer["contiguous"]
            )
            if not is_contiguous or arguments[name].kind != "Tensor":
                message = f"writes to `{name}`: declare it with `contiguous = true`"
                raise CaptureError(message, self._place)
            sizes = arguments[name].sizes
            changed = [(c, with_copy(trace, name, sizes, self._place)) for c, trace in changed]
            outputs = {
                place_of(trace, name, self._place) for _, trace in changed if not trace["raises"]
            }
            if len(outputs) > 1:
                message = f"returns `{name}` in other places on other paths"
                raise CaptureError(message, self._place)
            places[name] = outputs.pop()
        return [*changed], places

    def _rename(self, sizes: set[str]) -> None:
        """Give dimensions other names where a kernel has a constant of the same name."""
        traces = [trace for run in self.answer["runs"] for trace in run["traces"]]
        constants = {
            name
            for trace in traces
            for step in trace["steps"]
            for name, value in step.get("constants", {}).items()
            # A constant that is the dimension itself may have its name.
            if value != {"int": name}
        }
        names = {size: f"{size}_size" for size in sorted(sizes & constants)}
        if not names:
            return
        runs = [
            {**run, **{key: with_sizes(run[key], names) for key in ("traces", "unproven")}}
            for run in self.answer["runs"]
        ]
        samples = [
            {**sample, "trace": with_sizes(sample["trace"], names)}
            for sample in self.answer.get("samples", ())
        ]
        self.answer = {**self.answer, "runs": runs, "samples": samples}
        self.bounds = {names.get(name, name): span for name, span in self.bounds.items()}
        self.described = {
            name: {**d, "shape": [names.get(str(size), size) for size in d["shape"]]}
            if "shape" in d
            else d
            for name, d in self.described.items()
        }

    def _wrapper(
        self,
        parameters: Sequence[str],
        forward: CapturedOp,
        backward: CapturedOp | None,
        saved: Sequence[str],
        outs: Sequence[str],
    ) -> CapturedWrapper:
        tensors = tuple(name for name in parameters if "shape" in self.described[name])
        named = tuple((name, self.defaults.get(name, "")) for name in parameters)
        return CapturedWrapper(
            self.name, named, forward, backward, tuple(saved),
            tuple(self.answer["parameters"]), tensors, tuple(outs), self.extra_sizes,
        )  # fmt: skip

    def _runs(self) -> Iterator[tuple[Configuration, Mapping[str, Any]]]:
        every = [run["configuration"] for run in self.answer["runs"]]
        for run in self.answer["runs"]:
            known = run["configuration"]
            answers = []
            for capability in dict.fromkeys(r["capability"] for r in every if "capability" in r):
                is_own = capability == known.get("capability")
                answers.append((f"capability() == {capability}", is_own))
                if is_own:
                    break
            for key, value in known.items():
                if key == "capability":
                    continue
                others = list(dict.fromkeys(json.dumps(other.get(key)) for other in every))
                if len(others) > 1:
                    kind, _, name = key.partition(":")
                    # It is the dtype of another argument, which has a condition of its own.
                    if kind == "dtype" and isinstance(self.described[name]["dtypes"], str):
                        continue
                    answers += choice_conditions(kind, name, value, [json.loads(o) for o in others])
            dtypes = {
                k[6:]: v
                for k, v in known.items()
                if k.startswith("dtype:") and known.get(f"has:{k[6:]}", True)
            }
            for trace in run["traces"]:
                yield Configuration(dtypes, tuple(answers)), trace
            for conditions in run["unproven"]:
                yield Configuration(dtypes, tuple(answers)), {**_NOT_FOLLOWED, "guards": conditions}

    def _described(self, name: str) -> tuple[str, tuple[str, ...], tuple[str, ...], str]:
        described = self.described[name]
        default = self.defaults.get(name, "")
        if "shape" in described:
            kind = "Tensor?" if described.get("optional") else "Tensor"
            dtypes = described["dtypes"]
            listed = tuple(dtypes) if isinstance(dtypes, list) else ()
            return kind, expanded(described["shape"], self.batch), listed, default
        if "choices" in described:
            return type(described["choices"][0]).__name__, (), (), default
        return described["kind"], (), (), default

    def _output_names(self, trace: Mapping[str, Any]) -> list[str]:
        outputs = trace["outputs"]
        numbers = [""] if len(outputs) == 1 else range(len(outputs))
        parameters = {*self.answer["parameters"]}
        stems = ("out", "result", "returned")
        named = ([f"{stem}{number}" for number in numbers] for stem in stems)
        return next(names for names in named if not parameters & {*names})

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
            if part.get("decisions") or _is_asked_forward(name)
        ]
        questions += [question_of(guard) for guard in part["guards"]]
        copied = with_copies(part, outputs)
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
        places = [
            origin_of(at, name, arguments, program, self._place) for at, name in enumerate(outputs)
        ]
        writer = OpWriter(name, arguments, program, outputs, self.bounds, self.answer["contiguous"])
        section = writer.section()
        # The schema lists every argument, whether the op uses it or not.
        text = json.dumps({**section, "schema": ""})
        asked = {a.name for a in arguments if a.name.startswith(PREFIX)}
        # The op does not depend on these answers: write it again without them.
        if unused := {name for name in asked if not re.search(rf"\b{name}\b", text)}:
            arguments = [argument for argument in arguments if argument.name not in unused]
            paths = [
                replace(
                    path,
                    answers=tuple(a for a in path.answers if a[0].partition(" ")[0] not in unused),
                )
                for path in paths
            ]
            return self._op(name, arguments, paths, outputs)
        usual = {a.name: values for a in arguments if (values := self._values(a))}
        if sizes := tuning_sizes(section, arguments, program.steps, self.bounds, usual):
            section["tune"] = {"sizes": sizes}
        results, same = tuple(writer.results.all()), writer.results.same
        places = [(kind, same.get(name, name), *more) for kind, name, *more in places]
        empty = {name: in_python(condition) for name, condition in writer.results.empty.items()}
        places = [(*place, empty[place[1]]) if place[1] in empty else place for place in places]
        return CapturedOp(
            name,
            section,
            writer.results.shapes,
            tuple(a.name for a in arguments),
            results,
            tuple(places),
        )

    def _values(self, argument: CapturedArgument) -> Sequence[Any]:
        """The values of an argument that is neither a tensor nor a size, the usual one first."""
        if argument.name.startswith(PREFIX):
            return asked_by(argument.name)[0].choices[:1] or (False,)
        if argument.kind == "bool" and argument.name not in self.described:
            return (True,)
        described = self.described.get(argument.name, {})
        if "choices" in described:
            default = self.defaults.get(argument.name)
            return sorted(described["choices"], key=lambda choice: repr(choice) != default)
        return (described["example"],) if "example" in described else ()

    def _backward(
        self,
        split: Sequence[SplitRun],
        inputs: Sequence[CapturedArgument],
        forward: CapturedOp,
        outs: Sequence[str],
        saved: Sequence[str],
        *,
        asked: Collection[str] = (),
    ) -> CapturedOp:
        paths, used, names = [], {*asked}, set[str]()
        gradients = [f"d_{name}" for name in self.answer["parameters"]]
        for one in split:
            part, outputs = one.backward(outs)
            path = self._path(one.configuration, one.trace, outputs, part)
            paths.append(path)
            used |= roots_of(path.steps) | roots_of(outputs)
            names |= names_in([path.steps, path.buffers, path.outputs])
            names |= set().union(*(names_of(question) for question, _ in path.answers))
        maybe = forward.section.get("returned", {})
        backward = BackwardOp(inputs, forward.shapes, maybe, self._place)
        arguments = backward.tensors(split, used, outs, saved)
        scalars, self.extra_sizes = backward.scalars(names, arguments, paths)
        arguments += scalars
        own = {a.name for a in inputs}
        optional = [a.name for a in arguments if a.kind == "Tensor?" and a.name not in own]
        paths = backward_paths(paths, split, arguments, outs, optional)
        op = self._op(f"_{self.name}_backward", arguments, paths, gradients)
        text = json.dumps(op.section)
        # Of some tensors, the op asks only whether they are there, or for the dtype.
        asked = {
            a.name
            for a in inputs
            if a.name not in used and re.search(rf"\b(?:has|dtype)\({a.name}\)", text)
        }
        return self._backward(split, inputs, forward, outs, saved, asked=asked) if asked else op


def _is_asked_forward(name: str) -> bool:
    """True if a decision of the forward pass is about the process, not about an argument."""
    return name.startswith(PREFIX) and not name.startswith(BACKWARD_PREFIX)
