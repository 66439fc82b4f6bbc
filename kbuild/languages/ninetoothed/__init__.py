"""Kernels in NineToothed: what `ninetoothed.build` is given becomes candidates of a Triton kernel.

The worker runs the code generator for each entry of `configs`, and joins what it writes to one
Triton function with constants. `complete` puts what follows from that into the op: grid, arguments,
candidates, assumptions; everything behind it is Triton's path.
"""

from kbuild.languages.ninetoothed.language import NineToothed

__all__ = ["NineToothed"]
