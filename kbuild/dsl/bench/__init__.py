"""Benchmarks of a project: measured on this machine, compared, and shown beside its limits.

`session` has them measured by the programs of `kbuild/dsl/tune/probes`; `results` is what follows
from the times.
"""
