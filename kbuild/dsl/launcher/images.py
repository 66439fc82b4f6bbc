"""The images of a kernel as C++ tables."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kbuild.dsl.launcher.cxx_text import cxx_array, cxx_string
from kbuild.dsl.launcher.objects import object_call_code
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.image import ImageParameter, KernelImage, UnitImage
from kbuild.ops.unit import ImageTarget

_Item = TypeVar("_Item")
ALIGNMENT = 16
"""Alignment in bytes that the driver requires of an image in memory."""
_BLOCK_TYPE = 0b110
"""Bits of compressed data's first byte that tell the type of its first block."""
_WORTH_IT = 0.9
"""Images are compressed when that makes them smaller than this share of their size."""
_KINDS = {"cubin": "kCubin", "ptx": "kPtx", "hsaco": "kHsaco", "object": "kObject"}
_TENSORS = ("tensor", "flat")
# Layouts are arrays of bytes: 0 to 127 are values, 128 to 253 tensor maps, and the rest is scratch.
_MAPS = 128
"""First number of tensor maps in parameter lists; see `images.h` for scratch memory."""
_SCRATCH = {"global_scratch": 254, "profile_scratch": 255}


@dataclass(frozen=True)
class Slot:
    """A value that images take: an argument in one of its forms."""

    argument: str
    form: str
    """`i` for integers, `p` for pointers, `t` for whole tensors, `f16`, `bf16`, `f32`, `f64`."""

    @property
    def is_judged(self) -> bool:
        """True if images may assume something about the value; never for a tensor's description."""
        return self.form != "t"


def slot_of(parameter: ImageParameter) -> Slot:
    """The slot that an image's parameter is read from."""
    if parameter.kind in ("pointer", "tensor_map"):
        return Slot(parameter.name, "p")
    if parameter.kind in _TENSORS:
        return Slot(parameter.name, "t")
    if parameter.kind == "float":
        return Slot(parameter.name, parameter.type.replace("fp", "f"))
    return Slot(parameter.name, "i")


def assumed_slots(image: KernelImage) -> Iterator[Slot]:
    """Yield the slots that an image assumes something about, besides those that it takes."""
    yield from (Slot(name, "i") for name in sorted(image.ones))
    if image.kind == "object":
        kinds = {parameter.name: parameter.kind for parameter in image.parameters}
        for name in sorted(image.divisible):
            yield Slot(name, "p" if kinds.get(name) in _TENSORS else "i")


