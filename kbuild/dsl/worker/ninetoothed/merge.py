"""Merges the configs of a kernel into one Triton function, whose constants select a config.

Each config becomes a function of its own, with NineToothed's code; one function
with fixed names calls them. Needs only the standard library.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kbuild.dsl.worker.protocol import RefusalError

INT32_LIMIT = 2**31 - 2**20
"""First number of elements that needs more than 32 bits: blocks have at most 2**20 elements."""
_POSITIONED = {"load", "store"}


def widen_positions(function: ast.FunctionDef, wide: str, *, loops: bool) -> None:
    """Compute positions with 64 bits if the constant `wide`, a new last parameter, is true.

    `loops` is true if loops over constant sizes need more than 32 bits;
    other loops have the type of their sizes.
    """
    _PositionWidener(wide, loops=loops).visit(function)
    annotation = ast.parse("tl.constexpr", mode="eval").body
    function.args.args.append(ast.arg(wide, annotation))
    ast.fix_missing_locations(function)


def has_long_loops(config: Mapping[str, Any]) -> bool:
    """True if constant sizes lead to more elements than 32 bits can count."""
    shapes = (tensor["shape"] for tensor in config["tensors"].values())
    return any(math.prod(size for size in shape if size) >= INT32_LIMIT for shape in shapes)


class _PositionWidener(ast.NodeTransformer):
    def __init__(self, wide: str, *, loops: bool) -> None:
        self._wide = wide
        self._loops = loops
        self._in_position = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _called(node)
        if name in _POSITIONED or name.startswith("atomic_"):
            # Address and mask are positions; a stored value is not.
            before = self._in_position
            arguments = enumerate(node.args)
            node.args = [self._part(argument, is_position=not at) for at, argument in arguments]
            for word in node.keywords:
                word.value = self._part(word.value, is_position=word.arg == "mask")
            self._in_position = before
            return node
        self.generic_visit(node)
        if name == "program_id" or (name == "arange" and self._in_position):
            return self._either(node)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        loop = node.iter
        if self._loops and isinstance(loop, ast.Call) and _called(loop) == "range" and loop.args:
            # The end is the only argument of `range`, or the second one.
            end = min(1, len(loop.args) - 1)
            loop.args[end] = self._either(loop.args[end])
        return node

    def _part(self, node: ast.expr, *, is_position: bool) -> ast.expr:
        self._in_position = is_position
        changed: ast.expr = self.visit(node)
        return changed

    def _either(self, node: ast.expr) -> ast.expr:
        text = ast.unparse(node)
        both = f"(tl.cast({text}, tl.int64) if {self._wide} else {text})"
        return ast.parse(both, mode="eval").body


def _called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


_HEAD = "import triton\nimport triton.language\nimport triton.language as tl\n"
_DECORATOR = "@triton.jit\n"
FIXED = ("fixed", "power")
"""Kinds of parameters that are constants of the code: a size, and its next power of two."""


class ConfigVariant(NamedTuple):
    """A config's function, and the conditions on constants and dtypes under which it is called."""

    conditions: tuple[str, ...]
    callee: str
    config: Mapping[str, Any]


def parameter_name(tensor: str, kind: str, axis: int) -> str:
    """Name of a parameter in the merged function."""
    word = {"fixed": "size"}.get(kind, kind)
    return {"pointer": f"{tensor}_ptr", "scalar": tensor}.get(kind, f"{tensor}_{word}_{axis}")


class DispatchFunction(NamedTuple):
    """The merged function, which calls the configs' functions."""

    name: str
    parameters: Sequence[str]
    constants: Sequence[str]
    wide: str
    """Name of the last constant."""
    variants: Sequence[ConfigVariant]

    def text(self) -> str:
        """Source of the function: a branch for each variant, decided at compile time."""
        parameters = [*self.parameters]
        parameters += [f"{constant}: tl.constexpr" for constant in (*self.constants, self.wide)]
        lines = [f"@triton.jit\ndef {self.name}({', '.join(parameters)}):"]
        keyword = "if"
        for variant in self.variants:
            conditions = " and ".join(f"({text})" for text in variant.conditions) or "True"
            passed = ", ".join(_passed(variant.config, self.wide, self.constants))
            lines += [f"    {keyword} {conditions}:", f"        {variant.callee}({passed})"]
            keyword = "elif"
        # Triton decides on constants when it compiles, so only an impossible choice comes here.
        lines += ["    else:", "        tl.static_assert(False, 'no config has these constants')"]
        return "\n".join(lines) + "\n"


