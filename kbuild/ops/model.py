"""A checked op as frozen values, and the collector of issues that its readers report to.

Compilers, launchers, fake kernels and documentation are made from these values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kbuild.ops.expression import Expression
from kbuild.ops.expression.floating import FloatExpression
from kbuild.ops.expression.nodes import Name, Node, Query
from kbuild.ops.schema.model import Schema
from kbuild.project.config.issue import Issue, KeyPath

Scalar: TypeAlias = "bool | int | float | str"
"""The value of a constant or of a launch option."""
Value: TypeAlias = "Scalar | DtypeName | None"
"""What a call may choose for a constant."""
Pairs: TypeAlias = "tuple[tuple[str, Scalar], ...]"
"""Names with values, in the author's order."""
ConstantPairs: TypeAlias = "tuple[tuple[str, Scalar | None], ...]"
"""The same where a value may be None."""
FillValue: TypeAlias = "int | float | str"
"""What a tensor is filled with: a finite number, `inf`, `-inf` or `nan`."""


def numbers_of(pairs: ConstantPairs) -> dict[str, int]:
    """What expressions know of constants: `BLOCK`, and `has(BLOCK)`."""
    numbers = {name: int(value) for name, value in pairs if isinstance(value, (bool, int))}
    return numbers | {f"has({name})": int(value is not None) for name, value in pairs}


@dataclass(frozen=True)
class ShapeRule:
    """The shape of one tensor."""

    tensor: str
    like: str = ""
    """The tensor that has the same shape; `dims` is empty then."""
    dims: tuple[Expression | None, ...] = ()
    """One expression per dimension; None once for `...`, which is any number of dimensions and the
    same ones wherever an op says `...`."""

    @property
    def rank(self) -> int | None:
        """How many dimensions, where that is known."""
        return None if self.like or None in self.dims else len(self.dims)

    def axis(self, position: int) -> int:
        """The dimension at a position of `dims`, from the end when it is behind `...`."""
        behind = None in self.dims[:position]
        return position - len(self.dims) if behind else position


@dataclass(frozen=True)
class Dimension:
    """A name for a dimension: where a call's value is taken from."""

    name: str
    tensor: str
    axis: int
    """Negative behind `...`."""


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
    """The tensor whose dtype is meant where the argument is None."""


@dataclass(frozen=True)
class DtypeName:
    """A dtype as the value of a constant."""

    name: str
    """Torch's."""


@dataclass(frozen=True)
class ArgumentSource:
    """Where the value of a kernel argument comes from."""

    kind: Literal["tensor", "int", "float", "bool", "descriptor", "tuple", "none"]
    name: str = ""
    """The tensor (a descriptor's as well), or the float argument of the op."""
    expression: Expression | None = None
    """An integer's."""
    literal: float | None = None
    """A float that is the same in every call; with a name, what it is where that is None."""
    item: int | None = None
    """The place in a list of floats; negative counts from its end."""
    block: tuple[Expression, ...] = ()
    """A descriptor's: how much of each dimension is loaded at once, over constants alone."""
    padding: Literal["zero", "nan"] = "zero"
    """A descriptor's: what is loaded from beyond the tensor's end."""
    layout: tuple[tuple[str, int | bool], ...] = ()
    """A descriptor's: where its blocks lie in shared memory, as Gluon's `NVMMASharedLayout` has it;
    the default of the block if nothing says otherwise."""
    items: tuple[ArgumentSource, ...] = ()
    """A tuple's."""
    double: bool = False
    """Whether a float is passed with 64 bits; with 32 otherwise."""
    formula: FloatExpression | None = None
    """A float's that calls compute."""

    def integers(self) -> tuple[Expression, ...]:
        """The integer expressions in it."""
        own = (self.expression,) if self.expression is not None else ()
        return (*own, *(self.formula.integers() if self.formula is not None else ()))

    def block_shape(self, constants: ConstantPairs) -> tuple[int, ...]:
        """How many elements a descriptor loads at once, by dimension, with a unit's constants.

        Raises:
            EvaluationError: a division by zero, or a value beyond 64 bits.
            KeyError: a constant has no value.
        """
        return tuple(dim.evaluate(numbers_of(constants)) for dim in self.block)

    def __str__(self) -> str:  # noqa: PLR0911
        if self.kind == "tuple":
            return f"({', '.join(str(item) for item in self.items)},)"
        if self.kind == "descriptor":
            block = ", ".join(str(dim) for dim in self.block)
            layout = "".join(f", {name}={value}" for name, value in self.layout)
            return f"descriptor({self.name}, [{block}], {self.padding}{layout})"
        if self.kind == "none":
            return "None"
        name = self.name if self.item is None else f"{self.name}[{self.item}]"
        if self.formula is not None:
            return str(self.formula)
        if self.literal is not None:
            return f"{name} or {self.literal!r}" if name else repr(self.literal)
        if name and self.expression is None:
            return name
        return str(self.expression) if self.expression is not None else self.name


