"""The public names for reading `[kernel.*]` sections in a DSL.

`read_section` reads a section and reports all of its errors at once. `bind` joins a launch with the
kernel function's own signature, `with_candidates` with what `@triton.autotune` lists. `fake_source`
writes the op's fake kernel for `torch.compile`.
"""

from kbuild.ops.binding import BoundLaunch, KernelParameter, bind, descriptor_parts
from kbuild.ops.candidates import with_candidates
from kbuild.ops.dialects import DIALECTS, Dialect
from kbuild.ops.fake_kernels import fake_source
from kbuild.ops.model import (
    ArgumentSource,
    Candidate,
    Constant,
    Dimension,
    DtypeRule,
    Launch,
    OpSpec,
    ShapeRule,
    TuneSpec,
)
from kbuild.ops.section import SectionReading, read_section

__all__ = [
    "DIALECTS",
    "ArgumentSource",
    "BoundLaunch",
    "Candidate",
    "Constant",
    "Dialect",
    "Dimension",
    "DtypeRule",
    "KernelParameter",
    "Launch",
    "OpSpec",
    "SectionReading",
    "ShapeRule",
    "TuneSpec",
    "bind",
    "descriptor_parts",
    "fake_source",
    "read_section",
    "with_candidates",
]
