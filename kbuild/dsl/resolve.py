"""Resolves launches: binds them to kernel functions, and applies the functions' keys and hooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.dsl.launcher.resolved_kernel import ResolvedKernel, ResolvedLaunch, ResolvedOp
from kbuild.ops.binding import bind
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.candidates import with_candidates
from kbuild.ops.dtypes import dtype_choices, first_unfit_dtype, read_fill_value
from kbuild.ops.expression import EvaluationError, Expression, Query, parse
from kbuild.ops.language import LANGUAGES, KernelFunction
from kbuild.ops.model import OpSpec
from kbuild.ops.steps import ArgumentSource, Candidate, FillValue, Launch, find_candidate
from kbuild.ops.unit import ImageTarget
from kbuild.plan.plan import AotKernel
from kbuild.project.config.issue import Issue, IssueCollector

if TYPE_CHECKING:
    from kbuild.dsl.aot_compiler import AotCompiler


_SELF = "list the candidates in `configs`, and what has to be zeroed in `zero`"
"""Hint for sections whose hooks cannot be used."""


def apply_hooks(op: OpSpec, launches: Sequence[ResolvedLaunch], issues: IssueCollector) -> OpSpec:
    """Return the op with the fill values that hooks set, for all calls or for tuning only.

    With `hooks = "tuning"`, resets apply to arguments only and while tuning only: results and
    temporaries are new in every call.
    """
    if op.hooks == "none":
        return op
    resets: dict[str, FillValue] = {}
    for index, launch in enumerate(launches):
        if not launch.function.facts.get("hooks"):
            continue
        place = IssueCollector((*launch.launch.path, "configs"), issues.issues)
        # Hooks of candidates matter only where the section takes the candidates from the source.
        problems = _hook_text(launch)["problems"]
        for problem in problems:
            message = f"hooks of `{launch.function.name}` cannot be followed: {problem}"
            if launch.launch.autotune:
                place.error(message, _SELF)
            else:
                place.warning(f"{message}; they are left out, since `configs` lists the candidates")
        if problems:
            continue
        _validate_blocks(launch, place)
        fills = _HookFills(op, launches[:index], launch, place)
        fill_by_tensor = dict(op.fills)
        for tensor, value in fills.before_launches():
            if tensor not in fill_by_tensor:
                fill_by_tensor[tensor] = value
            elif fill_by_tensor[tensor] != value:
                what = f"hooks of `{launch.function.name}` fill `{tensor}` with {value}"
                place.error(
                    f"{what}, but the op fills it with {fill_by_tensor[tensor]}",
                    "use the same value in both",
                )
        resets |= fills.resets
        op = replace(op, fills=tuple(fill_by_tensor.items()))
    return replace(op, tune=replace(op.tune, resets=tuple(resets.items()))) if resets else op


def _hook_text(launch: ResolvedLaunch) -> Mapping[str, Any]:
    hooks: Mapping[str, Any] = launch.function.facts["hooks"]
    return hooks


def _records(launch: ResolvedLaunch) -> Iterator[tuple[Candidate, Mapping[str, Any] | None]]:
    """Yield the launch's candidates with the hook of each; None for candidates of the section."""
    kind = any(source.kind == "descriptor" for _, source in launch.bound.arguments)
    for candidate in launch.launch.candidates:
        at = find_candidate(launch.function.candidates, candidate.constants, candidate.options)
        # The worker runs each hook twice: for tensors, and for descriptors.
        yield candidate, _hook_text(launch)["configs"][at][kind] if at is not None else None


def _validate_blocks(launch: ResolvedLaunch, place: IssueCollector) -> None:
    """Report a descriptor whose block in the section differs from the one that a hook sets."""
    sources = dict(launch.bound.arguments)
    fixed = tuple((c.name, c.value) for c in launch.launch.constants if c.value is not None)
    for candidate, record in _records(launch):
        for name, dims in record["blocks"] if record is not None else ():
            source = sources.get(name)
            constants = dict((*candidate.constants, *fixed))
            wanted = tuple(constants.get(dim, dim) if isinstance(dim, str) else dim for dim in dims)
            block = _block(source, constants)
            if block != wanted:
                own = f"gives it {list(block)}" if block else "passes it without a block"
                place.error(
                    f"a hook of `{launch.function.name}` gives `{name}` the block {list(wanted)}, "
                    f"the section {own}",
                    f'write `args = {{ {name} = {{ tensor = "...", block = [...] }} }}`',
                )
                return


def _block(source: ArgumentSource | None, constants: Mapping[str, Any]) -> tuple[int, ...]:
    if source is None or source.kind != "descriptor":
        return ()
    try:
        return source.block_shape(tuple(constants.items()))
    except (EvaluationError, KeyError):
        return ()


