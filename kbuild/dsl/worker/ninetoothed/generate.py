"""Runs NineToothed's code generator for one config: Triton source and facts about it.

Runs inside the DSL's own environment. Nothing is compiled, and no GPU is needed.
"""

from __future__ import annotations

import ast
import builtins
import enum
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any

from kbuild.dsl.worker.ninetoothed.inputs import BuildInputs
from kbuild.dsl.worker.protocol import RefusalError

_KNOWN = {*dir(builtins), "triton"}
_PARTS = re.compile(r"ninetoothed_(?P<source>\w+)_(?P<kind>pointer|size|stride)(?:_(?P<axis>\d+))?")
_PREFIX = re.compile(r"ninetoothed_(?P<word>constexpr|next_power_of_2)_prefix_")
_SHAPED = {
    *("arange", "zeros", "full", "reshape", "view", "broadcast_to", "expand_dims", "static_range"),
}
"""Functions of Triton that require constant sizes."""
_MOST_OF_CONSTEXPR = 2**20
"""`upper_bound` of constexpr sizes without one of their own."""


class _FakeGpu:
    """Answers of a GPU for the generator: limits that every GPU since sm_75 has."""

    utils: Any

    def __init__(self) -> None:
        self.utils = self

    def get_current_device(self) -> int:
        return 0

    def get_device_properties(self, _: int) -> dict[str, int]:
        return {"max_num_regs": 65536, "max_shared_mem": 65536}


@contextmanager
def fake_gpu(triton: Any) -> Iterator[None]:
    """Replace Triton's driver by a fake GPU for the generator."""
    driver = triton.runtime.driver
    before = driver.active
    driver.set_active(_FakeGpu())
    try:
        yield
    finally:
        driver.set_active(before)


def source_location(function: Any) -> tuple[str, int]:
    """File and line at which a function begins."""
    while hasattr(function, "func"):
        function = function.func
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)


def generate(inputs: BuildInputs, index: int) -> dict[str, Any]:
    """Return the generated code of a config and facts about it, as JSON.

    Raises:
        RefusalError: kbuild does not support the config.
    """
    where = f"config {index + 1} of `{inputs.name}`"
    application, sources = _arranged(inputs, index, where)
    try:
        return _described(inputs, index, application, sources)
    except RefusalError as refusal:
        if not refusal.file:
            refusal.file, refusal.line = source_location(application)
        raise


def _described(
    inputs: BuildInputs, index: int, application: Any, sources: Mapping[str, Any]
) -> dict[str, Any]:
    _, _, options = inputs.configs[index]
    where = f"config {index + 1} of `{inputs.name}`"
    for name, tensor in sources.items():
        _validate(name, tensor, where)
    file, line = source_location(application)
    generator, text = _run(application, where)
    functions, imports = _functions(text, generator.launch_func_name)
    kernel = next(function for function in functions if function.name == application.__name__)
    unfix_sizes(kernel)
    _judge_names(kernel, [function.name for function in functions], imports, where)
    return {
        "arguments": _arguments(inputs, index),
        "options": {name: value for name, value in options.items() if value is not None},
        "tensors": {name: _tensor(tensor) for name, tensor in sources.items()},
        "written": sorted(_written(kernel, sources)),
        "parameters": [
            _parameter(argument.arg, sources, where, fixed=argument.annotation is not None)
            for argument in kernel.args.args
        ],
        "grid": _grid(generator.raw_grid, sources, where),
        "function": kernel.name,
        "source": ast.unparse(kernel),
        "helpers": {f.name: ast.unparse(f) for f in functions if f is not kernel},
        "imports": imports,
        "file": file,
        "line": line,
    }


def _arranged(inputs: BuildInputs, index: int, where: str) -> tuple[Any, dict[str, Any]]:
    """The application, annotated as in `ninetoothed.make`, and its parameters' tensors."""
    from ninetoothed.tensor import Tensor  # type: ignore[import-not-found]

    args, kwargs, _ = inputs.configs[index]
    Tensor.num_instances = 0  # names, hence images, do not depend on the configs before
    arrangement, application, tensors = inputs.premake(*args, **kwargs)
    arranged = arrangement(*tensors)
    arranged = arranged if isinstance(arranged, tuple) else (arranged,)
    names = tuple(inspect.signature(application).parameters)
    if len(names) != len(arranged):
        what = f"{len(names)} parameters, the arrangement gives {len(arranged)}"
        raise RefusalError(f"{where}: `{application.__name__}` has {what}")
    application.__annotations__ = dict(zip(names, arranged, strict=True))
    sources = {name: tensor.source for name, tensor in zip(names, arranged, strict=True)}
    return application, sources


