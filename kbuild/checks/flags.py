"""No compiler flag makes code for the machine that builds, of which users have another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from kbuild.checks.base import Finding, Severity

FLAG_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
"""Variables whose flags nvcc adds to those of the project; `CXXFLAGS` does not reach a build."""
_WITH_VALUE = ("-arch", "--gpu-architecture", "-march", "-mcpu", "-mtune", "--offload-arch")
_START, _END = r"(?:^|[,=\s\"'])", r"(?=$|[,\s\"'])"
_KINDS: tuple[tuple[str, Severity, str, str], ...] = (
    (
        r"-m(?:arch|cpu)=native|-xHost|-xHOST",
        "error",
        "makes code for the CPU of the machine that builds: others may crash",
        "name instruction sets that all users have, e.g. `-mavx2`, or choose at run time",
    ),
    (
        r"-mtune=native",
        "warning",
        "makes another code on each machine that builds",
        "name a CPU, e.g. `-mtune=generic`",
    ),
    (
        r"(?:-arch|--gpu-architecture)=native",
        "error",
        "adds code for the GPU of the machine that builds",
        "name the archs with `cuda-capabilities`, and drop the flag",
    ),
    (
        r"(?:-arch|--gpu-architecture)=all(?:-major)?",
        "error",
        "adds code for GPUs that the project does not name",
        "name the archs with `cuda-capabilities`, and drop the flag",
    ),
    (
        r"--offload-arch=native",
        "error",
        "adds code for the GPU of the machine that builds",
        "name the archs with `rocm-archs`, and drop the flag",
    ),
)
"""Pattern of a flag, what a finding on it is, says, and advises."""


def machine_flags(flags: Sequence[str]) -> Iterator[tuple[int, Finding]]:
    """Findings on flags, each with the place of its flag; `where` is empty."""
    joined = [
        f"{before}={flag}" if before in _WITH_VALUE else flag
        for before, flag in pairwise(("", *flags))
    ]
    for place, flag in enumerate(joined):
        for pattern, severity, what, hint in _KINDS:
            if match := re.search(rf"{_START}({pattern}){_END}", flag):
                yield place, Finding("flags", severity, "", f"`{match[1]}` {what}", hint)


def environment_findings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Findings on variables with flags; `where` is the variable."""
    for name in FLAG_VARIABLES:
        for _, finding in machine_flags(environ.get(name, "").split()):
            yield Finding("flags", finding.severity, name, finding.what, finding.hint)
