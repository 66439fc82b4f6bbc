"""Builds on a cluster: workers fill this machine's cache, and the build then runs as always.

`jobs` says what travels, `worker` runs on the workers, `executor` hands out units from the machine
that builds, `fill` verifies what comes back. Dask carries the messages, and is imported nowhere
but in functions that need it.
"""
