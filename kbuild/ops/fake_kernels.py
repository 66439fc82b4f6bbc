"""Generates the fake kernel of an op, which tells `torch.compile` its results' shapes and dtypes.

The same rules also allocate results for array libraries other than Torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kbuild.ops.expression import Expression
from kbuild.ops.expression.nodes import Match, Name
from kbuild.ops.model import OpSpec, Projection, ShapeRule, TensorView
from kbuild.ops.schema.model import Default, SymbolicDefault

TORCH_QUERIES = {
    "numel": "{tensor}.numel()",
    "dim": "{tensor}.dim()",
    "itemsize": "{tensor}.element_size()",
    "has": "({tensor} is not None)",
    "size": "{tensor}.size({axis})",
    "stride": "{tensor}.stride({axis})",
    "sm_count": "__sm_count",
    "len": "len({tensor})",
    "item": "{tensor}[{axis}]",
}


@dataclass(frozen=True)
class ArrayApi:
    """Python code for arrays of a library, as the rules of an op need it."""

    queries: Mapping[str, str]
    check: str
    """Statement that raises an error with `{message!r}` unless `{condition}` holds."""
    empty: str
    """Expression for an array of `{shape}` and `{dtype}`, with the library and device of
    `{tensor}`."""
    strided: str
    """Expression for an array with `{strides}` in addition; empty if no op needs it."""
    dtype: str
    """Expression for a dtype by Torch's name."""
    sm_count: tuple[str, ...]
    """Lines that set `__sm_count` for the device of `{tensor}`, or raise an error for the op
    `{op}`."""


TORCH_API = ArrayApi(
    TORCH_QUERIES,
    "torch._check({condition}, lambda: {message!r})",
    "torch.empty({shape}, dtype={dtype}, device={tensor}.device)",
    "torch.empty_strided({shape}, {strides}, dtype={dtype}, device={tensor}.device)",
    "torch.{dtype}",
    (
        (
            "torch._check({tensor}.device.type == 'cuda' and torch.cuda.is_available(), lambda: "
            "f'{op}: a shape depends on sm_count(), which is unknown here for a tensor on ' "
            "f'{{{tensor}.device}}; compile or export it on a machine with the GPU')"
        ),
        "__sm_count = torch.cuda.get_device_properties({tensor}.device).multi_processor_count",
    ),
)
GENERIC_API = ArrayApi(
    {
        "numel": "_math.prod({tensor}.shape)",
        "dim": "len({tensor}.shape)",
        "itemsize": "{tensor}.dtype.itemsize",
        "has": TORCH_QUERIES["has"],
        "size": "{tensor}.shape[{axis}]",
        "stride": "({tensor}.strides[{axis}] // {tensor}.dtype.itemsize)",
        **{name: TORCH_QUERIES[name] for name in ("sm_count", "len", "item")},
    },
    "_check({condition}, {message!r})",
    "_empty({tensor}, {shape}, {dtype})",
    "",
    "{dtype!r}",
    ("__sm_count = _sm_count({tensor})",),
)
"""Code for arrays in the style of NumPy; `_math`, `_check`, `_empty` and `_sm_count` must be in
scope."""
REGISTER_FAKE = "torch.library.register_fake(add_op_namespace_prefix({name!r}))"
"""Decorator that works with the `_ops.py` of every variant."""


def fake_source(op: OpSpec, register: str = REGISTER_FAKE) -> str:
    """Generate the op's fake kernel, which needs `torch` in scope.

    It checks ranks and dimensions like the launcher, and allocates results by the rules of
    `shapes`, also for symbolic sizes. `register` is the decorator, with `{name!r}` for the name
    of the op.
    """
    head = f"@{register.format(name=op.name)}\ndef _fake_{op.name}({parameters(op)}):\n"
    body = (*_prologue(op, TORCH_API), *_checks(op), _result(op))
    return head + "".join(f"    {line}\n" for line in body)


