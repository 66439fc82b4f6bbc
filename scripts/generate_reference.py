"""Write the generated pages of docs/reference, or check that they are up to date.

`build-toml.md` and `build.schema.json` come from the models, `checks.md` from the registry of
checks.

python scripts/generate_reference.py            write
python scripts/generate_reference.py --check    fail when a page is stale
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kbuild.cli.generate_docs import checks_markdown  # noqa: E402
from kbuild.config.schema import json_schema, reference_markdown  # noqa: E402
from kbuild.project import backend_catalog  # noqa: E402
from kbuild.runtime.files import replace_atomically  # noqa: E402

REFERENCE = ROOT / "docs" / "reference"


def main() -> int:
    """Exit code 1 with `--check` when a page differs from what would be written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail when stale")
    arguments = parser.parse_args()
    schema = json.dumps(json_schema(backend_catalog()), indent=1) + "\n"
    pages = {
        "build-toml.md": reference_markdown(backend_catalog()),
        "build.schema.json": schema,
        "checks.md": checks_markdown(),
    }
    stale = [name for name, text in pages.items() if not _holds(REFERENCE / name, text)]
    for name in stale:
        if arguments.check:
            print(f"docs/reference/{name} is stale: run {Path(__file__).name}", file=sys.stderr)
        else:
            replace_atomically(REFERENCE / name, pages[name].encode())
    return 1 if stale and arguments.check else 0


def _holds(page: Path, text: str) -> bool:
    return page.is_file() and page.read_bytes() == text.encode()


if __name__ == "__main__":
    sys.exit(main())
