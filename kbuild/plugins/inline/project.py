"""Writes the project of a `load_inline`: sources, bindings of its functions, `build.toml`."""

from __future__ import annotations

import ast
import json
import keyword
import platform
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kbuild.plugins.inline.headers import device_main, light_macros, operators_of, torch_headers
from kbuild.plugins.inline.request import InlineRequest, InlineSource
from kbuild.sources.cxx import cxx_tokens
from kbuild.sources.cxx_signatures import BoundFunction, read_signature
from kbuild.sources.pybind import read_pybind_module
from kbuild.system import rendering
from kbuild.system.errors import ConfigError, Problem, ToolchainError
from kbuild.system.files import FileSet

PYTHON_ALONE = "\n[torch-noarch]\n"
"""The part of `build.toml` of a project that has nothing to compile."""


def write_project(folder: Path, request: InlineRequest, torch: Path, *, is_whole: bool) -> None:
    """Write the project's files that differ, for the Torch in a folder.

    With `is_whole`, Torch's own `<torch/all.h>` is compiled, instead of the parts of it that the
    sources name.

    Raises:
        ConfigError: a function cannot be bound; at its line.
        OSError: there is no room.
    """
    if not request.is_compiled:
        write_python_project(folder, request)
        return
    launchers = python_functions(request)
    package = f"torch-ext/{request.python_name}"
    python = {f"{package}/{name}": text for name, text in python_sources(request).items()}
    cpp, functions = _functions(request, launchers)
    operators = frozenset() if is_whole or request.is_stable else operators_of(torch)
    texts = python | {
        "build.toml": _build_toml(request, torch),
        "torch-ext/binding.cpp": _BINDING,
        f"{package}/__init__.py": _package(request, functions, launchers),
        "src/main.cpp": _main(request, cpp, functions, operators),
        "src/op_conversions.h": rendering.read("inline/op_conversions.h"),
    }
    texts |= _numbered("cpp_sources", "cpp", (source.text for source in cpp))
    if request.cuda:
        texts["src/cuda.cu"] = device_main(request, "cuda_sources", "cu", operators)
        texts |= _numbered("cuda_sources", "cu", request.cuda)
    if request.sycl:
        texts["src/sycl.cpp"] = device_main(request, "sycl_sources", "hpp", operators)
        texts |= _numbered("sycl_sources", "hpp", request.sycl)
    kind = "whole" if is_whole else "light"
    for part in () if request.is_stable else ("torch", "ATen", "thrust"):
        for name in rendering.names(f"inline/{kind}/{part}", "*.h"):
            texts[f"include/{name.removeprefix(f'inline/{kind}/')}"] = rendering.read(name)
    FileSet(texts).write(folder, force=True)


def python_sources(request: InlineRequest) -> dict[str, str]:
    """The files with the Python source code."""
    return {f"triton_sources_{at}.py": text for at, text in enumerate(request.triton)}


def write_python_project(
    folder: Path,
    request: InlineRequest,
    captured: Collection[str] = (),
    section: str = PYTHON_ALONE,
) -> None:
    """Write a project of Python source code alone.

    `section` is the part of `build.toml` that has the captured functions. The other functions are
    modules of the package.
    """
    package, sources = f"torch-ext/{request.python_name}", python_sources(request)
    others = {n: at for n, at in python_functions(request).items() if n not in captured}
    texts = {f"{package}/{name}": text for name, text in sources.items()} if others else {}
    texts |= sources if captured else {}
    lines = [f'"""`{request.kernel_name}`, written by `kbuild.load_inline`."""', ""]
    lines += ["from ._ops import ops"] if captured else []
    lines += [f"from ._captured import {name}" for name in captured]
    lines += [f"from .triton_sources_{at} import {name}" for name, at in others.items()]
    lines += ["", f"__all__ = {json.dumps([*captured, *others])}", ""]
    build = general_text(request) + section
    texts |= {"build.toml": build, f"{package}/__init__.py": "\n".join(lines)}
    FileSet(texts).write(folder, force=True)


def _numbered(kind: str, suffix: str, texts: Iterable[str]) -> dict[str, str]:
    return {f"src/{kind}_{at}.{suffix}": f"{text}\n" for at, text in enumerate(texts)}


