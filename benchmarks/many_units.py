"""How much memory kbuild itself takes while it compiles 500 sources for 26 variants.

    python benchmarks/many_units.py [--sources 500] [--save] [--json]

The project is that of `plan.py`. Planning, generating, locking, ninja, kbuild's launcher, the
object cache, the log, the report and installing are the real ones; no object comes from the cache.
Stand-ins are: the toolchains; CMake, which here writes a `build.ninja` of the variant's sources;
and the compiler, which writes a few bytes and says that it has read its group's headers and as
many of Torch's as `torch/library.h` has. What was built is not checked, since it is no library.

The figure is `VmHWM` of kbuild's own process, without the processes that it starts. It takes a
quarter of an hour on two cores, and 4 GB in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plan
from own_peak import Ran, kbuild, target
from report import save, table

HERE = Path(__file__).resolve()
SOURCES, HEADERS, VARIANTS = 500, 300, 26
TORCH_HEADERS = 640
"""Of `torch/library.h`, Torch 2.13."""
COMPILER = r"""
#include <stdio.h>
#include <string.h>
int main(int count, char **words) {
  const char *object = "", *depfile = "", *source = "", *list = "";
  for (int i = 1; i + 1 < count; ++i) {
    if (!strcmp(words[i], "-o")) object = words[i + 1];
    if (!strcmp(words[i], "-MF")) depfile = words[i + 1];
    if (!strcmp(words[i], "-c")) source = words[i + 1];
    if (!strcmp(words[i], "-isysroot")) list = words[i + 1];
  }
  FILE *out = fopen(object, "w"), *made = fopen(depfile, "w"), *read = fopen(list, "r");
  if (!out || !made || !read) return 1;
  fprintf(out, "%s %s", words[1], source);
  fprintf(made, "%s: %s", object, source);
  char line[4096];
  while (fgets(line, sizeof line, read)) {
    line[strcspn(line, "\n")] = 0;
    fprintf(made, " \\\n %s", line);
  }
  fputc('\n', made);
  return fclose(out) | fclose(made);
}
"""
RULES = """\
rule unit
  command = {launcher} CXX {compiler} {options} $flags -MD -MF $out.d -o $out -c $in
  description = Building CXX object $out
  deps = gcc
  depfile = $out.d
rule link
  command = touch $out
