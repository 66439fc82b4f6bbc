"""The `views` of an op: tensors that share memory with others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbuild.ops.expression import Expression, parse
from kbuild.ops.model import AtenCall, DtypeRule, ShapeRule, TensorView
from kbuild.ops.scope import OpScope
from kbuild.project.config.file_model import ViewSection
from kbuild.project.config.issue import IssueCollector, one_of


def read_views(
    table: Mapping[str, ViewSection],
    returned: Sequence[str],
    scope: OpScope,
    place: IssueCollector,
) -> tuple[TensorView, ...]:
    """Read the views and add them to the scope; errors are added to `place`, the `views` key.

    Args:
        table: name -> its section.
        returned: results that may be None.
        scope: names of the op.
        place: place of the table.
    """
    views: dict[str, TensorView] = {}
    for name, section in table.items():
        where, errors = place.at(name), place.errors
        kind = scope.kinds.get(name)
        if name in returned:
            where.error(f"`{name}` may be None", "return a tensor, and the view in Python")
        elif not name.isidentifier():
            where.error(f"`{name}` cannot be used in an expression")
        known = [tensor for tensor in scope.tensors() if tensor not in table or tensor in views]
        if section.of not in known:
            hint = "describe it before" if section.of in table else one_of(section.of, known)
            where.at("of").error(f"`{section.of}` is not a tensor", hint)
        view = _view(name, section, scope, where)
        if kind != "result":
            scope.add(name, "view", where)
        if place.errors == errors and view is not None:
            views[name] = view
            scope.views[name] = scope.views.get(view.of, view.of)
            scope.shapes[name] = ShapeRule(name, dims=view.shape)
    _validate_results(views, scope, place)
    return tuple(views.values())


def _view(
    name: str, section: ViewSection, scope: OpScope, place: IssueCollector
) -> TensorView | None:
    root = scope.views.get(section.of, section.of)
    early = scope.before_allocation().where_given({root})

    def read(key: str, values: Sequence[str | int]) -> tuple[Expression, ...] | None:
        parts = [early.expression(text, place.at(key, at)) for at, text in enumerate(values)]
        for at, part in enumerate(parts):
            if part is not None and (part.constant or 0) < 0:
                place.at(key, at).error(f"`{part}` is negative")
        return tuple(part for part in parts if part is not None)

    strides = None if section.strides is None else read("strides", section.strides)
    if section.strides is not None and len(section.strides) != len(section.shape):
        place.at("strides").error(
            f"has {len(section.strides)} strides for {len(section.shape)} dimensions"
        )
    offset = early.expression(section.offset, place.at("offset"))
    shape = read("shape", section.shape)
    return TensorView(name, section.of, shape or (), strides, offset or parse(0))


def _validate_results(
    views: Mapping[str, TensorView], scope: OpScope, place: IssueCollector
) -> None:
    """Report results that would share memory: torch.compile assumes that results own theirs."""
    owners: dict[str, str] = {}
    for name in views:
        if scope.kinds.get(name) != "result":
            continue
        root = scope.views[name]
        if scope.kinds.get(root) != "temporary":
            message = f"the result `{name}` would share the memory of `{root}`, "
            message += "which the caller has" if root not in owners else "a result"
            place.at(name).error(message, "make it a view of a temporary, or copy it")
        elif root in owners:
            message = f"the results `{owners[root]}` and `{name}` would share memory"
            place.at(name).error(message, "copy one of them")
        owners[root] = name


def view_rules(
    views: Sequence[TensorView],
) -> tuple[tuple[ShapeRule, ...], tuple[DtypeRule, ...]]:
    """Shape and dtype rules of views."""
    shapes = tuple(ShapeRule(view.name, dims=view.shape) for view in views)
    return shapes, tuple(DtypeRule(view.name, like=view.of) for view in views)


def validate_sharing(
    calls: Sequence[AtenCall], results: Sequence[str], scope: OpScope, place: IssueCollector
) -> None:
    """Report results of ATen calls that may share memory with arguments or other results.

    Args:
        calls: ATen calls of the op, in order.
        results: names of the op's results.
        scope: names of the op.
        place: place of the op.
    """
    roots: dict[str, set[str]] = {}

    def roots_of(name: str) -> set[str]:
        root = scope.views.get(name, name)
        return roots.get(root, {root})

    for call in calls:
        shared = {root for name in call.aliases for root in roots_of(name)}
        for name in call.produced:
            roots[name] = roots.get(name, set()) | (shared or {name})
    by_root: dict[str, str] = {}
    for result in (name for name in results if name in roots or name in scope.views):
        for root in sorted(roots_of(result)):
            owner = by_root.setdefault(root, result)
            is_argument = scope.kinds.get(root) == "tensor"
            if not is_argument and owner == result:
                continue
            producers = (c for c in calls if result in c.produced)
            where = IssueCollector(next((c.path for c in producers), place.path), place.issues)
            other = root if is_argument else owner
            hint = 'copy it: `aten = "clone"`'
            where.error(f"the result `{result}` may share the memory of `{other}`", hint)
