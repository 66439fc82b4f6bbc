"""Splits a run into a forward and a backward op; a forward that writes to an argument copies it.

Torch differentiates no op that writes to an argument. Such an op writes to a copy, and Python
copies the result back, which Torch differentiates.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbuild.plugins.capture.programs import (
    CapturedArgument,
    CaptureError,
    Configuration,
    Path,
    roots_of,
    with_names,
    written_roots,
)
from kbuild.plugins.capture.questions import BACKWARD_PREFIX, schema_of
from kbuild.plugins.capture.values import BATCH, ROWS, factors


@dataclass
class SplitRun:
    """A run with a backward pass, split between the two."""

    configuration: Configuration
    trace: Mapping[str, Any]
    parameters: tuple[str, ...]
    names: dict[str, str]
    """Key of a tensor of the forward pass, see `_keys` -> the result that saves it, in all runs."""

    def __post_init__(self) -> None:
        trace, boundary = self.trace, self.trace["boundary"]
        # A run without a backward pass is forward to its end.
        ends = {key: boundary.get(key, len(trace[key])) for key in ("guards", "steps", "buffers")}
        self.forward = {key: trace[key][:end] for key, end in ends.items()}
        self.rest = {key: trace[key][end:] for key, end in ends.items()}
        buffers = {b["name"]: b for b in self.forward["buffers"]}
        self.copies = {name for name, b in buffers.items() if b.get("aliases")}
        used = roots_of(self.rest["steps"]) | roots_of(trace["gradients"])
        # The backward op makes a copy of an argument anew; what it is a copy of is what is kept.
        # In reverse, since it may be a copy of a copy.
        for name in reversed(list(buffers)):
            if name in used and name in self.copies:
                used.add(buffers[name]["aliases"])
        self.used = used
        outs = {
            v["tensor"]: at
            for at, v in enumerate(trace["outputs"])
            # Views of a buffer are saved as results of their own.
            if v and (v["tensor"] not in buffers or _is_whole(v, buffers[v["tensor"]]))
        }
        keys = _keys(self.forward["buffers"])
        own = [name for name in buffers if name not in self.copies and name not in outs]
        self.kept = {
            name: self.names.setdefault(keys[name], f"saved{len(self.names)}")
            for name in own
            if name in used
        }
        self.own = {name: keys[name] for name in own}
        self.outs = outs

    def questions(self, optional: Sequence[str], outs: Sequence[str]) -> list[tuple[str, bool]]:
        """`has(...)` questions of the backward op, each with True if the tensor is present."""
        if self.trace["raises"]:
            return []
        outputs = enumerate(self.trace["outputs"])
        given = [at for at, value in outputs if value and value["tensor"] not in self.parameters]
        names = {self.names.get(key, "") for key in self.own.values()}
        names |= {outs[at] for at in given} | {f"grad_{at}" for at in given}
        return [(f"has({name})", name in names) for name in optional]

    def forward_outputs(self, saved: Sequence[str]) -> list[Any]:
        """The function's results, then what is saved."""
        # Results that this run's backward pass does not use are saved as well: when the forward op
        # runs, nobody knows which path the backward op will take.
        places = {self.names.get(key, ""): root for root, key in self.own.items()}
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
        # The backward op finds its path alone, so it asks the questions of the forward pass again.
        part = {
            "guards": trace["guards"],
            "decisions": True,
            "steps": with_names([*steps, *self.rest["steps"]], names),
            "buffers": with_names([*buffers, *self.rest["buffers"]], names),
        }
        return part, with_names(trace["gradients"], names)


