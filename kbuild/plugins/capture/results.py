"""Results of an op: which memory they lie in, and their shapes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbuild.plugins.capture.conditions import Tree
from kbuild.plugins.capture.programs import Buffer, CapturedArgument, CaptureError, Program
from kbuild.plugins.capture.values import evaluated, factors, is_contiguous, number_of

_COPY = {"string": "contiguous_format"}
_SHAPES = "different shapes on different paths: declare an option that decides on it as a `value`"


def in_python(condition: str) -> str:
    """A condition on options and on tensors that are given, in Python; empty for others."""
    plain = re.fullmatch(r"(\(|\)|has\(\w+\)|\b[A-Za-z_]\w*\b(?!\()| )+", condition)
    return re.sub(r"has\((\w+)\)", r"(\1 is not None)", condition) if plain else ""


@dataclass
class OpResults:
    """Names the results of an op."""

    program: Program
    tree: Tree
    refused: Collection[int]
    """Paths that no call may take."""
    arguments: Collection[str]
    writes: bool = False
    """True if the op writes to an argument: `torch.compile` then accepts no result that may be
    None."""
    names: dict[str, str] = field(default_factory=dict)
    """Buffer -> result."""
    shapes: dict[str, list[str]] = field(default_factory=dict)
    views: dict[str, dict[str, Any]] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    """Result that is another result once more -> that result."""
    copies: dict[str, list[tuple[Mapping[str, Any], str]]] = field(default_factory=dict)
    """Result that is copied from the memory of another -> what is copied, each with the condition
    under which it is."""
    equal_sizes: dict[str, None] = field(default_factory=dict)
    """Conditions under which memory has room for results of another shape."""
    returned: dict[str, str] = field(default_factory=dict)
    """Result that may be None -> the condition under which it is not."""
    empty: dict[str, str] = field(default_factory=dict)
    """Result that is empty where it would be None -> the condition under which it is not."""

    def read(self, outputs: Sequence[str]) -> None:
        """Name the results.

        Args:
            outputs: names of the function's values; those that are arguments of the op are not
                returned by it, and are None where they are arguments on some paths only.

        Raises:
            CaptureError: an op cannot return one.
        """
        owners: dict[str, tuple[str, str]] = {}
        for position, name in enumerate(outputs):
            values = {leaf: known[position] for leaf, known in self.program.outputs.items()}
            given = {
                leaf: value
                for leaf, value in values.items()
                if value and value["tensor"] not in self.arguments
            }
            roots = {value["tensor"] for value in given.values()}
            if not name or not roots:
                continue
            present = self.when(given)
            is_argument = len(given) < sum(value is not None for value in values.values())
            if present != "True":
                may_be_empty = self.writes and is_argument and in_python(present)
                (self.empty if may_be_empty else self.returned)[name] = present
            layouts = {root: self._layout(name, root, given) for root in sorted(roots)}
            # The first result in a memory owns it; another one there is the same, or a copy.
            owned = {owners.setdefault(root, (name, key)) for root, key in layouts.items()}
            if owned == {(name, key) for key in layouts.values()}:
                self._share(name, roots, given)
            elif len(owned) == 1 and {key for _, key in owned} == set(layouts.values()):
                self.same[name] = next(iter(owned))[0]
            else:
                self._copy(name, given)

    def all(self) -> list[str]:
        """Results in order."""
        return list(dict.fromkeys((*self.names.values(), *self.copies)))

    def tensor_name(self, root: str) -> str:
        """Name of the tensor that holds a buffer's memory."""
        name = self.names.get(root, root)
        return f"{name}_memory" if f"{name}_memory" in self.shapes else name

    def when(self, leaves: Collection[int]) -> str:
        """The condition of some paths."""
        return self.tree.condition(leaves, self.refused)

    def _layout(self, name: str, root: str, given: Mapping[int, Mapping[str, Any]]) -> str:
        buffer = self.program.buffers[root]
        if buffer.aliases:
            raise CaptureError(f"returns `{name}`, which may be an argument's memory", buffer.line)
        values = [value for value in given.values() if value["tensor"] == root]
        layouts = {str([v["sizes"], v["strides"], v["offset"]]) for v in values}
        if len(layouts) != 1:
            raise CaptureError(f"returns `{name}` with {_SHAPES}", buffer.line)
        return layouts.pop()

    def _share(
        self, name: str, roots: Collection[str], given: Mapping[int, Mapping[str, Any]]
    ) -> None:
        """A result in the memory of buffers of its own."""
        layouts: list[tuple[list[Any], dict[str, Any] | None]] = []
        for root in sorted(roots):
            value = next(value for value in given.values() if value["tensor"] == root)
            buffer = self.program.buffers[root]
            self.names[root] = name
            if self._is_all(value, buffer):
                layouts.append((list(value["sizes"]), None))
                continue
            view: dict[str, Any] = {
                "shape": [*map(number_of, value["sizes"])],
                "strides": [*map(number_of, value["strides"])],
            }
            if value["offset"] != "0":
                view["offset"] = number_of(value["offset"])
            layouts.append((list(buffer.sizes), view))
        sizes, layout = layouts[0]
        if any(other != layouts[0] for other in layouts):
            line = self.program.buffers[max(roots)].line
            if any(other for _, other in layouts) or len({len(known) for known, _ in layouts}) > 1:
                raise CaptureError(f"returns `{name}` with {_SHAPES}", line)
            sizes = self._conditional(name, given)
        # A view, or a tensor without dimensions, cannot be empty: it is None in other calls.
        if name in self.empty and (layout is not None or not sizes):
            self.returned[name] = self.empty.pop(name)
        if name in self.empty:
            sizes = [f"({sizes[0]} if {self.empty[name]} else 0)", *sizes[1:]]
        if layout is None:
            self.shapes[name] = sizes
        else:
            self.shapes[f"{name}_memory"] = sizes
            self.views[name] = {"of": f"{name}_memory", **layout}

    def _conditional(self, name: str, given: Mapping[int, Mapping[str, Any]]) -> list[str]:
        """A shape that is one on some paths and another on others."""
        shape = []
        for axis in range(len(next(iter(given.values()))["sizes"])):
            groups: dict[str, set[int]] = {}
            for leaf, value in given.items():
                groups.setdefault(value["sizes"][axis], set()).add(leaf)
            (text, _), *others = groups.items()
            for size, leaves in others:
                # On paths without this result, the shape may be anything.
                condition = self.tree.condition(
                    leaves, {*self.refused, *self.program.outputs} - given.keys()
                )
                if any(word in condition for word in ("capability()", "address(", "needs_")):
                    raise CaptureError(f"the shape of the result `{name}` depends on {condition}")
                text = f"({size} if {condition} else {text})"
            shape.append(text)
        return shape

    def _is_all(self, value: Mapping[str, Any], buffer: Buffer) -> bool:
        """True if a value covers a whole buffer in the layout that the op gives it."""
        if value["offset"] != "0":
            return False
        if list(value["sizes"]) == list(buffer.sizes):
            # What ATen produces has the strides that ATen gives it.
            own = buffer.produced and list(value["strides"]) == list(buffer.strides)
            return own or is_contiguous(value)
        if buffer.produced or not is_contiguous(value):
            return False
        if factors(value["sizes"]) == factors(buffer.sizes):
            return True
        first, second = (
            " * ".join(f"({s})" for s in sizes) for sizes in (value["sizes"], buffer.sizes)
        )
        hints = [path.hints for _, path in self.program.taken()]
        # Equal in all runs does not mean equal in all calls: the op requires it.
        if not all(evaluated(f"{first} == {second}", known) for known in hints):
            return False
        self.equal_sizes[f"{first} == {second}"] = None
        return True

    def _copy(self, name: str, given: Mapping[int, Mapping[str, Any]]) -> None:
        """A result that would share memory with another: torch.compile assumes that none does."""
        copies: dict[str, tuple[Mapping[str, Any], set[int]]] = {}
        for leaf, value in given.items():
            copies.setdefault(str(value), (value, set()))[1].add(leaf)
        sizes = {str(value["sizes"]): list(value["sizes"]) for value in given.values()}
        self.shapes[name] = (
            sizes.popitem()[1] if len(sizes) == 1 else self._conditional(name, given)
        )
        self.copies[name] = [(value, self.when(leaves)) for value, leaves in copies.values()]

    def steps(self, tensor: Any) -> list[dict[str, Any]]:
        """The steps that copy; `tensor` gives the name of a value."""
        steps = []
        for name, copies in self.copies.items():
            for value, when in copies:
                step = {"aten": "clone", "arguments": [tensor(value), _COPY], "results": [name]}
                steps.append(step if when == "True" else {**step, "when": when})
        return steps