@dataclass(frozen=True)
class Constant:
    """A constant of the kernel that no candidate sets."""

    name: str
    value: Scalar | None = None
    """The same in every call, when nothing below says another thing; None is a value, too."""
    expression: Expression | None = None
    """What decides it."""
    choices: tuple[Scalar, ...] = ()
    """The values of `expression` that images are made for; none where other constants decide it."""
    values: tuple[Value, ...] = ()
    """What the constant is for each of `choices`, where it is not the choice itself."""
    known: tuple[tuple[tuple[Node, int], ...], ...] = ()
    """Parts of other expressions that each of `choices` settles, with their values."""
    dtype: str = ""
    """Torch's name of the dtype that it is."""
    dtype_of: str = ""
    """The tensor, or the argument, whose dtype it is."""

    @property
    def is_fixed(self) -> bool:
        """Whether `value` is its value."""
        return self.expression is None and not self.dtype and not self.dtype_of

    def value_of(self, choice: Scalar) -> Value:
        """What it is where `expression` is one of `choices`, or what other constants decide."""
        return self.values[self.choices.index(choice)] if self.values else choice


@dataclass(frozen=True)
class Candidate:
    """One way to compile and launch a function."""

    constants: ConstantPairs = ()
    options: Pairs = ()
    """`num_warps` and the like."""
    when: Expression | None = None
    """Calls that it is made for; all when None."""
    archs: tuple[str, ...] = ()
    """Archs that it is made for, as `build.toml` writes archs; all when empty."""
    aligned: bool = False
    """It has the aligned image alone, so it is for calls that meet what that assumes."""

    @property
    def is_conditional(self) -> bool:
        """True when there may be calls that it is not for."""
        return self.when is not None or self.aligned


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel function."""

    functions: tuple[str, ...]
    """The function's name; several when the first that the source has is meant."""
    args: tuple[tuple[str, ArgumentSource], ...] = ()
    """Kernel argument -> value, those that were written; `bind` finds the others by name."""
    constants: tuple[Constant, ...] = ()
    candidates: tuple[Candidate, ...] = (Candidate(),)
    """In order: the first one that fits a call is the default."""
    autotune: bool = False
    """The candidates are the kernel's own, and known when it is imported."""
    grid: tuple[Expression, ...] = ()
    path: KeyPath = field(default=(), compare=False)
    """Where `build.toml` describes it."""
    divisible: tuple[tuple[str, ...], ...] = ((),)
    """Integer arguments that each aligned image assumes to be divisible by 16, in order."""
    ones: tuple[str, ...] = ()
    """Integer arguments that fast images assume to be 1."""
    int64: tuple[str, ...] = ()
    """Integer arguments with 64 bits."""
    when: Expression | None = None
    """Calls that it is made in; it is skipped in others."""
    keep: tuple[Expression, ...] = ()
    """What the kernel's own candidates must meet; others are judged when they are read."""


