"""The table of a kernel's launches in C++."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbuild.languages.launcher.images import Images
from kbuild.languages.launcher.rows import row_tables
from kbuild.languages.launcher.text import array, literal
from kbuild.languages.launcher.variants import Variants
from kbuild.languages.spec.values import DtypeName, Value


@dataclass(frozen=True)
class LaunchTable:
    """Constant data of one launch."""

    variants: Variants
    name: str
    rows: Sequence[tuple[int, ...]]
    control: bool

    def arrays(self, images: Images) -> str:
        """Everything that the launch's entry points to."""
        indices: list[int] = []
        spans = []
        for variant in self.variants.all:
            slots, bound = self.variants.slots, self.variants.launched.bound
            own = [
                images.add(one, slots, bound, fast=bool(one.image.divisible or one.image.ones))
                for one in variant.compiled
            ]
            spans.append(f"{{{len(indices)}, {len(own)}}}")
            indices += own
        constants = [", ".join(map(str, v.constants)) for v in self.variants.all if v.constants]
        name = self.name
        parts = [
            array("int16_t", f"{name}_indices", map(str, self.variants.candidates), per_line=16),
            array("uint32_t", f"{name}_spans", map(str, self.variants.spans()), per_line=16),
            array("Variant", f"{name}_variants", spans, per_line=8),
            array("uint32_t", f"{name}_images", map(str, indices), per_line=16),
            array("Int", f"{name}_constants", constants),
            array(
                "char* const",
                f"{name}_constant_names",
                (literal(constant.name) for constant in self.variants.decided),
            ),
            *self._words(),
            f"Quick {name}_quick[{max(1, len(self.variants.all))}];\n",
        ]
        if self.rows:
            parts += [row_tables(name, self.rows), f"Remembered {name}_remembered[kRemembered];\n"]
        if self.control:
            parts.append(f"std::atomic<int> {name}_forced{{-1}};\n")
        return "".join(parts)

    def _words(self) -> Iterator[str]:
        """For each constant that a call decides by its place: what stands there."""
        rows = []
        for at, constant in enumerate(self.variants.decided):
            rows.append(f"{self.name}_words_{at}" if constant.values else "nullptr")
            if constant.values:
                words = (literal(_said(value)) for value in constant.values)
                yield array("char* const", rows[-1], words)
        yield array("char* const* const", f"{self.name}_words", rows)

    def entry(self) -> str:
        """The launch itself, for the array `launches`."""
        name, variants = self.name, self.variants
        launch = variants.launched.launch
        conditions = [f"`{one.when}`" for one in launch.candidates if one.when is not None]
        rows = (f"{name}_rows", f"{name}_keys", f"{name}_remembered") if self.rows else None
        fields = (
            literal(variants.op.name),
            literal(variants.launched.bound.function),
            str(len(variants.candidates)),
            f"{name}_indices",
            str(len(launch.candidates)),
            f"{name}_spans",
            f"{name}_variants",
            str(len(variants.all)),
            f"{name}_images",
            f"{name}_quick",
            f"{name}_constants",
            str(len(variants.decided)),
            f"{name}_constant_names",
            f"{name}_words",
            literal(", ".join(conditions)),
            rows[0] if rows else "nullptr",
            str(len(self.rows)),
            rows[1] if rows else "nullptr",
            str(len(variants.op.key)),
            rows[2] if rows else "nullptr",
            f"&{name}_forced" if self.control else "nullptr",
        )
        return "{" + ", ".join(fields) + "}"


def _said(value: Value) -> str:
    return value.name if isinstance(value, DtypeName) else repr(value)
