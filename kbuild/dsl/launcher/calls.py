"""C++ code for one call of an op: arguments, checks of dtypes and shapes, allocated tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from kbuild.dsl.launcher.cxx_text import (
    DTYPE_ORDER,
    CxxNames,
    cxx_string,
    dtype_of,
    member_of,
    member_type,
    suffix_of,
)
from kbuild.dsl.launcher.framework_adapters import FrameworkAdapter
from kbuild.ops.dtypes import bit_pattern
from kbuild.ops.expression import Expression, Query
from kbuild.ops.model import DtypeRule, OpSpec, ShapeRule


def dtype_checks(op: OpSpec) -> Iterator[str]:
    """Yield statements that check dtypes and set `set`, the index of the combination of dtypes."""
    yield "int d = 0;"
    for rule in op.dtypes:
        if not rule.like:
            yield from _group(op, rule)


def _group(op: OpSpec, base: DtypeRule) -> Iterator[str]:
    """Statements for the tensors that share a dtype, or for a dtype argument."""
    if base.tensor in op.dtype_arguments:
        yield from _dtype_argument(base)
        yield f"set = set * {len(base.choices)} + d;"
        yield "d = 0;"
        return
    inputs = [name for name in op.inputs if op.dtype_rule(name) is base]
    # Required tensors first: they decide the dtype that optional ones are compared with.
    always = [name for name in inputs if name not in op.optional]
    inputs = always + [name for name in inputs if name not in always]
    end = suffix_of(base.tensor)
    if inputs:
        yield f"static const char* const supported_{end}[] = {{{_choices(base)}}};"
    if len(inputs) > 1:
        yield f"const Tensor* base_{end} = nullptr;"
    for name in inputs:
        yield from _input_dtype(op, base, name, len(always))
    yield f"set = set * {len(base.choices)}{' + d' if inputs else ''};"
    if inputs:
        yield "d = 0;"


def _input_dtype(op: OpSpec, base: DtypeRule, name: str, always: int) -> Iterator[str]:
    first = f"base_{suffix_of(base.tensor)}"
    names = [tensor for tensor in op.inputs if op.dtype_rule(tensor) is base]
    owner = next((tensor for tensor in names if tensor not in op.optional), name)
    wrong = f"{cxx_string(name)}, t_{name}, supported_{suffix_of(base.tensor)}, {len(base.choices)}"
    first_checks = [
        f"d = place_of_{suffix_of(base.tensor)}(t_{name}.dtype);",
        f"if (KBUILD_UNLIKELY(d < 0)) wrong_dtype(op, {wrong});",
        *([f"{first} = &t_{name};"] if len(names) > 1 else []),
    ]
    same = (
        f"if (KBUILD_UNLIKELY({first}->dtype != t_{name}.dtype)) "
        f"different_dtypes(op, {cxx_string(name)}, t_{name}, {cxx_string(owner)}, *{first});"
    )
    if name not in op.optional:
        yield from first_checks if name == owner else [same]
    elif always:
        yield f"if (t_{name}.handle != nullptr) {{ {same} }}"
    elif len(names) == 1:
        yield f"if (t_{name}.handle != nullptr) {{ {' '.join(first_checks)} }}"
    else:
        # None is required, so the first given tensor is the base. The order of the two statements
        # avoids a comparison of the base with itself.
        yield f"if (t_{name}.handle != nullptr && {first} != nullptr) {{ {same} }}"
        joined = " ".join(first_checks)
        yield f"if (t_{name}.handle != nullptr && {first} == nullptr) {{ {joined} }}"


def _dtype_argument(base: DtypeRule) -> Iterator[str]:
    """Statements that check a dtype argument."""
    name = base.tensor
    if base.none:
        yield f"if (!a_{name}.given) a_{name}.kind = t_{base.none}.dtype;"
    yield f"static const char* const supported_{name}[] = {{{_choices(base)}}};"
    yield f"d = place_of_{name}(a_{name}.kind);"
    wrong = f"{cxx_string(name)}, a_{name}, supported_{name}, {len(base.choices)}"
    yield f"if (KBUILD_UNLIKELY(d < 0)) wrong_kind_of_dtype(op, {wrong});"


def _choices(base: DtypeRule) -> str:
    return ", ".join(cxx_string(choice) for choice in base.choices)


def place_functions(op: OpSpec) -> Iterator[str]:
    """Yield a function for each list of dtypes: a tensor's dtype -> its place in the list."""
    for rule in op.dtypes:
        known = (*op.inputs, *op.dtype_arguments)
        if rule.like or not any(op.dtype_rule(name) is rule for name in known):
            continue
        choices = enumerate(rule.choices)
        cases = " ".join(f"case {DTYPE_ORDER.index(c)}: return {at};" for at, c in choices)
        yield f"static int place_of_{suffix_of(rule.tensor)}(int dtype) {{"
        yield f"  switch (dtype) {{ {cases} default: return -1; }}"
        yield "}"


