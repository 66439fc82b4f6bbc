"""The values of a surface: functions, classes, and the names that are neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from kbuild.errors import KbuildError

LAYERS = "layers"


class SurfaceError(KbuildError):
    """The package cannot be read: it is not there, or does not parse."""

    kind = "surface"


class Kind(str, Enum):
    """How a parameter is given, in the words of Python's `inspect`."""

    POSITIONAL_ONLY = "positional-only"
    NORMAL = "positional or keyword"
    VAR_POSITIONAL = "variadic positional"
    KEYWORD_ONLY = "keyword-only"
    VAR_KEYWORD = "variadic keyword"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function."""

    name: str
    kind: Kind = Kind.NORMAL
    annotation: str = ""
    """As written, on one line; empty without one."""
    default: str | None = None
    """As written; None when the parameter must be given."""

    @property
    def required(self) -> bool:
        """True when a call must give it."""
        return self.default is None and not self.variadic

    @property
    def variadic(self) -> bool:
        """True for `*args` and `**kwargs`."""
        return self.kind in {Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD}

    def __str__(self) -> str:
        stars = {Kind.VAR_POSITIONAL: "*", Kind.VAR_KEYWORD: "**"}.get(self.kind, "")
        name = f"{stars}{self.name}"
        if self.annotation:
            name += f": {self.annotation}"
        if self.default is None:
            return name
        return f"{name} = {self.default}" if self.annotation else f"{name}={self.default}"


@dataclass(frozen=True)
class Function:
    """Something that is called: a function, a method, or a name that nothing more is known of."""

    name: str
    parameters: tuple[Parameter, ...] | None
    """Without `self`; None when the definition was not found."""
    returns: str = ""
    """The annotation as written; empty without one."""
    doc: str = ""
    """The docstring without its indentation."""

    @property
    def signature(self) -> str:
        """`relu(x: Tensor, *, inplace: bool = False) -> Tensor`; `relu(...)` when unknown."""
        if self.parameters is None:
            return f"{self.name}(...)"
        arrow = f" -> {self.returns}" if self.returns else ""
        return f"{self.name}({', '.join(_with_marks(self.parameters))}){arrow}"

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, on one line."""
        return _summary(self.doc)


@dataclass(frozen=True)
class Class:
    """A class: how it is made, and its public methods."""

    name: str
    constructor: Function | None = None
    """None when a base outside the package decides."""
    methods: tuple[Function, ...] = ()
    """Public ones and `__call__`, those of bases inside the package included, in source order."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Public names of the class's body with their values as written; properties without."""
    doc: str = ""

    @property
    def signature(self) -> str:
        """The constructor's, under the class's name; the bare name when it is not known."""
        return self.name if self.constructor is None else self.constructor.signature

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, on one line."""
        return _summary(self.doc)


@dataclass(frozen=True)
class Surface:
    """Everything that a package makes public, in the order in which it lists it."""

    names: tuple[str, ...] = ()
    """All public names of the package itself."""
    functions: tuple[Function, ...] = ()
    classes: tuple[Class, ...] = ()
    """Public classes of the package itself."""
    layers: tuple[Class, ...] = ()
    """Classes of the module `layers`, when that is public."""
    others: tuple[str, ...] = ()
    """Public names that are modules, `ops` or plain values."""
    doc: str = ""
    """The package's docstring."""

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, on one line."""
        return _summary(self.doc)

    def to_json(self) -> dict[str, Any]:
        """The surface as a JSON object."""
        return {
            "names": list(self.names),
            "functions": [_function_json(function) for function in self.functions],
            "classes": [_class_json(found) for found in self.classes],
            "layers": [_class_json(found) for found in self.layers],
            "others": list(self.others),
            "doc": self.doc,
        }


def _with_marks(parameters: tuple[Parameter, ...]) -> list[str]:
    """The parameters with `/` and `*` between them where a signature has these."""
    written = [str(parameter) for parameter in parameters]
    kinds = [parameter.kind for parameter in parameters]
    if Kind.KEYWORD_ONLY in kinds and Kind.VAR_POSITIONAL not in kinds:
        written.insert(kinds.index(Kind.KEYWORD_ONLY), "*")
    if Kind.POSITIONAL_ONLY in kinds:
        written.insert(kinds.count(Kind.POSITIONAL_ONLY), "/")
    return written


def _summary(doc: str) -> str:
    return " ".join(doc.strip().partition("\n\n")[0].split())


def _function_json(function: Function) -> dict[str, Any]:
    entries = asdict(function) | {"signature": function.signature}
    if function.parameters is not None:
        entries["parameters"] = [asdict(p) | {"kind": p.kind.value} for p in function.parameters]
    return entries


def _class_json(found: Class) -> dict[str, Any]:
    return {
        "name": found.name,
        "constructor": found.constructor and _function_json(found.constructor),
        "methods": [_function_json(method) for method in found.methods],
        "attributes": dict(found.attributes),
        "doc": found.doc,
    }
