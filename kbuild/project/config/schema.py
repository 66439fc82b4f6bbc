"""The JSON Schema of `build.toml` (draft 2020-12), made from the models."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, get_args

from pydantic import AliasChoices, BaseModel

from kbuild import REPOSITORY
from kbuild.project.config.dependencies import EVERY_BACKEND, libraries, python_packages
from kbuild.project.config.document import NAME
from kbuild.project.config.file_model import build_file_type
from kbuild.project.config.model import (
    CXX,
    EDITION,
    BackendCatalog,
    BuildFile,
    kebab,
)
from kbuild.project.config.rules.kernels import KERNEL_NAME
from kbuild.project.config.rules.project import CLIENT_RELEASE, GIT_URL, REPO_ID
from kbuild.project.config.section_readers import section_readers


@lru_cache(maxsize=64)
def field_descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """Field name -> docstring, those of the base models included."""
    descriptions: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            descriptions |= _own_descriptions(base)
    return descriptions


def _own_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The string that follows each annotated name in a class body."""
    try:
        module = ast.parse(textwrap.dedent(inspect.getsource(model)))
    except (OSError, TypeError, SyntaxError):  # put together at run time
        return {}
    body = next(node for node in module.body if isinstance(node, ast.ClassDef))
    return {
        field.target.id: " ".join(inspect.cleandoc(text.value.value).split())
        for field, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_ID = f"https://raw.githubusercontent.com/{REPOSITORY}/main/docs/reference/build.schema.json"
"""Address of the schema for editors; `init` names it in the first line of `build.toml`."""
_VERSION = {"pattern": r"^\d+(\.\d+)*$"}


def json_schema(catalog: BackendCatalog) -> dict[str, Any]:
    """The schema of the whole file."""
    readers = sorted(section_readers().items())
    model = build_file_type(catalog, tuple((key, reader.value_type) for key, reader in readers))
    schema = model.model_json_schema(by_alias=True)
    definitions: dict[str, Any] = schema["$defs"]
    for part in models_in(model):
        name = "BuildFile" if part is model else part.__name__
        _describe(schema if part is model else definitions[name], part)
    frameworks = BuildFile.frameworks
    schema["oneOf"] = [{"required": [framework]} for framework in frameworks]
    schema["properties"]["kernel"]["propertyNames"] = _pattern(KERNEL_NAME.pattern)
    _constrain_general(definitions["General"], catalog)
    definitions["KernelDepend"]["oneOf"] = [{"required": ["version"]}, {"required": ["revision"]}]
    definitions["KernelDepend"]["properties"]["version"] |= {"minimum": 0}
    for owner in ("KernelDepend", "Hub"):
        _strings(definitions[owner]["properties"]["repo-id"]).update(_pattern(REPO_ID.pattern))
    for section in catalog.kernel_sections.values():
        properties = definitions[section.__name__]["properties"]
        properties["depends"]["items"]["enum"] = sorted(libraries())
        properties["src"] |= {"minItems": 1, "uniqueItems": True}
    _constrain_dsl_sections(definitions, catalog)
    for scope, table in catalog.general_sections.items():
        _constrain_packages(definitions[table.__name__], scope)
    for definition in definitions.values():
        _constrain_versions(definition["properties"])
    return {"$schema": _DIALECT, "$id": SCHEMA_ID, "title": "build.toml", **_without_titles(schema)}


def models_in(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The model and all models of its fields, each once."""
    models: dict[type[BaseModel], None] = {model: None}
    waiting = [model]
    while waiting:
        for field in waiting.pop().model_fields.values():
            for inner in models_of(field.annotation):
                if inner not in models:
                    models[inner] = None
                    waiting.append(inner)
    return iter(models)


def models_of(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in a type, e.g. in `tuple[Model, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_of(argument)


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    texts = field_descriptions(model)
    properties = schema["properties"]
    for name, field in model.model_fields.items():
        entry = properties[kebab(name)]
        text = texts.get(name) or first_sentence(next(models_of(field.annotation), None))
        if text:
            entry["description"] = text
        if isinstance(field.validation_alias, AliasChoices):  # the spelling of older tools
            properties[str(field.validation_alias.choices[1])] = {**entry, "deprecated": True}


def first_sentence(model: type[BaseModel] | None) -> str:
    """The first sentence of a model's docstring."""
    return (model.__doc__ or "").strip().split("\n")[0] if model else ""


def _constrain_dsl_sections(definitions: dict[str, Any], catalog: BackendCatalog) -> None:
    """Sections in Python DSLs: of one or several of the backends that have such kernels."""
    properties = definitions["LanguageSection"]["properties"]
    names = {"enum": list(catalog.language_backends)}
    several = {"type": "array", "items": names, "minItems": 1, "uniqueItems": True}
    text = properties["backend"]["description"]
    properties["backend"] = {"anyOf": [names, several], "description": text}
    properties["language"] |= {"not": {"const": CXX}}
    properties["src"] |= {"minItems": 1, "uniqueItems": True}


def _constrain_general(general: dict[str, Any], catalog: BackendCatalog) -> None:
    properties = general["properties"]
    properties["name"] |= _pattern(NAME.pattern)
    properties["version"] |= {"minimum": 0}
    properties["license"] |= {"minLength": 1}
    properties["backends"] |= {"minItems": 1, "uniqueItems": True}
    properties["backends"]["items"]["enum"] = sorted(catalog.backends)
    text = properties["edition"]["description"]
    properties["edition"] = {"const": EDITION, "description": text}
    general["required"] = sorted({*general["required"], "edition"})
    for key in ("upstream", "source"):
        _strings(properties[key]).update(_pattern(GIT_URL.pattern))
    _constrain_packages(general, EVERY_BACKEND)


def _constrain_packages(definition: dict[str, Any], scope: str) -> None:
    entry = definition["properties"]["python-depends"]
    known = sorted(python_packages().get(scope, {}))
    if known:
        entry["items"]["enum"] = known
    else:
        entry["maxItems"] = 0


def _constrain_versions(properties: Mapping[str, Any]) -> None:
    for key in ("minver", "maxver", "cuda-minver", "stable-abi"):
        if key in properties:
            for entry in _all_strings(properties[key]):
                entry.update(_VERSION)
    if "kernels-minver" in properties:
        for entry in _all_strings(properties["kernels-minver"]):
            entry.update(_pattern(CLIENT_RELEASE.pattern))


def _all_strings(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The schema's alternatives that are strings, also as values of a table."""
    alternatives = entry.get("anyOf", [entry])
    values = [part.get("additionalProperties") for part in alternatives]
    tables = [value for value in values if isinstance(value, dict)]
    return [part for part in (*alternatives, *tables) if part.get("type") == "string"]


def _strings(entry: dict[str, Any]) -> dict[str, Any]:
    return _all_strings(entry)[0]


def _pattern(pattern: str) -> dict[str, str]:
    """JSON Schema patterns match anywhere unless they are anchored."""
    return {"pattern": f"^(?:{pattern})$"}


def _without_titles(schema: Any) -> Any:
    """Pydantic titles every property with its own name; absent keys need no `null` either."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    alternatives = [item for item in schema.get("anyOf", ()) if item != {"type": "null"}]
    if len(alternatives) == 1 and "anyOf" in schema:
        schema = {k: v for k, v in schema.items() if k != "anyOf"} | alternatives[0]
    elif alternatives:
        schema = {**schema, "anyOf": alternatives}
    return {
        key: _without_titles(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
        and not (key == "default" and value is None)
    }
