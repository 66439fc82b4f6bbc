"""C++ code for one launch: its tables, and the function that selects a candidate and an image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType

from kbuild.dsl.launcher.aten import need_calls
from kbuild.dsl.launcher.cxx_text import CxxNames, cxx_array, cxx_string
from kbuild.dsl.launcher.images import ImageTables, Slot
from kbuild.dsl.launcher.resolved_kernel import ResolvedLaunch
from kbuild.ops.bound_launch import tensors_asked, tensors_used
from kbuild.ops.expression import Expression
from kbuild.ops.expression.expression import cxx_int64
from kbuild.ops.model import OpSpec
from kbuild.ops.steps import ArgumentSource, DtypeName, numbers_of
from kbuild.ops.tuned_tables import TunedRow, TunedTable

# Types of 64 bits have no entry: values have 64 bits, so none of them is out of range.
_RANGES = {
    "i1": ("0", "1"),
    "u1": ("0", "1"),
    **{
        f"i{bits}": (f"-INT64_C({2 ** (bits - 1)})", str(2 ** (bits - 1) - 1))
        for bits in (8, 16, 32)
    },
    **{f"u{bits}": ("0", f"INT64_C({2**bits - 1})") for bits in (8, 16, 32)},
}
_HALVES = {"f16": "half_of", "bf16": "bfloat_of"}


@dataclass(frozen=True)
class LaunchCode:
    """Generates the C++ function of one launch, and the constant data that it reads."""

    resolved: ResolvedLaunch
    name: str
    """Name in C++, such as `add_0`."""
    index: int
    """Index into the kernel's table of launches."""
    rows: Sequence[tuple[int, ...]]
    """Rows of tuned tables, see `rows_of`."""
    control: bool
    on_demand: frozenset[str]
    """See `ResolvedOp.on_demand`."""

    @property
    def _what(self) -> str:
        return f"`{self.resolved.op.name}`"

    @property
    def _is_split(self) -> bool:
        """True if a candidate is for certain archs: machine code then precedes all PTX."""
        every = self.resolved.launch.candidates
        return any(every[at].archs for at in self.resolved.candidates)

    def function(self) -> str:
        """C++ function `void launch_NAME(Call_OP& call)`."""
        op = self.resolved.op
        function = self.resolved.bound.function
        lines = [
            f"// {op.name}: {function}",
            *self._numbers(),
            f"void launch_{self.name}(Call_{op.name}& call) {{",
            *(f"  {line}" for line in self._body()),
            "}",
        ]
        return "\n".join(lines) + "\n"

    def _numbers(self) -> Iterator[str]:
        """C++ table of the candidates' constants that expressions may use."""
        names = self._numeric()
        if not names:
            return
        every = self.resolved.launch.candidates
        yield f"const Int numbers_{self.name}[][{len(names)}] = {{"
        for at in self.resolved.candidates:
            values = numbers_of(every[at].constants)
            yield f"    {{{', '.join(str(values.get(name, 0)) for name in names)}}},"
        yield "};"

    def _numeric(self) -> list[str]:
        every = self.resolved.launch.candidates
        tables = [dict(every[at].constants) for at in self.resolved.candidates]
        first = tables[0] if tables else {}
        kinds = (bool, int, NoneType)
        numbers = [n for n in first if all(isinstance(t.get(n), kinds) for t in tables)]
        return [*numbers, *(f"has({n})" for n in first if any(t.get(n) is None for t in tables))]

    def _names(self) -> CxxNames:
        constants = {name: f"numbers[{at}]" for at, name in enumerate(self._numeric())}
        for constant in self.resolved.launch.constants:
            if isinstance(constant.value, (bool, int)):
                constants[constant.name] = f"INT64_C({int(constant.value)})"
        for at, constant in enumerate(self.resolved.decided):
            constants[constant.name] = f"fate.constants[{at}]"
        return CxxNames(self.resolved.op, "call.", constants)

    def _evaluated(self, expression: Expression, target: str, label: str = "") -> Iterator[str]:
        if expression.constant is None:
            yield f"checked.what = {cxx_string(f'{self._what}: {label}`{expression}`')};"
        yield f"{target} = {self._names().cxx(expression)};"

    def _body(self) -> Iterator[str]:
        count = len(self.resolved.candidates)
        yield f"const Launch& launch = launches[{self.index}];"
        yield "const Device& device = *call.device;"
        yield 'Arithmetic checked{""};'
        # Remembers how far candidates came, for the message if none fits.
        yield "Fate fate;"
        # Compilers would warn of the variable in launches that compute nothing.
        yield "(void)checked;"
        op, launch = self.resolved.op, self.resolved.launch
        when = launch.when
        # The condition may skip the launch, so it allocates only the tensors that it asks about.
        asked = tensors_asked([when] if when is not None else [])
        yield from need_calls(op, asked, self.on_demand)
        if when is not None:
            yield "Int wanted = 0;"
            yield from self._evaluated(when, "wanted", "when: ")
            yield "if (wanted == 0) return;"
        if count:
            used = tensors_used(launch, self.resolved.bound) - asked
            yield from need_calls(op, used, self.on_demand)
            yield from self._search(count)
        yield "nothing_fits(launch, device, fate);"

    def _search(self, count: int) -> Iterator[str]:
        """Statements that launch the first candidate that fits."""
        yield from self._tuned()
        if self.control:
            yield "const int forced = launch.forced->load(std::memory_order_relaxed);"
        start = "-1" if self.rows else "0"
        if self._is_split:
            yield "// First what has machine code for the device, then PTX."
            yield "for (int pass = 0; pass < 2; ++pass)"
        yield f"for (int step = {start}; step < {count}; ++step) {{"
        yield from (f"  {line}" for line in self._candidate())
        yield "}"

    def _tuned(self) -> Iterator[str]:
        if not self.rows:
            return
        key = self.resolved.op.key
        # C++ has no arrays without elements.
        yield f"Int key[{max(1, len(key))}] = {{}};"
        for at, expression in enumerate(key):
            yield from self._evaluated(expression, f"key[{at}]", "key: ")
        yield "const int best_known = tuned(launch, device, call.set, key);"

    def _candidate(self) -> Iterator[str]:
        if self.rows:
            # Step -1 is the winner of a tuned table, which is not tried a second time.
            yield "const int candidate = step < 0 ? best_known : step;"
            yield "if (candidate < 0 || (step >= 0 && candidate == best_known)) continue;"
        else:
            yield "const int candidate = step;"
        if self.control:
            # A forced candidate has to meet all conditions, so that tuning sees where it fails to.
            yield "if (forced >= 0 && launch.indices[candidate] != forced) continue;"
        if self._numeric():
            yield f"const Int* numbers = numbers_{self.name}[candidate];"
            yield "(void)numbers;"
        yield from self._conditions()
        yield "fate.is_allowed = true;"
        for at, constant in enumerate(self.resolved.decided):
            if constant.expression is not None:
                target = f"fate.constants[{at}]"
                yield from self._evaluated(constant.expression, target, f"{constant.name}: ")
        yield (
            "const int variant = find_variant(launch, call.combination, candidate, fate.constants);"
        )
        yield "if (variant < 0) continue;"
        yield "fate.is_compiled = true;"
        yield "fate.variant = variant;"
        yield "const uint64_t best = resolve(launch, variant, device);"
        yield "if (KBUILD_UNLIKELY(best == kKnown)) continue;"
        yield from self._values()
        yield "const Image* image = choose_image(best, divisible, ones);"
        yield "if (KBUILD_UNLIKELY(image == nullptr)) {"
        yield "  fate.is_unaligned = true;"
        yield "  continue;"
        yield "}"
        if self._is_split:
            yield "if (pass == 0 && archs[image->arch].kind == kPtx) continue;"
        yield "Int grid[3] = {1, 1, 1};"
        for at, expression in enumerate(self.resolved.launch.grid):
            yield from self._evaluated(expression, f"grid[{at}]", "grid: ")
        yield from self._described()
        yield "start(launch, *image, device, grid, values, described);"
        yield "return;"

    def _conditions(self) -> Iterator[str]:
        every = self.resolved.launch.candidates
        conditions = {at: every[index].when for at, index in enumerate(self.resolved.candidates)}
        if not any(when is not None for when in conditions.values()):
            return
        yield "Int fits = 1;"
        yield "switch (candidate) {"
        for at, when in conditions.items():
            if when is not None:
                yield f"  case {at}:"
                yield from (f"    {line}" for line in self._evaluated(when, "fits", "when: "))
                yield "    break;"
        yield "  default:"
        yield "    break;"
        yield "}"
        yield "if (fits == 0) continue;"

    def _values(self) -> Iterator[str]:
        slots = self.resolved.slots
        bound = self.resolved.bound
        yield f"Value values[{max(1, len(slots))}];"
        yield "Bits divisible = 0, ones = 0;"
        for at, slot in enumerate(slots):
            yield from self._value(at, slot, bound.source(slot.argument))
        images = [unit_image.image for unit_image in self.resolved.compiled]
        for at, slot in enumerate(slots):
            if not slot.is_judged:
                continue
            # Bits that no image asks about are not computed: calls are made often.
            if any(slot.argument in image.divisible for image in images):
                yield f"divisible |= Bits((values[{at}].i & 15) == 0) << {at};"
            if any(slot.argument in image.ones for image in images):
                yield f"ones |= Bits(values[{at}].i == 1) << {at};"

    def _described(self) -> Iterator[str]:
        """Statements that list the tensors of descriptors, in the order of the values."""
        if not any(unit_image.image.tensor_maps for unit_image in self.resolved.compiled):
            yield "const Tensor* const* described = nullptr;"
            return
        bound = self.resolved.bound
        sources = [bound.source(slot.argument) for slot in self.resolved.slots]
        tensors = (f"&call.t_{s.name}" if s.kind == "descriptor" else "nullptr" for s in sources)
        yield f"const Tensor* const described[] = {{{', '.join(tensors)}}};"

    def _value(self, at: int, slot: Slot, source: ArgumentSource) -> Iterator[str]:
        target = f"values[{at}]"
        if slot.form == "t":
            yield f"{target}.p = static_cast<Tensor*>(&call.t_{source.name});"
        elif source.kind in ("tensor", "descriptor"):
            yield f"{target}.p = call.t_{source.name}.data;"
        elif source.kind == "float":
            if source.formula is not None:
                what = cxx_string(f"{self._what}: {slot.argument}: `{source.formula}`")
                yield f"checked.what = {what};"
            yield from _float(target, slot.form, self._names().floating(source))
        elif source.expression is not None:
            yield from self._evaluated(source.expression, f"{target}.i", f"{slot.argument}: ")
            yield from self._range(target, slot)
        else:
            raise ValueError(f"`{slot.argument}` is `{source}`, which no image takes")

    def _range(self, target: str, slot: Slot) -> Iterator[str]:
        """Statements that check that a value fits the narrowest type in which an image takes it."""
        images = [unit_image.image for unit_image in self.resolved.compiled]
        types = {p.type for i in images for p in i.parameters if p.name == slot.argument}
        narrow = sorted(types & _RANGES.keys(), key=lambda kind: (int(kind[1:]), kind))
        if narrow:
            low, high = _RANGES[narrow[0]]
            name, kind = cxx_string(slot.argument), cxx_string(narrow[0])
            yield (
                f"if (KBUILD_UNLIKELY({target}.i < {low} || {target}.i > {high})) "
                f"too_large(launch, {name}, {target}.i, {kind});"
            )

    def arrays(self, images: ImageTables) -> str:
        """C++ arrays that the launch's entry points to; adds the images to `images`."""
        indices: list[int] = []
        spans = []
        slots, bound = self.resolved.slots, self.resolved.bound
        for variant in self.resolved.variants:
            image_indices = [
                images.add(unit_image, slots, bound, self.resolved.tier(unit_image))
                for unit_image in variant.compiled
            ]
            spans.append(f"{{{len(indices)}, {len(image_indices)}}}")
            indices += image_indices
        variants = self.resolved.variants
        constants = [", ".join(map(str, v.constants)) for v in variants if v.constants]
        name, candidates = self.name, map(str, self.resolved.candidates)
        names = (cxx_string(constant.name) for constant in self.resolved.decided)
        parts = [
            cxx_array("int16_t", f"{name}_indices", candidates, per_line=16),
            cxx_array("uint32_t", f"{name}_spans", map(str, self.resolved.spans()), per_line=16),
            cxx_array("Variant", f"{name}_variants", spans, per_line=8),
            cxx_array("uint32_t", f"{name}_images", map(str, indices), per_line=16),
            cxx_array("Int", f"{name}_constants", constants),
            cxx_array("char* const", f"{name}_constant_names", names),
            *self._constant_texts(),
            # C++ has no arrays without elements.
            f"Quick {name}_quick[{max(1, len(variants))}];\n",
        ]
        if self.rows:
            parts += [row_arrays(name, self.rows), f"Remembered {name}_remembered[kRemembered];\n"]
        if self.control:
            parts.append(f"std::atomic<int> {name}_forced{{-1}};\n")
        return "".join(parts)

    def _constant_texts(self) -> Iterator[str]:
        """C++ arrays with the texts of constants' values, for messages about calls."""
        rows = []
        for at, constant in enumerate(self.resolved.decided):
            rows.append(f"{self.name}_words_{at}" if constant.values else "nullptr")
            if constant.values:
                texts = (
                    cxx_string(value.name if isinstance(value, DtypeName) else repr(value))
                    for value in constant.values
                )
                yield cxx_array("char* const", rows[-1], texts)
        yield cxx_array("char* const* const", f"{self.name}_words", rows)

    def entry(self) -> str:
        """The launch's item of the C++ array `launches`."""
        name, resolved = self.name, self.resolved
        conditions = [f"`{c.when}`" for c in resolved.launch.candidates if c.when is not None]
        kinds = ("rows", "keys", "remembered")
        rows, keys, remembered = (f"{name}_{k}" if self.rows else "nullptr" for k in kinds)
        # In the order of the members of `Launch` in `images.h`, which this initialises.
        fields = (
            cxx_string(resolved.op.name),
            cxx_string(resolved.bound.function),
            str(len(resolved.candidates)),
            f"{name}_indices",
            str(len(resolved.launch.candidates)),
            f"{name}_spans",
            f"{name}_variants",
            str(len(resolved.variants)),
            f"{name}_images",
            f"{name}_quick",
            f"{name}_constants",
            str(len(resolved.decided)),
            f"{name}_constant_names",
            f"{name}_words",
            cxx_string(", ".join(conditions)),
            rows,
            str(len(self.rows)),
            keys,
            str(len(resolved.op.key)),
            remembered,
            f"&{name}_forced" if self.control else "nullptr",
        )
        return "{" + ", ".join(fields) + "}"