def _keys(buffers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Buffer -> a key that is the same in all runs: line, sizes, strides, a running number."""
    counts: Counter[str] = Counter()
    keys = {}
    for buffer in buffers:
        key = json.dumps([buffer["line"], buffer["sizes"], buffer["strides"]])
        counts[key] += 1
        keys[buffer["name"]] = f"{key}#{counts[key]}"
    return keys


def _is_whole(value: Mapping[str, Any], buffer: Mapping[str, Any]) -> bool:
    """True if a value covers a whole buffer."""
    return value["offset"] == "0" and factors(value["sizes"]) == factors(buffer["sizes"])


def backward_paths(
    paths: Sequence[Path],
    split: Sequence[SplitRun],
    arguments: Sequence[CapturedArgument],
    outs: Sequence[str],
    optional: Sequence[str],
) -> list[Path]:
    """Paths with the dtypes of the backward op's tensors, and with its questions.

    A question for the dtype of a tensor that the op does not have is one for an argument that has
    the same dtype in all runs.
    """
    dtypes = [_dtypes(path, one, outs) for path, one in zip(paths, split, strict=True)]
    known = [each for each, path in zip(dtypes, paths, strict=True) if not path.raises]
    own = {a.name for a in arguments}
    given = [a.name for a in arguments if a.kind == "Tensor"]
    others = {
        f"dtype({name})": f"dtype({argument})"
        for name in {name for each in known for name in each} - own
        for argument in reversed(given)
        if all(each.get(name) == each.get(argument) for each in known)
    }

    def answers(path: Path) -> Iterator[tuple[str, bool]]:
        for question, answer in path.answers:
            subject, *rest = question.split(" ")
            yield " ".join((others.get(subject, subject), *rest)), answer

    return [
        replace(
            path,
            configuration=replace(path.configuration, dtypes=each),
            answers=(*one.questions(optional, outs), *answers(path)),
        )
        for path, one, each in zip(paths, split, dtypes, strict=True)
    ]


def _dtypes(path: Path, split: SplitRun, outs: Sequence[str]) -> dict[str, str]:
    """Dtypes of the backward op's tensors in a configuration."""
    dtypes = dict(path.configuration.dtypes)
    for at, value in enumerate(split.trace["outputs"]):
        if value:
            dtypes[f"grad_{at}"] = value["dtype"]
            dtypes[outs[at]] = value["dtype"]
    for root, name in split.kept.items():
        dtypes[name] = next(b["dtype"] for b in split.forward["buffers"] if b["name"] == root)
    return dtypes


@dataclass
class BackwardOp:
    """The arguments of a backward op."""

    inputs: Sequence[CapturedArgument]
    """Arguments of the forward op."""
    shapes: Mapping[str, Sequence[str]]
    """Shapes of the forward op's results."""
    maybe: Collection[str]
    """Results of the forward op that may be None."""
    place: str
    """The author's line."""

    def tensors(
        self, runs: Sequence[SplitRun], used: set[str], outs: Sequence[str], saved: Sequence[str]
    ) -> list[CapturedArgument]:
        """Gradients, arguments of the forward op and its results, as far as they are used.

        `used` are the tensors that the backward pass uses; `saved` are kept besides the results.

        Raises:
            CaptureError: something that is used is no result of its own.
        """
        arguments = []
        # There is no backward pass where the only result is None.
        is_single = sum(f"grad_{at}" in used for at in range(len(outs))) == 1
        for at, name in enumerate(outs):
            given = (run.trace["outputs"][at] for run in runs if not run.trace["raises"])
            value = next(filter(None, given), None)
            if value and f"grad_{at}" in used:
                sizes = tuple(map(str, self.shapes.get(name, value["sizes"])))
                kind = "Tensor?" if name in self.maybe and not is_single else "Tensor"
                arguments.append(CapturedArgument(f"grad_{at}", kind, sizes))
        arguments += [
            CapturedArgument(a.name, a.kind, a.sizes, a.dtypes)
            for a in self.inputs
            if a.name in used and a.kind.startswith("Tensor")
        ]
        for name in (*outs, *saved):
            if name not in used:
                continue
            if name not in self.shapes:
                message = f"saves `{name}`, which is a part of a tensor or another one once more"
                raise CaptureError(message, self.place)
            sizes = tuple(map(str, self.shapes[name]))
            kind = "Tensor?" if name in self.maybe else "Tensor"
            arguments.append(CapturedArgument(name, kind, sizes))
        return arguments

    def scalars(
        self, names: set[str], tensors: Sequence[CapturedArgument], paths: Sequence[Path]
    ) -> tuple[list[CapturedArgument], dict[str, tuple[str, int]]]:
        """Numbers, sizes that no tensor has, and which gradients are needed.

        `names` are those in the expressions of the backward pass.

        Returns:
            The arguments, and for each of them that is a size of a tensor of the forward op that
            tensor and the dimension.
        """
        available = {size for a in tensors for size in a.sizes} | {"sm_count()", "capability()"}
        if any(BATCH[0] in a.sizes for a in tensors):
            available.add(ROWS)
        names = names - {a.name for a in (*self.inputs, *tensors) if a.kind.startswith("Tensor")}
        scalars = [CapturedArgument(a.name, a.kind) for a in self.inputs if a.name in names]
        available |= {a.name for a in scalars}
        # Constants that the kernels' own candidates set.
        candidates = {n for path in paths for step in path.steps for n in step.get("autotune", ())}
        missing = sorted(
            name
            for name in names - available
            if name.isidentifier()
            and not name.startswith(("needs_", BACKWARD_PREFIX))
            and name not in candidates
        )
        sizes = {}
        for name in missing:
            owner = next((a for a in self.inputs if name in a.sizes), None)
            if owner is None:
                raise CaptureError(f"uses `{name}` in its backward pass", self.place)
            sizes[name] = (owner.name, owner.sizes.index(name))
        scalars += [CapturedArgument(name, "int") for name in missing]
        needs = sorted(name for name in names if name.startswith("needs_"))
        asked = sorted(name for name in names if name.startswith(BACKWARD_PREFIX))
        scalars += [CapturedArgument(name, "bool") for name in needs]
        scalars += [CapturedArgument(name, schema_of(name)[0]) for name in asked]
        return scalars, sizes


def written_arguments(traces: Sequence[Mapping[str, Any]], arguments: Collection[str]) -> list[str]:
    """Arguments that the forward pass of a run writes to."""
    written: set[str] = set()
    for trace in traces:
        end = trace["boundary"].get("steps", len(trace["steps"]))
        written |= {root for step in trace["steps"][:end] for root in written_roots(step)}
    return [name for name in arguments if name in written]


def with_copy(
    trace: Mapping[str, Any], name: str, sizes: Sequence[str], place: str
) -> dict[str, Any]:
    """A run that writes to a copy of an argument, contiguous like the argument."""
    if trace["raises"]:
        return dict(trace)
    copy = f"in_place_{name}"
    strides = [" * ".join(f"({size})" for size in sizes[at + 1 :]) for at in range(len(sizes))]
    shape = {"sizes": [*sizes], "strides": [text or "1" for text in strides], "offset": "0"}
    known = _tensors([trace["steps"], trace["outputs"]])
    shape["dtype"] = next(value["dtype"] for value in known if value["tensor"] == name)
    names = {name: copy}
    step = {
        "aten": "clone",
        "arguments": [{"tensor": name, **shape}, {"string": "contiguous_format"}],
        "results": [copy],
        "written": [],
        "line": place,
    }
    # The copy is one more step, and one more buffer, of the forward pass.
    boundary = {**trace["boundary"]}
    for key in ("steps", "buffers"):
        boundary[key] = boundary.get(key, len(trace[key])) + 1
    renamed = {
        key: with_names(trace[key], names) for key in ("outputs", "saved", "gradients", "buffers")
    }
    return {
        **trace,
        **renamed,
        "boundary": boundary,
        "steps": [step, *with_names(trace["steps"], names)],
        "buffers": [{"name": copy, "line": place, "produced": True, **shape}, *renamed["buffers"]],
    }


def place_of(trace: Mapping[str, Any], name: str, place: str) -> int:
    """The output that is an argument which the function has written to.

    Raises:
        CaptureError: none is.
    """
    copy = f"in_place_{name}"
    (buffer,) = (buffer for buffer in trace["buffers"] if buffer["name"] == copy)
    for at, value in enumerate(trace["outputs"]):
        if value is not None and value["tensor"] == copy and _is_whole(value, buffer):
            return at
    raise CaptureError(f"writes to `{name}` and does not return it", place)


def _tensors(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        own = [value] if "tensor" in value else []
        return [*own, *(tensor for item in value.values() for tensor in _tensors(item))]
    return [t for item in value for t in _tensors(item)] if isinstance(value, list) else []