def shape_checks(op: OpSpec) -> Iterator[str]:
    """Yield statements that check shapes; ranks first, so that later checks may read dimensions."""
    rules = [rule for rule in op.shapes if rule.tensor in op.inputs]
    for rule in rules:
        yield from _if_present(op, rule.tensor, _rank(rule))
    for rule in rules:
        yield from _if_present(op, rule.tensor, _likeness(rule))
    owner = op.batch_owner
    for rule in rules:
        if owner is not None and None in rule.dims and rule.tensor != owner.tensor:
            yield from _if_present(op, rule.tensor, _batch(rule, owner))
    for rule in rules:
        yield from _if_present(op, rule.tensor, _dims(op, rule))


def _if_present(op: OpSpec, tensor: str, lines: Iterator[str]) -> Iterator[str]:
    body = list(lines)
    if body and tensor in op.optional:
        yield f"if (t_{tensor}.handle != nullptr) {{"
        yield from (f"  {line}" for line in body)
        yield "}"
    else:
        yield from body


def _rank(rule: ShapeRule) -> Iterator[str]:
    if rule.like:
        return
    count = sum(dim is not None for dim in rule.dims)
    is_open = None in rule.dims
    if count or not is_open:
        name = rule.tensor
        yield (
            f"if (KBUILD_UNLIKELY(t_{name}.dim {'<' if is_open else '!='} {count})) "
            f"wrong_rank(op, {cxx_string(name)}, t_{name}, {count}, {str(is_open).lower()});"
        )


def _likeness(rule: ShapeRule) -> Iterator[str]:
    a, b = rule.tensor, rule.like
    if b:
        message = cxx_string(" must have the same shape")
        yield (
            f"if (KBUILD_UNLIKELY(!same_shape(t_{a}, t_{b}))) "
            f"wrong_shape(op, {cxx_string(a)}, t_{a}, {cxx_string(b)}, t_{b}, {message});"
        )


def _fixed_dims(rule: ShapeRule) -> tuple[int, int]:
    """Number of dimensions before and after `...`."""
    before = rule.dims.index(None)
    return before, len(rule.dims) - before - 1


def _batch(rule: ShapeRule, owner: ShapeRule) -> Iterator[str]:
    a, b = rule.tensor, owner.tensor
    (before_a, behind_a), (before_b, behind_b) = _fixed_dims(rule), _fixed_dims(owner)
    count_a = f"t_{a}.dim - {before_a + behind_a}"
    count_b = f"t_{b}.dim - {before_b + behind_b}"
    message = cxx_string(" differ in the dimensions that `...` stands for")
    yield (
        f"if (KBUILD_UNLIKELY({count_a} != {count_b} || !same_dims(t_{a}.sizes + {before_a}, "
        f"t_{b}.sizes + {before_b}, {count_a}))) "
        f"wrong_shape(op, {cxx_string(a)}, t_{a}, {cxx_string(b)}, t_{b}, {message});"
    )


def _dims(op: OpSpec, rule: ShapeRule) -> Iterator[str]:
    name = rule.tensor
    for axis, dim in op.checked_dims(rule):
        yield from expected_size(op, dim)
        yield (
            f"if (KBUILD_UNLIKELY(t_{name}.sizes[{index_of(f't_{name}', axis)}] != wanted)) "
            f"wrong_size(op, {cxx_string(name)}, t_{name}, {axis}, {cxx_string(str(dim))}, wanted);"
        )


def expected_size(op: OpSpec, dim: Expression) -> Iterator[str]:
    """Yield statements that set `wanted` to the value of an expression."""
    yield f"checked.what = {cxx_string(f'`{op.name}`: `{dim}`')};"
    yield f"wanted = {CxxNames(op).cxx(dim)};"


def index_of(tensor: str, axis: int) -> str:
    """C++ index of a dimension; negative axes count from the tensor's last dimension."""
    return str(axis) if axis >= 0 else f"{tensor}.dim - {-axis}"


