"""The Nix files' own few functions, against what Python says."""

from __future__ import annotations

import json
import posixpath
import shlex
from itertools import product
from pathlib import PurePosixPath

import pytest

from kbuild.system.version import Version
from tests.support.nix.evaluation import flake, needs_nix, nix_bench

pytestmark = [pytest.mark.quick, needs_nix]
PARTS = ("a", "..", ".", "", "b c")
PATHS = ["/".join(parts) for count in (1, 2, 3, 4) for parts in product(PARTS, repeat=count)]
NAMES = ("a", "a.h", "a.tar.gz", ".a", ".a.h", "a.", "a b.c++", "d.x/a", "d.x/a.h", "d/.h", "é.cu")
NUMBERS = ("0", "2", "2.0", "2.00.0", "2.9", "2.10", "02.10.1", "13", "2025.3.2", "10.0")
TEXTS = ("a b", "it's", '$HOME `x` \\ "', "é", "", "-n", "'")
OUTPUTS = """
  answers = let asked = builtins.fromJSON (builtins.readFile ./asked.json); in {
    normal = map lib.normalPath asked.paths;
    suffixes = map lib.suffixOf asked.names;
    texts = map (text: lib.versionText (lib.version text)) asked.numbers;
    compact = map (text: lib.compact (lib.version text)) asked.numbers;
    older = let numbers = map lib.version asked.numbers; in
      map (a: map (b: lib.isOlder a b) numbers) numbers;
    noVersions = map lib.version [ "" "2." ".2" "2.x" "v2" " 2" 2 null [ ] ];
    quoted = map lib.quoted asked.texts;
    unique = lib.unique [ "b" "a" "b" "c" "a" ];
    after = [ (lib.after "/s+x (1)/" "/t/s+x (1)/d/s+x (1)/e") ];
  };
"""


@pytest.fixture(scope="module")
def answers():
    asked = {"paths": PATHS, "names": NAMES, "numbers": NUMBERS, "texts": TEXTS}
    with nix_bench() as bench:
        folder = flake(bench.place / "flake", OUTPUTS)
        (folder / "asked.json").write_text(json.dumps(asked))
        found, _ = bench.eval(f"path:{folder}#answers")
    return found


def normal(path: str) -> str | None:
    if path.startswith("/"):
        return None
    made = posixpath.normpath(path)
    return None if made.split("/")[0] == ".." else made


def test_normal_paths(answers) -> None:
    # `a/../../a` goes through the folder above, and out is out.
    leaves = [path for path in PATHS if passes_outside(path)]
    ours = [None if path in leaves else normal(path) for path in PATHS]
    assert answers["normal"] == ours


def passes_outside(path: str) -> bool:
    depth = 0
    for part in path.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return True
    return False


def test_suffixes(answers) -> None:
    assert answers["suffixes"] == [PurePosixPath(name).suffix.lstrip(".") for name in NAMES]


def test_versions(answers) -> None:
    parsed = [Version.parse(text) for text in NUMBERS]
    assert answers["texts"] == [str(version) for version in parsed]
    assert answers["compact"] == [version.compact for version in parsed]
    assert answers["older"] == [[a < b for b in parsed] for a in parsed]
    assert answers["noVersions"] == [None] * 9


def test_words_of_a_shell(answers) -> None:
    assert [shlex.split(text) for text in answers["quoted"]] == [[text] for text in TEXTS]


def test_lists_and_texts(answers) -> None:
    assert answers["unique"] == ["b", "a", "c"]
    assert answers["after"] == ["d/s+x (1)/e"]