def python_functions(request: InlineRequest) -> dict[str, int]:
    """The functions of the module that are Python, and in which source each is.

    Raises:
        ConfigError: a source is not Python, at its line; or a function is in none of the sources.
    """
    places: dict[str, int] = {}
    for at, source in enumerate(request.labelled_triton):
        try:
            tree = ast.parse(source.text)
        except SyntaxError as error:
            problem = Problem(source.label, error.lineno or 0, "", f"not valid Python: {error.msg}")
            raise ConfigError([problem]) from None
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                places[node.name] = at
    if request.functions is None:
        return {}
    missing = [name for name in request.functions if name not in places]
    if missing and not request.is_compiled:
        hint = f"there are {', '.join(places) or 'none'}"
        problem = Problem("triton_sources", 0, "", f"there is no function `{missing[0]}`", hint)
        raise ConfigError([problem])
    return {name: places[name] for name in request.functions if name in places}


def _functions(
    request: InlineRequest, launchers: Collection[str]
) -> tuple[tuple[InlineSource, ...], tuple[tuple[str, BoundFunction, str], ...]]:
    """The C++ sources without `PYBIND11_MODULE`, and Python name, function and docstring of each.

    Raises:
        ConfigError: see `write_project`.
    """
    asked = {name: doc for name, doc in (request.functions or {}).items() if name not in launchers}
    cpp, named = [], {name: (name, doc) for name, doc in asked.items()}
    for source in request.labelled_cpp:
        bound, text = _pybind_functions(source)
        cpp.append(InlineSource(source.label, text))
        named |= {} if request.functions is not None else bound
    sources = (*cpp, *request.labelled_device)
    tensor = "torch::stable::Tensor" if request.is_stable else "at::Tensor"
    if (
        not named
        and not launchers
        and not any("TORCH_LIBRARY" in source.text for source in sources)
    ):
        raise ConfigError(
            [Problem("cpp_sources", 0, "", "nothing is bound",
                     "list the functions of the module in `functions`")]
        )  # fmt: skip
    bound_functions = []
    for name, (function, doc) in named.items():
        signature = read_signature(function, sources, tensor, macros=_macros(request))
        bound_functions.append((name, signature, doc))
    return tuple(cpp), tuple(bound_functions)


def _macros(request: InlineRequest) -> set[str]:
    """The macros that flags and this machine's compilers define."""
    flags = [*_without_standard(request.cflags), *_without_standard(request.cuda_cflags)]
    text = " ".join(flags).replace("-D ", "-D")
    own = {"__cplusplus", f"__{platform.machine()}__"}
    own |= {"__linux__", "__GNUC__"} if sys.platform == "linux" else set()
    return own.union(re.findall(r"(?:^|\s)-D(\w+)", text))


def _pybind_functions(source: InlineSource) -> tuple[dict[str, tuple[str, str]], str]:
    """Split a source into the functions that `PYBIND11_MODULE` binds, and the text without it.

    Returns:
        Python name -> C++ function and docstring; and the text.

    Raises:
        ConfigError: it binds something else than functions by `m.def`, or the source uses pybind11
            elsewhere, whose objects never reach an op; at its line.
    """
    module = read_pybind_module(source.text)
    text = source.text
    if module is not None:
        # Empty lines in its place keep the line numbers of messages.
        text = module.before + "\n" * module.height + module.after
        for line, statement in module.others:
            problem = Problem(
                source.label, line, "", f"`{statement}` is not a function of an op",
                'bind functions by `m.def("name", &function, "docstring")`',
            )  # fmt: skip
            raise ConfigError([problem])
    tokens = cxx_tokens(text)
    for at, token in enumerate(tokens[:-1]):
        if token.text in ("py", "pybind11") and tokens[at + 1].text == "::":
            problem = Problem(
                source.label, token.line, "", f"`{token.text}::` is pybind11",
                "functions are bound as Torch ops, which take and return tensors and plain values",
            )  # fmt: skip
            raise ConfigError([problem])
    functions = module.functions if module is not None else ()
    seen: dict[str, int] = {}
    for bound in functions:
        if bound.name in seen:
            problem = Problem(
                source.label, bound.line, "",
                f"`{bound.name}` is overloaded: line {seen[bound.name]} binds it as well",
                "an op has one signature: rename one of them",
            )  # fmt: skip
            raise ConfigError([problem])
        seen[bound.name] = bound.line
    return {bound.name: (bound.target, bound.doc) for bound in functions}, text