"""


def as_cmake(words: Sequence[str]) -> None:
    """Write the `build.ninja` of a variant, or install what it made."""
    if "--install" in words:
        stage = Path(words[words.index("--prefix") + 1])
        stage.joinpath("large.abi3.so").write_text("a library")
        stage.joinpath("_ops.py").write_text("")
        return
    entries = dict(re.findall(r"-D(\w+)=(.*)", "\n".join(words)))
    source, tree = (Path(words[words.index(word) + 1]) for word in ("-S", "-B"))
    root, variant = entries["KBUILD_SOURCE_DIR"], entries["KBUILD_VARIANT"]
    text = source.joinpath(f"cmake/variants/{variant}.cmake").read_text()
    torch = entries["STAND_IN"]
    maps = f"-ffile-prefix-map={root}=/kernel -ffile-prefix-map={torch}/include=/torch"
    launcher = entries["CMAKE_CXX_COMPILER_LAUNCHER"].rpartition(";")[0].replace(";", " ")
    values = {"launcher": launcher, "options": f"-DVARIANT={variant} {maps}"}
    lines = [RULES.format(compiler=f"{torch}/compiler", **values)]
    objects = []
    for path in re.findall(r"^    (\S+\.(?:cu|cpp))$", text, re.MULTILINE):
        object_, group = f"CMakeFiles/large.dir/{path}.o", Path(path).parent.name
        objects.append(object_)
        flags = f"-isysroot {torch}/{group}.list -I{root}/csrc/{group} -I{root}/csrc/include"
        lines += [
            f"build {object_}: unit {root}/{path}",
            f"  flags = {flags} -isystem {torch}/include",
        ]
    lines.append(f"build large.so: link {' '.join(objects)}\n")
    tree.mkdir(exist_ok=True)
    tree.joinpath("build.ninja").write_text("\n".join(lines))


def as_kbuild(stand_in: str, words: Sequence[str]) -> int:
    """kbuild with toolchains that serve everything, and no checks of what was built."""
    from standin_build import StandIn

    from kbuild.__main__ import main as kbuild_main
    from kbuild.pipeline import build, variant
    from kbuild.toolchains.base import Toolchain

    class Serving(StandIn):
        """Its CMake is this script."""

        def provision(self, requires: Any) -> Toolchain:
            """See `ToolchainSource.provision`."""
            ninja = Path(sys.executable).with_name("ninja")
            versions = (("torch", str(requires.torch)), (requires.backend, str(requires.toolkit)))
            return Toolchain(
                self.name,
                Path(stand_in, "cmake"),
                ninja,
                Path(sys.executable),
                cache=(("STAND_IN", stand_in),),
                versions=versions,
                env=dict(os.environ),
            )

    build.find_toolchains = lambda *_, **__: Serving()
    variant._check_output = lambda *_: ()  # noqa: SLF001 - there is no library that could be checked
    return kbuild_main(words)


def prepare(folder: Path, sources: int) -> tuple[Path, Path]:
    """The project, and the folder of stand-ins."""
    project, stand_in = folder / "project", folder / "stand-in"
    plan.generate(project, sources, HEADERS)
    shared = sorted(map(str, project.glob("csrc/include/common/*.h")))
    torch = [stand_in / f"include/torch/h{number}.h" for number in range(TORCH_HEADERS)]
    for path in (*torch, stand_in / "include/torch/version.h"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"// {path.name}\n" * 20)
    for group in project.glob("csrc/group*"):
        own = sorted(map(str, group.glob("own*.cuh")))
        (stand_in / f"{group.name}.list").write_text("\n".join([*own, *shared, *map(str, torch)]))
    (stand_in / "torch-ext.list").write_text("\n".join(map(str, torch)))
    (stand_in / "compiler.c").write_text(COMPILER)
    command = ("cc", "-O1", "-o", str(stand_in / "compiler"), str(stand_in / "compiler.c"))
    subprocess.run(command, check=True)  # noqa: TID251
    cmake = stand_in / "cmake"
    cmake.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE} --as-cmake "$@"\n')
    cmake.chmod(0o755)
    return project, stand_in


def measured(sources: int) -> tuple[Ran, int]:
    """One cold build, and how many units it compiled."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project, stand_in = prepare(folder, sources)
        env = {**os.environ, "KBUILD_CACHE_DIR": str(folder / "cache")}
        env["PYTHONPATH"] = os.pathsep.join((str(HERE.parents[1]), str(HERE.parent)))
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        begin = (
            f"import many_units; sys.exit(many_units.as_kbuild({str(stand_in)!r}, sys.argv[1:]))"
        )
        ran = kbuild(("build", str(project)), env, begin)
        log = (project / ".kbuild/report/units.jsonl").read_text().splitlines()
        units = [unit for unit in map(json.loads, log) if "unit" in unit]
        variants = len([*project.glob("build/*/metadata.json")])
    if variants != VARIANTS or any(unit["cache"] != "miss" for unit in units):
        sys.exit(f"{variants} variants, {len(units)} units: not the build that was meant")
    return ran, len(units)


def main() -> int:
    """Exit code 1 when the target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sources", type=int, default=SOURCES)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    options = parser.parse_args()
    ran, units = measured(options.sources)
    targets = [target(f"{units} units", ran)]
    result = {"sources": options.sources, "variants": VARIANTS, "units": units, "wall": ran.wall}
    result["targets"] = targets
    if options.save:
        save("many_units", result)
    print(json.dumps(result, indent=1) if options.json else table(targets))
    return int(any(row["value"] > row["target"] for row in targets))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-cmake"]:
        as_cmake(sys.argv[2:])
    else:
        sys.exit(main())