@dataclass(frozen=True)
class AtenValue:
    """One argument of an ATen call, as the stable ABI takes it."""

    kind: Literal[
        "tensor", "number", "scalar", "str", "dtype", "layout", "memory_format", "device", "list",
        "previous", "none",
    ]  # fmt: skip
    """`scalar` is a number where a tensor is expected, `previous` the result of the call before."""
    name: str = ""
    """The tensor; the op's argument that is a text or a dtype; the tensor whose dtype or device is
    meant, and the one whose dtype says which a `scalar` has."""
    text: str = ""
    """A text, layout, memory format or dtype that is the same in every call."""
    number: ArgumentSource | None = None
    items: tuple[AtenValue, ...] = ()
    optional: bool = False
    """Whether the schema says `?`, so that the value is boxed."""

    def flat(self) -> tuple[AtenValue, ...]:
        """The value, or the items of a list."""
        return self.items if self.kind == "list" else (self,)


@dataclass(frozen=True)
class DispatcherCall:
    """One call of an operator through Torch's dispatcher."""

    operator: str
    """`sum.dim_IntList`; `add` is the addition that the stable ABI offers in place of the operator,
    with both tensors and the factor of the second."""
    values: tuple[AtenValue, ...]
    returned: tuple[bool, ...] = (False,)
    """For each result whether it is a list of tensors."""


@dataclass(frozen=True)
class AtenCall:
    """An ATen operator between the launches of an op."""

    operator: str
    """As it is written: `mul.Scalar`."""
    calls: tuple[DispatcherCall, ...]
    """What runs for it, in order."""
    results: tuple[str, ...] = ()
    """The results and temporaries that it produces; `None` for what is dropped."""
    aliases: tuple[str, ...] = ()
    """Tensors whose memory the results may share."""
    when: Expression | None = None
    """Calls that it is made in; it is skipped in others."""
    before: int = 0
    """Launches of the op that come before it."""
    path: KeyPath = field(default=(), compare=False)
    """Where `build.toml` describes it."""

    @property
    def produced(self) -> tuple[str, ...]:
        """The results that have a name."""
        return tuple(name for name in self.results if name != "None")

    def tensors(self) -> frozenset[str]:
        """The tensors that it reads or writes to."""
        values = (v for call in self.calls for value in call.values for v in value.flat())
        return frozenset(v.name for v in values if v.kind in ("tensor", "scalar", "device"))

    def expressions(self) -> tuple[Expression, ...]:
        """What is evaluated for its arguments."""
        values = (v for call in self.calls for value in call.values for v in value.flat())
        numbers = (v.number for v in values if v.number is not None)
        return tuple(expression for number in numbers for expression in number.integers())


@dataclass(frozen=True)
class TensorView:
    """A tensor that shares the memory of another one."""

    name: str
    of: str
    """An argument, a result, a temporary, or another view."""
    shape: tuple[Expression, ...]
    strides: tuple[Expression, ...] | None
    """In elements; None when it is contiguous."""
    offset: Expression
    """Of its first element from that of the other, in elements."""


CaseValue: TypeAlias = "bool | int | float | str | tuple[int | float, ...]"
"""A value of a tuning case; several for a list, and for what is written `...`."""
TuningCase: TypeAlias = "tuple[tuple[str, CaseValue], ...]"


@dataclass(frozen=True)
class TuneProposal:
    """The sizes that a kernel is made for; the user who tunes it chooses the rest."""

    sizes: tuple[tuple[str, int], ...] = ()
    """Dimensions that are written into the kernel."""
    bounds: tuple[tuple[str, int], ...] = ()
    """The largest that others are meant to be."""


@dataclass(frozen=True)
class TuneSpec:
    """On what the candidates of an op are measured."""

    cases: tuple[TuningCase, ...] = ()
    """Names of dimensions and of arguments with their values; none means ordinary sizes."""
    inputs: str = ""
    """`module:function` that makes the tensors."""
    reference: str = ""
    """`module:function` that computes the expected results."""
    rtol: float | None = None
    atol: float | None = None
    proposals: tuple[TuneProposal, ...] = ()
    """The kernel's own words, for ordinary sizes."""
    resets: tuple[tuple[str, FillValue], ...] = ()
    """Arguments that are written to, with the value that they have before a candidate runs."""


