"""`metadata.json` as it is known before the build: no digest yet."""

from __future__ import annotations

import json
from typing import Any

from kbuild.plan import VariantPlan


def metadata_text(plan: VariantPlan) -> str:
    """The file's text, keys in the order of the format."""
    kernel = plan.kernel
    backend: dict[str, Any] = {"type": plan.backend}
    if plan.archs:
        backend["archs"] = list(plan.archs)
    data = {
        "name": kernel.name,
        "id": plan.ops_name,
        "version": kernel.version,
        "license": kernel.license,
        "upstream": kernel.upstream,
        "source": kernel.source,
        "python-depends": list(kernel.python_depends),
        "kernel-depends": [dict(depend) for depend in kernel.kernel_depends],
        "backend": backend,
    }
    present = {key: value for key, value in data.items() if value is not None}
    return json.dumps(present, indent=2, ensure_ascii=False) + "\n"
