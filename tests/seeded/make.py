"""Makes the bad variants that kbuild's checks have to find, and the good ones beside them.

    python tests/seeded/make.py FOLDER [NAME ...]

Each case becomes a folder below FOLDER, the variant in it (`kbuild check FOLDER/rpath/*-linux`).
`seeded_table.py` says what is wrong with each. Needs g++ and this repository's kbuild.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.seeded.seeded_recipe import Case
from tests.seeded.seeded_table import CASES, GOOD_ONES
from tests.seeded.seeded_variants import make_case


def good_cases() -> list[Case]:
    """The good variants, made as the bad ones are."""
    return [Case(f"good {name}", "nothing", "", "", recipe) for name, recipe in GOOD_ONES.items()]


def main() -> int:
    """Exit code 2 for a name that there is not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="these alone (default: all)")
    arguments = parser.parse_args()
    known = {case.name: case for case in (*good_cases(), *CASES)}
    if unknown := sorted(set(arguments.names) - set(known)):
        parser.error(f"no case is named {', '.join(unknown)}")
    for name in arguments.names or known:
        made = make_case(known[name], arguments.folder)
        print(f"{made}: {known[name].wrong}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
