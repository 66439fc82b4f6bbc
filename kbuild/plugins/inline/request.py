"""A call of `load_inline` in one form; computed for every call, also unchanged ones."""

from __future__ import annotations

import hashlib
import json
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

_STABLE_HEADER = re.compile(r"torch/csrc/stable/|torch/headeronly/")
_DIGEST = 12
ARCHS_VARIABLE = "TORCH_CUDA_ARCH_LIST"


class InlineSource(NamedTuple):
    """A string of source code."""

    label: str
    """Name of the source in messages, e.g. `cpp_sources[0]`."""
    text: str


@dataclass(frozen=True)
class InlineRequest:
    """The arguments of `load_inline`."""

    name: str
    backend: str
    cpp: tuple[str, ...]
    cuda: tuple[str, ...]
    sycl: tuple[str, ...]
    functions: Mapping[str, str] | None
    """Docstring by function; None when the sources say what is bound."""
    cflags: tuple[str, ...]
    cuda_cflags: tuple[str, ...]
    sycl_cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    include_paths: tuple[str, ...]
    implicit_headers: bool
    triton: tuple[str, ...] = ()
    """Python source code: kernels in Triton, and functions that launch them."""
    captures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Functions of Python that are compiled ahead of time, with what their arguments are."""
    triton_fallback: bool = True
    """True to keep a function as it is that cannot be captured."""
    triton_version: str = ""
    """Release of Triton that compiles it ahead of time."""
    archs: tuple[str, ...] = ()
    """Archs to compile for; empty for this machine's GPUs."""
    generation: int = 0
    """Number of versions of this text that the process has loaded, with edited headers."""

    @property
    def digest(self) -> str:
        """Names the content: the same for the same arguments."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]

    @property
    def kernel_name(self) -> str:
        """The name as `general.name` takes it."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:64].strip("-")
        is_name = slug[:1].isalpha() and len(slug) > 1 and not keyword.iskeyword(slug)
        return slug if is_name else f"inline-{slug}".strip("-")

    @property
    def python_name(self) -> str:
        """The package's name."""
        return self.kernel_name.replace("-", "_")

    @property
    def namespace(self) -> str:
        """The namespace of the ops: no other content has it."""
        return f"{self.python_name}_{self.digest}"

    @property
    def labelled_cpp(self) -> tuple[InlineSource, ...]:
        """The C++ sources as messages name them."""
        return _labelled("cpp_sources", self.cpp)

    @property
    def labelled_device(self) -> tuple[InlineSource, ...]:
        """The device sources as messages name them."""
        kind = "cuda_sources" if self.cuda else "sycl_sources"
        return _labelled(kind, self.cuda or self.sycl)

    @property
    def labelled_triton(self) -> tuple[InlineSource, ...]:
        """The Python sources as messages name them."""
        return _labelled("triton_sources", self.triton)

    @property
    def is_compiled(self) -> bool:
        """False when there is Python source code alone."""
        texts = (*self.cpp, *self.cuda, *self.sycl)
        return not self.triton or any(text.strip() for text in texts)

    @property
    def is_stable(self) -> bool:
        """True when the sources use Torch's stable ABI."""
        return any(_STABLE_HEADER.search(text) for text in (*self.cpp, *self.cuda, *self.sycl))


def _labelled(kind: str, texts: Sequence[str]) -> tuple[InlineSource, ...]:
    if len(texts) == 1:
        return (InlineSource(kind, texts[0]),)
    return tuple(InlineSource(f"{kind}[{at}]", text) for at, text in enumerate(texts))
