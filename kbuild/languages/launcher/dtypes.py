"""C++ that reads the dtypes of a call, and says which of the op's combinations they are."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.languages.launcher.text import KINDS, literal, suffix_of
from kbuild.languages.spec import DtypeRule, OpSpec


def dtype_checks(op: OpSpec) -> Iterator[str]:
    """Statements; they set `set`, the index of the combination."""
    yield "int d = 0;"
    for rule in op.dtypes:
        if not rule.like:
            yield from _group(op, rule)


def _group(op: OpSpec, base: DtypeRule) -> Iterator[str]:
    """The tensors that share a dtype, or an argument that is one."""
    if base.tensor in op.dtype_arguments:
        yield from _asked(base)
        yield f"set = set * {len(base.choices)} + d;"
        yield "d = 0;"
        return
    inputs = [name for name in op.inputs if op.dtype_rule(name) is base]
    always = [name for name in inputs if name not in op.optional]
    inputs = always + [name for name in inputs if name not in always]
    end = suffix_of(base.tensor)
    if inputs:
        yield f"static const char* const supported_{end}[] = {{{_choices(base)}}};"
    if len(inputs) > 1:
        yield f"const Tensor* base_{end} = nullptr;"
    for name in inputs:
        yield from _member(op, base, name, len(always))
    yield f"set = set * {len(base.choices)}{' + d' if inputs else ''};"
    if inputs:
        yield "d = 0;"


def _member(op: OpSpec, base: DtypeRule, name: str, always: int) -> Iterator[str]:
    first = f"base_{suffix_of(base.tensor)}"
    names = [one for one in op.inputs if op.dtype_rule(one) is base]
    owner = next((one for one in names if one not in op.optional), name)
    wrong = f"{literal(name)}, t_{name}, supported_{suffix_of(base.tensor)}, {len(base.choices)}"
    own = [
        f"d = place_of_{suffix_of(base.tensor)}(t_{name}.dtype);",
        f"if (KBUILD_UNLIKELY(d < 0)) wrong_dtype(op, {wrong});",
        *([f"{first} = &t_{name};"] if len(names) > 1 else []),
    ]
    same = (
        f"if (KBUILD_UNLIKELY({first}->dtype != t_{name}.dtype)) "
        f"different_dtypes(op, {literal(name)}, t_{name}, {literal(owner)}, *{first});"
    )
    if name not in op.optional:
        yield from own if name == owner else [same]
    elif always:
        yield f"if (t_{name}.handle != nullptr) {{ {same} }}"
    elif len(names) == 1:
        yield f"if (t_{name}.handle != nullptr) {{ {' '.join(own)} }}"
    else:
        yield f"if (t_{name}.handle != nullptr && {first} != nullptr) {{ {same} }}"
        yield f"if (t_{name}.handle != nullptr && {first} == nullptr) {{ {' '.join(own)} }}"


def _asked(base: DtypeRule) -> Iterator[str]:
    """What an argument says that is a dtype."""
    name = base.tensor
    if base.none:
        yield f"if (!a_{name}.given) a_{name}.kind = t_{base.none}.dtype;"
    yield f"static const char* const supported_{name}[] = {{{_choices(base)}}};"
    yield f"d = place_of_{name}(a_{name}.kind);"
    wrong = f"{literal(name)}, a_{name}, supported_{name}, {len(base.choices)}"
    yield f"if (KBUILD_UNLIKELY(d < 0)) wrong_kind_of_dtype(op, {wrong});"


def _choices(base: DtypeRule) -> str:
    return ", ".join(literal(choice) for choice in base.choices)


def place_functions(op: OpSpec) -> Iterator[str]:
    """For each list of dtypes a function: a tensor's dtype -> its place in the list."""
    for rule in op.dtypes:
        known = (*op.inputs, *op.dtype_arguments)
        if rule.like or not any(op.dtype_rule(name) is rule for name in known):
            continue
        cases = " ".join(
            f"case {KINDS.index(choice)}: return {at};" for at, choice in enumerate(rule.choices)
        )
        yield f"static int place_of_{suffix_of(rule.tensor)}(int dtype) {{"
        yield f"  switch (dtype) {{ {cases} default: return -1; }}"
        yield "}"


def dtype_of(op: OpSpec, tensor: str) -> str:
    """The dtype of a result or temporary, as an index into the runtime's table."""
    base = op.dtype_rule(tensor)
    if base.tensor in op.dtype_arguments:
        return f"a_{base.tensor}.kind"
    given = [name for name in op.inputs if op.dtype_rule(name) is base]
    always = [name for name in given if name not in op.optional]
    return f"t_{always[0]}.dtype" if always else str(KINDS.index(base.choices[0]))
