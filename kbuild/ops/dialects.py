"""How the DSLs differ where a section is read: launch options, grids, autotuning, CPU support."""

from __future__ import annotations

from dataclasses import dataclass

_TRITON = (
    *("num_warps", "num_stages", "num_ctas", "maxnreg"),
    *("waves_per_eu", "matrix_instr_nonkdim", "kpack", "schedule_hint"),
    *("enable_fp_fusion", "launch_pdl", "launch_cooperative_grid"),
)


@dataclass(frozen=True)
class Dialect:
    """The rules of one language."""

    name: str
    distribution: str
    """What `toolchain` has to pin."""
    options: tuple[str, ...] = ()
    """Keys of a candidate that are launch options, not constants of the kernel."""
    needs_grid: bool = True
    """False where the kernel itself says how it is launched."""
    own_candidates: bool = False
    """True when a kernel may bring its candidates: `configs = "autotune"`."""
    on_cpu: bool = False
    """True when kernels are compiled for the host's processor, too."""
    structured: bool = False
    """True when kernels take tuples and tensor descriptors."""
    also: tuple[str, ...] = ()
    """Further distributions that `toolchain` has to pin."""
    settled: tuple[str, ...] = ()
    """Keys of a launch that the kernel says itself; it brings its candidates, too."""
    shaped: bool = False
    """True when kernels take whole tensors, whose sizes and strides images may assume things of;
    tuples as well."""


DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect("triton", "triton", _TRITON, own_candidates=True, structured=True),
        Dialect(
            "ninetoothed",
            "ninetoothed",
            ("num_warps", "num_stages"),
            needs_grid=False,
            own_candidates=True,
            also=("triton",),
            settled=("configs", "matrix", "grid", "divisible", "ones", "int64"),
        ),
        Dialect("cute", "nvidia-cutlass-dsl", needs_grid=False, shaped=True),
        Dialect("tilelang", "tilelang", needs_grid=False, own_candidates=True, on_cpu=True),
    )
}
"""Every language that is not C++, by name."""
