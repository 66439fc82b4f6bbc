"""What a kernel's author says of its ops, checked: frozen values for everything that follows.

`read_section` reads a `[kernel.*]` section and finds all that is wrong with it at once. `bind`
joins a launch with the kernel function's own signature when that is known, `with_candidates` with
what `@triton.autotune` lists. `fake_source` writes the
op's fake kernel for `torch.compile`.
"""

from kbuild.languages.spec.arguments import Bound, KernelParameter, bind
from kbuild.languages.spec.dialects import DIALECTS, Dialect
from kbuild.languages.spec.fake import fake_source
from kbuild.languages.spec.keep import with_candidates
from kbuild.languages.spec.parts import descriptor_parts
from kbuild.languages.spec.section import Reading, read_section
from kbuild.languages.spec.values import (
    Candidate,
    Constant,
    DtypeRule,
    Launch,
    OpSpec,
    ShapeRule,
    Size,
    Source,
    Tuning,
)

__all__ = [
    "DIALECTS",
    "Bound",
    "Candidate",
    "Constant",
    "Dialect",
    "DtypeRule",
    "KernelParameter",
    "Launch",
    "OpSpec",
    "Reading",
    "ShapeRule",
    "Size",
    "Source",
    "Tuning",
    "bind",
    "descriptor_parts",
    "fake_source",
    "read_section",
    "with_candidates",
]