def _run(application: Any, where: str) -> tuple[Any, str]:
    from ninetoothed.generation import CodeGenerator  # type: ignore[import-not-found]

    generator = CodeGenerator()
    # The generator replaces the function's name everywhere in the text, so it must stay the same.
    unset = dict.fromkeys(("num_warps", "num_stages", "max_num_configs"))
    name = application.__name__
    try:
        path = generator(application, caller="cuda", kernel_name=name, prettify=False, **unset)
    except Exception as error:
        file, line = source_location(application)
        message = f"{where}: NineToothed's generator reports: {type(error).__name__}: {error}"
        raise RefusalError(message, file=file, line=line) from error
    return generator, Path(path).read_text("utf-8")


def _validate(name: str, tensor: Any, where: str) -> None:
    if tensor.jagged_dim is not None:
        raise RefusalError(f"{where}: `{name}` is jagged, which is not supported")
    if not isinstance(_plain(tensor.value), (bool, int, float, str, NoneType)):
        what = f"the value of `{name}` is {tensor.value!r}"
        raise RefusalError(f"{where}: {what}; kernels take numbers and strings")
    for axis, size in enumerate(tensor.shape):
        text = _PREFIX.sub("", str(size), count=1)
        if not isinstance(size, int) and text != tensor.size_string(axis):
            raise RefusalError(
                f"{where}: dimension {axis} of `{name}` is `{text}`;"
                " give a number through `premake`, or leave the shape out"
            )