_BINDING = """\
#include "registration.h"

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""


def general_text(request: InlineRequest) -> str:
    """The table `general` of build.toml."""
    return (
        f'[general]\nname = "{request.kernel_name}"\nversion = 1\nlicense = "Apache-2.0"\n'
        f'edition = 5\nbackends = ["{request.backend}"]\n'
    )


def _build_toml(request: InlineRequest, torch: Path) -> str:
    includes = [f"-I{path}" for path in request.include_paths]
    lines = [
        general_text(request),
        "[torch]",
        'src = ["torch-ext/binding.cpp"]',
        *([f'stable-abi = "{torch_release(torch)}"'] if request.is_stable else ()),
        "",
        "[kernel.inline]",
        f'backend = "{request.backend}"',
        'depends = ["torch"]',
        f"include = {json.dumps(['src'] if request.is_stable else ['include', 'src'])}",
        f"cxx-flags = {json.dumps([*includes, *_without_standard(request.cflags)])}",
    ]
    sources = ["src/main.cpp"]
    if request.cuda:
        sources.append("src/cuda.cu")
        key = "hip-flags" if request.backend == "rocm" else "cuda-flags"
        lines.append(f"{key} = {json.dumps([*includes, *_without_standard(request.cuda_cflags)])}")
    if request.sycl:
        sources.append("src/sycl.cpp")
        lines.append(f"sycl-flags = {json.dumps([*includes, *request.sycl_cflags])}")
    return "\n".join([*lines, f"src = {json.dumps(sources)}", ""])


def _without_standard(flags: Iterable[str]) -> list[str]:
    """The flags without `-std`: Torch's headers decide which C++ they need."""
    return [part for flag in flags for part in shlex.split(flag) if not part.startswith("-std=")]


def _package(
    request: InlineRequest,
    functions: Sequence[tuple[str, BoundFunction, str]],
    launchers: Mapping[str, int],
) -> str:
    lines = [f'"""`{request.kernel_name}`, written by `kbuild.load_inline`."""', ""]
    names = [*(name for name, _, _ in functions), *launchers]
    prefix = _unused_prefix(
        [*names, *(part.name for _, function, _ in functions for part in function.parameters)]
    )
    lines += [
        "import torch",
        "",
        "from . import _ops as _library  # noqa: F401 - importing it registers the ops",
        "",
        f"ops = torch.ops.{request.namespace}",
        "# Builtins, as functions of pybind11 are: torch.compile does not trace them.",
    ]
    lines += [
        f"{prefix}{at} = ops.{op_name(name, at)}.default._op"
        for at, (name, _, _) in enumerate(functions)
    ]
    lines += [f"from .triton_sources_{at} import {name}" for name, at in launchers.items()]
    lines += [f"__all__ = {json.dumps(names)}"]
    for at, (name, function, doc) in enumerate(functions):
        parameters = ", ".join(
            part.name if part.default is None else f"{part.name}={part.default}"
            for part in function.parameters
        )
        arguments = ", ".join(part.name for part in function.parameters)
        # Names such as `lambda` cannot be defined, only set.
        defined = f"{prefix}{name}" if keyword.iskeyword(name) else name
        lines += ["", "", f"def {defined}({parameters}):", f"    {doc or name!r}",
                  f"    return {prefix}{at}({arguments})"]  # fmt: skip
        lines += [f"globals()[{name!r}] = {defined}"] * (defined != name)
    return "\n".join([*lines, ""])


def _unused_prefix(names: Sequence[str]) -> str:
    """A prefix that none of the names begins with."""
    prefix = "_op_"
    while any(name.startswith(prefix) for name in names):
        prefix = f"_{prefix}"
    return prefix


def op_name(name: str, at: int) -> str:
    """The op of a function, which is the one at a place: its name, unless ops cannot have it."""
    is_taken = name == "name" or keyword.iskeyword(name)  # `torch.ops.<namespace>.name` is no op
    return name if re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) and not is_taken else f"_{at}"


