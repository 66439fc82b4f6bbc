"""Binds a launch to the kernel function's parameters: by the section, by name, by stride.

Only the worker knows the parameters, so binding happens at build.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from kbuild.ops.bound_launch import BoundLaunch, KernelParameter, TensorFacts, flatten_argument
from kbuild.ops.dialects import DIALECTS
from kbuild.ops.expression import Expression, parse
from kbuild.ops.expression.nodes import Name, Node, Query
from kbuild.ops.model import OpSpec, ShapeRule
from kbuild.ops.schema.model import SchemaArgument
from kbuild.ops.steps import ArgumentSource, Launch
from kbuild.project.config.issue import IssueCollector, listed, one_of

# Kernels name strides in two ways: `stride_am` and `a_stride_m`.
_FORMS = (re.compile(r"stride_?(?P<rest>\w+)"), re.compile(r"(?P<rest>\w+?)_stride_?(?P<axis>\w*)"))


def stride_by_name(op: OpSpec, called: Mapping[str, str], parameter: str) -> Query | None:
    """Return `stride(a, 0)` for `stride_am` if `a` is `["M", "K"]`; None if it is ambiguous.

    `called` are the op's tensors by their names in the kernel.
    """
    readings = {reading for text in _texts(parameter) for reading in _readings(op, called, text)}
    if len(readings) != 1:
        return None
    tensor, axis = readings.pop()
    return Query("stride", tensor, axis)


def _texts(parameter: str) -> Iterator[str]:
    """Yield the parts of the name without `stride`, such as `am`, `out_1`."""
    for form in _FORMS:
        if match := form.fullmatch(parameter):
            yield "_".join(part for part in match.groups() if part)


def _readings(op: OpSpec, called: Mapping[str, str], text: str) -> Iterator[tuple[str, int]]:
    for name, tensor in called.items():
        if text.startswith(name):
            rule = op.shape(tensor)
            axis = _axis_of(text[len(name) :].lstrip("_"), rule)
            if axis is not None:
                yield tensor, axis


def _axis_of(word: str, rule: ShapeRule | None) -> int | None:
    """Dimension that a word names: by number, or by its name in lower or upper case."""
    if word.isdecimal():
        rank = rule.rank if rule is not None else None
        return int(word) if rank is None or int(word) < rank else None
    if rule is None or not word:
        return None
    named = [
        rule.axis(position)
        for position, dim in enumerate(rule.dims)
        if dim is not None and isinstance(dim.root, Name) and dim.root.name.lower() == word.lower()
    ]
    return named[0] if len(named) == 1 else None


POINTER_SUFFIX = "_ptr"
"""Suffix of parameters for tensors: `x_ptr` is the tensor `x`."""
DESCRIPTOR_SUFFIX = "_desc"
"""Suffix of parameters for descriptors: `x_desc` describes `x`; the section has its block."""


def bind(
    op: OpSpec,
    launch: Launch,
    functions: Mapping[str, Sequence[KernelParameter]],
    place: IssueCollector,
) -> BoundLaunch | None:
    """Join a launch with the function that it names; None after an error at `place`.

    An autotuned launch must have the kernel's own candidates already.
    """
    function = next((name for name in launch.functions if name in functions), None)
    if function is None:
        wanted = " or ".join(f"`{name}`" for name in launch.functions)
        decorator = DIALECTS.get(op.language).decorator
        undecorated = f"no function there has `{decorator}`: write it above the kernel"
        hint = one_of(launch.functions[0], functions) or (undecorated if decorator else "")
        hint = hint or "the source has no kernel function"
        place.at("function").error(f"there is no {wanted} in `{op.sources[0]}`", hint)
        return None
    errors = place.errors
    parameters = functions[function]
    # An argument in `args` wins over a constant of the same name, see `Dialect.open_constants`.
    if DIALECTS.get(op.language).open_constants:
        argument_names = {name for name, _ in launch.args}
        parameters = [
            replace(
                parameter,
                is_constant=parameter.is_constant and parameter.name not in argument_names,
            )
            for parameter in parameters
        ]
    constants = [parameter.name for parameter in parameters if parameter.is_constant]
    _validate_constants(op, launch, function, parameters, place)
    if launch.autotune:
        _validate_open_names(op, launch, function, constants, place)
        _validate_own_values(launch, function, constants, place)
    arguments = _arguments(op, launch, function, parameters, place.at("args"))
    sizes = tuple(size.name for size in op.sizes) if DIALECTS.get(op.language).shaped else ()
    facts = tuple(_facts(op, name) for name in op.tensors)
    choices = tuple(
        (constant.name, _in_sizes(op, constant.expression))
        for constant in launch.constants
        if constant.expression is not None and constant.choices and not constant.values
    )
    bound = BoundLaunch(
        function, arguments, tuple(constants), facts, sizes, op.toolchain, launch.autotune, choices
    )
    _validate_assumptions(op, launch, bound, place)
    return bound if place.errors == errors else None


def _arguments(
    op: OpSpec,
    launch: Launch,
    function: str,
    parameters: Sequence[KernelParameter],
    place: IssueCollector,
) -> tuple[tuple[str, ArgumentSource], ...]:
    """Sources of the parameters that are no constants; errors are added to `place`, `args`."""
    plain = [parameter.name for parameter in parameters if not parameter.is_constant]
    constants = [parameter.name for parameter in parameters if parameter.is_constant]
    written = dict(launch.args)
    for name in written.keys() - set(plain):
        where = place.at(name)
        if name in constants:
            where.error(f"`{name}` is a constant of `{function}`", "give it in `constants`")
        else:
            where.error(f"`{function}` has no parameter `{name}`", one_of(name, plain))
    sources = {name: written.get(name) or default_source(op, launch, name) for name in plain}
    optional = {parameter.name for parameter in parameters if parameter.has_value}
    missing = [name for name, source in sources.items() if source is None and name not in optional]
    if missing:
        hint = f'write `args = {{ {missing[0]} = "..." }}`: a tensor, or an expression'
        if op.schema.argument(missing[0]) is not None:
            hint += "; the op's argument of that name is not a number, or may be None"
        place.error(f"`{function}` has no value for {listed(missing)}", hint)
    return tuple((name, source) for name, source in sources.items() if source is not None)


def _in_sizes(op: OpSpec, expression: Expression) -> Expression:
    """Replace names of `let` by their expressions, and sizes by the op's names of dimensions."""
    let = dict(op.let)

    def change(node: Node) -> Node | None:
        if isinstance(node, Name) and node.name in let:
            return _in_sizes(op, let[node.name]).root
        return op.named_size(node)

    return expression.mapped(change)


