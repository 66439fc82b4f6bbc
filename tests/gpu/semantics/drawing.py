"""Random arguments: numbers, and tensors that lie in memory in every way that Torch has.

Everything of one call is made from one seed. `copied` gives the same call once more, with every
storage its own copy: what shared memory shares it again, at the same offsets.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

SIZES = (0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257)
LENGTHS = (*SIZES, 511, 512, 513, 1000, 1024, 1025, 2048, 4095, 4096, 4097, 8192, 10_007, 65_536)
NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.25, 1e-3, 1e30, math.inf, -math.inf, math.nan)
LAYOUTS = ("plain", "plain", "offset", "offset", "any", "any", "expanded")
GUARD = 48
"""Elements around each tensor that nothing may touch."""


class Draw:
    """One case's choices."""

    def __init__(self, seed: str, device: str = "cuda") -> None:
        self.random = random.Random(seed)
        self.device = device
        self.generator = torch.Generator(device).manual_seed(self.random.getrandbits(48))
        self.words: list[str] = []
        """What was drawn, to be told when it fails."""

    def choose(self, options: Sequence[Any]) -> Any:
        return self.random.choice(options)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def size(self, most: int = 257) -> int:
        return self.choose([one for one in SIZES if one <= most])

    def length(self, most: int = 65_536) -> int:
        return self.choose([one for one in LENGTHS if one <= most])

    def shape(self, most: int = 3) -> tuple[int, ...]:
        """Any number of dimensions; few elements where there are many."""
        if self.chance(0.4):
            return (self.length(),)
        rank = self.random.randint(0, most)
        return tuple(self.size(257 if rank < 3 else 33) for _ in range(rank))

    def number(self) -> float:
        return self.choose(NUMBERS) if self.chance(0.7) else self.random.gauss(0, 10)

    def whole(self) -> float:
        """A small number for sums without rounding."""
        return float(self.random.randint(-8, 8))

    def tensor(
        self,
        *shape: int,
        dtype: torch.dtype,
        layout: str | None = None,
        values: Callable[[torch.Tensor], None] | None = None,
        written: bool = False,
    ) -> torch.Tensor:
        """A tensor with random elements, in random memory around it.

        Args:
            shape: its sizes.
            dtype: of its elements.
            layout: one of LAYOUTS; drawn when absent.
            values: fills in the elements.
            written: no two elements share memory.
        """
        layout = layout or self.choose(LAYOUTS)
        if written and layout == "expanded":
            layout = "any"
        strides, extent = self._strides(shape, layout)
        offset = self.random.choice((1, 2, 3, 5, 8)) if layout != "plain" else 16
        total = offset + extent + GUARD
        storage = torch.empty(total, dtype=dtype, device=self.device)
        self.fill(storage)
        made = storage.as_strided(shape, strides, offset)
        if values is not None and made.numel():
            each = made  # what is expanded has each element once
            for axis in (axis for axis, stride in enumerate(strides) if stride == 0):
                each = each.narrow(axis, 0, 1)
            values(each)
        self.words.append(f"{dtype} {list(shape)} strides {list(strides)} at {offset} ({layout})")
        return made

    def _strides(self, shape: Sequence[int], layout: str) -> tuple[tuple[int, ...], int]:
        order = list(reversed(range(len(shape))))
        plain = layout in ("plain", "offset")
        if not plain:
            self.random.shuffle(order)
        strides, step = [0] * len(shape), 1
        expanded = self.random.choice(order) if order and layout == "expanded" else -1
        for axis in order:
            if axis == expanded:
                continue
            step *= 1 if plain else self.random.choice((1, 1, 1, 2, 3))
            strides[axis] = step
            step = step * max(shape[axis], 1) + (0 if plain else self.random.choice((0, 0, 1, 8)))
        far = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True) if size)
        return tuple(strides), max(far, 0) + 1

    def fill(self, tensor: torch.Tensor) -> None:
        """Random elements: small whole numbers, whose sums are exact; all bits for integers."""
        if tensor.dtype == torch.bool:
            tensor.random_(0, 2, generator=self.generator)
        elif tensor.is_floating_point():
            tensor.random_(-8, 9, generator=self.generator)
        else:
            limits = torch.iinfo(tensor.dtype)
            tensor.random_(limits.min, limits.max, generator=self.generator)

    def normal(self, tensor: torch.Tensor) -> None:
        """As `values`: numbers with all their digits, and now and then no number."""
        drawn = torch.randn(tensor.shape, generator=self.generator, device=self.device)
        if self.chance(0.3):
            places = [self.random.randrange(drawn.numel()) for _ in range(3)]
            drawn.view(-1)[places] = torch.tensor([self.number() for _ in places]).to(drawn)
        tensor.copy_(drawn)

    def between(self, low: int, high: int) -> Callable[[torch.Tensor], None]:
        """As `values`: integers from `low` up to `high`, exclusive."""

        def fill(tensor: torch.Tensor) -> None:
            drawn = torch.randint(
                low, high, tensor.shape, generator=self.generator, device=self.device
            )
            tensor.copy_(drawn)

        return fill

    def distinct(self, rows: int) -> Callable[[torch.Tensor], None]:
        """As `values`: places among `rows`, each at most once; others are out of range."""

        def fill(tensor: torch.Tensor) -> None:
            places = list(range(rows))
            self.random.shuffle(places)
            outside = (-1, -7, rows, rows + 5)
            wanted = [
                places.pop() if places and self.chance(0.7) else self.random.choice(outside)
                for _ in range(tensor.numel())
            ]
            tensor.copy_(torch.tensor(wanted, device=self.device).reshape(tensor.shape))

        return fill

    def pair(
        self, length: int, dtype: torch.dtype, layout: str | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Two vectors: apart, the same one, or side by side in the same memory."""
        kind = self.choose(("apart", "apart", "same", "halves", "interleaved"))
        self.words.append(kind)
        if kind == "apart":
            first, second = (
                self.tensor(length, dtype=dtype, layout=layout, written=True) for _ in range(2)
            )
            return first, second
        if kind == "same":
            one = self.tensor(length, dtype=dtype, layout=layout, written=True)
            return one, one if self.chance(0.5) else one.view_as(one)
        both = self.tensor(2 * length, dtype=dtype, layout=layout or "offset", written=True)
        if kind == "interleaved" and layout is None:
            return both[0::2], both[1::2]
        return both[:length], both[length:]


def copied(values: Iterable[Any]) -> list[Any]:
    """The same arguments in other memory; tensors that share memory share it again."""
    storages: dict[int, torch.Tensor] = {}
    return [_copied(one, storages) if isinstance(one, torch.Tensor) else one for one in values]


def _copied(tensor: torch.Tensor, storages: dict[int, torch.Tensor]) -> torch.Tensor:
    whole = memory(tensor)
    key = whole.data_ptr()
    if key not in storages:
        storages[key] = whole.clone()
    storage = storages[key].untyped_storage()
    empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def memory(tensor: torch.Tensor) -> torch.Tensor:
    """Everything of a tensor's storage, as bytes."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(
        storage, 0, (storage.nbytes(),), (1,)
    )