class _HookFills:
    """The fill values that the hooks of one launch set."""

    def __init__(
        self,
        op: OpSpec,
        earlier: Sequence[ResolvedLaunch],
        launch: ResolvedLaunch,
        place: IssueCollector,
    ) -> None:
        self._op, self._earlier, self._launch, self._place = op, earlier, launch, place
        self._in_calls = op.hooks == "calls"
        self._own = (*op.results, *op.temporaries)
        self.resets: dict[str, FillValue] = {}
        """Fill values of arguments, which apply only while candidates are measured."""
        self._odd: list[str] = []

    def before_launches(self) -> Iterator[tuple[str, FillValue]]:
        """Yield tensors with their fill values; report those that an op cannot fill."""
        for tensor, value in self._tensors(_hook_text(self._launch)["reset"]):
            if tensor in self._own and self._in_calls:
                yield from self._judged(tensor, {value})
            elif tensor in self._op.inputs or self._in_calls:
                self.resets[tensor] = value
        values_by_tensor: dict[str, list[FillValue | None]] = {}
        records = [record for _, record in _records(self._launch)]
        for at, record in enumerate(self._known(records)):
            for tensor, value in self._tensors(record["fills"]):
                values_by_tensor.setdefault(tensor, [None] * len(records))[at] = value
        for tensor, values in values_by_tensor.items():
            yield from self._judged(tensor, set(values))

    def _known(self, records: Sequence[Mapping[str, Any] | None]) -> Iterator[Mapping[str, Any]]:
        """Yield the fills of each candidate; unknown ones get what all of the kernel's agree on."""
        every = [config[0]["fills"] for config in _hook_text(self._launch)["configs"]]
        shared = every[0] if every and all(fills == every[0] for fills in every) else None
        if any(every) and shared is None and None in records:
            self._place.warning(
                f"candidates of `{self._launch.function.name}` have hooks that fill tensors, but "
                "`configs` lists other candidates",
                "list the tensors that need a value in `zero` or `fill`",
            )
        yield from ({"fills": shared or ()} if record is None else record for record in records)

    def _tensors(self, fills: Sequence[Sequence[Any]]) -> Iterator[tuple[str, FillValue]]:
        sources, known = dict(self._launch.bound.arguments), self._launch.bound.constants
        for name, value in fills:
            source, number = sources.get(name), read_fill_value(value)
            if source is not None and source.kind in ("tensor", "descriptor"):
                if number is not None:
                    yield source.name, number
            elif source is not None and source.kind == "none" and not self._in_calls:
                continue
            elif name not in (*known, *self._odd):
                self._odd.append(name)
                what = f"hooks of `{self._launch.function.name}` fill `{name}`"
                self._place.error(f"{what}, which is not a tensor", _SELF)

    def _judged(
        self, tensor: str, values: set[FillValue | None]
    ) -> Iterator[tuple[str, FillValue]]:
        """Yield a tensor and its fill value, or report why the op cannot fill it."""
        name, texts = self._launch.function.name, sorted(map(str, values - {None}))
        (first, *others) = [value for value in values if value is not None]
        argument = self._op.schema.argument(tensor)
        earlier = (launch.bound for launch in self._earlier)
        before = [b.function for b in earlier if any(s.name == tensor for _, s in b.flat())]
        wrong = first_unfit_dtype(first, dtype_choices(tensor, self._op.dtypes))
        if others:
            problem = f" with {' and '.join(texts)}, by candidate", _SELF
        elif wrong:
            problem = f" with {texts[0]}, but it may be {wrong}", "leave that dtype out"
        elif before:
            problem = f" after `{before[0]}` has run with it", "launch it from another op"
        elif tensor in self._own:
            yield tensor, first
            return
        elif argument is None or not argument.type.is_mutated:
            problem = ", which the op only reads", f"write `Tensor(a!) {tensor}` in the schema"
        elif None in values or self._launch.launch.when is not None:
            problem = " in some calls", _SELF
        elif tensor not in self._op.contiguous:
            problem = ", which may have gaps", "list it in `contiguous`"
        else:
            yield tensor, first
            return
        self._place.error(f"hooks of `{name}` fill `{tensor}`{problem[0]}", problem[1])


_AXIS = ".shape."
"""Separates tensor and axis in the key of a kernel that is tuned for its dimensions."""


