"""The return value of a function: its tensors, and the Python expression that combines them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from kbuild.plugins.capture.programs import CaptureError

_PLAIN = (bool, int, float, str)


@dataclass
class Structure:
    """The tensors of a value."""

    place: str
    """The author's line."""
    leaves: list[Any] = field(default_factory=list)
    """Tensors and None."""
    classes: dict[str, list[str]] = field(default_factory=dict)
    """Named tuples -> their fields."""

    def template(self, value: Any) -> str:
        """The value as Python, with placeholders for leaves and named tuples; adds both.

        Raises:
            CaptureError: an op and Python around it cannot return it.
        """
        if value is None or isinstance(value, torch.Tensor):
            self.leaves.append(value)
            return f"{{{len(self.leaves) - 1}}}"
        if type(value) in _PLAIN:
            is_odd = isinstance(value, float) and not math.isfinite(value)
            text = f"float({str(value)!r})" if is_odd else repr(value)
            return text.replace("{", "{{").replace("}", "}}")
        if type(value) is list:
            return f"[{', '.join(map(self.template, value))}]"
        if type(value) is dict and all(type(key) in _PLAIN for key in value):
            items = (f"{self.template(k)}: {self.template(v)}" for k, v in value.items())
            return f"{{{{{', '.join(items)}}}}}"
        if isinstance(value, tuple) and not isinstance(value, torch.Size):
            return self._tuple(value)
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, torch.Size)):
            message = "returns a number of the call, such as a size: compute it outside of the"
            raise CaptureError(f"{message} function", self.place)
        message = f"returns a `{type(value).__name__}`: return tensors, alone or in tuples, lists,"
        raise CaptureError(f"{message} dictionaries or named tuples", self.place)

    def _tuple(self, value: tuple[Any, ...]) -> str:
        kind, items = type(value), ", ".join(map(self.template, value))
        if kind is tuple:
            return f"({items}{',' * (len(value) == 1)})"
        if kind.__module__ == "torch.return_types":
            return f"_torch.return_types.{kind.__name__}(({items},))"
        fields = [*getattr(kind, "_fields", ())]
        if not fields or kind.__bases__ != (tuple,) or _own_names(vars(kind), fields):
            message = f"returns a `{kind.__name__}`, which is more than a named tuple"
            raise CaptureError(f"{message}: return a tuple", self.place)
        if self.classes.setdefault(kind.__name__, fields) != fields:
            message = f"returns two named tuples of the name `{kind.__name__}`"
            raise CaptureError(f"{message}: give each a name of its own", self.place)
        return f"{{{kind.__name__}}}({items})"


def _own_names(names: Mapping[str, Any], fields: list[str]) -> list[str]:
    """Methods and properties that an author gave to a named tuple."""
    return [name for name in names if not name.startswith("_") and name not in fields]
