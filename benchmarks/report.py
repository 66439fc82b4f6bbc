"""How benchmark scripts print and keep their figures."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def save(name: str, result: Mapping[str, Any]) -> None:
    """Write `results/<name>.json` with date, machine and command."""
    record = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": machine(),
        "command": f"python benchmarks/{Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}".strip(),
        **result,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


def table(targets: Sequence[Mapping[str, Any]]) -> str:
    """Figures beside their targets."""
    lines = [f"{'what':<44} {'value':>9} {'target':>9}"]
    for row in targets:
        verdict = "ok" if row["value"] <= row["target"] else "MISSED"
        lines.append(f"{row['what']:<44} {row['value']:>9.3f} {row['target']:>9.3f}  {verdict}")
    return "\n".join(lines)