def resolve_kernel(
    kernel: AotKernel, root: Path, compiler: AotCompiler, issues: list[Issue]
) -> ResolvedKernel:
    """Read the sources' functions and bind the launches; problems are added to `issues`."""
    issues += kernel.section.issues
    functions = compiler.describe(kernel, root, tuple(map(ImageTarget.parse, kernel.targets)))
    known = len(issues)
    place = IssueCollector(("kernel", kernel.name), issues)
    language = LANGUAGES.get(kernel.language)
    completed = [language.complete(op, functions, place) for op in kernel.section.ops]
    ops: list[ResolvedOp] = []
    notes: list[str] = []
    for op in completed:
        if op is None:
            continue
        each = (_resolve_launch(op, launch, functions, place) for launch in op.launches)
        launches = [launch for launch in each if launch is not None]
        # Notes about the source's candidates do not matter if the section lists its own.
        noted = (one for one in launches if one.launch.autotune or not one.function.candidates)
        notes += [note for launch in noted for note in launch.function.notes]
        keyed, own_notes = with_autotune_key(op, launches)
        spec = apply_hooks(keyed, launches, place)
        notes += own_notes
        ops.append(ResolvedOp(spec, tuple(replace(launch, op=spec) for launch in launches)))
    # `issues` has those of other kernels, too.
    notes += [issue.message for issue in issues[known:] if issue.severity == "warning"]
    messages = tuple(dict.fromkeys(f"kernel.{kernel.name}: {note}" for note in notes))
    return ResolvedKernel(kernel, tuple(ops), messages)


def _resolve_launch(
    op: OpSpec, launch: Launch, functions: Mapping[str, KernelFunction], outer: IssueCollector
) -> ResolvedLaunch | None:
    place = IssueCollector(launch.path, outer.issues)
    function = next((functions[name] for name in launch.functions if name in functions), None)
    with_own_candidates: Launch | None = launch
    if function is not None:
        why = "; ".join(function.notes)
        with_own_candidates = with_candidates(op, launch, function.candidates, place, why)
    if with_own_candidates is None:
        return None
    known = {name: kernel_function.parameters for name, kernel_function in functions.items()}
    bound = bind(op, with_own_candidates, known, place)
    return ResolvedLaunch(op, with_own_candidates, bound, function) if bound and function else None


def with_autotune_key(op: OpSpec, launches: Sequence[ResolvedLaunch]) -> tuple[OpSpec, list[str]]:
    """Return the op with the key of `@triton.autotune`, unless it has one, and notes about it."""
    tuned = [launch for launch in launches if launch.launch.autotune]
    if op.key or not tuned:
        return op, []
    expressions: dict[str, Expression] = {}
    notes = []
    for launch in tuned:
        for name in launch.function.key:
            if _is_fixed(launch, name):
                continue
            expression = _expression_of_argument(op, launch, name)
            if expression is None and _AXIS in name:
                continue  # a constant size, or a dimension without a name
            if expression is None:
                message = f"has `{name}` in its key, which is not an integer of the call: left out"
                notes.append(f"`{launch.function.name}` {message}")
            else:
                # Several launches may have the same key, of which a table needs one column.
                expressions.setdefault(str(expression), expression)
    return replace(op, key=tuple(expressions.values())), notes


def _dimension(op: OpSpec, bound: BoundLaunch, text: str) -> Expression | None:
    """The op's expression for `x.shape.0`; the number of elements for a tensor of any shape."""
    argument, _, axis = text.partition(_AXIS)
    source = dict(bound.arguments).get(argument)
    if not axis or source is None or source.name not in op.inputs:
        return None
    rule = op.shape(source.name)
    dims = rule.dims if rule is not None else (None,)
    if None in dims:
        return parse(f"numel({source.name})")
    dimension = dims[int(axis)] if int(axis) < len(dims) else None
    return None if dimension is None or dimension.constant is not None else dimension


def _is_fixed(launch: ResolvedLaunch, name: str) -> bool:
    """True for a constant that calls do not decide, except by dtypes, which tables separate."""
    if name not in launch.bound.constants:
        return False
    declared = next(
        (constant for constant in launch.launch.constants if constant.name == name), None
    )
    return name not in launch.function.computed if declared is None else declared.expression is None


def _expression_of_argument(op: OpSpec, launch: ResolvedLaunch, argument: str) -> Expression | None:
    """A kernel argument as an expression over the call's arguments; None if it has none."""
    constants = {constant.name: constant.expression for constant in launch.launch.constants}
    source = dict(launch.bound.arguments).get(argument)
    if source is None and argument not in constants:
        return _dimension(op, launch.bound, argument)
    expression = constants[argument] if source is None else source.expression
    if expression is None:
        return None
    known = {size.name for size in op.sizes} | {name for name, _ in op.let}
    known |= {argument.name for argument in op.schema.arguments if not argument.type.is_tensor}
    for leaf in expression.leaves():
        if isinstance(leaf, Query):
            if leaf.tensor and leaf.tensor not in op.inputs:
                return None
        elif leaf.name not in known:
            return None
    return expression