def default_source(op: OpSpec, launch: Launch, parameter: str) -> ArgumentSource | None:
    """Source of a parameter by its name; None if the name has no meaning or several."""
    tensors = op.tensors
    # A tensor's own name wins over the form in which an item of a list is written.
    called = {_called(name): name for name in tensors} | {name: name for name in tensors}
    for name in (parameter, parameter.removesuffix(POINTER_SUFFIX)):
        if name in called:
            return ArgumentSource("tensor", called[name])
    argument = op.schema.argument(parameter)
    kind = argument.type.name if argument is not None and not argument.type.suffixes else ""
    if kind == "float":
        return ArgumentSource("float", parameter)
    if kind in ("int", "SymInt", "bool"):
        return ArgumentSource("bool" if kind == "bool" else "int", expression=parse(parameter))
    if argument is not None:
        return _listed_tensors(op, argument)
    if parameter in {size.name for size in op.sizes} | {name for name, _ in op.let}:
        return ArgumentSource("int", expression=parse(parameter))
    return _stride(op, launch, tensors, parameter)


def _listed_tensors(op: OpSpec, argument: SchemaArgument) -> ArgumentSource | None:
    """A list of tensors as a tuple, if the DSL supports tuples; None for other arguments."""
    dialect = DIALECTS.get(op.language)
    if not argument.type.is_tensor_list or not (dialect.structured or dialect.shaped):
        return None
    names = (f"{argument.name}[{at}]" for at in range(len(argument.type.items)))
    return ArgumentSource("tuple", items=tuple(ArgumentSource("tensor", name) for name in names))


