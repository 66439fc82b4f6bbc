"""An op after its section was read and checked.

Compilers, launchers, fake kernels and documentation are generated from these values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kbuild.ops.expression import Expression
from kbuild.ops.expression.nodes import Name, Node, Query
from kbuild.ops.schema.model import Schema
from kbuild.ops.steps import AtenCall, FillValue, Launch
from kbuild.project.config.issue import KeyPath


@dataclass(frozen=True)
class ShapeRule:
    """The shape of one tensor."""

    tensor: str
    like: str = ""
    """A tensor with the same shape; `dims` is empty in that case."""
    dims: tuple[Expression | None, ...] = ()
    """One expression per dimension. None, at most once, stands for `...`: any number of
    dimensions, which are the same wherever the op has `...`."""

    @property
    def rank(self) -> int | None:
        """Number of dimensions; None if it is unknown."""
        return None if self.like or None in self.dims else len(self.dims)

    def axis(self, position: int) -> int:
        """Axis at a position of `dims`; negative, counted from the end, after `...`."""
        behind = None in self.dims[:position]
        return position - len(self.dims) if behind else position


@dataclass(frozen=True)
class Dimension:
    """Name of a dimension, and the axis of an argument that has its value in a call."""

    name: str
    tensor: str
    axis: int
    """Negative after `...`."""


@dataclass(frozen=True)
class DtypeRule:
    """The dtypes of one tensor: those of another tensor, or a list of its own.

    An argument that is a dtype has a rule as well, with a list.
    """

    tensor: str
    like: str = ""
    choices: tuple[str, ...] = ()
    """Torch's names, such as `bfloat16`."""
    none: str = ""
    """The tensor whose dtype is used if the argument is None."""


@dataclass(frozen=True)
class TensorView:
    """A tensor that shares the memory of another one."""

    name: str
    of: str
    """An argument, a result, a temporary or another view."""
    shape: tuple[Expression, ...]
    strides: tuple[Expression, ...] | None
    """In elements; None if the view is contiguous."""
    offset: Expression
    """Distance, in elements, of its first element from that of the other tensor."""


CaseValue: TypeAlias = "bool | int | float | str | tuple[int | float, ...]"
"""Value of a tuning case; a tuple for lists and for `...`."""
TuningCase: TypeAlias = "tuple[tuple[str, CaseValue], ...]"


@dataclass(frozen=True)
class TuneProposal:
    """Sizes that a kernel is compiled for; other sizes of a tuning case are free."""

    sizes: tuple[tuple[str, int], ...] = ()
    """Dimensions that are constants of the kernel's code."""
    bounds: tuple[tuple[str, int], ...] = ()
    """Upper bounds of other dimensions."""


@dataclass(frozen=True)
class TuneSpec:
    """The calls with which the candidates of an op are measured."""

    cases: tuple[TuningCase, ...] = ()
    """Values by names of dimensions and arguments; empty for default sizes."""
    inputs: str = ""
    """`module:function` that makes the input tensors."""
    reference: str = ""
    """`module:function` that computes the expected results."""
    rtol: float | None = None
    atol: float | None = None
    proposals: tuple[TuneProposal, ...] = ()
    """Sizes of the kernel to use for default cases."""
    resets: tuple[tuple[str, FillValue], ...] = ()
    """Arguments that the op writes to, with their values before a candidate runs."""


@dataclass(frozen=True)
class Projection:
    """An op with the arguments and launches of another one that returns only some results."""

    schema: Schema
    results: tuple[str, ...]

    @property
    def name(self) -> str:
        """The op's name."""
        return self.schema.name