@dataclass(frozen=True)
class Projection:
    """An op with the arguments and launches of another one, which returns some of its results."""

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
    """Where `build.toml` describes it."""

    kernel: str
    """The `[kernel.*]` section."""
    language: str
    toolchain: tuple[str, ...]
    """Pinned distributions: `triton==3.9.0`."""
    sources: tuple[str, ...]
    schema: Schema
    results: tuple[str, ...]
    """Names of the results."""
    temporaries: tuple[str, ...]
    shapes: tuple[ShapeRule, ...]
    sizes: tuple[Dimension, ...]
    """Every name that `shapes` gives to a dimension."""
    dtypes: tuple[DtypeRule, ...]
    """One for each tensor: arguments, results, temporaries."""
    let: tuple[tuple[str, Expression], ...]
    require: tuple[Expression, ...]
    contiguous: tuple[str, ...]
    key: tuple[Expression, ...]
    fallback: Literal["none", "jit"]
    launches: tuple[Launch, ...]
    tune: TuneSpec = TuneSpec()
    returned: tuple[tuple[str, Expression], ...] = ()
    """Results that may be None, each with the condition under which it is not."""
    fills: tuple[tuple[str, FillValue], ...] = ()
    """Tensors that have a value before the first launch: results, temporaries, and arguments that
    are written to."""
    views: tuple[TensorView, ...] = ()
    """Each behind those that it is a view of."""
    aten: tuple[AtenCall, ...] = ()
    """In order."""
    hooks: Literal["calls", "tuning", "none"] = "calls"
    """When hooks of the kernels' own candidates count, see `OpSection`."""
    projections: tuple[Projection, ...] = ()

    @property
    def name(self) -> str:
        """The op's name."""
        return self.schema.name

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensor arguments; each of a list of them by itself, as `xs[0]`."""
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
        """The argument that says what `...` is."""
        always = (r for r in self.shapes if r.tensor in self.inputs and None in r.dims)
        return next((rule for rule in always if rule.tensor not in self.optional), None)

    def checked_dims(self, rule: ShapeRule) -> Iterator[tuple[int, Expression]]:
        """The dimensions of an argument that do not say themselves what their name stands for."""
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
        """The tensor whose memory a view shares; the tensor itself when it is none."""
        view = self.view(name)
        return name if view is None else self.viewed(view.of)

    def dtype_rule(self, name: str) -> DtypeRule:
        """The rule of a tensor or an argument, with `like` followed to the list."""
        rules = {rule.tensor: rule for rule in self.dtypes}
        rule = rules[name]
        while rule.like:
            rule = rules[rule.like]
        return rule

    def shape(self, tensor: str) -> ShapeRule | None:
        """The rule of a tensor, with `like` followed to its end."""
        rules = {rule.tensor: rule for rule in self.shapes}
        rule = rules.get(tensor)
        while rule is not None and rule.like in rules:
            rule = rules[rule.like]
        return rule

    def named_size(self, node: Node) -> Name | None:
        """The name that the op has for a dimension, such as `size(x, -1)`; None for other nodes."""
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
        """Every combination of dtypes that images are made for: tensor -> dtype."""
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


@dataclass(frozen=True)
class IssueCollector:
    """A key path that collects issues; places below it collect into the same list."""

    path: KeyPath
    issues: list[Issue] = field(default_factory=list)

    def at(self, *keys: str | int) -> IssueCollector:
        """The place of a key or element below this one."""
        return IssueCollector((*self.path, *keys), self.issues)

    def error(self, message: str, hint: str = "") -> None:
        """Something that has to be mended here."""
        self.issues.append(Issue(self.path, message, hint))

    def warning(self, message: str, hint: str = "") -> None:
        """Something doubtful here."""
        self.issues.append(Issue(self.path, message, hint, "warning"))

    @property
    def errors(self) -> int:
        """How many errors there are so far, here and elsewhere."""
        return sum(issue.severity == "error" for issue in self.issues)