def _float(target: str, form: str, value: str) -> Iterator[str]:
    # The value is a union: a narrow float would leave its other bytes undefined.
    yield f"{target}.i = 0;"
    if form in _HALVES:
        yield f"{target}.f16 = {_HALVES[form]}({value});"
    elif form == "f32":
        yield f"{target}.f32 = float({value});"
    else:
        yield f"{target}.f64 = {value};"


def measured_on(tables: Sequence[TunedTable]) -> str:
    """C++ table of the GPU models that the tuned tables are for."""
    rows = [f"{{{cxx_string(table.device)}, {cxx_string(table.arch)}}}" for table in tables]
    return cxx_array("MeasuredOn", "measured_on", rows)


def rows_of(
    resolved: ResolvedLaunch, index: int, tables: Sequence[TunedTable]
) -> list[tuple[int, ...]]:
    """Rows of (table, dtypes, candidate, *key); candidate is -1 without images."""
    op = resolved.op
    rows = []
    for table_index, table in enumerate(tables):
        for row in table.of(op.kernel, op.name, index):
            at = row.among(resolved.launch.candidates)
            place = resolved.candidates.index(at) if at in resolved.candidates else -1
            if len(row.key) == len(op.key):
                rows += [(table_index, dtypes, place, *row.key) for dtypes in _dtype_sets(op, row)]
    return rows


def row_arrays(name: str, rows: Sequence[tuple[int, ...]]) -> str:
    """C++ arrays `NAME_rows` and `NAME_keys`."""
    heads = [f"{{{table}, {dtypes}, {candidate}}}" for table, dtypes, candidate, *_ in rows]
    keys = [", ".join(map(cxx_int64, row[3:])) for row in rows if row[3:]]
    return cxx_array("Row", f"{name}_rows", heads) + cxx_array("Int", f"{name}_keys", keys)


def _dtype_sets(op: OpSpec, row: TunedRow) -> Iterator[int]:
    """Yield the indices of the sets of dtypes that a row is for."""
    wanted = dict(row.dtypes)
    for index, dtypes in enumerate(op.dtype_sets()):
        if all(dtypes.get(tensor) == dtype for tensor, dtype in wanted.items()):
            yield index
