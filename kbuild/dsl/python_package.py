"""Generates `_aot.py`: fake kernels for Torch, functions for TVM-FFI. It does not import kbuild."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.fake_kernels import (
    GENERIC_API,
    default_value_source,
    fake_source,
    lengths_source,
    parameters,
    projection_fake_source,
    quoted,
    results_source,
)
from kbuild.ops.language import LANGUAGES
from kbuild.ops.manifest import CHOOSE_OP
from kbuild.ops.model import OpSpec
from kbuild.ops.steps import Launch
from kbuild.system import rendering
from kbuild.system.files import FileSet

TORCH_MODULE = "_aot_torch.py"
_DTYPE = "'{}'"
"""Format of a dtype's name in code that must run without Torch."""
_FUNCTIONS_TAIL = """\
if _has_operators:
    from . import _aot_torch  # noqa: F401 - the functions as operators
"""


def functions_source(ops: Sequence[OpSpec]) -> str:
    """`_aot.py` for TVM-FFI: a function per op with the op's names and defaults, added to `ops`."""
    head = rendering.read("package/functions_head.py")
    return "\n\n".join((head, *map(_function, ops), _FUNCTIONS_TAIL))


def operators_source(ops: Sequence[OpSpec], *, control: bool) -> str:
    """`_aot_torch.py`: the ops as operators of Torch, and the operators that preload images.

    With `control` also `_kbuild_choose(int launch, int candidate)`, which launchers then define.
    """
    head = rendering.read("package/operators_head.py")
    if control:
        head += f'_control("{CHOOSE_OP}(int launch, int candidate) -> ()", module.{CHOOSE_OP})\n'
    return "\n\n".join((head, *map(_operator, ops)))


def _function(op: OpSpec) -> str:
    """Source of an op's function; plain Torch tensors go straight to the launcher."""
    names = _names(op)
    kept = f"_run_{op.name} = _module.{op.name}\n"
    signature = (parameters(op, _DTYPE), *(f"{name}=None" for name in op.results))
    lines = [
        f"def {op.name}({', '.join(signature)}):",
        f"    {_documented(op)}",
        *(f"    {line}" for line in lengths_source(op, GENERIC_API)),
        *_condition(op),
        "        try:",
        *(f"            {line}" for line in _torch_path(op)),
        # A meta tensor has the plain type but no data: the launcher fails, the operator works.
        "        except RuntimeError:",
        f"            if not _on_meta({', '.join(op.inputs)}):",
        "                raise",
        *_other_arrays_path(op),
        f'    _see("{op.name}", {", ".join((*op.inputs, *op.results))})',
        f"    _run_{op.name}({', '.join((names, *op.results))})",
        *([f"    return {', '.join(op.results)}"] if op.results else []),
    ]
    allocations = [results_source(op)] if op.results else []
    parts = [kept, *allocations, "\n".join(lines) + "\n", _arguments(op)]
    return "\n\n".join(parts)


def _torch_path(op: OpSpec) -> list[str]:
    """Statements for plain Torch tensors, whose results the runtime allocates."""
    names = _names(op)
    if not op.results:
        return [f"return _run_{op.name}({names})"]
    call = f"_run_{op.name}({names})"
    return [
        f"if {_missing_condition(op)}:",
        f"    return {call if len(op.results) == 1 else f'_several({call})'}",
        f"_run_{op.name}({', '.join((names, *op.results))})",
        f"return {', '.join(op.results)}",
    ]


def _other_arrays_path(op: OpSpec) -> list[str]:
    """Statements for other arrays: call Torch's operator, or allocate results for a library."""
    lines = [
        f"if _of_torch({', '.join(op.inputs)}):",
        f"    return _operators.{op.name}({_as_given(op)})",
    ]
    if not op.results:
        return [f"    {line}" for line in lines]
    listed = ", ".join(op.results) if len(op.results) > 1 else f"({op.results[0]},)"
    lines.append(f"{listed} = _{op.name}_results({_names(op)})")
    return [f"    if {_missing_condition(op)}:", *(f"        {line}" for line in lines)]


def _missing_condition(op: OpSpec) -> str:
    """Condition that no result was passed; the launcher rejects a call that passes only some."""
    return " and ".join(f"{name} is None" for name in op.results)


def _condition(op: OpSpec) -> list[str]:
    """The `if` that is true for plain Torch tensors with data, outside of tracing and autograd."""
    maybe = (*op.optional, *op.results)
    kinds = {name: "_optional" if name in maybe else "_tensors" for name in (*op.inputs, *maybe)}
    # The exact type: subclasses, such as fake tensors, have to be passed to the operator.
    first, *others = (f"_type({name}) in {kind}" for name, kind in kinds.items())
    grads = " or ".join(
        f"{f'{name} is not None and ' if name in op.optional else ''}{name}.requires_grad"
        for name in op.inputs
    )
    calls = ("_compiling()", "_transforming()", f"(_recording() and ({grads}))")
    more = (*others, *(f"not {call}" for call in calls))
    return ["    if (", f"        {first}", *(f"        and {text}" for text in more), "    ):"]