def _called(tensor: str) -> str:
    """Name of a kernel's parameter for a tensor: `xs_0` for `xs[0]`."""
    return tensor.replace("[", "_").removesuffix("]")


def _stride(
    op: OpSpec, launch: Launch, tensors: Sequence[str], parameter: str
) -> ArgumentSource | None:
    """Source of a stride by its name; 0 if the tensor is None."""
    stride = stride_by_name(op, _pointers(launch, tensors), parameter)
    if stride is None:
        return None
    guard = f" if has({stride.tensor}) else 0" if stride.tensor in op.may_be_none else ""
    return ArgumentSource("int", expression=parse(f"{stride.key}{guard}"))


def _pointers(launch: Launch, tensors: Sequence[str]) -> dict[str, str]:
    """Tensors by their names in the kernel; `c_ptr` counts as `c`."""
    called = {_called(tensor): tensor for tensor in tensors}
    for name, source in launch.args:
        if source.kind == "tensor":
            called[name.removesuffix(POINTER_SUFFIX)] = source.name
        elif source.kind == "descriptor":
            called[name.removesuffix(DESCRIPTOR_SUFFIX)] = source.name
    return called


def _validate_constants(
    op: OpSpec,
    launch: Launch,
    function: str,
    parameters: Sequence[KernelParameter],
    place: IssueCollector,
) -> None:
    """Report constants without a value; one named like a launch option takes the option's."""
    plain = [parameter.name for parameter in parameters if not parameter.is_constant]
    constants = [parameter.name for parameter in parameters if parameter.is_constant]
    needed = [p.name for p in parameters if p.is_constant and not p.has_value]
    launch_constants = {constant.name for constant in launch.constants}
    sets = [{name for name, _ in candidate.constants} for candidate in launch.candidates]
    known = launch_constants.union(*sets)
    option_sets = [{name for name, _ in candidate.options} for candidate in launch.candidates]
    shared = {*DIALECTS.get(op.language).options} if option_sets else set()
    shared.intersection_update(*option_sets)
    available = known | {_tuple_of(name) for name in known} | shared
    missing = [name for name in needed if name not in available]
    if missing:
        hint = f"write `constants = {{ {missing[0]} = ... }}`, or set it in `configs`"
        place.error(f"`{function}` has constants without a value: {listed(missing)}", hint)
    # A section may fix a dimension although the function takes it from its tensors.
    sizes = {size.name for size in op.sizes} if DIALECTS.get(op.language).shaped else set()
    for name in sorted(known - set(constants)):
        if _tuple_of(name) in constants or name in sizes & launch_constants:
            continue
        where = place.at("constants", name) if name in launch_constants else place.at("configs")
        if name in plain:
            where.error(f"`{name}` is not a constant of `{function}`", "give it in `args`")
        else:
            where.error(f"`{function}` has no constant `{name}`", one_of(name, constants))


def _tuple_of(name: str) -> str:
    """Name of the constant that `shape.0` is an item of."""
    outer, _, index = name.rpartition(".")
    return outer if index.isdecimal() else name


def _validate_open_names(
    op: OpSpec, launch: Launch, function: str, constants: Sequence[str], place: IssueCollector
) -> None:
    """Report unknown names in expressions: at build, all constants of the function are known."""
    known = {*constants, *(size.name for size in op.sizes), *(name for name, _ in op.let)}
    known |= {argument.name for argument in op.schema.arguments}
    known |= {*op.tensors}
    options = set(DIALECTS.get(op.language).options)
    sets = [candidate.constants for candidate in launch.candidates]
    optional = {name for pairs in sets for name, value in pairs if value is None}
    for key, name, expression in _expressions(launch):
        names = known | options if key == "keep" else known
        for leaf in expression.leaves():
            asked = leaf.tensor if isinstance(leaf, Query) else leaf.name
            if asked and asked not in names:
                message = f"`{expression}`: `{asked}` is unknown (column {leaf.column})"
                hint = one_of(asked, constants) or f"`{function}` has no constants"
                place.at(key, name).error(message, hint)
        for leaf in expression.unguarded(optional, {}):
            message = f"`{expression}`: a candidate has `{leaf.key} = None` (column {leaf.column})"
            hint = f"test it first: `{leaf.key} if {leaf.key} is not None else 1`"
            place.at(key, name).error(message, hint)


