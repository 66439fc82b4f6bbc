"""What compiled images show that their author has to know: memory without a value, spills."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kbuild.errors import BuildError
from kbuild.languages.compiled import Compiled
from kbuild.languages.joined import Joined, Section
from kbuild.languages.launcher.variants import is_of
from kbuild.languages.shipped import closest
from kbuild.languages.spec import Bound, Candidate, OpSpec
from kbuild.languages.tables import Row, Table
from kbuild.languages.target import Target


def judge_memory(section: Section, made: Sequence[Compiled]) -> Iterator[str]:
    """A sentence for what is read before anything is written there, of what the op allocates.

    Raises:
        BuildError: a function does nothing but add to such a tensor: it holds whatever was there.
    """
    for op in section.ops:
        launches = section.of(op)
        for index, launch in enumerate(launches):
            own = [one.image for one in made if (one.unit.op, one.unit.launch) == (op.name, index)]
            adds = {name for image in own for name in image.adds}
            reads = {name for image in own for name in image.reads}
            earlier = [one.bound for one in launches[:index]]
            head = f"kernel.{section.kernel.name}: `{launch.bound.function}`"
            for name, what in _without_value(op, launch.bound, earlier, sorted(adds)):
                words = f"{head} adds to {what} `{name}`, which has no value before"
                hint = f'write `zero = ["{name}"]` in the op, or `fill` with another value'
                raise BuildError(words, hint=hint)
            for name, what in _without_value(op, launch.bound, earlier, sorted(reads)):
                yield (
                    f"{head} reads {what} `{name}` before it writes it: what no one has written "
                    f'has no value; `zero = ["{name}"]` gives it one'
                )


def _without_value(
    op: OpSpec, bound: Bound, earlier: Sequence[Bound], parameters: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """The tensors of parameters that nothing has written to when the launch begins."""
    filled = dict(op.fills)
    for parameter in parameters:
        try:
            source = bound.source(parameter)
        except KeyError:
            continue
        name = source.name
        if source.kind not in ("tensor", "descriptor") or name in filled:
            continue
        if any(one.name == name for before in earlier for _, one in before.flat()):
            continue
        if name in op.results:
            yield name, "the result"
        elif name in op.temporaries:
            yield name, "the temporary"


def judge_defaults(
    section: Section, made: Sequence[Compiled], tables: Sequence[Table]
) -> Iterator[str]:
    """A sentence for each default candidate that spills, and for kernels that were never tuned.

    A candidate that a tuned table names has won in spite of all.
    """
    if section.kernel.keep_all:
        return
    targets = tuple(map(Target.parse, section.kernel.targets))
    for op in section.ops:
        for index, launch in enumerate(section.of(op)):
            own = [one for one in made if (one.unit.op, one.unit.launch) == (op.name, index)]
            head = f"kernel.{section.kernel.name}: `{launch.bound.function}`"
            untuned: dict[str, str] = {}
            for target in targets:
                rows = [
                    row
                    for table in tables
                    if closest(table.arch, targets) == target
                    for row in table.of(section.kernel.name, op.name, index)
                ]
                images = [one for one in own if one.unit.target == target]
                yield from _spills(head, launch, images, rows)
                if launch.launch.autotune and not rows and images:
                    untuned[str(target)] = _first(launch, images)
            if untuned and len(launch.launch.candidates) > 1:
                yield _untuned(head, launch, untuned)


def _untuned(head: str, launch: Joined, untuned: Mapping[str, str]) -> str:
    words = list(dict.fromkeys(untuned.values()))
    which = words[0] if len(words) == 1 else "the first that fits"
    return (
        f"{head} has {len(launch.launch.candidates)} candidates of its own and was not tuned for "
        f"{', '.join(untuned)}: {which} ships; `kbuild tune` measures them"
    )


def _first(launch: Joined, images: Sequence[Compiled]) -> str:
    """The candidate that ships, in words."""
    for candidate in launch.launch.candidates:
        if any(is_of(candidate, one.unit) for one in images):
            return f"the first ({_label(candidate)})"
    return "the first"


def _spills(
    head: str, launch: Joined, images: Sequence[Compiled], rows: Sequence[Row]
) -> Iterator[str]:
    for candidate in launch.launch.candidates:
        own = [one for one in images if is_of(candidate, one.unit)]
        if not own or any(row.names(candidate) for row in rows):
            continue
        worst = max(own, key=_spilled)
        if _spilled(worst) > 0:
            label = _label(candidate)
            which = f" ({label})" if label else ""
            yield (
                f"{head}: the default candidate{which} for {worst.unit.target} {_in_words(worst)}; "
                "put a smaller one first, or `kbuild tune` finds a better one"
            )


def _spilled(one: Compiled) -> int:
    """What did not fit into registers; where only the code knows, the local memory of a thread."""
    if one.image.spills is not None or one.image.kind != "object":
        return one.image.spills or 0
    return _needs(one)[1]


def _in_words(one: Compiled) -> str:
    registers, _ = _needs(one)
    used = f", with {registers} registers a thread" if registers else ""
    if one.image.kind == "object":
        local = _spilled(one)
        return f"keeps {local:,} bytes a thread in local memory: what registers cannot hold{used}"
    unit = "registers" if one.image.arch.startswith("gfx") else "bytes of registers"
    return f"spills {_spilled(one):,} {unit}{used}"


def _needs(one: Compiled) -> tuple[int, int]:
    """Registers of a thread and its bytes of local memory, of the kernel with most."""
    from kbuild.checks.readers.resources import resources

    found = resources(one.code) if one.image.kind in ("object", "cubin") else ()
    registers = [one.image.registers or 0, *(kernel.registers for kernel in found)]
    return max(registers), max((kernel.local for kernel in found), default=0)


def _label(candidate: Candidate) -> str:
    return " ".join(f"{name}={value}" for name, value in (*candidate.constants, *candidate.options))
