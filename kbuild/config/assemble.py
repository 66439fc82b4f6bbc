"""The model of a whole `build.toml`, put together from the fixed sections and the backends' own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Union

from pydantic import Discriminator, Field, StrictStr, Tag, create_model

from kbuild.config.document import is_in_dsl
from kbuild.config.dsl import LanguageSection
from kbuild.config.model import BuildFile, Catalog, General

DSL = "in a DSL"
"""Tag of the sections that are written in Python DSLs, whatever their backends."""


@lru_cache(maxsize=4)
def build_file_type(catalog: Catalog) -> type[BuildFile]:
    """`BuildFile` with `[general.<backend>]` tables, and kernels told apart.

    A kernel in a DSL is one by its `language`, any other is known by its `backend`.
    """
    tables: dict[str, Any] = {
        name: (section | None, None) for name, section in catalog.general_sections.items()
    }
    general = create_model("General", __base__=General, __doc__=General.__doc__, **tables)
    sections = {**catalog.kernel_sections, DSL: language_section(catalog)}
    tagged = tuple(Annotated[section, Tag(name)] for name, section in sections.items())
    kernel: Any = Annotated[Union[tagged], Discriminator(_tag)]  # noqa: UP007
    fields: dict[str, Any] = {"general": (general, ...), "kernel": (dict[str, kernel], {})}
    return create_model("BuildFile", __base__=BuildFile, __doc__=BuildFile.__doc__, **fields)


@lru_cache(maxsize=4)
def language_section(catalog: Catalog) -> type[LanguageSection]:
    """`LanguageSection` with the arch lists of all backends that have kernels in DSLs."""
    fields: dict[str, Any] = {}
    for backend in catalog.language_backends:
        if backend not in catalog.arch_keys:
            continue
        key, _ = catalog.arch_keys[backend]
        about = f"What it is compiled for on {backend}, as in other kernels."
        entry = Field(default=None, description=about)
        fields[key.replace("-", "_")] = (tuple[StrictStr, ...] | None, entry)
    return create_model(
        "LanguageSection", __base__=LanguageSection, __doc__=LanguageSection.__doc__, **fields
    )


def _tag(section: Any) -> str | None:
    if isinstance(section, LanguageSection):
        return DSL
    if not isinstance(section, Mapping):
        backend = getattr(section, "backend", None)
        return backend if isinstance(backend, str) else None
    if is_in_dsl(section):
        return DSL
    backend = section.get("backend")
    return backend if isinstance(backend, str) else None
