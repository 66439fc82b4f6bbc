"""Turns pydantic's validation errors into issues with TOML types, key paths and hints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import AliasChoices, BaseModel, ValidationError

from kbuild.project.config.document import Document, is_in_dsl
from kbuild.project.config.issue import Issue, KeyPath, closest, did_you_mean, listed, toml_type
from kbuild.project.config.model import BackendCatalog, kebab

# pydantic error type -> what should be there
_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table",
    "mapping_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
_KEY = 3
"""Length of the path of a kernel's key: `kernel.relu.src`."""
_MISSING = "is missing"
_BACKEND = "backend"
"""The key that tells kernel sections apart."""
_PATHS_LEFT_TO_RULES = (("torch", "stable-abi"),)
"""Paths that the rules judge alone, because a union's errors cannot be read."""


def keys_of(model: type[BaseModel]) -> dict[str, Any]:
    """TOML key -> pydantic field of one table."""
    return {kebab(name): field for name, field in model.model_fields.items()}


def issues_of(
    error: ValidationError, document: Document, catalog: BackendCatalog
) -> Iterator[Issue]:
    """One issue for each thing that pydantic found."""
    details = error.errors(include_url=False)
    misspelt = set(_misspelt_keys(details, document, catalog))
    for detail in details:
        path = _path(detail["loc"])
        issue = _issue(detail, path, document, catalog)
        is_ruled = any(path[: len(ruled)] == ruled for ruled in _PATHS_LEFT_TO_RULES)
        if not is_ruled and not (issue.message == _MISSING and issue.path in misspelt):
            yield issue
        if detail["type"].startswith("union_tag"):
            yield from _issues_of_guessed_backend(path, document, catalog)


def _misspelt_keys(
    details: Sequence[Any], document: Document, catalog: BackendCatalog
) -> Iterator[KeyPath]:
    """Paths of the keys that unknown keys were probably meant to be."""
    for detail in details:
        path = _path(detail["loc"])
        if detail["type"] == "extra_forbidden":
            model = model_at(path[:-1], document, catalog)
            if model and (meant := closest(str(path[-1]), keys_of(model))):
                yield (*path[:-1], meant)
        elif detail["type"].startswith("union_tag") and any(
            closest(key, [_BACKEND]) for key in document.table(*path)
        ):
            yield (*path, _BACKEND)


def table_issues(error: ValidationError, model: type[BaseModel], path: KeyPath) -> Iterator[Issue]:
    """One issue for each thing that pydantic found in a table that was validated alone."""
    for detail in error.errors(include_url=False):
        place = (*path, *detail["loc"])
        if detail["type"] == "extra_forbidden":
            owner = _submodel(model, detail["loc"][:-1])
            hint = _allowed(str(detail["loc"][-1]), owner) if owner is not None else ""
            yield Issue(place, "unknown key", hint, is_about_key=True)
        else:
            yield _shape_issue(detail, place, detail["input"])


def _issues_of_guessed_backend(
    path: KeyPath, document: Document, catalog: BackendCatalog
) -> Iterator[Issue]:
    """Further problems of a kernel section whose backend pydantic did not understand."""
    section = document.table(*path)
    if not section:
        return
    # The backend with that kind of name, or else the one with most of the section's keys.
    known = catalog.kernel_sections
    fit = {name: len(section.keys() & keys_of(model).keys()) for name, model in known.items()}
    backend = closest(str(section.get("backend")), known, catalog.other_names) or max(
        fit, key=lambda name: fit[name]
    )
    guessed = Document({"kernel": {path[-1]: {**section, "backend": backend}}})
    try:
        catalog.kernel_sections[backend].model_validate(guessed.table(*path))
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            yield _issue(detail, (*path, *detail["loc"]), guessed, catalog)


def _path(loc: tuple[str | int, ...]) -> KeyPath:
    """Pydantic puts the discriminator's value into the paths below `kernel.<name>`."""
    if loc[:1] == ("kernel",) and len(loc) > 2:  # noqa: PLR2004
        return (*loc[:2], *loc[3:])
    return loc


