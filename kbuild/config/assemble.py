"""The model of a whole `build.toml`, put together from the fixed sections and the backends' own."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Union

from pydantic import Field, create_model

from kbuild.config.model import BuildFile, Catalog, General


@lru_cache(maxsize=4)
def build_file_type(catalog: Catalog) -> type[BuildFile]:
    """`BuildFile` with `[general.<backend>]` tables and kernels told apart by their `backend`."""
    tables: dict[str, Any] = {
        name: (section | None, None) for name, section in catalog.general_sections.items()
    }
    general = create_model("General", __base__=General, __doc__=General.__doc__, **tables)
    sections = tuple(catalog.kernel_sections.values())
    kernel: Any = Annotated[Union[sections], Field(discriminator="backend")]  # noqa: UP007
    fields: dict[str, Any] = {"general": (general, ...), "kernel": (dict[str, kernel], {})}
    return create_model("BuildFile", __base__=BuildFile, __doc__=BuildFile.__doc__, **fields)
