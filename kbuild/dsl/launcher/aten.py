"""C++ code for views, for tensors that are allocated on demand, and for ATen calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from kbuild.dsl.launcher.calls import allocation, expected_size, first_value, shape_lines
from kbuild.dsl.launcher.cxx_text import DTYPE_ORDER, CxxNames, cxx_double, cxx_string, dtype_of
from kbuild.ops.bound_launch import tensors_asked
from kbuild.ops.expression import Expression
from kbuild.ops.model import OpSpec, TensorView
from kbuild.ops.steps import AtenCall, AtenValue, DispatcherCall

_LAYOUTS = {"strided": "aoti_torch_layout_strided()"}


def demand_members(op: OpSpec, on_demand: Collection[str]) -> Iterator[str]:
    """Yield the members of a call that allocate a tensor when a step first uses it.

    Args:
        op: the op.
        on_demand: results and temporaries that are allocated at that time.
    """
    for name in (*op.results, *op.temporaries):
        if name in on_demand:
            guard = "" if name not in op.may_be_none else f" || !r_{name}"
            yield f"void need_{name}() {{"
            yield f"  if (t_{name}.handle != nullptr{guard}) return;"
            yield from (f"  {line}" for line in _locals())
            yield from (f"  {line}" for line in allocation(op, name))
            yield from (f"  {line}" for line in first_value(op, name))
            yield "}"
    for view in op.views:
        yield from _view(op, view, on_demand)
    for name in sorted(op.produced):
        yield from _produced(op, name)


def _locals() -> Iterator[str]:
    yield 'Arithmetic checked{""};'
    yield "Int wanted = 0;"
    # Not every shape is computed, and compilers warn of unused variables.
    yield "(void)checked, (void)wanted;"


def _view(op: OpSpec, view: TensorView, on_demand: Collection[str]) -> Iterator[str]:
    name, of = view.name, f"t_{view.of}"
    yield f"void need_{name}() {{"
    yield f"  if (t_{name}.sizes != nullptr) return;"
    yield from (f"  need_{each}();" for each in needed(op, [view.of], on_demand))
    if op.viewed(view.of) in op.may_be_none:
        yield f"  if ({of}.data == nullptr && t_{op.viewed(view.of)}.handle == nullptr) return;"
    yield from (f"  {line}" for line in _locals())
    for at, dim in enumerate(view.shape):
        yield from (f"  {line}" for line in expected_size(op, dim))
        yield f"  t_{name}.own_sizes[{at}] = wanted;"
    for at, stride in enumerate(view.strides or ()):
        yield from (f"  {line}" for line in expected_size(op, stride))
        yield f"  t_{name}.own_strides[{at}] = wanted;"
    if view.strides is None:
        own = f"t_{name}.own_sizes, {len(view.shape)}, t_{name}.own_strides"
        yield f"  contiguous_strides({own});"
    yield from (f"  {line}" for line in expected_size(op, view.offset))
    names = f"{cxx_string(name)}, t_{name}, {cxx_string(view.of)}, {of}"
    yield f"  place_view(op, {names}, wanted);"
    yield "}"


def _produced(op: OpSpec, name: str) -> Iterator[str]:
    device = op.device_tensor
    rule = next(rule for rule in op.shapes if rule.tensor == name)
    what = cxx_string(name)
    yield f"void produce_{name}(const char* operator_name, StableIValue raw) {{"
    if name in op.may_be_none:
        yield f"  if (!r_{name}) return drop(raw);"
    yield f"  if (KBUILD_UNLIKELY(t_{name}.handle != nullptr)) {{"
    yield "    drop(raw);"
    yield f"    used_before(op, {what}, operator_name);"
    yield "  }"
    yield f"  keep(t_{name}, raw);"
    yield f"  look_at(op, {what}, t_{name});"
    yield f"  t_{name}.device = t_{device}.device;"
    yield from (f"  {line}" for line in _locals())
    yield "  Shape shape;"
    yield from (f"  {line}" for line in shape_lines(op, rule))
    is_result = str(name in op.results).lower()
    arguments = f"t_{name}, shape, {dtype_of(op, name)}, {is_result}"
    yield f"  check_produced(op, {what}, operator_name, {arguments});"
    yield "}"


def needed(op: OpSpec, tensors: Iterable[str], on_demand: Collection[str]) -> list[str]:
    """The tensors that are allocated on demand, in the op's order."""
    wanted = {*tensors}
    views = [view.name for view in op.views]
    return [
        name
        for name in (*op.results, *op.temporaries, *views)
        if name in wanted and (name in on_demand or name in views)
    ]