def _functions(text: str, launch: str) -> tuple[list[ast.FunctionDef], list[str]]:
    body = ast.parse(text).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef) and node.name != launch]
    imports = [ast.unparse(node) for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return functions, imports


def unfix_sizes(kernel: ast.FunctionDef) -> None:
    """Make constexpr sizes ordinary parameters, unless the kernel uses them in shapes.

    Loops, masks and addresses work with such sizes as well as with constants.
    """
    # Collect every name that a shape depends on, directly or through assignments.
    names: set[str] = set()
    for node in ast.walk(kernel):
        if isinstance(node, ast.Call) and _named(node) in _SHAPED:
            names |= _names_in(node)
    assigned = [node for node in ast.walk(kernel) if isinstance(node, ast.Assign)]
    before = -1
    while len(names) > before:
        before = len(names)
        for node in assigned:
            if any(_names_in(target) & names for target in node.targets):
                names |= _names_in(node.value)
    for parameter in kernel.args.args:
        prefixes = _PREFIX.findall(parameter.arg)
        if prefixes == ["constexpr"] and _is_size(parameter.arg) and parameter.arg not in names:
            parameter.annotation = None


def _names_in(node: ast.AST) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def _is_size(text: str) -> bool:
    match = _PARTS.fullmatch(_PREFIX.sub("", text))
    return match is not None and match["kind"] == "size"


def _parameter(
    text: str, sources: Mapping[str, Any], where: str, *, fixed: bool = False
) -> dict[str, Any]:
    """Description of a parameter from its generated name; with `fixed`, a constant of the code."""
    for name, tensor in sources.items():
        if text == tensor.name:
            kind = "constant" if tensor.constexpr else "scalar"
            return {"name": text, "kind": kind, "tensor": name, "axis": 0}
    match = _PARTS.fullmatch(_PREFIX.sub("", text))
    owners = [n for n, tensor in sources.items() if match and tensor.name == match["source"]]
    if match is None or len(owners) != 1:
        bare = text.rpartition("_prefix_")[2].removeprefix("ninetoothed_")
        raise RefusalError(
            f"{where}: `{bare}` has no value before the kernel runs; make it a parameter of"
            " `premake`, list its values in `configs`, and name it in `meta_parameters`"
        )
    kind = "fixed" if fixed else match["kind"]
    if "next_power_of_2" in _PREFIX.findall(text):
        kind = "power"
    return {"name": text, "kind": kind, "tensor": owners[0], "axis": int(match["axis"] or 0)}


def _tensor(tensor: Any) -> dict[str, Any]:
    bounds = [getattr(size, "upper_bound", None) for size in tensor.shape]
    return {
        "shape": [size if isinstance(size, int) else None for size in tensor.shape],
        # NineToothed's default is no statement of the author's.
        "bounds": [None if bound == _MOST_OF_CONSTEXPR else bound for bound in bounds],
        "dtype": tensor.dtype,
        "constant": bool(tensor.constexpr),
        "value": _plain(tensor.value),
    }


def _written(kernel: ast.FunctionDef, sources: Mapping[str, Any]) -> Iterator[str]:
    """Yield the application's parameters that the kernel stores to, by the names of pointers."""
    stored: set[str] = set()
    for call in (node for node in ast.walk(kernel) if isinstance(node, ast.Call) and node.args):
        if _named(call) == "store" or _named(call).startswith("atomic_"):
            stored |= _names_in(call.args[0])
    for name, tensor in sources.items():
        pointers = {f"{tensor.name}_pointers", f"ninetoothed_{tensor.name}_pointer"}
        if stored & pointers:
            yield name


def _named(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


class _Sizes(ast.NodeTransformer):
    """Replaces generated names in the grid by kbuild's queries, such as `size(input, 0)`."""

    def __init__(self, sources: Mapping[str, Any], where: str) -> None:
        self._sources = sources
        self._where = where

    def visit_Name(self, node: ast.Name) -> ast.AST:
        parameter = _parameter(node.id, self._sources, self._where)
        if parameter["kind"] in ("size", "stride", "power"):
            question = "stride" if parameter["kind"] == "stride" else "size"
            text = f"{question}({parameter['tensor']}, {parameter['axis']})"
            text = f"next_pow2({text})" if parameter["kind"] == "power" else text
            return ast.parse(text, mode="eval").body
        return ast.Name(parameter["tensor"], ast.Load())


def _grid(raw: ast.Lambda, sources: Mapping[str, Any], where: str) -> str:
    axes = raw.body
    if not isinstance(axes, ast.Tuple) or len(axes.elts) != 1:
        raise RefusalError(f"{where}: the grid is not a single number: `{ast.unparse(axes)}`")
    return ast.unparse(_Sizes(sources, where).visit(axes.elts[0]))


def _judge_names(
    kernel: ast.FunctionDef, others: list[str], imports: list[str], where: str
) -> None:
    """Raise RefusalError for globals of the application's module, which the generator omits."""
    known = {*_KNOWN, *others, *(alias.asname or alias.name for alias in _aliases(imports))}
    names = [node for node in ast.walk(kernel) if isinstance(node, ast.Name)]
    known |= {node.arg for node in ast.walk(kernel) if isinstance(node, ast.arg)}
    known |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    for name in names:
        if name.id not in known:
            raise RefusalError(
                f"{where}: NineToothed's generator does not pass `{name.id}` to the kernel; pass "
                "it to `premake`, or write its value"
            )


def _aliases(imports: list[str]) -> Iterator[ast.alias]:
    for text in imports:
        statement = ast.parse(text).body[0]
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield from statement.names


def _arguments(inputs: BuildInputs, index: int) -> dict[str, Any]:
    """Arguments of `premake` that identify candidates; dtypes do not."""
    from ninetoothed import dtype  # type: ignore[import-not-found]

    args, kwargs, _ = inputs.configs[index]
    bound = inspect.signature(inputs.premake).bind(*args, **kwargs)
    bound.apply_defaults()
    dtypes = {dtype_name for dtype_name in vars(dtype).values() if isinstance(dtype_name, str)}
    arguments = bound.arguments.items()
    return {n: _scalar(v) for n, v in arguments if not (isinstance(v, str) and v in dtypes)}


def _plain(value: Any) -> Any:
    """Value that the kernel compares with; the value of an enumeration's member."""
    return value.value if isinstance(value, enum.Enum) else value


def _scalar(value: Any) -> bool | int | float | str:
    if isinstance(value, enum.Enum):
        return value.name
    return value if isinstance(value, (bool, int, float, str)) else repr(value)