def projection_fake_source(
    op: OpSpec, projection: Projection, register: str = REGISTER_FAKE
) -> str:
    """Generate the fake kernel of a projection; the op's own fake kernel must come before it."""
    own = replace(op, schema=projection.schema)
    names = ", ".join(argument.name for argument in projection.schema.arguments)
    return (
        f"@{register.format(name=projection.name)}\n"
        f"def _fake_{projection.name}({parameters(own)}):\n"
        f"    {', '.join(op.results)} = _fake_{op.name}({names})\n"
        f"    return {', '.join(projection.results)}\n"
    )


def _prologue(op: OpSpec, spelling: ArrayApi) -> Iterator[str]:
    # In this order: an item needs the length of its list, and a size the rank of its tensor.
    yield from lengths_source(op, spelling)
    yield from _ranks(op, spelling)
    yield from sizes_source(op, spelling)
    yield from device_source(op, spelling, ())
    # Yield the names of `let` that shapes need; others may query data, which fake tensors lack.
    needed = needed_by_shapes(op, ())
    for name, expression in op.let:
        if name in needed:
            yield f"{_local_name(name)} = {_python(op, expression, spelling)}"


def results_source(op: OpSpec) -> str:
    """Generate a function that allocates and returns arrays for the op's results.

    It takes the op's arguments, reads only those that it needs, and has the requirements of
    `GENERIC_API`.
    """
    names = ", ".join(argument.name for argument in op.schema.arguments)
    results = ", ".join(empty_source(op, name, GENERIC_API) for name in op.results)
    body = (*_prologue(op, GENERIC_API), f"return ({results},)")
    return f"def _{op.name}_results({names}):\n" + "".join(f"    {line}\n" for line in body)


def parameters(op: OpSpec, dtype: str = "torch.{}") -> str:
    """The op's parameters with their defaults in Python; `dtype` is a format for dtypes."""
    parts = []
    for argument in op.schema.arguments:
        if argument.keyword_only and "*" not in parts:
            parts.append("*")
        value = argument.default
        default = "" if value is None else f"={default_value_source(value, dtype)}"
        parts.append(f"{argument.name}{default}")
    return ", ".join(parts)


def quoted(text: str) -> str:
    """Python literal of a string, in double quotes if possible."""
    return repr(text) if '"' in text or "\\" in text else f'"{text}"'


def default_value_source(default: Default, dtype: str = "torch.{}") -> str:
    """Python expression of a default; see `parameters`."""
    value = default.value
    return dtype.format(value) if isinstance(value, SymbolicDefault) else repr(value)


def _ranks(op: OpSpec, spelling: ArrayApi) -> Iterator[str]:
    """Yield checks that every argument has the number of dimensions of its rule."""
    for rule in _inputs(op):
        if rule.like:
            continue
        count = sum(dim is not None for dim in rule.dims)
        sign = ">=" if None in rule.dims else "=="
        prefix = "at least " if None in rule.dims else ""
        plural = "" if count == 1 else "s"
        condition = f"{spelling.queries['dim'].format(tensor=rule.tensor)} {sign} {count}"
        message = f"{op.name}: {rule.tensor} must have {prefix}{count} dimension{plural}"
        if count or sign == "==":
            yield _check(op, rule.tensor, condition, message, spelling)


def lengths_source(op: OpSpec, spelling: ArrayApi = TORCH_API) -> Iterator[str]:
    """Yield lines that check the lengths of lists; missing optional tensors become None."""
    for argument in op.schema.arguments:
        if not argument.type.is_tensor_list:
            continue
        name, count = argument.name, len(argument.type.items)
        up_to = argument.type.suffixes[0] == "?"
        what = f"{'up to ' * up_to}{count} tensor{'s' * (count != 1)}"
        condition = f"len({name}) {'<=' if up_to else '=='} {count}"
        message = f"{op.name}: {name} must have {what}"
        yield spelling.check.format(condition=condition, message=message)
        if up_to:
            yield f"{name} = [*{name}, *[None] * ({count} - len({name}))]"


