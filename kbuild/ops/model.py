"""An op after its section was read and checked.

Compilers, launchers, fake kernels and documentation are generated from these values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kbuild.ops.expression import Expression
from kbuild.ops.expression.floating import FloatExpression
from kbuild.ops.expression.nodes import Name, Node, Query
from kbuild.ops.schema.model import Schema
from kbuild.project.config.issue import KeyPath

Scalar: TypeAlias = "bool | int | float | str"
"""Value of a constant or of a launch option."""
Value: TypeAlias = "Scalar | DtypeName | None"
"""Value that a call may choose for a constant."""
Pairs: TypeAlias = "tuple[tuple[str, Scalar], ...]"
"""Names with values, in the author's order."""
ConstantPairs: TypeAlias = "tuple[tuple[str, Scalar | None], ...]"
"""Names with values, any of which may be None."""
FillValue: TypeAlias = "int | float | str"
"""Value that a tensor is filled with: a finite number, `inf`, `-inf` or `nan`."""


def numbers_of(pairs: ConstantPairs) -> dict[str, int]:
    """Values of constants for expressions: `BLOCK`, and `has(BLOCK)`."""
    numbers = {name: int(value) for name, value in pairs if isinstance(value, (bool, int))}
    return numbers | {f"has({name})": int(value is not None) for name, value in pairs}


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
class DtypeName:
    """A dtype as the value of a constant."""

    name: str
    """Torch's name of the dtype."""


@dataclass(frozen=True)
class ArgumentSource:
    """Source of the value of a kernel argument."""

    kind: Literal["tensor", "int", "float", "bool", "descriptor", "tuple", "none"]
    name: str = ""
    """The tensor, also of a descriptor; or the float argument of the op."""
    expression: Expression | None = None
    """Value of an integer or a bool."""
    literal: float | None = None
    """A float that is the same in every call; with a name, the value to use where the argument
    is None."""
    item: int | None = None
    """Index in a list of floats; negative values count from its end."""
    block: tuple[Expression, ...] = ()
    """Descriptor's block: elements per dimension that are loaded at once, over constants only."""
    padding: Literal["zero", "nan"] = "zero"
    """Descriptor's value for elements beyond the tensor's end."""
    layout: tuple[tuple[str, int | bool], ...] = ()
    """Descriptor's layout of blocks in shared memory, as arguments of Gluon's
    `NVMMASharedLayout`; empty for the block's default layout."""
    items: tuple[ArgumentSource, ...] = ()
    """Items of a tuple."""
    double: bool = False
    """True if a float is passed with 64 bits instead of 32."""
    formula: FloatExpression | None = None
    """A float that is computed in each call."""

    def integers(self) -> tuple[Expression, ...]:
        """The integer expressions in it."""
        own = (self.expression,) if self.expression is not None else ()
        return (*own, *(self.formula.integers() if self.formula is not None else ()))

    def block_shape(self, constants: ConstantPairs) -> tuple[int, ...]:
        """Return the size of a descriptor's block in each dimension, for a unit's constants.

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
    """Value in every call, unless a field below decides; None is a value, too."""
    expression: Expression | None = None
    """Expression over the call that decides its value."""
    choices: tuple[Scalar, ...] = ()
    """Values of `expression` that images are compiled for; empty if other constants decide it."""
    values: tuple[Value, ...] = ()
    """Value of the constant for each of `choices`; empty if it is the choice itself."""
    known: tuple[tuple[tuple[Node, int], ...], ...] = ()
    """Parts of other expressions with their values, for each of `choices`."""
    dtype: str = ""
    """Torch's name, if the constant is a dtype."""
    dtype_of: str = ""
    """The tensor or argument whose dtype it is."""

    @property
    def is_fixed(self) -> bool:
        """True if `value` is its value in every call."""
        return self.expression is None and not self.dtype and not self.dtype_of

    def value_of(self, choice: Scalar) -> Value:
        """Value for one of `choices`, or for a value that other constants decide."""
        return self.values[self.choices.index(choice)] if self.values else choice


@dataclass(frozen=True)
class Candidate:
    """One way to compile and launch a function."""

    constants: ConstantPairs = ()
    options: Pairs = ()
    """Launch options such as `num_warps`."""
    when: Expression | None = None
    """Condition of calls that may use it; None for all calls."""
    archs: tuple[str, ...] = ()
    """Archs that it is for, in the form of `build.toml`; empty for all."""
    aligned: bool = False
    """Only an aligned image is compiled; calls must satisfy its assumptions."""

    @property
    def is_conditional(self) -> bool:
        """True if there may be calls that cannot use it."""
        return self.when is not None or self.aligned

    def consists_of(self, constants: ConstantPairs, options: ConstantPairs) -> bool:
        """True if it has these constants and options, in any order."""
        own = _typed_pairs(self.constants), _typed_pairs(self.options)
        return own == (_typed_pairs(constants), _typed_pairs(options))


