"""Put the commit of the sources into a variant's `metadata.json`: `stamp.py FILE`, `$git` as JSON.

Keys are as in `kbuild.metadata.model.Provenance`; what is there already stays as it is.
"""

import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Rewrite the file when there is something to say."""
    state = json.loads(os.environ["git"])
    if state is None:
        return
    file = Path(sys.argv[1])
    metadata = json.loads(file.read_text("utf-8"))
    metadata["provenance"]["kernel"] = state
    file.write_text(json.dumps(metadata, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