def _validate_own_values(
    launch: Launch, function: str, constants: Sequence[str], place: IssueCollector
) -> None:
    """Report expressions over constants that only the kernel computes or defaults."""
    known = {constant.name for constant in launch.constants}
    sets = [{name for name, _ in candidate.constants} for candidate in launch.candidates]
    unknown = set(constants) - known.union(sets[0].intersection(*sets) if sets else set())
    for key, name, expression in _expressions(launch):
        for leaf in expression.leaves():
            if isinstance(leaf, Name) and leaf.name in unknown:
                message = f"the constant `{leaf.name}` is set inside `{function}`"
                hint = f'set it here too: `constants = {{ {leaf.name} = "..." }}`'
                message = f"`{expression}`: {message} (column {leaf.column})"
                place.at(key, name).error(message, hint)


def _expressions(launch: Launch) -> Iterator[tuple[str, str | int, Expression]]:
    yield from (("grid", index, axis) for index, axis in enumerate(launch.grid))
    yield from (("keep", index, condition) for index, condition in enumerate(launch.keep))
    for name, source in launch.args:
        parts = [e for _, part in flatten_argument(name, source) for e in part.integers()]
        yield from (("args", name, expression) for expression in (*parts, *source.block))
    for constant in launch.constants:
        if constant.expression is not None:
            yield "constants", constant.name, constant.expression


def _facts(op: OpSpec, name: str) -> TensorFacts:
    rule, view = op.shape(name), op.view(name)
    dims = tuple(map(str, rule.dims)) if rule is not None and rule.rank is not None else None
    is_allocated = view is None and name not in (*op.inputs, *op.produced)
    is_dense = is_allocated or (view is not None and view.strides is None)
    return TensorFacts(name, dims, name in op.contiguous or is_dense, _aliases(op, name))


def _aliases(op: OpSpec, name: str) -> tuple[str, ...]:
    """See `TensorFacts.aliases`: what the op allocates itself shares memory with its views only."""
    given, written, own = {*op.inputs}, {*op.schema.mutated}, _memory(op, name)

    def may_alias(other: str) -> bool:
        others = _memory(op, other)
        # Tensors of the caller may overlap, which nobody sees while all of them are only read.
        are_given = bool(own & given and others & given)
        return bool(own & others) or (are_given and bool((own | others) & written))

    return tuple(other for other in op.tensors if other != name and may_alias(other))


def _memory(op: OpSpec, name: str) -> set[str]:
    """Tensors in whose memory a tensor may lie, such as the argument of `contiguous`."""
    root = op.viewed(name)
    shared = {other for call in op.aten if root in call.produced for other in call.aliases}
    return {root}.union(*(_memory(op, other) for other in shared))


def _validate_assumptions(
    op: OpSpec, launch: Launch, bound: BoundLaunch, place: IssueCollector
) -> None:
    sources = dict(bound.flat())
    named = [
        (place.at(key, at), name)
        for key, names in (("ones", launch.ones), ("int64", launch.int64))
        for at, name in enumerate(names)
    ]
    every = place.at("divisible")
    for at, names in enumerate(launch.divisible):
        listed = every.at(at) if len(launch.divisible) > 1 else every
        named += [(listed.at(index), name) for index, name in enumerate(names)]
    for where, name in named:
        source = sources.get(name)
        if source is None and DIALECTS.get(op.language).shaped:
            with suppress(KeyError):
                source = bound.source(name)
        if source is None:
            hint = one_of(name, [other for other, s in sources.items() if s.kind == "int"])
            where.error(f"`{bound.function}` has no integer argument `{name}`", hint)
        elif source.kind != "int":
            where.error(f"`{name}` is not an integer, but `{source}`", "pointers need no entry")
