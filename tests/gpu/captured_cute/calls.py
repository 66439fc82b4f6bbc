"""The calls that are recorded; without Torch and a GPU."""

import cutlass
from scale_ops.scale import Mode, compiled_scale
from scale_ops.tuned import tuned_scale

for dtype in (cutlass.Float16, cutlass.BFloat16):
    compiled_scale(dtype, 64, Mode.PLAIN)
    compiled_scale(dtype, 64, Mode.SQUARE, 2)
tuned_scale(cutlass.Float16, 64)
