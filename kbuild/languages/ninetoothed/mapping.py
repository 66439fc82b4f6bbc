"""The application's parameters: which tensor or number of the op each one is."""

from __future__ import annotations

from collections.abc import Mapping

from kbuild.config.suggest import listed, one_of
from kbuild.languages.ninetoothed.facts import Facts
from kbuild.languages.spec.arguments import default_source
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.values import Launch, OpSpec, Source

_NUMBERS: dict[str | None, str] = {
    None: "",
    **dict.fromkeys(("float16", "bfloat16", "float32", "float64"), "float"),
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"), "int"),
    "bool": "bool",
}
"""Dtypes of a number -> what the op's argument has to be; all others are not passed on."""


def read_sources(
    op: OpSpec, launch: Launch, facts: Facts, place: Place
) -> dict[str, Source] | None:
    """Parameter of the application -> where its value comes from; None after an error.

    Args:
        op: the op.
        launch: its `args` name the application's parameters.
        facts: the kernel.
        place: the launch's, for errors.
    """
    errors = place.errors
    written = dict(launch.args)
    wanted = [name for name, tensor in facts.tensors.items() if not tensor.constant]
    for name in written.keys() - set(wanted):
        what = "is fixed by the premake function" if name in facts.tensors else "is no parameter"
        hint = one_of(name, wanted)
        place.at("args", name).error(f"`{name}` {what} of `{facts.name}`", hint)
    found = {name: written.get(name) or default_source(op, launch, name) for name in wanted}
    missing = [name for name, source in found.items() if source is None]
    if missing:
        hint = f'write `args = {{ {missing[0]} = "..." }}`: {listed(_tensors(op))} or a number'
        place.at("args").error(f"nothing says what `{facts.name}` gets for {listed(missing)}", hint)
    sources = {name: source for name, source in found.items() if source is not None}
    for name, source in sources.items():
        where = place.at("args", name) if name in written else place.at("args")
        _judge_kind(op, facts, name, source, where)
    _judge_shapes(op, facts, sources, place)
    _judge_writing(op, facts, sources, place)
    return sources if place.errors == errors else None


def _tensors(op: OpSpec) -> tuple[str, ...]:
    return (*op.inputs, *op.results, *op.temporaries)


def _judge_kind(op: OpSpec, facts: Facts, name: str, source: Source, place: Place) -> None:
    rank = facts.tensors[name].rank
    if (source.kind == "tensor") != bool(rank):
        wanted = f"a tensor with {rank} dimensions" if rank else "a number"
        place.error(f"`{name}` of `{facts.name}` is {wanted}, not `{source}`")
    elif not rank:
        for dtype in dict.fromkeys(config.dtypes[name] for config in facts.configs):
            _judge_number(name, dtype, source, place)
    elif source.name in op.may_be_none:
        place.error(f"`{source.name}` may be None, which NineToothed kernels do not know")


def _judge_number(name: str, dtype: str | None, source: Source, place: Place) -> None:
    kind = _NUMBERS.get(dtype)
    if kind is None:
        hint = f"numbers are {listed(filter(None, _NUMBERS))}"
        place.error(f"`{name}` is a `{dtype}` number, which an op cannot pass", hint)
    elif kind and kind != source.kind:
        place.error(f"`{name}` is a `{dtype}`, but `{source}` is {_article(source.kind)}")


def _article(kind: str) -> str:
    return f"an {kind}" if kind == "int" else f"a {kind}"


def _judge_shapes(op: OpSpec, facts: Facts, sources: Mapping[str, Source], place: Place) -> None:
    """The section's shapes against the kernel's own, in place of the op."""
    shapes = Place(op.path, place.issues).at("shapes")
    for name, source in sources.items():
        rule = op.shape(source.name) if source.kind == "tensor" else None
        rank = facts.tensors[name].rank
        if rule is None or not rank:
            continue
        where = shapes.at(source.name)
        if rule.rank is None:
            hint = f"write out the {rank} of them"
            where.error(f"`{source.name}` may have any number of dimensions", hint)
        elif rule.rank != rank:
            what = f"`{name}` of `{facts.name}` has {rank}"
            where.error(f"says {rule.rank} for the number of dimensions; {what}")


def _judge_writing(op: OpSpec, facts: Facts, sources: Mapping[str, Source], place: Place) -> None:
    schema = Place(op.path, place.issues).at("schema")
    allocated = (*op.results, *op.temporaries)
    written = {sources[name].name for name in facts.written if name in sources}
    for tensor in sorted(written - {*allocated, *op.schema.mutated}):
        hint = f"mark it, `Tensor(a!) {tensor}`, or give the result to it in `args`"
        schema.error(f"`{facts.name}` writes to `{tensor}`, which the schema does not say", hint)
    if len(op.launches) == 1:
        for tensor in op.results:
            if tensor not in written:
                schema.error(f"`{facts.name}` writes nothing to the result `{tensor}`")
