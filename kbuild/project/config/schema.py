"""Documentation generated from the models.

The JSON Schema (draft 2020-12) and `docs/reference/build-toml.md`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, get_args

from pydantic import AliasChoices, BaseModel

from kbuild import REPOSITORY
from kbuild.project.config.dependencies import EVERY_BACKEND, libraries, python_packages
from kbuild.project.config.document import NAME
from kbuild.project.config.file_model import build_file_type
from kbuild.project.config.issue import KeyPath, dotted, listed
from kbuild.project.config.load import FIRST_EDITION
from kbuild.project.config.model import (
    CXX,
    EDITION,
    BackendCatalog,
    BackendGeneral,
    BuildFile,
    KernelSection,
    kebab,
)
from kbuild.project.config.model_errors import keys_of
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
            for inner in _models_of(field.annotation):
                if inner not in models:
                    models[inner] = None
                    waiting.append(inner)
    return iter(models)


def _models_of(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_of(argument)


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    texts = field_descriptions(model)
    properties = schema["properties"]
    for name, field in model.model_fields.items():
        entry = properties[kebab(name)]
        text = texts.get(name) or first_sentence(next(_models_of(field.annotation), None))
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


_INTRODUCTION = f"""\
<!-- Generated by scripts/generate_reference.py from kbuild/project/config; do not edit. -->

# `build.toml`

A kernel's `build.toml` has a `[general]` table, exactly one framework table
({listed(f"[{key}]" for key in BuildFile.frameworks)}) and, for compiled kernels, a
`[kernel.<name>]` table for each kernel and backend. Unknown keys are errors. Paths are relative to
the file's folder, written with `/`, and stay inside it.

`kbuild check-config` checks the file, and with `--schema` prints its JSON Schema for editors.
"""
_EDITIONS = f"""\
## Editions