def _issue(detail: Any, path: KeyPath, document: Document, catalog: BackendCatalog) -> Issue:
    kind, value = detail["type"], detail["input"]
    if kind.startswith("union_tag"):  # the union of kernel sections, told apart by `backend`
        path, value = (*path, _BACKEND), document.get(*path, _BACKEND)
        kind = "missing" if value is None else "string_type"
    if kind == "extra_forbidden":
        hint = _unknown_key_hint(path, document, catalog)
        return Issue(path, "unknown key", hint, is_about_key=True)
    if kind == "missing":
        examples: dict[KeyPath, str] = {
            ("general",): "every build.toml has a `[general]` table",
            ("general", "name"): 'e.g. `name = "my-kernel"`',
            ("general", "version"): "e.g. `version = 1`",
            ("general", "license"): 'write the SPDX name, e.g. `license = "Apache-2.0"`',
            ("general", "backends"): f"a list of {listed(catalog.backends)}",
            ("kernel", "backend"): f"one of {listed(sorted(catalog.kernel_sections))}",
            ("kernel", "depends"): 'e.g. `depends = ["torch"]`, or `depends = []`',
            ("kernel", "src"): "the list of sources and headers",
        }
        generic = (path[0], *path[2:]) if path[0] == "kernel" else path
        return Issue(path, _MISSING, examples.get(generic, ""))
    return _shape_issue({**detail, "type": kind}, path, value)


def _shape_issue(detail: Any, path: KeyPath, value: Any) -> Issue:
    kind = detail["type"]
    if kind == "missing":
        return Issue(path, _MISSING)
    if kind == "value_error":
        return Issue(path, str(detail["ctx"]["error"]))
    if kind == "literal_error":
        allowed = str(detail["ctx"]["expected"]).replace("'", "`")
        text = f"`{value[:40]}`" if isinstance(value, str) else toml_type(value)
        return Issue(path, f"must be {allowed}, not {text}")
    if kind in _EXPECTED:
        expected = _EXPECTED[kind]
        hint = ""
        if expected == "a string" and isinstance(value, (bool, int, float)):
            hint = "put it in quotes"
        elif expected == "a list" and isinstance(value, str):
            hint = "write it as a list: `[ ... ]`"
        elif expected == "an integer" and isinstance(value, str) and value.isdecimal():
            hint = f"write {value[:20]} without quotes"
        return Issue(path, f"must be {expected}, not {toml_type(value)}", hint)
    return Issue(path, str(detail["msg"]))


def _unknown_key_hint(path: KeyPath, document: Document, catalog: BackendCatalog) -> str:
    key = str(path[-1])
    model = model_at(path[:-1], document, catalog)
    if model is None:
        return ""
    if path[0] == "general" and key in catalog.backends:
        return f"backends with a table of their own: {listed(catalog.general_sections)}"
    if path[0] == "kernel" and len(path) == _KEY:
        backend = document.get(*path[:-1], "backend")
        for owner, section in catalog.kernel_sections.items():
            if key in keys_of(section):
                return f"a key of {owner} kernels, and this is a {backend} one"
    return _allowed(key, model)


def _allowed(key: str, model: type[BaseModel]) -> str:
    # The keys of a table; where there are two spellings, the first.
    spellings = {
        str(field.validation_alias.choices[0])
        if isinstance(field.validation_alias, AliasChoices)
        else key
        for key, field in keys_of(model).items()
    }
    known = sorted(spellings)
    return did_you_mean(key, known) or f"allowed: {listed(known)}"


def model_at(path: KeyPath, document: Document, catalog: BackendCatalog) -> type[BaseModel] | None:
    """The model of the table at a path."""
    from kbuild.project.config.file_model import build_file_type, language_section

    if path[:1] == ("kernel",) and len(path) > 1:
        if is_in_dsl(document.table(*path[:2])):
            return _submodel(language_section(catalog), path[2:])
        section = catalog.kernel_sections.get(str(document.get(*path[:2], "backend")))
        return _submodel(section, path[2:]) if section else None
    return _submodel(build_file_type(catalog), path)


def _submodel(top: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    model: type[BaseModel] | None = top
    for key in path:
        if isinstance(key, int):
            continue
        field = keys_of(model).get(key) if model else None
        model = _model_in(field.annotation) if field else None
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model in `Hub`, `Hub | None` or `tuple[KernelDepend, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    arguments: Mapping[int, Any] = dict(enumerate(getattr(annotation, "__args__", ())))
    return next((model for model in map(_model_in, arguments.values()) if model), None)
