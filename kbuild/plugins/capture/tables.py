"""The `[[kernel.<name>.capture]]` tables of `build.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import StrictBool, StrictInt, StrictStr, field_validator, model_validator
from typing_extensions import Self

from kbuild.project.config.file_model import TuneSection
from kbuild.project.config.model import Section

LARGEST_SIZE = 2**31 - 1


class SizeRange(Section):
    """The values of a dimension for which a function is captured."""

    min: StrictInt = 0
    """The smallest value."""
    max: StrictInt = LARGEST_SIZE
    """The largest value."""


class TensorTable(Section):
    """A parameter of a captured function that is a tensor."""

    shape: tuple[Any, ...]
    """Dimensions: names, sizes, and `...` for any number of them."""
    dtypes: Any = ()
    """Names of dtypes, or another argument that has the same dtype."""
    optional: StrictBool = False
    contiguous: StrictBool = False

    @field_validator("shape")
    @classmethod
    def _validate_shape(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if any(isinstance(size, bool) or not isinstance(size, (int, str)) for size in value):
            raise ValueError('must be a list of names and sizes, e.g. `["M", "N"]`')
        return value

    @field_validator("dtypes")
    @classmethod
    def _validate_dtypes(cls, value: Any) -> Any:
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, (list, tuple)) or not all(
            isinstance(name, str) for name in listed
        ):
            raise ValueError("must be a list of dtypes, or the name of another argument")
        return value


class ChoicesTable(Section):
    """A parameter of a captured function with a few values."""

    choices: tuple[Any, ...]
    default: Any = None

    @field_validator("choices")
    @classmethod
    def _validate_choices(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if not value or not all(isinstance(choice, (bool, int, float, str)) for choice in value):
            raise ValueError("must be a list of numbers, booleans and strings")
        return value

    @model_validator(mode="after")
    def _validate_default(self) -> Self:
        if self.default is not None and self.default not in self.choices:
            raise ValueError(f"the default `{self.default}` is not one of the choices")
        return self


class FixedTable(Section):
    """A parameter of a captured function that is the same in every call."""

    value: Any


class CaptureSection(Section):
    """One `[[kernel.<name>.capture]]` table: ops that follow from the author's Python."""

    function: StrictStr | None = None
    """`module:function` that becomes an op."""
    launches: tuple[StrictStr, ...] = ()
    """Modules whose launches become ops, such as `my_ops.loss` or `my_ops.*`; the section's Python
    files are shipped, and call them."""
    fallback: Literal["none", "jit"] = "none"
    """`jit`: run Triton for other launches if the user has it; `none`: refuse them."""
    name: StrictStr | None = None
    """The op of `function`; the function's own name in lower case when absent."""
    arguments: Mapping[str, Any] = {}
    """Parameter of `function` -> `{ shape = [...], dtypes = [...] }` for a tensor (with `optional`
    and `contiguous`), a default (a number or boolean), `{ choices = [...] }`, or `{ value = ... }`
    for every call."""
    sizes: Mapping[str, SizeRange] = {}
    """Dimension -> `min` and `max` of the calls that are captured, such as `{ max = 65536 }`;
    others are refused. Without `min`, a size may be 0."""
    backward: StrictBool = True
    """`false` captures no backward pass."""
    tune: TuneSection | None = None
    """Calls that `kbuild tune` measures, in place of those that `kbuild capture` proposes; without
    `reference`."""
