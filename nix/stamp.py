"""Put the commits of the sources and of kbuild into a variant's `metadata.json`: `stamp.py FILE`.

`$STATES` is JSON: `{"kernel": {"commit": ..., "dirty": ...}, "builder": ...}`, null where Nix knows
no commit.

Keys are as in `kbuild.plan.metadata.Provenance`; what is there already stays as it is.
"""

import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Rewrite the file."""
    states = json.loads(os.environ["STATES"])
    file = Path(sys.argv[1])
    metadata = json.loads(file.read_text("utf-8"))
    made = metadata["provenance"]
    if states["builder"]:
        toolchain = made["kernel-builder"].pop("toolchain", None)
        made["kernel-builder"] |= states["builder"]  # the toolchain comes last, as kbuild has it
        if toolchain:
            made["kernel-builder"]["toolchain"] = toolchain
    if states["kernel"]:
        made["kernel"] = states["kernel"]
    file.write_text(json.dumps(metadata, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