def module_text(entry: DispatchFunction, configs: Sequence[Mapping[str, Any]]) -> str:
    """Source of the module: imports, helper functions, the configs' functions, the merged function.

    Raises:
        RefusalError: two functions would have the same name.
    """
    imports = dict.fromkeys(line for config in configs for line in config["imports"])
    functions = {v.callee: _function(v.config, v.callee) for v in entry.variants}
    helpers = _helpers({entry.name, *functions}, configs)
    parts = [
        _HEAD + "".join(f"{line}\n" for line in imports if line not in _HEAD),
        # Some of NineToothed's helpers have the decorator already.
        *(f"@triton.jit\n{text.removeprefix(_DECORATOR)}\n" for text in helpers.values()),
        *(f"{text}\n" for text in functions.values()),
        entry.text(),
    ]
    return "\n\n".join(parts)


def _helpers(taken: Collection[str], configs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    helpers: dict[str, str] = {}
    for config in configs:
        for helper, text in sorted(config["helpers"].items()):
            if helpers.setdefault(helper, text) != text or helper in taken:
                raise RefusalError(f"two functions are called `{helper}`: rename one")
    return helpers


def _function(config: Mapping[str, Any], callee: str) -> str:
    """Source of a config's function; its last argument tells if 64 bits are needed."""
    (function,) = ast.parse(config["source"]).body
    if not isinstance(function, ast.FunctionDef):  # pragma: no cover - the generator wrote one
        raise RefusalError(f"`{config['function']}` is not a function")
    function.name = callee
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    wide = unused_name("wide", names | {argument.arg for argument in function.args.args})
    widen_positions(function, wide, loops=has_long_loops(config))
    return ast.unparse(function)


def unused_name(name: str, taken: set[str]) -> str:
    """Return the name, or one like it that is not in `taken`; it is added to `taken`."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _passed(config: Mapping[str, Any], wide: str, constants: Collection[str]) -> Iterator[str]:
    for parameter in config["parameters"]:
        word = parameter_name(parameter["tensor"], parameter["kind"], parameter["axis"])
        if parameter["kind"] in ("size", "stride") and word not in constants:
            yield f"{word} if {wide} else tl.cast({word}, tl.int32)"
        elif parameter["kind"] == "constant" and word not in constants:
            yield repr(config["tensors"][parameter["tensor"]]["value"])
        else:
            yield word
    yield wide


TORCH_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
for _bits in (8, 16, 32, 64):
    TORCH_DTYPES |= {f"i{_bits}": f"int{_bits}", f"u{_bits}": f"uint{_bits}"}
"""NineToothed's dtypes -> Torch's, which `triton.language` uses as well."""
_KINDS = ("pointer", "size", "stride", "scalar", *FIXED)
_OPTIONS = ("num_warps", "num_stages")
WIDE = "wide"
"""Name of the constant that is true if a call needs 64 bits to reach every element."""


class MergedKernel(NamedTuple):
    """Source and description of a merged kernel."""

    text: str
    facts: dict[str, Any]


def merge_configs(
    name: str, meta: Sequence[str], configs: Sequence[Mapping[str, Any]]
) -> MergedKernel:
    """Merge all configs of a kernel.

    Raises:
        RefusalError: calls cannot distinguish the configs, or the configs' parameters differ.
    """
    _validate(name, configs)
    parameters = list(_parameters(configs))
    taken = {*(parameter["name"] for parameter in parameters), *configs[0]["tensors"], *_OPTIONS}
    constants = {constant: unused_name(constant, taken) for constant in _constants(meta, configs)}
    wide = unused_name(WIDE, taken)
    variants = _variants(name, constants, configs)
    names = [parameter["name"] for parameter in parameters if parameter["kind"] not in FIXED]
    fixed = [parameter["name"] for parameter in parameters if parameter["kind"] in FIXED]
    entry = DispatchFunction(name, names, [*constants.values(), *fixed], wide, variants)
    parameters += [
        {"name": constant, "kind": "constant", "tensor": "", "axis": 0}
        for constant in constants.values()
    ]
    facts = {
        "name": name,
        "parameters": parameters,
        "wide": wide,
        "tensors": {tensor: _tensor(tensor, configs) for tensor in configs[0]["tensors"]},
        "written": sorted({tensor for config in configs for tensor in config["written"]}),
        "configs": [_config(config, constants, variants) for config in configs],
    }
    return MergedKernel(module_text(entry, configs), facts)


def _validate(name: str, configs: Sequence[Mapping[str, Any]]) -> None:
    first = configs[0]
    for index, config in enumerate(configs[1:], 2):
        where = f"config {index} of `{name}`"
        if list(config["tensors"]) != list(first["tensors"]):
            what = "different parameters than the first"
            raise RefusalError(f"{where} has {what}: use a kernel for each")
        for tensor, facts in config["tensors"].items():
            rank, other = len(facts["shape"]), len(first["tensors"][tensor]["shape"])
            if rank != other:
                what = f"`{tensor}` has {rank} dimensions, {other} in the first"
                raise RefusalError(f"{where}: {what}: use a kernel for each")


def _parameters(configs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield all parameters that any config needs from a call, by tensor."""
    wanted = {
        (parameter["tensor"], parameter["kind"], parameter["axis"])
        for config in configs
        for parameter in config["parameters"]
        if parameter["kind"] != "constant"
    }
    # A size that is a constant in one config is one in all of them.
    wanted -= {(tensor, "size", axis) for tensor, kind, axis in wanted if kind == "fixed"}
    seen = set()
    for tensor in configs[0]["tensors"]:
        for kind in _KINDS:
            for axis in sorted(a for t, k, a in wanted if (t, k) == (tensor, kind)):
                name = parameter_name(tensor, kind, axis)
                if name in seen:
                    what = f"two parameters would be called `{name}`"
                    raise RefusalError(f"{what}: rename `{tensor}`")
                seen.add(name)
                yield {"name": name, "kind": kind, "tensor": tensor, "axis": axis}


def _constants(meta: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Arguments of `premake` that differ between configs or are tuned."""
    names = dict.fromkeys(name for config in configs for name in config["arguments"])
    missing = object()

    def differs(name: str) -> bool:
        values = [config["arguments"].get(name, missing) for config in configs]
        # By type too: True equals 1.
        return any(type(value) is not type(values[0]) or value != values[0] for value in values)

    return [name for name in names if name in meta or differs(name)]


def _variants(
    name: str, constants: Mapping[str, str], configs: Sequence[Mapping[str, Any]]
) -> list[ConfigVariant]:
    """Variants of all configs; configs with the same code share a function."""
    sets: dict[str, list[Mapping[str, Any]]] = {}
    for config in configs:
        _keep(sets.setdefault(_key(config, constants), []), config, name)
    texts: dict[str, str] = {}
    variants = []
    for group in sets.values():
        by_dtype = len({_text(config) for config in group}) > 1
        for config in group if by_dtype else group[:1]:
            callee = texts.setdefault(_text(config), f"{name}_{len(texts)}")
            asked = [
                *[
                    f"{short} == {config['arguments'].get(name)!r}"
                    for name, short in constants.items()
                ],
                *(_dtypes(config) if by_dtype else ()),
            ]
            variants.append(ConfigVariant(tuple(asked), callee, config))
    return variants


def _key(config: Mapping[str, Any], constants: Mapping[str, str]) -> str:
    return json.dumps([config["arguments"].get(constant) for constant in constants])


def _keep(group: list[Mapping[str, Any]], config: Mapping[str, Any], name: str) -> None:
    """Add a config to those with the same constants, unless it differs only in options."""
    for other in group:
        if _dtypes(other) == _dtypes(config):
            if (_text(other), other["grid"]) != (_text(config), config["grid"]):
                what = "configs that no call can tell apart"
                raise RefusalError(f"`{name}` has {what}")
            return
        if _shapes(other) != _shapes(config) or other["grid"] != config["grid"]:
            raise RefusalError(f"`{name}` has configs whose shapes or grids depend on a dtype")
    group.append(config)


def _shapes(config: Mapping[str, Any]) -> list[Any]:
    return [facts["shape"] for facts in config["tensors"].values()]


def _text(config: Mapping[str, Any]) -> str:
    values = [tensor["value"] for tensor in config["tensors"].values()]
    return json.dumps([config["source"], config["parameters"], values])


def _dtypes(config: Mapping[str, Any]) -> list[str]:
    return [
        f"{parameter_name(name, 'pointer', 0)}.dtype.element_ty == "
        f"tl.{TORCH_DTYPES[facts['dtype']]}"
        for name, facts in config["tensors"].items()
        if facts["shape"] and facts["dtype"]
    ]


def _tensor(name: str, configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    facts = [config["tensors"][name] for config in configs]
    bounds = zip(*(fact["bounds"] for fact in facts), strict=True)
    return {
        "rank": len(facts[0]["shape"]),
        "constant": all(fact["constant"] for fact in facts),
        "bounds": [min((b for b in column if b), default=None) for column in bounds],
    }


def _config(
    config: Mapping[str, Any], constants: Mapping[str, str], variants: Sequence[ConfigVariant]
) -> dict[str, Any]:
    keys = [_key(variant.config, constants) for variant in variants]
    tensors = config["tensors"].items()
    return {
        "constants": {short: config["arguments"].get(name) for name, short in constants.items()},
        "options": config["options"],
        "grid": config["grid"],
        "shapes": {name: tensor["shape"] for name, tensor in tensors},
        "dtypes": {name: TORCH_DTYPES.get(tensor["dtype"]) for name, tensor in tensors},
        "by_dtype": keys.count(_key(config, constants)) > 1,
    }
