"""The images of a kernel as tables: archs, binaries, parameter lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kbuild.languages.compiled import Compiled
from kbuild.languages.image import Image, Parameter
from kbuild.languages.launcher.objects import object_calls
from kbuild.languages.launcher.text import array, literal
from kbuild.languages.spec import Bound
from kbuild.languages.target import Target

_Item = TypeVar("_Item")
ALIGNMENT = 16
"""Bytes; what the driver wants of an image in memory."""
_KINDS = {"cubin": "kCubin", "ptx": "kPtx", "hsaco": "kHsaco", "object": "kObject"}
_TENSORS = ("tensor", "flat")
_MAPS = 128
"""Numbers of tensor maps in parameter lists; those of scratch memory follow, see `images.h`."""
_SCRATCH = {"global_scratch": 254, "profile_scratch": 255}


@dataclass(frozen=True)
class Slot:
    """A value that images get: an argument in one of the forms that they want."""

    argument: str
    form: str
    """`i` for integers, `p` for pointers, `t` for whole tensors, `f16`, `bf16`, `f32`, `f64`."""

    @property
    def is_judged(self) -> bool:
        """Whether images may assume something of it: not of where a tensor's description is."""
        return self.form != "t"


def slot_of(parameter: Parameter) -> Slot:
    """The value that a parameter takes."""
    if parameter.kind in ("pointer", "tensor_map"):
        return Slot(parameter.name, "p")
    if parameter.kind in _TENSORS:
        return Slot(parameter.name, "t")
    if parameter.kind == "float":
        return Slot(parameter.name, parameter.type.replace("fp", "f"))
    return Slot(parameter.name, "i")


def assumed_slots(image: Image) -> Iterator[Slot]:
    """The values that an image assumes something of, besides those that it takes."""
    yield from (Slot(name, "i") for name in sorted(image.ones))
    if image.kind == "object":
        kinds = {parameter.name: parameter.kind for parameter in image.parameters}
        for name in sorted(image.divisible):
            yield Slot(name, "p" if kinds.get(name) in _TENSORS else "i")