@dataclass
class ImageTables:
    """Data that a kernel's images share, collected launch by launch."""

    bits: str = "uint64_t"
    """C++ type with a bit for each argument of a launch."""
    blob: bytearray = field(default_factory=bytearray)
    archs: list[ImageTarget] = field(default_factory=list)
    codes: list[tuple[int, int, int, int, str]] = field(default_factory=list)
    """Offset and size in the blob, size when unpacked, bytes of shared memory, entry."""
    objects: list[UnitImage] = field(default_factory=list)
    """Images that are linked instead of loaded."""
    layouts: list[tuple[int, ...]] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    maps: list[str] = field(default_factory=list)
    """C++ text of all tensor maps; those of one image are adjacent."""
    most_maps: int = 1
    """The most tensor maps of any image."""
    driver: int = 0
    """Oldest CUDA driver that can launch all images; 0 if any can."""
    _places: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    def add(self, compiled: UnitImage, slots: Sequence[Slot], bound: BoundLaunch, tier: int) -> int:
        """Add an image and return its index; `slots` are its launch's values, in order."""
        image = compiled.image
        self.driver = max(self.driver, image.driver)
        fields = (
            str(_index(self.archs, image.target)),
            str(self._code(compiled)),
            str(_index(self.layouts, _layout(image, slots))),
            *(str(n) for n in (image.threads, image.shared, image.scratch, image.scratch_align)),
            "{" + ", ".join(map(str, image.cluster)) + "}",
            *("true" if flag else "false" for flag in (image.pdl, image.cooperative)),
            str(tier),
            *(
                _number(
                    sum(
                        1 << at
                        for at, slot in enumerate(slots)
                        if slot.is_judged and slot.argument in names
                    )
                )
                for names in (image.divisible, image.ones)
            ),
            str(self._maps(compiled, slots, bound)),
            str(len(image.tensor_maps)),
        )
        return _index(self.images, "{" + ", ".join(fields) + "}")

    def _maps(self, compiled: UnitImage, slots: Sequence[Slot], bound: BoundLaunch) -> int:
        """Add an image's tensor maps and return the index of the first."""
        map_texts = []
        for tensor_map in compiled.image.tensor_maps:
            at = slots.index(Slot(tensor_map.parameter, "p"))
            block = "{" + ", ".join(map(str, tensor_map.block)) + "}"
            nan = bound.source(tensor_map.parameter).padding == "nan"
            element = tensor_map.element_size, tensor_map.element_type
            numbers = (at, len(tensor_map.block), *element, tensor_map.swizzle)
            flags = (str(flag).lower() for flag in (tensor_map.fp4_padded, nan))
            map_texts.append("{" + ", ".join((*map(str, numbers), *flags, block)) + "}")
        if not map_texts:
            return 0
        self.most_maps = max(self.most_maps, len(map_texts))
        self.maps += map_texts
        return len(self.maps) - len(map_texts)

    def _code(self, compiled: UnitImage) -> int:
        """Add an image's code and return its index in `codes` or `objects`."""
        image = compiled.image
        if image.kind == "object":
            entries = [unit_image.image.entry for unit_image in self.objects]
            # Linking one object twice, for two launches, would define its symbols twice.
            if image.entry in entries:
                return entries.index(image.entry)
            return _index(self.objects, compiled)
        # The driver reads PTX as a C string.
        is_open = image.kind == "ptx" and compiled.code[-1:] != b"\0"
        code = compiled.code + b"\0" * is_open
        # Images that differ only in facts, such as their shared memory, share one copy of the code.
        if code not in self._places:
            self.blob += bytes(-len(self.blob) % ALIGNMENT)
            stored = _compressed(code)
            self._places[code] = len(self.blob), len(stored)
            self.blob += stored
        return _index(self.codes, (*self._places[code], len(code), image.shared, image.entry))

    def tables(self) -> str:
        """C++ definitions of all tables except the code."""
        lists = [
            # C++ has no arrays of length 0.
            cxx_array("uint8_t", f"layout_{at}", [", ".join(map(str, layout)) or "0"])
            for at, layout in enumerate(self.layouts)
        ]
        layouts = [f"{{layout_{at}, {len(layout)}}}" for at, layout in enumerate(self.layouts)]
        codes = [
            "{" + ", ".join((*map(str, numbers), cxx_string(entry))) + "}"
            for *numbers, entry in self.codes
        ]
        return "".join(
            (
                cxx_array("Arch", "archs", map(_arch, self.archs)),
                f"const char* const kArchWords = {cxx_string(describe_archs(self.archs))};\n\n",
                cxx_array("Code", "codes", codes),
                f"constexpr int kCodes = {len(codes)};\n\n",
                *lists,
                cxx_array("Layout", "layouts", layouts),
                f"constexpr int kMostParameters = {max(1, *map(len, self.layouts))};\n\n",
                f"constexpr int kMostMaps = {self.most_maps};\n\n",
                f"constexpr int kOldestDriver = {self.driver};\n\n",
                cxx_array("TensorMap", "tensor_maps", self.maps),
                cxx_array("Image", "all_images", self.images),
                object_call_code(self.objects) if self.objects else "",
            )
        )


def _compressed(code: bytes) -> bytes:
    """Compressed code as `inflate.h` reads it, or the code itself if that saves little."""
    # A negative number stands for plain deflate data, without zlib's header and checksum.
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    packed = packer.compress(code) + packer.flush()
    # Readers recognise compression by the first byte; that of a stored block looks like padding.
    is_known = bool(packed[0] & _BLOCK_TYPE)
    return packed if is_known and len(packed) < _WORTH_IT * len(code) else code


def describe_archs(archs: Sequence[ImageTarget]) -> str:
    """Text such as `sm_80, sm_90a and PTX for sm_80 and later`."""
    ordered = sorted(archs, key=_order)
    *most, last = [
        *(target.arch for target in ordered if target.kind != "ptx"),
        *(
            f"PTX for {target.arch}{'' if target.arch[-1].isalpha() else ' and later'}"
            for target in ordered
            if target.kind == "ptx"
        ),
    ]
    return f"{', '.join(most)} and {last}" if most else last


def _order(target: ImageTarget) -> tuple[int, str]:
    capability = target.capability
    # As a number, because `sm_100` would sort before `sm_80` as text.
    return (0 if capability is None else int(capability.number.rstrip("af")), target.arch)


def _arch(target: ImageTarget) -> str:
    digits = target.arch.removeprefix("sm_") if target.capability else "0"
    number = digits.rstrip("af")
    feature = f"'{digits[-1]}'" if digits[-1] in "af" else "0"
    return f"{{{cxx_string(target.arch)}, {_KINDS[target.kind]}, {number}, {feature}}}"


def _layout(image: KernelImage, slots: Sequence[Slot]) -> tuple[int, ...]:
    maps = [tensor_map.parameter for tensor_map in image.tensor_maps]

    def place(parameter: ImageParameter) -> int:
        if parameter.kind == "tensor_map":
            return _MAPS + maps.index(parameter.name)
        return _SCRATCH.get(parameter.kind) or slots.index(slot_of(parameter))

    return tuple(place(parameter) for parameter in image.parameters)


def _number(bits: int) -> str:
    # C++ has no literals of 128 bits.
    high, low = divmod(bits, 1 << 64)
    word = f"UINT64_C({low:#x})"
    return f"(Bits(UINT64_C({high:#x})) << 64 | {word})" if high else word


def _index(items: list[_Item], item: _Item) -> int:
    if item not in items:
        items.append(item)
    return items.index(item)