def _typed_pairs(pairs: ConstantPairs) -> dict[str, tuple[bool, Scalar | None]]:
    # True equals 1 in Python, but compiles differently.
    return {name: (isinstance(value, bool), value) for name, value in pairs}


def find_candidate(
    candidates: Sequence[Candidate], constants: ConstantPairs, options: ConstantPairs
) -> int | None:
    """Index of the candidate with these constants and options, in any order; None without one."""
    every = enumerate(candidates)
    return next((at for at, c in every if c.consists_of(constants, options)), None)


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel function."""

    functions: tuple[str, ...]
    """Name of the function; of several names, the first that the source defines."""
    args: tuple[tuple[str, ArgumentSource], ...] = ()
    """Kernel argument -> source, as far as the section has them; `bind` adds the others by name."""
    constants: tuple[Constant, ...] = ()
    candidates: tuple[Candidate, ...] = (Candidate(),)
    """In order; the first one that fits a call is the default."""
    autotune: bool = False
    """True if the candidates are the kernel's own, which are unknown until it is imported."""
    grid: tuple[Expression, ...] = ()
    path: KeyPath = field(default=(), compare=False)
    """Place in `build.toml`."""
    divisible: tuple[tuple[str, ...], ...] = ((),)
    """Integer arguments that each aligned image assumes to be divisible by 16."""
    ones: tuple[str, ...] = ()
    """Integer arguments that aligned images assume to be 1."""
    int64: tuple[str, ...] = ()
    """Integer arguments that are passed with 64 bits."""
    when: Expression | None = None
    """Condition of calls that perform it; None for all calls."""
    keep: tuple[Expression, ...] = ()
    """Conditions for the kernel's own candidates; the section's are filtered when they are read."""


@dataclass(frozen=True)
class AtenValue:
    """One argument of an ATen call, in the form of the stable ABI."""

    kind: Literal[
        "tensor", "number", "scalar", "str", "dtype", "layout", "memory_format", "device", "list",
        "previous", "none",
    ]  # fmt: skip
    """`scalar` is a number in place of a tensor, `previous` the result of the call before."""
    name: str = ""
    """The tensor; the op's text or dtype argument; or the tensor that gives a dtype, a device,
    or the dtype of a `scalar`."""
    text: str = ""
    """A text, layout, memory format or dtype that is the same in every call."""
    number: ArgumentSource | None = None
    items: tuple[AtenValue, ...] = ()
    optional: bool = False
    """True if the schema has `?`, so that the value is boxed."""

    def flat(self) -> tuple[AtenValue, ...]:
        """The value, or the items of a list."""
        return self.items if self.kind == "list" else (self,)


@dataclass(frozen=True)
class DispatcherCall:
    """One call of an operator through Torch's dispatcher."""

    operator: str
    """Such as `sum.dim_IntList`. `add` is a function of the stable ABI, which takes both tensors
    and the factor of the second."""
    values: tuple[AtenValue, ...]
    returned: tuple[bool, ...] = (False,)
    """True for each result that is a list of tensors."""


@dataclass(frozen=True)
class AtenCall:
    """An ATen operator between the launches of an op."""

    operator: str
    """Name in the section, such as `mul.Scalar`."""
    calls: tuple[DispatcherCall, ...]
    """The calls that perform it, in order."""
    results: tuple[str, ...] = ()
    """Names of results and temporaries that it produces; `None` for dropped results."""
    aliases: tuple[str, ...] = ()
    """Tensors whose memory the results may share."""
    when: Expression | None = None
    """Condition of calls that perform it; None for all calls."""
    before: int = 0
    """Number of the op's launches before it."""
    path: KeyPath = field(default=(), compare=False)
    """Place in `build.toml`."""

    @property
    def produced(self) -> tuple[str, ...]:
        """The results that have a name."""
        return tuple(name for name in self.results if name != "None")

    def tensors(self) -> frozenset[str]:
        """Tensors that it reads or writes."""
        values = (v for call in self.calls for value in call.values for v in value.flat())
        return frozenset(v.name for v in values if v.kind in ("tensor", "scalar", "device"))

    def expressions(self) -> tuple[Expression, ...]:
        """Expressions that its arguments are computed from."""
        values = (v for call in self.calls for value in call.values for v in value.flat())
        numbers = (v.number for v in values if v.number is not None)
        return tuple(expression for number in numbers for expression in number.integers())


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
    """Name of the `[kernel.*]` section."""
    language: str
    toolchain: tuple[str, ...]
    """Exact pins, such as `triton==3.9.0`."""
    sources: tuple[str, ...]
    schema: Schema
    results: tuple[str, ...]
    """Names of the results."""
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
    """ATen calls, in order."""
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