@dataclass
class Images:
    """Everything that images share, collected while the launches are read."""

    bits: str = "uint64_t"
    """The C++ type with a bit for each argument of a launch."""
    blob: bytearray = field(default_factory=bytearray)
    archs: list[Target] = field(default_factory=list)
    codes: list[tuple[int, int, int, str]] = field(default_factory=list)
    """Offset, size, shared memory, entry."""
    objects: list[Compiled] = field(default_factory=list)
    """Those that are linked instead of loaded."""
    layouts: list[tuple[int, ...]] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    maps: list[str] = field(default_factory=list)
    """All tensor maps, those of an image together."""
    most_maps: int = 1
    """Of one image."""
    _places: dict[bytes, int] = field(default_factory=dict)

    def add(self, compiled: Compiled, slots: Sequence[Slot], bound: Bound, *, fast: bool) -> int:
        """The index of an image.

        Args:
            compiled: the image.
            slots: the values of its launch, in their order.
            bound: where they come from.
            fast: whether it assumes anything.
        """
        image = compiled.image
        fields = (
            str(_index(self.archs, image.target)),
            str(self._code(compiled)),
            str(_index(self.layouts, _layout(image, slots))),
            *(str(n) for n in (image.threads, image.shared, image.scratch, image.scratch_align)),
            "{" + ", ".join(map(str, image.cluster)) + "}",
            *("true" if flag else "false" for flag in (image.pdl, image.cooperative, fast)),
            *(_number(_bits(names, slots)) for names in (image.divisible, image.ones)),
            str(self._maps(compiled, slots, bound)),
            str(len(image.tensor_maps)),
        )
        return _index(self.images, "{" + ", ".join(fields) + "}")

    def _maps(self, compiled: Compiled, slots: Sequence[Slot], bound: Bound) -> int:
        """The place of the first of an image's tensor maps."""
        own = []
        for one in compiled.image.tensor_maps:
            at = slots.index(Slot(one.parameter, "p"))
            block = "{" + ", ".join(map(str, one.block)) + "}"
            nan = bound.source(one.parameter).padding == "nan"
            numbers = (at, len(one.block), one.element_size, one.element_type, one.swizzle)
            flags = (str(flag).lower() for flag in (one.fp4_padded, nan))
            own.append("{" + ", ".join((*map(str, numbers), *flags, block)) + "}")
        if not own:
            return 0
        self.most_maps = max(self.most_maps, len(own))
        self.maps += own
        return len(self.maps) - len(own)

    def _code(self, compiled: Compiled) -> int:
        """Its place among `codes`, or among `objects`."""
        image = compiled.image
        if image.kind == "object":
            entries = [one.image.entry for one in self.objects]
            if image.entry in entries:
                return entries.index(image.entry)
            return _index(self.objects, compiled)
        offset, size = self._place(compiled)
        return _index(self.codes, (offset, size, image.shared, image.entry))

    def _place(self, compiled: Compiled) -> tuple[int, int]:
        end = b"\0" if compiled.image.kind == "ptx" and compiled.code[-1:] != b"\0" else b""
        code = compiled.code + end
        if code not in self._places:
            self.blob += bytes(-len(self.blob) % ALIGNMENT)
            self._places[code] = len(self.blob)
            self.blob += code
        return self._places[code], len(code)

    def tables(self) -> str:
        """The C++ of everything but the code."""
        lists = [
            array("uint8_t", f"layout_{at}", [", ".join(map(str, layout)) or "0"])
            for at, layout in enumerate(self.layouts)
        ]
        layouts = [f"{{layout_{at}, {len(layout)}}}" for at, layout in enumerate(self.layouts)]
        codes = [f"{{{o}, {s}, {m}, {literal(entry)}}}" for o, s, m, entry in self.codes]
        return "".join(
            (
                array("Arch", "archs", map(_arch, self.archs)),
                f"const char* const kArchWords = {literal(archs_in_words(self.archs))};\n\n",
                array("Code", "codes", codes),
                f"constexpr int kCodes = {len(codes)};\n\n",
                *lists,
                array("Layout", "layouts", layouts),
                f"constexpr int kMostParameters = {max(1, *map(len, self.layouts))};\n\n",
                f"constexpr int kMostMaps = {self.most_maps};\n\n",
                array("TensorMap", "tensor_maps", self.maps),
                array("Image", "all_images", self.images),
                object_calls(self.objects) if self.objects else "",
            )
        )


def archs_in_words(archs: Sequence[Target]) -> str:
    """`sm_80, sm_90a and PTX for sm_80 and later`."""
    code = sorted((t for t in archs if t.kind != "ptx"), key=_order)
    ptx = sorted((t for t in archs if t.kind == "ptx"), key=_order)
    words = [target.arch for target in code]
    for target in ptx:
        later = "" if target.arch[-1].isalpha() else " and later"
        words.append(f"PTX for {target.arch}{later}")
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _order(target: Target) -> tuple[int, str]:
    capability = target.capability
    return (0 if capability is None else int(capability.number.rstrip("af")), target.arch)


def _arch(target: Target) -> str:
    digits = target.arch.removeprefix("sm_") if target.capability else "0"
    number = digits.rstrip("af")
    feature = f"'{digits[-1]}'" if digits[-1] in "af" else "0"
    return f"{{{literal(target.arch)}, {_KINDS[target.kind]}, {number}, {feature}}}"


def _layout(image: Image, slots: Sequence[Slot]) -> tuple[int, ...]:
    maps = [one.parameter for one in image.tensor_maps]

    def place(parameter: Parameter) -> int:
        if parameter.kind == "tensor_map":
            return _MAPS + maps.index(parameter.name)
        return _SCRATCH.get(parameter.kind) or slots.index(slot_of(parameter))

    return tuple(place(parameter) for parameter in image.parameters)


def _bits(names: frozenset[str], slots: Sequence[Slot]) -> int:
    return sum(
        1 << at for at, slot in enumerate(slots) if slot.is_judged and slot.argument in names
    )


def _number(bits: int) -> str:
    high, low = divmod(bits, 1 << 64)
    word = f"UINT64_C({low:#x})"
    return f"(Bits(UINT64_C({high:#x})) << 64 | {word})" if high else word


def _index(items: list[_Item], item: _Item) -> int:
    if item not in items:
        items.append(item)
    return items.index(item)