def sizes_source(op: OpSpec, spelling: ArrayApi = TORCH_API) -> Iterator[str]:
    """Yield lines that assign the named dimensions, and the shape of `...`."""
    for size in op.sizes:
        value = spelling.queries["size"].format(tensor=size.tensor, axis=size.axis)
        yield f"{_local_name(size.name)} = {value}"
    batch = op.batch_owner
    if batch is not None:
        yield f"__batch = {batch.tensor}.shape{_batch_slice(batch)}"


def _batch_slice(rule: ShapeRule) -> str:
    before = rule.dims.index(None)
    behind = len(rule.dims) - before - 1
    return f"[{before or ''}:{f'-{behind}' if behind else ''}]"


def device_source(
    op: OpSpec, spelling: ArrayApi = TORCH_API, temporaries: Collection[str] | None = None
) -> Iterator[str]:
    """Yield lines that query the device, if shapes depend on it; see `needed_by_shapes`."""
    if "sm_count()" in needed_by_shapes(op, temporaries):
        tensor = op.device_tensor
        yield from (line.format(tensor=tensor, op=op.name) for line in spelling.sm_count)


def needed_by_shapes(op: OpSpec, temporaries: Collection[str] | None = None) -> set[str]:
    """Keys of everything that shapes depend on; of temporaries, only `temporaries` unless None."""
    own = op.temporaries if temporaries is None else temporaries
    dims = [
        dim
        for rule in op.shapes
        for dim in rule.dims
        if dim is not None and rule.tensor in (*op.inputs, *op.results, *own)
    ]
    for view in op.views:
        dims += [*(view.strides or ()), *view.shape, view.offset]
    needed = {name for dim in dims for name in dim.names()}
    needed |= {name for _, condition in op.returned for name in condition.names()}
    # In reverse, since an expression uses names before it.
    for name, expression in reversed(op.let):
        needed |= expression.names() if name in needed else set()
    return needed


def _checks(op: OpSpec) -> Iterator[str]:
    owner = op.batch_owner
    for rule in _inputs(op):
        if rule.like:
            condition = f"{rule.tensor}.shape == {rule.like}.shape"
            message = f"{op.name}: {rule.tensor} must have the shape of {rule.like}"
            yield _check(op, rule.tensor, condition, message)
            continue
        if None in rule.dims and owner is not None and rule.tensor != owner.tensor:
            condition = f"{rule.tensor}.shape{_batch_slice(rule)} == __batch"
            both = f"{rule.tensor} and {owner.tensor}"
            message = f"{op.name}: {both} differ in their first dimensions"
            yield _check(op, rule.tensor, condition, message)
        for axis, dim in op.checked_dims(rule):
            condition = f"{rule.tensor}.size({axis}) == {_python(op, dim)}"
            message = f"{op.name}: dimension {axis} of {rule.tensor} must be {dim}"
            yield _check(op, rule.tensor, condition, message)


def _check(
    op: OpSpec, tensor: str, condition: str, message: str, spelling: ArrayApi = TORCH_API
) -> str:
    guard = f"if {tensor} is not None: " if tensor in op.optional else ""
    return guard + spelling.check.format(condition=condition, message=message)


def _result(op: OpSpec) -> str:
    values = [_returned(op, name) for name in op.results]
    if not values:
        return "return None"
    return "return " + (values[0] if len(values) == 1 else f"({', '.join(values)})")


def _returned(op: OpSpec, name: str) -> str:
    condition = dict(op.returned).get(name)
    tensor = empty_source(op, name)
    return tensor if condition is None else f"({tensor} if {_python(op, condition)} else None)"


def empty_source(op: OpSpec, name: str, spelling: ArrayApi = TORCH_API) -> str:
    """Expression that allocates a result or a temporary; needs `sizes_source` and `let`."""
    rule = next(rule for rule in op.shapes if rule.tensor == name)
    dims = _tuple("*__batch" if dim is None else _python(op, dim, spelling) for dim in rule.dims)
    shape = f"{rule.like}.shape" if rule.like else dims
    tensor = op.device_tensor
    view, dtype = op.view(name), _dtype(op, name, spelling)
    offsets = [offset for offset in _offsets(op, name) if offset.constant != 0]
    if view is None or (view.strides is None and not offsets):
        return spelling.empty.format(shape=shape, dtype=dtype, tensor=tensor)
    strides = _strides(op, view, spelling)
    if not offsets:
        return spelling.strided.format(shape=shape, strides=strides, dtype=dtype, tensor=tensor)
    memory = empty_source(op, op.viewed(name), spelling)
    offset = " + ".join(_python(op, each, spelling) for each in offsets)
    return f"{memory}.as_strided({shape}, {strides}, {offset})"


