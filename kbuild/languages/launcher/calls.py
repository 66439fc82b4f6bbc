"""The C++ of one call of an op: its arguments, its checks, what it allocates."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.languages.expression import Expression, Query
from kbuild.languages.launcher.dtypes import dtype_checks, place_functions
from kbuild.languages.launcher.hosts import Host
from kbuild.languages.launcher.shapes import allocations, index_of, shape_checks
from kbuild.languages.launcher.text import (
    KINDS,
    Names,
    literal,
    member_of,
    suffix_of,
    type_of,
)
from kbuild.languages.spec import OpSpec
from kbuild.languages.spec.fills import pattern


def call_struct(op: OpSpec, host: Host) -> str:
    """`struct Call_NAME`."""
    lines = [
        f"// {op.schema}",
        f"struct Call_{op.name} {{",
        f"  static constexpr const char* op = {literal(op.name)};",
        *(f"  {line}" for line in _members(op)),
        "",
        *(f"  {line}" for line in host.constructor(op)),
        "",
        *(f"  {line}" for line in _names(op)),
        *(f"  {line}" for line in place_functions(op)),
        "  void check() {",
        *(f"    {line}" for line in _check(op)),
        "  }",
        "",
        "  void allocate() {",
        *(f"    {line}" for line in _allocate(op)),
        "  }",
        "};",
    ]
    return "\n".join(lines) + "\n"


def _members(op: OpSpec) -> Iterator[str]:
    for argument in op.schema.arguments:
        yield f"{type_of(argument)} {member_of(argument)};"
        if argument.type.is_tensor_list:
            kind = "OptionalTensor" if argument.type.suffixes[0] == "?" else "Tensor"
            yield f"{kind} t_{argument.name}[{len(argument.type.items)}];"
    for name in (*op.results, *op.temporaries):
        yield f"Tensor t_{name};"
    yield from (f"bool r_{name} = true;  // whether it is returned" for name, _ in op.returned)
    yield "const Device* device = nullptr;"
    yield "int set = 0;          // which dtypes"
    yield "int combination = 0;  // which dtypes, and which tensors are None"


def _names(op: OpSpec) -> Iterator[str]:
    """Dimensions and the names of `let`, the latter worked out when they are first needed."""
    for size in op.sizes:
        index = index_of(f"t_{size.tensor}", size.axis)
        yield f"Int n_{size.name}() const {{ return t_{size.tensor}.sizes[{index}]; }}"
    for name, expression in op.let:
        yield f"Int l_{name}() {{"
        yield f"  if (!has_{name}_) {{"
        yield f"    const Arithmetic checked{{{literal(f'`{op.name}`: `{name} = {expression}`')}}};"
        yield "    (void)checked;"
        yield f"    {name}_ = {Names(op).cxx(expression)};"
        yield f"    has_{name}_ = true;"
        yield "  }"
        yield f"  return {name}_;"
        yield "}"
        yield f"bool has_{name}_ = false;"
        yield f"Int {name}_ = 0;"
        yield ""


def _check(op: OpSpec) -> Iterator[str]:
    yield from _lengths(op)
    owner = next(name for name in op.inputs if name not in op.optional)
    for name in sorted(op.inputs, key=lambda one: one in op.optional):
        lines = [f"look_at(op, {literal(name)}, t_{name});"]
        if name != owner:
            lines.append(
                f"if (KBUILD_UNLIKELY(t_{name}.device != t_{owner}.device)) "
                f"two_devices(op, {literal(name)}, t_{name}, {literal(owner)}, t_{owner});"
            )
        if name in op.optional:
            lines = [f"if (t_{name}.handle != nullptr) {{ {' '.join(lines)} }}"]
        yield from lines
    yield from _devices(op, owner)
    yield f"device = &device_at(op, t_{owner}.device);"
    yield from dtype_checks(op)
    yield f"combination = set << {len(op.may_be_none)};"
    for at, name in enumerate(op.optional):
        yield f"if (t_{name}.handle == nullptr) combination |= {1 << at};"
    yield 'Arithmetic checked{""};'
    yield "Int wanted = 0;"
    yield "(void)checked, (void)wanted;"
    yield from shape_checks(op)
    for name in op.contiguous:
        check = f"check_contiguous(op, {literal(name)}, t_{name});"
        yield f"if (t_{name}.handle != nullptr) {check}" if name in op.optional else check
    for rule in op.require:
        yield from _requirement(op, rule)
    for at, (name, condition) in enumerate(op.returned, len(op.optional)):
        yield f"checked.what = {literal(f'`{op.name}`: `{condition}`')};"
        yield f"r_{name} = ({Names(op).cxx(condition)}) != 0;"
        yield f"if (!r_{name}) combination |= {1 << at};"


def _lengths(op: OpSpec) -> Iterator[str]:
    for argument in op.schema.arguments:
        if argument.type.is_tensor_list:
            up_to = str(argument.type.suffixes[0] == "?").lower()
            told = f"{literal(argument.name)}, {member_of(argument)}, {len(argument.type.items)}"
            yield f"check_length(op, {told}, {up_to});"


def _devices(op: OpSpec, owner: str) -> Iterator[str]:
    for argument in op.schema.arguments:
        if argument.type.name == "Device":
            tensor = f"{literal(owner)}, t_{owner}"
            yield f"check_device(op, {literal(argument.name)}, {member_of(argument)}, {tensor});"


def _requirement(op: OpSpec, rule: Expression) -> Iterator[str]:
    names = Names(op)
    yield f"checked.what = {literal(f'`{op.name}`: `{rule}`')};"
    yield f"if (KBUILD_UNLIKELY(({names.cxx(rule)}) == 0)) {{"
    loose = {a.name for a in op.schema.arguments if a.type.is_optional} | {*op.optional}
    told = {
        leaf.key: names.leaf(leaf)
        for leaf in rule.leaves()
        if (leaf.tensor if isinstance(leaf, Query) else leaf.name) not in loose
    }
    values = ", ".join(f"{{{literal(key)}, {cxx}}}" for key, cxx in told.items()) or '{"", 0}'
    yield f"  const Named values[] = {{{values}}};"
    yield f"  broken_rule(op, {literal(str(rule))}, values, {len(told)});"
    yield "}"


def _allocate(op: OpSpec) -> Iterator[str]:
    yield 'Arithmetic checked{""};'
    yield "Int wanted = 0;"
    yield "(void)checked, (void)wanted;"
    yield from allocations(op)
    for name, value in op.fills:
        bits = (pattern(value, dtype) for dtype in KINDS)
        patterns = ", ".join(f"UINT64_C({one or 0:#x})" for one in bits)
        line = f"::fill(op, {literal(name)}, *device, t_{name}, patterns_{suffix_of(name)});"
        yield f"static const uint64_t patterns_{suffix_of(name)}[] = {{{patterns}}};"
        yield f"if (t_{name}.handle != nullptr) {line}" if name in op.may_be_none else line
