"""Write docs/reference/build-toml.md from the models, or check that it is up to date.

python scripts/generate_reference.py            write
python scripts/generate_reference.py --check    fail when the page is stale
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kbuild.config.reference import reference_markdown  # noqa: E402
from kbuild.fileset import replace_atomically  # noqa: E402
from kbuild.project import catalog  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "build-toml.md"


def main() -> int:
    """Exit code 1 with `--check` when the page differs from what would be written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail when stale")
    arguments = parser.parse_args()
    text = reference_markdown(catalog()).encode()
    if PAGE.is_file() and PAGE.read_bytes() == text:
        return 0
    if arguments.check:
        print(f"{PAGE.relative_to(ROOT)} is stale: run {Path(__file__).name}", file=sys.stderr)
        return 1
    replace_atomically(PAGE, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