def allocation(op: OpSpec, name: str) -> Iterator[str]:
    """Yield statements that allocate a result or a temporary by its shape rule."""
    rule = next(rule for rule in op.shapes if rule.tensor == name)
    yield f"if (r_{name}) {{" if name in op.may_be_none else "{"
    yield "  Shape shape;"
    yield from (f"  {line}" for line in shape_lines(op, rule))
    allocate = "allocate" if name in op.results else "allocate_temporary"
    where = f"{dtype_of(op, name)}, t_{op.device_tensor}.device"
    yield f"  ::{allocate}(op, {cxx_string(name)}, t_{name}, shape, {where});"
    yield "}"


def first_value(op: OpSpec, name: str) -> Iterator[str]:
    """Yield statements that fill a tensor with the value of `zero` or `fill`."""
    value = dict(op.fills).get(name)
    if value is None:
        return
    # The dtype is known only in a call, which selects the pattern by it.
    bits = (bit_pattern(value, dtype) for dtype in DTYPE_ORDER)
    patterns = ", ".join(f"UINT64_C({pattern or 0:#x})" for pattern in bits)
    line = f"::fill(op, {cxx_string(name)}, *device, t_{name}, patterns_{suffix_of(name)});"
    yield f"static const uint64_t patterns_{suffix_of(name)}[] = {{{patterns}}};"
    yield f"if (t_{name}.handle != nullptr) {line}" if name in op.may_be_none else line


def shape_lines(op: OpSpec, rule: ShapeRule) -> Iterator[str]:
    """Yield statements that add the dimensions of a result or temporary to `shape`."""
    add = f"shape.add(op, {cxx_string(rule.tensor)}, "
    if rule.like:
        yield f"{add}t_{rule.like}.sizes, t_{rule.like}.sizes + t_{rule.like}.dim);"
    for dim in rule.dims:
        if dim is None:
            owner = op.batch_owner
            if owner is None:
                raise ValueError(f"`...` of `{rule.tensor}` is unknown")
            before, behind = _fixed_dims(owner)
            sizes = f"t_{owner.tensor}.sizes"
            yield f"{add}{sizes} + {before}, {sizes} + t_{owner.tensor}.dim - {behind});"
        else:
            yield from expected_size(op, dim)
            yield f"{add}wanted);"


def call_struct(
    op: OpSpec, host: FrameworkAdapter, on_demand: Collection[str], more: Iterable[str]
) -> str:
    """C++ definition of `struct Call_NAME`.

    Args:
        op: the op.
        host: the framework that calls it.
        on_demand: results and temporaries that are not allocated before the first step.
        more: further members.
    """
    lines = [
        f"// {op.schema}",
        f"struct Call_{op.name} {{",
        f"  static constexpr const char* op = {cxx_string(op.name)};",
        *(f"  {line}" for line in _field_members(op)),
        "",
        *(f"  {line}" for line in host.constructor(op)),
        "",
        *(f"  {line}" for line in _size_members(op)),
        *(f"  {line}" for line in place_functions(op)),
        "  void check() {",
        *(f"    {line}" for line in _check(op)),
        "  }",
        "",
        "  void allocate() {",
        *(f"    {line}" for line in _allocate(op, on_demand)),
        "  }",
        *(f"  {line}" for line in more),
        "};",
    ]
    return "\n".join(lines) + "\n"


def _field_members(op: OpSpec) -> Iterator[str]:
    for argument in op.schema.arguments:
        yield f"{member_type(argument)} {member_of(argument)};"
        if argument.type.is_tensor_list:
            kind = "OptionalTensor" if argument.type.suffixes[0] == "?" else "Tensor"
            yield f"{kind} t_{argument.name}[{len(argument.type.items)}];"
    for name in (*op.results, *op.temporaries):
        if op.view(name) is None:
            yield f"Tensor t_{name};"
    yield from (f"ViewTensor<{len(view.shape)}> t_{view.name};" for view in op.views)
    yield from (f"bool r_{name} = true;  // whether it is returned" for name, _ in op.returned)
    yield "const Device* device = nullptr;"
    yield "int set = 0;          // which dtypes"
    yield "int combination = 0;  // which dtypes, and which tensors are None"


def _size_members(op: OpSpec) -> Iterator[str]:
    """Yield accessors of named dimensions and of `let`, which is computed on first use."""
    for size in op.sizes:
        index = index_of(f"t_{size.tensor}", size.axis)
        yield f"Int n_{size.name}() const {{ return t_{size.tensor}.sizes[{index}]; }}"
    for name, expression in op.let:
        place = cxx_string(f"`{op.name}`: `{name} = {expression}`")
        yield f"Int l_{name}() {{"
        yield f"  if (!has_{name}_) {{"
        yield f"    const Arithmetic checked{{{place}}};"
        yield "    (void)checked;"
        yield f"    {name}_ = {CxxNames(op).cxx(expression)};"
        yield f"    has_{name}_ = true;"
        yield "  }"
        yield f"  return {name}_;"
        yield "}"
        yield f"bool has_{name}_ = false;"
        yield f"Int {name}_ = 0;"
        yield ""


