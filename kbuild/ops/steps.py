"""The steps of an op after its section was read: launches of kernels, and ATen calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kbuild.ops.expression import Expression
from kbuild.ops.expression.floating import FloatExpression
from kbuild.ops.expression.nodes import Node
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
class DtypeName:
    """A dtype as the value of a constant."""

    name: str


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
