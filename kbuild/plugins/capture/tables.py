"""The `[[kernel.<name>.capture]]` tables of `build.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import StrictStr

from kbuild.project.config.file_model import TuneSection
from kbuild.project.config.model import Section


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
    sizes: Mapping[str, Mapping[str, Any]] = {}
    """Dimension -> `{ min = 1, max = 65536 }`: the calls that are captured; others are refused.
    Without `min`, a size may be 0."""
    backward: bool = True
    """`false` captures no backward pass."""
    tune: TuneSection | None = None
    """Calls that `kbuild tune` measures, in place of those that `kbuild capture` proposes; without
    `reference`."""