New files say `edition = {EDITION}`. Files without the key are read as edition 4, or as edition 3
when they have no version or no framework table (which then meant `[torch-noarch]`).
`kbuild check-config --update` rewrites both to edition {EDITION} and keeps their comments.
"""


def reference_markdown(catalog: BackendCatalog) -> str:
    """The reference page of `build.toml`."""
    schema = json_schema(catalog)
    parts = [_INTRODUCTION, *_general_tables(schema, catalog), *_frameworks(schema)]
    parts += [*_kernels(schema, catalog), *_dependencies(), _EDITIONS]
    return "\n".join(parts)


def _general_tables(schema: Mapping[str, Any], catalog: BackendCatalog) -> Iterator[str]:
    definitions = schema["$defs"]
    yield _table("## `[general]`", definitions["General"], ("general",))
    yield _table("### `[general.hub]`", definitions["Hub"], ("general", "hub"))
    path = ("general", "kernel-depends")
    yield _table("### `kernel-depends` entries", definitions["KernelDepend"], path)
    plain = [
        name
        for name, section in catalog.general_sections.items()
        if keys_of(section).keys() == keys_of(BackendGeneral).keys()
    ]
    for backend, section in catalog.general_sections.items():
        path = ("general", backend)
        if backend not in plain:
            yield _table(f"### `[{dotted(path)}]`", definitions[section.__name__], path)
    if plain:
        section = catalog.general_sections[plain[0]]
        headings = (f"`[{dotted(('general', name))}]`" for name in plain)
        path = ("general", plain[0])
        yield _table(f"### {', '.join(headings)}", definitions[section.__name__], path)


def _frameworks(schema: Mapping[str, Any]) -> Iterator[str]:
    for key in BuildFile.frameworks:
        definition = _referenced(schema, schema["properties"][key])
        yield _table(f"## `[{key}]`", definition, (key,))


def _kernels(schema: Mapping[str, Any], catalog: BackendCatalog) -> Iterator[str]:
    definitions = schema["$defs"]
    common = keys_of(KernelSection)
    shared = _only(definitions[next(iter(catalog.kernel_sections.values())).__name__], common)
    shared["description"] = "One kernel of one backend. Keys of all backends:"
    names = [{"const": name} for name in sorted(catalog.kernel_sections)]
    shared["properties"]["backend"] |= {"anyOf": names}
    yield _table("## `[kernel.<name>]`", shared, ("kernel", "<name>"))
    for backend, section in catalog.kernel_sections.items():
        own = _only(definitions[section.__name__], keys_of(section).keys() - common.keys())
        if own["properties"]:
            own["description"] = f'Further keys with `backend = "{backend}"`:'
            yield _table(f"### `{backend}` kernels", own, ("kernel", "<name>"))
    yield from _dsl_tables(definitions)


def _dsl_tables(definitions: Mapping[str, Any]) -> Iterator[str]:
    """The tables of sections in Python DSLs, with the tables inside of them."""
    section = definitions["LanguageSection"]
    about = {"description": section["properties"]["backend"]["description"]}
    kernel = {
        **section,
        "properties": {**section["properties"], "backend": {"type": "string or list", **about}},
        "description": "One kernel that is compiled ahead of time; "
        "[how it is written](dsl-kernels.md). Its keys:",
    }
    yield _table("### Kernels in Python DSLs", kernel, ("kernel", "<name>"))
    op, launch = definitions["OpSection"], definitions["LaunchSection"]
    yield _table("#### `[[kernel.<name>.op]]`", op, ("kernel", "<name>", "op"))
    listed_keys = ", ".join(f"`{key}`" for key in sorted(launch["properties"]))
    text = (
        "One launch of an op that launches several functions in turn, or a call of ATen (`aten`, "
    )
    text += "`arguments`, `results`). It has keys of an op for itself: "
    yield f"#### `[[kernel.<name>.op.launch]]`\n\n{text}{listed_keys}.\n"
    yield _table(
        "#### `[kernel.<name>.op.views.<view>]`",
        definitions["ViewSection"],
        ("kernel", "<name>", "op", "views", "<view>"),
    )
    path = ("kernel", "<name>", "op", "tune")
    yield _table("#### `[kernel.<name>.op.tune]`", definitions["TuneSection"], path)
    path = ("kernel", "<name>", "op", "projections")
    yield _table("#### `[[kernel.<name>.op.projections]]`", definitions["ProjectionSection"], path)
    for key, reader in sorted(section_readers().items()):
        for model in _models_of(reader.value_type):
            heading = f"#### `[[kernel.<name>.{key}]]`"
            yield _table(heading, definitions[model.__name__], ("kernel", "<name>", key))


def _only(definition: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    wanted = set(keys)
    properties = {k: dict(v) for k, v in definition["properties"].items() if k in wanted}
    return {**definition, "properties": properties}


def _referenced(schema: Mapping[str, Any], entry: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(entry["$ref"]).rpartition("/")[2]
    definition: Mapping[str, Any] = schema["$defs"][name]
    return definition


def _table(heading: str, definition: Mapping[str, Any], path: KeyPath) -> str:
    required = definition.get("required", ())
    rows = [
        (
            f"`{key}`",
            _type(entry),
            "**required**" if key in required else _default(entry),
            f"{entry.get('description', '')}{_since((*path, key))}",
        )
        for key, entry in _ordered(definition["properties"], required)
        if not entry.get("deprecated")
    ]
    columns = ("key", "type", "default", "meaning")
    text = definition["description"]
    own_name = f"The {heading.lstrip('# ').partition(',')[0]} table."  # the heading has said it
    return "\n\n".join([heading, *([text] if text != own_name else []), _rows(columns, rows)])


def _ordered(
    properties: Mapping[str, Any], required: Iterable[str]
) -> list[tuple[str, Mapping[str, Any]]]:
    """Required keys first; otherwise by name, since inherited keys have no natural order."""
    needed = set(required)
    return sorted(properties.items(), key=lambda item: (item[0] not in needed, item[0]))


def _type(entry: Mapping[str, Any]) -> str:
    if "anyOf" in entry or "$ref" in entry:
        return " or ".join(_type(part) for part in entry.get("anyOf", ())) or "table"
    if "const" in entry:
        return f"`{entry['const']}`"
    if entry.get("type") == "array":
        items = entry.get("items")
        return f"list of {_type(items)}s" if items and "anyOf" not in items else "list"
    if entry.get("type") == "object":
        values = entry.get("additionalProperties", {})
        return f"table of {_type(values)}s by backend" if _is_version(values) else "table"
    return "version string" if _is_version(entry) else str(entry.get("type", "value"))


def _is_version(entry: Any) -> bool:
    return isinstance(entry, Mapping) and str(entry.get("pattern", "")).startswith(r"^\d+")


def _default(entry: Mapping[str, Any]) -> str:
    default = entry.get("default")
    if default is None or default in ([], {}):
        return ""
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return f"`{text}`".replace("'", '"')


def _since(path: KeyPath) -> str:
    """The edition that brought a key, where older files may not have it."""
    since = max(FIRST_EDITION.get(path[:depth], 0) for depth in range(1, len(path) + 1))
    return f" Since edition {since}." if since else ""


def _dependencies() -> Iterator[str]:
    rows = [
        (f"`{name}`", library.title, library.version or _by_compiler(library.versions))
        for name, library in sorted(libraries().items())
    ]
    table = _rows(("name", "library", "version"), rows)
    yield f"## Names for `depends`\n\nHeaders that kbuild provides.\n\n{table}"
    packages = [
        (f"`{name}`", _scope(scope), f"`{package.package}`")
        for scope, known in python_packages().items()
        for name, package in sorted(known.items())
    ]
    table = _rows(("name", "table", "package"), packages)
    yield f"## Names for `python-depends`\n\nPackages that the loader checks for.\n\n{table}"


def _by_compiler(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{release} with DPC++ {name}" for name, release in versions.items())


def _scope(scope: str) -> str:
    return "`[general]`" if scope == EVERY_BACKEND else f"`[general.{scope}]`"


def _rows(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    escaped = (tuple(cell.replace("|", r"\|") for cell in line) for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)