def _main(
    request: InlineRequest,
    cpp: Sequence[InlineSource],
    functions: Sequence[tuple[str, BoundFunction, str]],
    operators: Collection[str],
) -> str:
    has_signs = bool(operators) and any("{" in text for text in request.cpp)
    lines = light_macros(request.cpp) if operators else []
    if request.implicit_headers and not request.is_stable:
        lines.append("#include <torch/extension.h>")
    lines += torch_headers(request.cpp, operators, has_signs=has_signs)
    lines += [f'#include "cpp_sources_{at}.cpp"' for at in range(len(cpp))]
    if not functions:
        return "\n".join([*lines, ""])
    if not request.is_stable:
        lines += ["#include <ATen/core/Tensor.h>", "#define KBUILD_INLINE_ATEN"]
    lines += ['#include "op_conversions.h"', ""]
    in_device_code = {source.text for source in request.labelled_device}
    known = "\n".join(source.text for source in cpp)
    for _, function, _ in functions:
        # Device sources are compiled as another file, so this one has to declare what is in them.
        is_unknown = in_device_code and not re.search(rf"\b{function.name}\s*\(", known)
        if is_unknown or function.is_chosen:  # a wrong choice fails, since nothing defines it
            lines.append(function.declaration)
    lines += ["", "namespace kbuild_inline {", "namespace {", ""]
    for at, (_, function, _) in enumerate(functions):
        lines += [*_wrapper(f"op_{at}", function), ""]
    lines += ["}  // namespace", "}  // namespace kbuild_inline", ""]
    lines.append(f"STABLE_TORCH_LIBRARY({request.namespace}, library) {{")
    for at, (name, function, _) in enumerate(functions):
        lines.append(f"  library.def({json.dumps(_op_schema(op_name(name, at), function))});")
    lines += ["}", ""]
    # The function runs as a caller of C++ would run it: what it calls of Torch is differentiated.
    key = "CompositeImplicitAutograd"
    lines.append(f"STABLE_TORCH_LIBRARY_IMPL({request.namespace}, {key}, library) {{")
    for at, (name, _, _) in enumerate(functions):
        box = f"TORCH_BOX(&kbuild_inline::op_{at})"
        lines.append(f'  library.impl("{op_name(name, at)}", {box});')
    return "\n".join([*lines, "}", ""])


def _op_schema(name: str, function: BoundFunction) -> str:
    """The schema of an op, whose parameters have the names that schemas can have."""
    parameters = tuple(
        replace(part, name=part.name if re.fullmatch(r"[A-Za-z]\w*", part.name, re.ASCII)
                else f"_{at}")
        for at, part in enumerate(function.parameters)
    )  # fmt: skip
    return replace(function, name=name, parameters=parameters).schema


def _wrapper(name: str, function: BoundFunction) -> list[str]:
    """The function with the types that the dispatcher hands over."""
    parameters = ", ".join(
        f"{part.type.boxed} a{at}" for at, part in enumerate(function.parameters)
    )
    arguments = ", ".join(
        f"kbuild_inline::argument<{part.type.cxx}>(a{at})"
        for at, part in enumerate(function.parameters)
    )
    call = f"::{function.name}({arguments})"
    boxed = ", ".join(result.boxed for result in function.results)
    if not function.results:
        return [f"void {name}({parameters}) {{ {call}; }}"]
    if function.returns_tuple:
        returned = f"std::tuple<{boxed}>"
        return [f"{returned} {name}({parameters}) {{",
                f"  return kbuild_inline::results<{returned}>({call});", "}"]  # fmt: skip
    return [f"{boxed} {name}({parameters}) {{",
            f"  return kbuild_inline::result<{boxed}>({call});", "}"]  # fmt: skip


def torch_release(torch: Path) -> str:
    """`2.13` of the Torch in a folder."""
    match = re.search(r"__version__ = '(\d+\.\d+)", (torch / "version.py").read_text("utf-8"))
    if match is None:
        raise ToolchainError(f"`{torch / 'version.py'}` has no release that kbuild understands")
    return match[1]
