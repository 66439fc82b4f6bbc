"""A function whose tuner chooses the number of threads."""

from scale_ops.scale import Mode, compiled_scale
from scale_ops.tuner import Config, Tuner


def scale_with(dtype, columns: int, threads: int):
    return compiled_scale(dtype, columns, Mode.PLAIN, threads=threads)


tuned_scale = Tuner(
    scale_with, ("dtype", "columns"), [Config(threads=threads) for threads in (32, 64, 96)]
)
