"""The model of a `[kernel.*]` section that is written in a Python DSL."""

from __future__ import annotations

from typing import Annotated, Any

from kbuild.config.languages import LanguageKeys, OneOf

BackendsValue = Annotated[Any, OneOf(("a string", "a list"))]


class LanguageSection(LanguageKeys):
    """A `[kernel.<name>]` table with another `language` than C++."""

    # `kbuild.config.assemble` adds the arch lists of the backends.

    backend: BackendsValue
    """The backend that this kernel is compiled for, or a list of them."""

    @property
    def backends(self) -> tuple[str, ...]:
        """Every backend that it is compiled for."""
        return (self.backend,) if isinstance(self.backend, str) else tuple(self.backend)

    @property
    def pins(self) -> tuple[str, ...]:
        """The distributions of its toolchain: `triton==3.9.0`."""
        return (self.toolchain,) if isinstance(self.toolchain, str) else tuple(self.toolchain)

    def archs_of(self, key: str) -> tuple[str, ...] | None:
        """An arch list by its key; None when there is none."""
        value: tuple[str, ...] | None = getattr(self, key.replace("-", "_"), None)
        return value

    def as_written(self) -> dict[str, Any]:
        """The table as TOML gives it, without what was not said."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)