def _offsets(op: OpSpec, name: str) -> Iterator[Expression]:
    """Yield the offsets whose sum is a view's distance from the tensor that owns the memory."""
    while (view := op.view(name)) is not None:
        yield view.offset
        name = view.of


def _strides(op: OpSpec, view: TensorView, spelling: ArrayApi) -> str:
    if view.strides is not None:
        return _tuple(_python(op, stride, spelling) for stride in view.strides)
    # Strides of a contiguous tensor: a dimension of size 0 counts as 1.
    sizes = [f"torch.sym_max({_python(op, dim, spelling)}, 1)" for dim in view.shape]
    return _tuple(" * ".join(sizes[at + 1 :]) or "1" for at in range(len(sizes)))


def _tuple(items: Iterable[str]) -> str:
    parts = list(items)
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _dtype(op: OpSpec, name: str, spelling: ArrayApi) -> str:
    """Dtype of the argument that it follows, or the only possible one."""
    always = [tensor for tensor in op.inputs if tensor not in op.optional]
    rules = {rule.tensor: rule for rule in op.dtypes}
    rule = rules[name]
    while rule.like and rule.tensor not in always:
        rule = rules[rule.like]
    if rule.tensor in always:
        return f"{rule.tensor}.dtype"
    if rule.tensor in op.dtype_arguments:
        return dtype_argument(op, rule.tensor)
    return spelling.dtype.format(dtype=rule.choices[0])


def dtype_argument(op: OpSpec, name: str) -> str:
    """Expression for the dtype of an argument that is one."""
    none = op.dtype_rule(name).none
    return f"({none}.dtype if {name} is None else {name})" if none else name


def match_source(op: OpSpec, leaf: Match, spelling: ArrayApi = TORCH_API) -> str:
    """Condition for a comparison of an argument with a string, float or dtype, or of a dtype."""
    if leaf.tensor:
        dtype = spelling.dtype.format(dtype=leaf.value)
        tensor = op.viewed(leaf.tensor)
        is_it = f"{_dtype(op, leaf.tensor, spelling)} == {dtype}"
        if tensor in op.optional:
            return f"({tensor} is not None and {tensor}.dtype == {dtype})"
        return f"({is_it})"
    if leaf.name in op.dtype_arguments:
        dtype = spelling.dtype.format(dtype=leaf.value)
        return f"({dtype_argument(op, leaf.name)} == {dtype})"
    return f"({leaf.name} is not None and {leaf.key})" if leaf.operator != "==" else f"({leaf.key})"


def _inputs(op: OpSpec) -> list[ShapeRule]:
    return [rule for rule in op.shapes if rule.tensor in op.inputs]


def _local_name(name: str) -> str:
    return f"_{name}"


def _python(op: OpSpec, expression: Expression, spelling: ArrayApi = TORCH_API) -> str:
    own = {size.name for size in op.sizes} | {name for name, _ in op.let}
    names = {}
    for leaf in expression.leaves():
        if isinstance(leaf, Name):
            names[leaf.key] = _local_name(leaf.name) if leaf.name in own else leaf.name
        elif isinstance(leaf, Match):
            names[leaf.key] = match_source(op, leaf, spelling)
        else:
            query = spelling.queries[leaf.function]
            names[leaf.key] = query.format(tensor=leaf.tensor, axis=leaf.axis)
    text = expression.to_python(names)
    # Python's own `min` and `max` suffice where sizes are no symbols.
    return text if spelling is TORCH_API else text.replace("torch.sym_", "")