def _names(op: OpSpec) -> str:
    return ", ".join(argument.name for argument in op.schema.arguments)


def _as_given(op: OpSpec) -> str:
    arguments = ((a.name, a.keyword_only) for a in op.schema.arguments)
    return ", ".join(f"{name}={name}" if is_named else name for name, is_named in arguments)


def _arguments(op: OpSpec) -> str:
    """Table of the arguments for JAX: name, True for an array, and default.

    For a list of arrays, None stands in place of True or False.
    """
    entries = (
        f'    ("{argument.name}", '
        f"{None if argument.type.is_tensor_list else argument.type.is_tensor}, "
        f"{'...' if argument.default is None else default_value_source(argument.default, _DTYPE)}),"
        for argument in op.schema.arguments
    )
    lines = [f"_ops.{op.name} = {op.name}", f'_schemas["{op.name}"] = (', *entries, ")"]
    return "\n".join(lines) + "\n"


def _operator(op: OpSpec) -> str:
    call = f"module.{op.name}({_names(op)})"
    call = f"_several({call})" if len(op.results) > 1 else call
    run = f"def _run_{op.name}({parameters(op)}):\n    return {call}\n"
    register = f"_operator({quoted(str(op.schema))}, _run_{op.name})"
    return f"{run}\n\n{fake_source(op, register)}"


def _documented(op: OpSpec) -> str:
    text = f"`{op.schema}`"
    return repr(text) if '"' in text or "\\" in text else f'"""{text}"""'


PYTHON_FOLDER = "aot/python"
"""Folder of the generated project with the files that go into the package beside the launchers."""
AOT_MODULE = "_aot.py"
SOURCES_FOLDER = "_aot_sources"
"""Folder of the package with the authors' sources."""
JIT_IMPORTS = ("importlib", "importlib.util", "pathlib", "sys")
BoundLaunches = Sequence[tuple[Launch, BoundLaunch]]
_REGISTER = "_fake({name!r})"


def source_module(path: str) -> str:
    """The name under which a source is imported: `torch-ext/my/ops.py` is `my.ops`."""
    parts = list(PurePosixPath(path).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        # Folders such as `torch-ext` cannot be part of a module's name; the path below the last of
        # them is.
        parts.pop()
    invalid = [index for index, part in enumerate(parts) if not part.isidentifier()]
    return ".".join(parts[invalid[-1] + 1 :] if invalid else parts)


def source_file(path: str) -> str:
    """Path of a source below `SOURCES_FOLDER`."""
    name = source_module(path).replace(".", "/")
    return f"{name}/__init__.py" if path.endswith("/__init__.py") else f"{name}.py"


def package_files(
    ops: Sequence[tuple[OpSpec, BoundLaunches]],
    root: Path,
    framework: str = "torch",
    *,
    control: bool = False,
    modules: Sequence[str] = (),
) -> FileSet:
    """Generate the package's files for the ops of a variant, each with its bound launches.

    Sources are included for ops that fall back on their DSL. With `control`, candidates can be
    chosen at run time; `modules` of the package are imported with the ops.
    """
    if framework == "tvm-ffi":
        specs = [op for op, _ in ops]
        functions, operators = functions_source(specs), operators_source(specs, control=control)
        texts = {AOT_MODULE: functions, TORCH_MODULE: operators}
        return FileSet({f"{PYTHON_FOLDER}/{name}": text for name, text in texts.items()})
    with_fallback = [(op, launches) for op, launches in ops if op.fallback == "jit"]
    parts = [rendering.read("package/fake_kernels_head.py")]
    if with_fallback:
        imports = "".join(f"import {name}\n" for name in JIT_IMPORTS)
        parts[0] = parts[0].replace("import torch\n", f"{imports}\nimport torch\n", 1)
        parts.append(rendering.read("package/jit_head.py"))
    for op, _ in ops:
        parts.append(fake_source(op, _REGISTER))
        parts += [projection_fake_source(op, one, _REGISTER) for one in op.projections]
    parts += [LANGUAGES.get(op.language).jit_source(op, launches) for op, launches in with_fallback]
    parts += [f"from . import {name}  # noqa: E402, F401 - registers ops\n" for name in modules]
    files = FileSet({f"{PYTHON_FOLDER}/{AOT_MODULE}": "\n\n".join(parts)})
    folder = f"{PYTHON_FOLDER}/{SOURCES_FOLDER}"
    for path in dict.fromkeys(path for op, _ in with_fallback for path in op.sources):
        files.add(f"{folder}/{source_file(path)}", (root / path).read_bytes())
    return files