def need_calls(op: OpSpec, tensors: Iterable[str], on_demand: Collection[str]) -> Iterator[str]:
    """Yield statements of a step that allocate the tensors that it uses."""
    yield from (f"call.need_{name}();" for name in needed(op, tensors, on_demand))


def result_lines(op: OpSpec, name: str, on_demand: Collection[str]) -> str:
    """Statements that run before a result is returned; empty when the result exists by then."""
    view = op.view(name)
    lines = list(need_calls(op, [name], on_demand))
    if view is not None:
        lines.append(_tensor_of_view(op, name))
    return " ".join(lines)


def _tensor_of_view(op: OpSpec, name: str) -> str:
    root = f"call.t_{op.viewed(name)}"
    return f"make_tensor(call.op, {cxx_string(name)}, call.t_{name}, {root});"


class AtenCode:
    """Generates the C++ function of one ATen call."""

    def __init__(self, op: OpSpec, index: int, on_demand: Collection[str]) -> None:
        self._op, self._index, self._on_demand = op, index, on_demand
        self._call: AtenCall = op.aten[index]
        self._names = CxxNames(op, "call.")
        self._locals = 0
        self._lines: list[str] = []

    def function(self) -> str:
        """C++ function `void aten_NAME(Call_OP& call)`."""
        name = self._op.name
        lines = [
            f"// {name}: {self._call.operator}",
            f"void aten_{name}_{self._index}(Call_{name}& call) {{",
            *(f"  {line}" for line in self._body()),
            "}",
        ]
        return "\n".join(lines) + "\n"

    def _body(self) -> Iterator[str]:
        yield 'Arithmetic checked{""};'
        yield "(void)checked;"
        when = self._call.when
        asked = tensors_asked([when] if when is not None else [])
        # The condition may avoid the call, so only the tensors that it asks about are allocated
        # before.
        yield from need_calls(self._op, asked, self._on_demand)
        if when is not None:
            yield f"checked.what = {self._what(when)};"
            yield f"if (({self._names.cxx(when)}) == 0) return;"
        used = {*self._call.tensors(), *tensors_asked(self._call.expressions())} - asked
        yield from need_calls(self._op, used, self._on_demand)
        for name in sorted(self._tensors()):
            # Torch takes handles of tensors, which a view has only once a tensor is made of it.
            if self._op.view(name) is not None:
                yield _tensor_of_view(self._op, name)
        yield "const NoGradient none;"
        operator = cxx_string(f"aten::{self._call.operator}")
        yield f"const char* const operator_name = {operator};"
        if len(self._call.calls) > 1:
            yield "Tensor previous;"
        for at, call in enumerate(self._call.calls):
            last = at + 1 == len(self._call.calls)
            opened = len(self._call.calls) > 1
            if opened:
                yield "{"
            yield from self._dispatched(call, last=last)
            if opened:
                yield "}"

    def _tensors(self) -> set[str]:
        """Names of the tensors whose handles are passed to Torch."""
        values = (v for call in self._call.calls for value in call.values for v in value.flat())
        return {value.name for value in values if value.kind == "tensor"}

    def _what(self, expression: Expression) -> str:
        return cxx_string(f"`{self._op.name}`: {self._call.operator}: `{expression}`")

    def _dispatched(self, call: DispatcherCall, *, last: bool) -> Iterator[str]:
        self._lines = []
        if call.operator in ("add", "sub"):
            first, second = (
                (self._scalar(value) if value.kind == "scalar" else f"call.t_{value.name}")
                for value in call.values[:2]
            )
            factor = self._number(call.values[2])
            sign = "-" if call.operator == "sub" else ""
            yield from self._lines
            yield "Tensor sum;"
            yield f"add(call.op, operator_name, sum, {first}, {second}, {sign}{factor});"
            # The stack owns its values: `sum` must not release the tensor as well.
            yield "StableIValue stack[] = {raw_of(std::exchange(sum.handle, nullptr))};"
        else:
            values = [self._value(value) for value in call.values]
            count = max(len(values), len(call.returned), 1)
            yield from self._lines
            yield f"StableIValue stack[{count}] = {{{', '.join(values)}}};"
            name, _, overload = call.operator.partition(".")
            what = f"{cxx_string(f'aten::{name}')}, {cxx_string(overload)}"
            called = f"call_aten(call.op, {what}, operator_name, stack);"
            if call.operator == "contiguous" and call.values[1].text == "contiguous_format":
                # It returns a contiguous argument itself, which `stack` has already.
                tensor = f"call.t_{call.values[0].name}"
                called = f"if (!is_contiguous(call.op, {tensor})) {called}"
            yield called
        if not last:
            yield "Tensor next;"
            yield "keep(next, stack[0]);"
            yield "std::swap(previous.handle, next.handle);"
            return
        yield from self._taken(call)

    def _taken(self, call: DispatcherCall) -> Iterator[str]:
        results, source = self._call.results, "stack"
        if call.returned == (True,):
            source = "items"
            yield f"StableIValue items[{max(1, len(results))}] = {{}};"
            yield "take_results(call.op, operator_name, stack[0], items);"
        elif not results:
            # Results that nobody wants still own a reference, which has to be dropped.
            results = ("None",) * len(call.returned)
        for at, name in enumerate(results):
            if name == "None":
                yield f"drop({source}[{at}]);"
            else:
                yield f"call.produce_{name}(operator_name, {source}[{at}]);"

    def _local(self, kind: str, value: str) -> str:
        self._locals += 1
        name = f"v{self._locals}"
        self._lines.append(f"{kind} {name} = {value};")
        return name

    def _evaluated(self, expression: Expression) -> str:
        if expression.constant is not None:
            return self._names.cxx(expression)
        self._lines.append(f"checked.what = {self._what(expression)};")
        return self._local("const Int", self._names.cxx(expression))

    def _number(self, value: AtenValue) -> str:
        source = value.number
        if source is None:
            raise ValueError(f"`{self._call.operator}` gets no number")
        if source.expression is not None:
            number = self._evaluated(source.expression)
            return f"({number} != 0)" if source.kind == "bool" else number
        if source.formula is not None:
            text = cxx_string(f"`{self._op.name}`: {self._call.operator}: `{source.formula}`")
            self._lines.append(f"checked.what = {text};")
        if source.formula is None and not source.name and source.literal is not None:
            return cxx_double(source.literal)
        return self._local("const double", self._names.floating(source))

    def _scalar(self, value: AtenValue) -> str:
        """Local variable with a tensor without dimensions."""
        number = self._number(value)
        self._locals += 1
        name = f"v{self._locals}"
        other = f"&call.t_{value.name}" if value.name else "nullptr"
        self._lines += [
            f"Tensor {name};",
            f"scalar_tensor(call.op, operator_name, {name}, {other}, {number});",
        ]
        return name

    def _value(self, value: AtenValue) -> str:
        raw = self._raw(value)
        # `lend_optional` puts the value in a box itself, unless it is None.
        is_lent = value.kind == "tensor" and value.optional and self._may_be_none(value.name)
        return f"boxed({raw})" if value.optional and value.kind != "none" and not is_lent else raw

    def _may_be_none(self, tensor: str) -> bool:
        return self._op.viewed(tensor) in self._op.may_be_none

    def _raw(self, value: AtenValue) -> str:  # noqa: C901, PLR0911
        op = "call.op"
        match value.kind:
            case "none":
                return "0"
            case "tensor":
                lend = (
                    "lend_optional" if value.optional and self._may_be_none(value.name) else "lend"
                )
                return f"{lend}({op}, call.t_{value.name})"
            case "previous":
                return f"lend({op}, previous)"
            case "scalar":
                return f"raw_of(std::exchange({self._scalar(value)}.handle, nullptr))"
            case "number":
                return f"raw_of({self._number(value)})"
            case "str" if value.name:
                text = f"call.a_{value.name}.value"
                return f"string_of({op}, {text}.data(), {text}.size())"
            case "str":
                return f"string_of({op}, {cxx_string(value.text)}, {len(value.text.encode())})"
            case "dtype":
                return f"raw_of(torch_dtypes[{self._dtype(value)}])"
            case "layout":
                return f"raw_of({_LAYOUTS[value.text]})"
            case "memory_format":
                return f"raw_of(aoti_torch_memory_format_{value.text}())"
            case "device":
                return f"device_value(call.t_{value.name})"
        values = [self._value(item) for item in value.items]
        if not values:
            return "list_of(call.op, nullptr, 0)"
        return f"list_of(call.op, {{{', '.join(values)}}})"

    def _dtype(self, value: AtenValue) -> str:
        if value.text:
            return str(DTYPE_ORDER.index(value.text))
        if value.name in self._op.dtype_arguments:
            return f"call.a_{value.name}.kind"
        return dtype_of(self._op, value.name, "call.")
