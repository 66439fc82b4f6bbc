"""Whether the frameworks that an interpreter has are those that a plan requires."""

from __future__ import annotations

import re

from kbuild.errors import ToolchainError
from kbuild.plan import Requirements
from kbuild.toolchains.facts import Facts
from kbuild.version import Version

# Where Torch's version file says which device it was built for, by backend.
_FLAVOURS = {"cuda": "cuda", "rocm": "hip", "xpu": "xpu"}


def refuses_frameworks(requires: Requirements, facts: Facts) -> str | None:
    """Why the interpreter does not do, in one sentence; None when it does."""
    return _refuses_torch(requires, facts) or _refuses_tvm_ffi(requires, facts)


def framework_versions(requires: Requirements, facts: Facts) -> tuple[tuple[str, str], ...]:
    """What is required, in the releases that the interpreter has, for the record."""
    asked = (("torch", requires.torch, "torch"), ("apache-tvm-ffi", requires.tvm_ffi, "tvm_ffi"))
    return tuple((name, facts[key]["version"]) for name, wanted, key in asked if wanted)


def release(version: str) -> Version:
    """`2.13` of `2.13.0+cpu`.

    Raises:
        ToolchainError: it starts with no such number.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        raise ToolchainError(f"`{version}` is not a version that kbuild understands")
    return Version((int(match[1]), int(match[2])))


def _refuses_torch(requires: Requirements, facts: Facts) -> str | None:
    if requires.torch is None:
        return None
    wanted, torch = Version.parse(requires.torch), facts["torch"]
    python, exact = facts["python"]["executable"], requires.torch_exact
    if torch is None:
        return f"needs Torch {wanted}; {python} has none"
    found, has = release(torch["version"]), f"{python} has {torch['version']}"
    if found != wanted and (exact or found < wanted):
        return f"needs Torch {wanted}{'' if exact else ' or newer'}; {has}"
    flavour = _FLAVOURS.get(requires.backend)
    if exact and flavour and not torch[flavour]:
        return f"needs a {requires.backend} build of Torch {wanted}; {has}"
    return None


def _refuses_tvm_ffi(requires: Requirements, facts: Facts) -> str | None:
    if requires.tvm_ffi is None:
        return None
    wanted, found = Version.parse(requires.tvm_ffi), facts["tvm_ffi"]
    if found is None or not found["version"]:
        return f"needs apache-tvm-ffi {wanted}; {facts['python']['executable']} has none"
    fits = release(found["version"]) == wanted
    return None if fits else f"needs apache-tvm-ffi {wanted}; found {found['version']}"