def origin_of(
    position: int,
    output: str,
    arguments: Sequence[CapturedArgument],
    program: Program,
    place: str,
) -> tuple[str, ...]:
    """Origin of a value of the function, see `CapturedOp.outputs`.

    Raises:
        CaptureError: neither an op nor the Python around it can return it.
    """
    known = {argument.name: argument for argument in arguments}
    values = {leaf: outputs[position] for leaf, outputs in program.outputs.items()}
    given = [value for value in values.values() if value]
    owners = sorted({value["tensor"] for value in given} & known.keys())
    if not owners:
        return ("result", output) if given else ("none", "")
    name = owners[0]
    if len(owners) > 1:
        message = f"returns `{name}` on some paths and `{owners[1]}` on others"
        raise CaptureError(f"{message}: return a copy of them", place)
    for value in given:
        is_whole = value["offset"] == "0" and [*value["sizes"]] == [*known[name].sizes]
        if value["tensor"] == name and not (is_whole and _is_as_given(value, name)):
            message = f"returns a part or another view of `{name}`"
            raise CaptureError(f"{message}: return `{name}` itself, or a copy", place)
    # None is right where the argument is None itself: then the configuration has no dtype of it.
    absent = {
        leaf
        for leaf, value in values.items()
        if not value and name in program.paths[leaf].configuration.dtypes
    }
    is_mixed = any(value["tensor"] != name for value in given)
    if absent or (is_mixed and not all(values.values())):
        raise CaptureError(f"returns `{name}` on some paths and None on others", place)
    return ("either", output, name) if is_mixed else ("argument", name)


def _is_as_given(value: Mapping[str, Any], name: str) -> bool:
    """True if a value has the strides of an argument, or is contiguous."""
    own = [f"stride({name}, {axis})" for axis in range(len(value["sizes"]))]
    return [*value["strides"]] == own or is_contiguous(value)