def _check(op: OpSpec) -> Iterator[str]:
    # First, because later checks read every tensor of a list, and callers may give fewer.
    yield from _lengths(op)
    owner = op.device_tensor
    # Optional tensors last: they are compared with the device of a required one.
    for name in sorted(op.inputs, key=lambda tensor: tensor in op.optional):
        lines = [f"look_at(op, {cxx_string(name)}, t_{name});"]
        if name != owner:
            lines.append(
                f"if (KBUILD_UNLIKELY(t_{name}.device != t_{owner}.device)) "
                f"two_devices(op, {cxx_string(name)}, t_{name}, {cxx_string(owner)}, t_{owner});"
            )
        if name in op.optional:
            lines = [f"if (t_{name}.handle != nullptr) {{ {' '.join(lines)} }}"]
        yield from lines
    for argument in (a for a in op.schema.arguments if a.type.name == "Device"):
        tensor = f"{cxx_string(owner)}, t_{owner}"
        yield f"check_device(op, {cxx_string(argument.name)}, {member_of(argument)}, {tensor});"
    yield f"device = &device_at(op, t_{owner}.device);"
    yield from dtype_checks(op)
    # A bit for each tensor that may be None: images are looked up by this number.
    yield f"combination = set << {len(op.may_be_none)};"
    for at, name in enumerate(op.optional):
        yield f"if (t_{name}.handle == nullptr) combination |= {1 << at};"
    yield 'Arithmetic checked{""};'
    yield "Int wanted = 0;"
    yield "(void)checked, (void)wanted;"
    yield from shape_checks(op)
    for name in op.contiguous:
        check = f"check_contiguous(op, {cxx_string(name)}, t_{name});"
        yield f"if (t_{name}.handle != nullptr) {check}" if name in op.optional else check
    for rule in op.require:
        yield from _requirement(op, rule)
    for at, (name, condition) in enumerate(op.returned, len(op.optional)):
        yield f"checked.what = {cxx_string(f'`{op.name}`: `{condition}`')};"
        yield f"r_{name} = ({CxxNames(op).cxx(condition)}) != 0;"
        yield f"if (!r_{name}) combination |= {1 << at};"


def _lengths(op: OpSpec) -> Iterator[str]:
    for argument in op.schema.arguments:
        if argument.type.is_tensor_list:
            up_to = str(argument.type.suffixes[0] == "?").lower()
            name, count = cxx_string(argument.name), len(argument.type.items)
            yield f"check_length(op, {name}, {member_of(argument)}, {count}, {up_to});"


def _requirement(op: OpSpec, rule: Expression) -> Iterator[str]:
    names = CxxNames(op)
    yield f"checked.what = {cxx_string(f'`{op.name}`: `{rule}`')};"
    yield f"if (KBUILD_UNLIKELY(({names.cxx(rule)}) == 0)) {{"
    # A value of an absent argument cannot be shown in the message.
    may_be_none = {a.name for a in op.schema.arguments if a.type.is_optional} | {*op.optional}
    expressions = {
        leaf.key: names.leaf(leaf)
        for leaf in rule.leaves()
        if (leaf.tensor if isinstance(leaf, Query) else leaf.name) not in may_be_none
    }
    values = (
        ", ".join(f"{{{cxx_string(key)}, {cxx}}}" for key, cxx in expressions.items()) or '{"", 0}'
    )
    yield f"  const Named values[] = {{{values}}};"
    yield f"  broken_rule(op, {cxx_string(str(rule))}, values, {len(expressions)});"
    yield "}"


def _allocate(op: OpSpec, on_demand: Collection[str]) -> Iterator[str]:
    yield 'Arithmetic checked{""};'
    yield "Int wanted = 0;"
    yield "(void)checked, (void)wanted;"
    allocated = (name for name in (*op.results, *op.temporaries) if op.view(name) is None)
    for name in allocated:
        if name not in on_demand:
            yield from allocation(op, name)
    for name, _ in op.fills:
        if name not in on_demand:
            yield from first_value(op, name)
    # Views of results are placed, and so checked to fit, before any launch writes to the memory.
    for view in op.views:
        if view.name in op.results and op.viewed(view.name) not in on_demand:
            yield f"need_{view.name}();"
