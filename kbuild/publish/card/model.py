"""The facts of a card, which are read and never made up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kbuild.project.variant import Variant
from kbuild.system.errors import KbuildError


class CardError(KbuildError):
    """The card cannot be filled, or is not fit to be read by others yet."""

    kind = "card"


@dataclass(frozen=True)
class VariantFacts:
    """One row of the table of variants."""

    name: str
    variant: Variant | None
    """None when the name says nothing."""
    archs: tuple[str, ...] = ()
    size: int | None = None
    """Bytes of all files; None when the variant is not built yet."""
    build: str = ""
    """The tail of the kernel's id: which state of the source it is."""
    dirty: bool = False
    """True when its source was not what the commit holds."""
    by_dirty_builder: bool = False
    """True when the tool that built it was not what its own commit holds."""
    fault: str = ""
    """Check that it fails, with the message; empty when none is known of."""
    overruled: tuple[tuple[str, str], ...] = ()
    """Checks that found errors which the author overruled, with reasons."""
    not_run: bool = False
    """True when no machine of its processor has loaded it."""
    licensed: tuple[tuple[str, str], ...] = ()
    """Licences of others' code that is linked in: the code, and where its licence can be read."""


@dataclass(frozen=True)
class Timing:
    """One workload of a benchmark; times in milliseconds per call."""

    workload: str
    time: float
    """The median, or the mean where that alone is known."""
    deviation: float | None = None
    iterations: int | None = None
    reference: float | None = None
    """The same of what the kernel is compared with."""
    ratio: float | None = None
    """The speed-up that was measured call by call; None when it follows from the times."""

    @property
    def speedup(self) -> float | None:
        """The reference's time over the kernel's."""
        if self.ratio is not None:
            return self.ratio
        return self.reference / self.time if self.reference is not None else None


@dataclass(frozen=True)
class BenchmarkRun:
    """The results of one benchmark run on one machine."""

    name: str
    """The file's name without `.json`."""
    machine: str
    """The GPU, or the CPU where there is none."""
    software: str
    """Torch and what it computes with, e.g. `Torch 2.13.0, CUDA 13.0`."""
    build: str
    """The tail of the id of the kernel that was measured; empty when the file does not say."""
    timings: tuple[Timing, ...]


@dataclass(frozen=True)
class PublicFunction:
    """A function, a method, or a name whose definition is not in the package."""

    name: str
    parameters: tuple[str, ...] | None = None
    """Parameters of the signature, with its `/` and `*`; None without a definition."""
    required: tuple[str, ...] = ()
    """The arguments that a call must give: `x`, `n=n`."""
    returns: str = ""
    """The annotation; empty without one."""
    doc: str = ""
    """The docstring without its indentation."""

    @property
    def signature(self) -> str:
        """`relu(x: Tensor, *, inplace: bool = False) -> Tensor`; `relu(...)` when unknown."""
        if self.parameters is None:
            return f"{self.name}(...)"
        arrow = f" -> {self.returns}" if self.returns else ""
        return f"{self.name}({', '.join(self.parameters)}){arrow}"


@dataclass(frozen=True)
class PublicClass:
    """A class: its constructor and its public members."""

    name: str
    constructor: PublicFunction | None = None
    """None when a base outside the package decides."""
    methods: tuple[PublicFunction, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Values of the class's body, as source text."""
    doc: str = ""


@dataclass(frozen=True)
class PublicApi:
    """Everything that a package makes public, in the order in which it lists it."""

    names: tuple[str, ...] = ()
    functions: tuple[PublicFunction, ...] = ()
    classes: tuple[PublicClass, ...] = ()
    layers: tuple[PublicClass, ...] = ()
    """Classes of the module `layers`, when that is public."""
    doc: str = ""

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, on one line."""
        return " ".join(self.doc.strip().partition("\n\n")[0].split())


@dataclass(frozen=True)
class CardFacts:
    """Everything that a card may tell."""

    repo_id: str
    """`org/kernel` on the Hub."""
    name: str
    version: int
    license: str
    """SPDX identifier or expression of `build.toml`."""
    branch: str = ""
    """The branch that it is published to, when that is not `v<version>`."""
    public_api: PublicApi = field(default_factory=PublicApi)
    variants: tuple[VariantFacts, ...] = ()
    python_depends: tuple[str, ...] = ()
    """Python packages that the kernel imports."""
    kernel_depends: tuple[str, ...] = ()
    """Other kernels that it loads, as repositories."""
    has_benchmark: bool = False
    runs: tuple[BenchmarkRun, ...] = ()
    upstream: str | None = None
    source: str | None = None

    @property
    def load(self) -> str:
        """The argument of `get_kernel` that names what is published."""
        if self.branch and self.branch != f"v{self.version}":
            return f'revision="{self.branch}"'
        return f"version={self.version}"

    @property
    def revision(self) -> str:
        """The branch that it is published to."""
        return self.branch or f"v{self.version}"
