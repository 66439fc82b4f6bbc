"""Generates code for `fallback = "jit"`: Python that launches the author's kernel with Triton.

It is part of `_aot.py` and runs for calls that no image fits, if Triton is installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kbuild.dsl.languages.triton import RENAMED_DTYPES
from kbuild.dsl.python_package import BoundLaunches, source_module
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.expression import Expression
from kbuild.ops.expression.nodes import Match, Name
from kbuild.ops.fake_kernels import (
    TORCH_QUERIES,
    device_source,
    dtype_argument,
    empty_source,
    lengths_source,
    match_source,
    quoted,
    sizes_source,
)
from kbuild.ops.model import OpSpec
from kbuild.ops.steps import (
    ArgumentSource,
    Candidate,
    Constant,
    DtypeName,
    FillValue,
    Launch,
    Value,
)
from kbuild.system import rendering

_DEVICE = {
    "sm_count": "torch.cuda.get_device_properties({tensor}.device).multi_processor_count",
    "capability": "(0 if torch.version.hip else (lambda c: 10 * c[0] + c[1])"
    "(torch.cuda.get_device_capability({tensor}.device)))",
}
_ASKED = {**TORCH_QUERIES, "address": "{tensor}.data_ptr()"}


def jit_source(op: OpSpec, launches: BoundLaunches) -> str:
    """Python source of the op's fallback; requires `jit_head.py` and the op's fake kernel."""
    schema = replace(op.schema, name=f"_{op.name}_jit")
    names = [argument.name for argument in op.schema.arguments]
    single, listed = (",", "(_results,)") if len(op.results) == 1 else ("", "_results")
    lines = [
        *lengths_source(op),
        f"_results = _fake_{op.name}({', '.join(names)})",
        *([f"{', '.join(op.results)}{single} = {listed}"] * bool(op.results)),
        *sizes_source(op),
        *device_source(op),
        *(f"_{name} = {_python(op, value)}" for name, value in op.let),
        *(f"{name} = {empty_source(op, name)}" for name in op.temporaries),
        *(_filled(op, name, value) for name, value in op.fills),
    ]
    if any(source.kind == "descriptor" for _, bound in launches for _, source in bound.arguments):
        lines += rendering.read("package/jit_descriptor.py").splitlines()
    for launch, bound in launches:
        lines += _launch(op, launch, bound)
    lines.append("return _results")
    register = f'@_fallback({quoted(str(schema))}, "{op.language}")'
    head = f"{register}\ndef _jit_{op.name}({', '.join(names)}):\n"
    return head + "".join(f"    {line}\n" for line in lines)


def _filled(op: OpSpec, name: str, value: FillValue) -> str:
    number = f"float({value!r})" if isinstance(value, str) else repr(value)
    guard = f"if {name} is not None: " if name in op.may_be_none else ""
    return f"{guard}{name}.fill_({number})"


def _launch(op: OpSpec, launch: Launch, bound: BoundLaunch) -> Iterator[str]:
    indent = ""
    if launch.when is not None:
        yield f"if {_python(op, launch.when)}:"
        indent = "    "
    for line in _body(op, launch, bound):
        yield indent + line


def _body(op: OpSpec, launch: Launch, bound: BoundLaunch) -> Iterator[str]:
    yield from _candidates(op, launch.candidates)
    pairs = (pair for candidate in launch.candidates for pair in candidate.constants)
    for name in dict(pairs):
        yield f"{name} = _candidate[{name!r}]"
    for constant in launch.constants:
        yield f"{constant.name} = _candidate[{constant.name!r}] = {_constant(op, constant)}"
    grid = ", ".join(f"int({_python(op, axis)})" for axis in launch.grid)
    arguments = ", ".join(f"{name}={_value(op, source)}" for name, source in bound.arguments)
    module = source_module(op.sources[0])
    yield f"_kernel = _function({module!r}, {bound.function!r})"
    # The candidate is chosen already, so `@triton.autotune` is bypassed.
    if launch.autotune:
        yield "_kernel = getattr(_kernel, 'fn', _kernel)"
    yield f"_kernel[({grid},)]({arguments}, **_candidate)"


def _candidates(op: OpSpec, candidates: Sequence[Candidate]) -> Iterator[str]:
    """Statements that choose the first candidate whose condition holds, or raise."""
    word = "if"
    for candidate in candidates:
        values = dict((*candidate.constants, *candidate.options))
        if candidate.when is None and word == "if":
            yield f"_candidate = {values!r}"
            return
        if candidate.when is None:
            yield "else:"
            yield f"    _candidate = {values!r}"
            return
        own = {name: repr(value) for name, value in candidate.constants}
        yield f"{word} {_python(op, candidate.when, own)}:"
        yield f"    _candidate = {values!r}"
        word = "elif"
    yield "else:"
    yield f"    raise RuntimeError({f'{op.name}: no candidate fits this call'!r})"


def _constant(op: OpSpec, constant: Constant) -> str:
    if constant.dtype_of in op.dtype_arguments:
        return _of_triton(_triton_name_of(dtype_argument(op, constant.dtype_of)))
    if constant.dtype:
        return _of_triton(_triton_name(constant.dtype))
    if constant.dtype_of:
        return _of_triton(_triton_name_of(f"{constant.dtype_of}.dtype"))
    if constant.expression is None:
        return repr(constant.value)
    value = _python(op, constant.expression)
    if constant.values:
        cases = zip(constant.choices, constant.values, strict=True)
        written = ", ".join(f"{choice}: {_written(case_value)}" for choice, case_value in cases)
        return f"{{{written}}}[{value}]"
    # The 0 stands for a constant without choices.
    kind = "bool" if isinstance((*constant.choices, 0)[0], bool) else "int"
    return f"{kind}({value})"


def _of_triton(dtype: str) -> str:
    # Imported by the call that needs it, since the package has to load without Triton.
    return f"getattr(importlib.import_module('triton.language'), {dtype})"


def _triton_name(dtype: str) -> str:
    return repr(RENAMED_DTYPES.get(dtype, dtype))


def _triton_name_of(dtype: str) -> str:
    """Source that looks up the name of a dtype of Torch; `[6:]` drops its `torch.`."""
    return f"(lambda name: {RENAMED_DTYPES!r}.get(name, name))(str({dtype})[6:])"


def _written(value: Value) -> str:
    return _of_triton(_triton_name(value.name)) if isinstance(value, DtypeName) else repr(value)


def _value(op: OpSpec, source: ArgumentSource) -> str:  # noqa: PLR0911
    if source.kind == "none":
        return "None"
    if source.kind == "float" and source.name:
        name = source.name if source.item is None else f"{source.name}[{source.item}]"
        if source.literal is None:
            return name
        return f"({name} if {name} is not None else {source.literal!r})"
    if source.kind == "tuple":
        return f"({', '.join(_value(op, item) for item in source.items)},)"
    if source.kind == "descriptor":
        block = ", ".join(f"int({_python(op, dim)})" for dim in source.block)
        layout = dict(source.layout)
        return f"_descriptor({source.name}, [{block}], {source.padding!r}, {layout!r})"
    if source.literal is not None:
        return repr(source.literal)
    if source.formula is not None:
        names = {k: v for part in source.formula.integers() for k, v in _names(op, part).items()}
        return source.formula.to_python(names, {p.key: p.key for p in source.formula.floats()})
    if source.expression is None:
        return source.name
    value = _python(op, source.expression)
    return f"bool({value})" if source.kind == "bool" else f"int({value})"


def _python(op: OpSpec, expression: Expression, known: Mapping[str, str] | None = None) -> str:
    return expression.to_python(_names(op, expression, known))


def _names(
    op: OpSpec, expression: Expression, known: Mapping[str, str] | None = None
) -> dict[str, str]:
    own = {size.name for size in op.sizes} | {name for name, _ in op.let}
    names = {}
    for leaf in expression.leaves():
        if isinstance(leaf, Name):
            word = f"_{leaf.name}" if leaf.name in own else leaf.name
            names[leaf.key] = (known or {}).get(leaf.name, word)
        elif isinstance(leaf, Match):
            names[leaf.key] = match_source(op, leaf)
        elif leaf.function in _DEVICE:
            names[leaf.key] = _DEVICE[leaf.function].format(tensor=op.device_tensor)
        else:
            names[leaf.key] = _ASKED[leaf.function].format(tensor=leaf.tensor, axis=leaf.axis)
    return names