@dataclass(frozen=True)
class OpSpec:
    """One op of a kernel."""

    path: KeyPath = field(compare=False)
    """Place in `build.toml`."""

    kernel: str
    language: str
    toolchain: tuple[str, ...]
    sources: tuple[str, ...]
    schema: Schema
    results: tuple[str, ...]
    temporaries: tuple[str, ...]
    shapes: tuple[ShapeRule, ...]
    sizes: tuple[Dimension, ...]
    """All names that `shapes` gives to dimensions."""
    dtypes: tuple[DtypeRule, ...]
    """A rule for each tensor: arguments, results, temporaries."""
    let: tuple[tuple[str, Expression], ...]
    require: tuple[Expression, ...]
    contiguous: tuple[str, ...]
    key: tuple[Expression, ...]
    fallback: Literal["none", "jit"]
    launches: tuple[Launch, ...]
    tune: TuneSpec = TuneSpec()
    returned: tuple[tuple[str, Expression], ...] = ()
    """Results that may be None, with the condition under which they are returned."""
    fills: tuple[tuple[str, FillValue], ...] = ()
    """Values of tensors before the first launch: results, temporaries and mutated arguments."""
    views: tuple[TensorView, ...] = ()
    """Views, each after the tensor or view that it is a view of."""
    aten: tuple[AtenCall, ...] = ()
    hooks: Literal["calls", "tuning", "none"] = "calls"
    """Use of hooks of the kernels' own candidates, see `OpSection`."""
    projections: tuple[Projection, ...] = ()

    @property
    def name(self) -> str:
        """The op's name."""
        return self.schema.name

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensor arguments; those of a list are separate, as `xs[0]`."""
        return tuple(argument.name for argument in self.schema.tensors)

    @property
    def optional(self) -> tuple[str, ...]:
        """Names of the tensor arguments that may be None."""
        return tuple(a.name for a in self.schema.tensors if a.type.is_optional)

    @property
    def device_tensor(self) -> str:
        """The argument on whose device the op runs."""
        return next(name for name in self.inputs if name not in self.optional)

    @property
    def batch_owner(self) -> ShapeRule | None:
        """The argument that determines `...`."""
        always = (r for r in self.shapes if r.tensor in self.inputs and None in r.dims)
        return next((rule for rule in always if rule.tensor not in self.optional), None)

    def checked_dims(self, rule: ShapeRule) -> Iterator[tuple[int, Expression]]:
        """Yield the dimensions of an argument that are not the definition of their own name."""
        sized_axes = {(size.tensor, size.axis) for size in self.sizes}
        for position, dim in enumerate(rule.dims):
            axis = rule.axis(position)
            if dim is not None and (rule.tensor, axis) not in sized_axes:
                yield axis, dim

    @property
    def may_be_none(self) -> tuple[str, ...]:
        """Names of the arguments and results that may be None."""
        return (*self.optional, *(name for name, _ in self.returned))

    @property
    def dtype_arguments(self) -> tuple[str, ...]:
        """Names of the arguments that are dtypes."""
        return tuple(a.name for a in self.schema.arguments if a.type.name == "ScalarType")

    @property
    def steps(self) -> tuple[tuple[Literal["launch", "aten"], int], ...]:
        """Launches and ATen calls in order, each by its index among its kind."""
        steps: list[tuple[Literal["launch", "aten"], int]] = []
        # One round more than there are launches, for the calls after the last one.
        for index in range(len(self.launches) + 1):
            steps += [("aten", at) for at, call in enumerate(self.aten) if call.before == index]
            steps += [("launch", index)] if index < len(self.launches) else []
        return tuple(steps)

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of all tensors: arguments, results, temporaries, views."""
        views = (view.name for view in self.views if view.name not in self.results)
        return (*self.inputs, *self.results, *self.temporaries, *views)

    @property
    def produced(self) -> frozenset[str]:
        """Results and temporaries that an ATen call produces in some calls."""
        return frozenset(name for call in self.aten for name in call.produced)

    def view(self, name: str) -> TensorView | None:
        """The view of that name."""
        return next((view for view in self.views if view.name == name), None)

    def viewed(self, name: str) -> str:
        """The tensor whose memory a view shares; the tensor itself if it is not a view."""
        view = self.view(name)
        return name if view is None else self.viewed(view.of)

    def dtype_rule(self, name: str) -> DtypeRule:
        """Rule of a tensor or an argument, after following `like`."""
        rules = {rule.tensor: rule for rule in self.dtypes}
        rule = rules[name]
        while rule.like:
            rule = rules[rule.like]
        return rule

    def shape(self, tensor: str) -> ShapeRule | None:
        """Rule of a tensor, after following `like`."""
        rules = {rule.tensor: rule for rule in self.shapes}
        rule = rules.get(tensor)
        while rule is not None and rule.like in rules:
            rule = rules[rule.like]
        return rule

    def named_size(self, node: Node) -> Name | None:
        """The op's name of a dimension such as `size(x, -1)`; None for other nodes."""
        if not isinstance(node, Query) or node.function != "size" or node.axis is None:
            return None
        rule = self.shape(node.tensor)
        for position, dim in enumerate(rule.dims if rule is not None else ()):
            if rule is None or dim is None or not isinstance(dim.root, Name):
                continue
            from_end = position - rule.rank if rule.rank is not None else None
            if node.axis in (rule.axis(position), from_end):
                return dim.root
        return None

    def dtype_sets(self) -> tuple[Mapping[str, str], ...]:
        """Every combination of dtypes that images are compiled for: tensor -> dtype."""
        # The launcher's indices into this list (`dtype_checks`) need the last rule to vary fastest.
        combinations: list[dict[str, str]] = [{}]
        for rule in self.dtypes:
            if not rule.like:
                combinations = [
                    {**known, rule.tensor: dtype}
                    for known in combinations
                    for dtype in rule.choices
                ]
        owners = {rule.tensor: self.dtype_rule(rule.tensor).tensor for rule in self.dtypes}
        return tuple(
            {tensor: known[owner] for tensor, owner in owners.items()} for known in combinations
        )
