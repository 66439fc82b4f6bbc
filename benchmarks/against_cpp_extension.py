"""CPU time of kbuild over five variants of `examples/relu` beside `torch.utils.cpp_extension`'s.

The variants are one for the CPU and those of two Torch releases with CUDA 13.0 and 13.2, for all
architectures. In one run of this script:

- cold: `kbuild build` of the five with an empty object cache and provisioned toolchains;
- warm: the same with the build folders removed and the object cache kept;
- headers warm: the same as cold, in the fourth build, which finds precompiled headers;
- separate: five builds by `cpp_extension`, of the same sources, flags and architectures;
- as written: five builds of `sources/relu_extension/`, where one file includes `torch/extension.h`.

Figures are user and system seconds of all processes, `import torch` of `cpp_extension` included.
The builds as written take more than twenty minutes of CPU time. `--written N` measures the first N
of the five, `--quick` is `--written 2`: the CPU's and one with CUDA. The result names them, and its
ratio is then an upper bound, because what was not measured is not in the sum.

    python benchmarks/against_cpp_extension.py [--written N] [--cache DIR] [--save] [--json]

Needs an environment with kbuild, torch, setuptools and ninja, and a package index that pip is set
up for. Toolchains are taken from `--cache`, kbuild's own cache folder, when they are there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cpp_extension_build import Extension
from five_variants import RELU, VARIANTS, Workplace, cpu_seconds
from report import save, table

from kbuild.system.cache_folder import cache_folder

HERE = Path(__file__).resolve().parent
WRITTEN = HERE / "sources" / "relu_extension"
FLAGS = ("-O3", "-DNDEBUG")
"""What kbuild's release builds have; `load` itself does not ask for optimisation."""


@dataclass(frozen=True)
class Separate:
    """The builds by `cpp_extension`, each in a folder of its own below `folder`."""

    place: Workplace
    folder: Path

    def same_sources(self, plan: Mapping[str, Any]) -> Extension:
        """The example's sources, with the macros that kbuild gives them."""
        project, variant = self.place.project, plan["variant"]
        generated = project / ".kbuild" / variant / "project" / "torch-ext"
        parts = plan["components"]
        return self._extension(
            plan,
            "same",
            [project / one["path"] for part in parts for one in part["sources"] if one["language"]],
            includes=[generated, *(project / one for part in parts for one in part["include"])],
            macros=[f"-D{definition}" for definition in plan["definitions"]],
        )

    def as_written(self, plan: Mapping[str, Any]) -> Extension:
        """One file that includes `torch/extension.h`."""
        source = WRITTEN / ("relu_cuda.cu" if plan["archs"] else "relu_cpu.cpp")
        return self._extension(plan, "written", [source])

    def _extension(
        self,
        plan: Mapping[str, Any],
        kind: str,
        sources: Sequence[Path],
        includes: Sequence[Path] = (),
        macros: Sequence[str] = (),
    ) -> Extension:
        variant, facts = plan["variant"], self.place.facts(plan["variant"])
        folder = self.folder / f"{kind}-{variant}"
        folder.mkdir()
        nvcc = facts.get("CMAKE_CUDA_COMPILER", "")
        return Extension(
            name=f"_relu_{kind}",
            sources=[str(source) for source in sources],
            folder=str(folder),
            includes=[str(include) for include in dict.fromkeys(includes)],
            flags=[*FLAGS, *macros],
            torch_includes=facts["KBUILD_TORCH_INCLUDE_DIRS"].split(";"),
            torch_libraries=str(_libraries(folder, Path(facts["KBUILD_TORCH_LIBRARY_DIR"]))),
            cuda_home=str(Path(nvcc).parents[1]) if nvcc else "",
            cuda=plan["requires"]["toolkit"] or "",
            archs=sorted({arch for part in plan["components"] for arch in part["archs"]}),
        )


def _libraries(folder: Path, torch: Path) -> Path:
    """Torch's libraries for the link, and the `libtorch_python` that `cpp_extension` asks for."""
    import torch as installed

    made = folder / "torch-libraries"
    made.mkdir()
    for library in torch.glob("*.so*"):
        (made / library.name).symlink_to(library)
    python = Path(installed.__file__).parent / "lib" / "libtorch_python.so"
    if not (made / python.name).exists():
        (made / python.name).symlink_to(python)
    return made


def run_extension(extension: Extension) -> float:
    """CPU seconds of one build from nothing."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "TORCH_NO_COMPILER_WRAPPER": "1"}
    worker = [sys.executable, str(HERE / "cpp_extension_build.py")]
    seconds, output = cpu_seconds(worker, env, json.dumps(asdict(extension)))
    print(f"{Path(extension.folder).name}: {seconds:.1f} CPU s", file=sys.stderr, flush=True)
    if not extension.library.is_file():
        sys.exit(f"{extension.library} was not made:\n{output}")
    ninja = Path(extension.folder, "build.ninja").read_text()
    codes = sum(2 if arch.endswith("+PTX") else 1 for arch in extension.archs)
    if ninja.count("-gencode=") != codes:
        sys.exit(f"{extension.folder}/build.ninja has other architectures than {extension.archs}")
    return seconds


def separate_builds(
    place: Workplace, folder: Path, written: int
) -> tuple[dict[str, float], dict[str, float]]:
    """CPU seconds by variant: of the same sources, and of those that users write."""
    separate = Separate(place, folder)
    plans = {plan["variant"]: plan for plan in place.plans()}
    same = {name: run_extension(separate.same_sources(plans[name])) for name in VARIANTS}
    names = VARIANTS[:written]
    extensions = [separate.as_written(plans[name]) for name in names]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # one file each: as many as there are cores
        return same, dict(zip(names, pool.map(run_extension, extensions), strict=True))


def import_torch() -> float:
    """CPU seconds that each process with `cpp_extension` spends before it does anything."""
    command = [sys.executable, "-c", "import torch, torch.utils.cpp_extension"]
    return min(cpu_seconds(command, os.environ)[0] for _ in range(3))


def ratios(
    builds: Mapping[str, float], same: Mapping[str, float], written: Mapping[str, float]
) -> list[dict[str, Any]]:
    """The figures beside their targets."""
    sums = {"same sources": (sum(same.values()), 0.35)}
    if written:
        part = len(written) < len(VARIANTS)
        name = f"{len(written)} of {len(VARIANTS)} as written (at most)" if part else "as written"
        sums[name] = (sum(written.values()), 0.15)
    return [
        {"what": f"{ours} / {name}", "value": seconds / theirs, "target": target or allowed}
        for ours, seconds in builds.items()
        for target in [0.05 if ours == "warm" else 0.0]
        for name, (theirs, allowed) in sums.items()
    ]


def measure(cache: Path, written: int) -> dict[str, Any]:
    """All of it, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place = Workplace(folder / "relu", folder / "cache")
        shutil.copytree(RELU, place.project, ignore=shutil.ignore_patterns("build", ".kbuild"))
        place.cache.mkdir()
        (cache / "store").mkdir(parents=True, exist_ok=True)
        (place.cache / "store").symlink_to(cache / "store")
        place.provision()
        cold = place.build()
        units = place.units()
        place.clean()
        warm = place.build()
        if warm["from_cache"] != warm["objects"]:
            sys.exit(f"expected all objects from the cache, got {warm}")
        for _ in range(3):  # the second of these makes the headers
            place.clean()
            shutil.rmtree(place.cache / "objects")
            ready = place.build()
        ready_units = place.units()
        same, others = separate_builds(place, folder, written)
    return {
        "variants": VARIANTS,
        "measured as written": list(others),
        "cpu seconds": {
            "kbuild cold": cold["cpu"],
            "kbuild warm": warm["cpu"],
            "kbuild with headers warm": ready["cpu"],
            "same sources": same,
            "as written": others,
            "import torch, of each separate build": import_torch(),
        },
        "objects": {"cold": cold, "warm": warm},
        "compilers in the cold build": units,
        "compilers with headers warm": ready_units,
        "targets": ratios(
            {"cold": cold["cpu"], "headers warm": ready["cpu"], "warm": warm["cpu"]}, same, others
        ),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    some = parser.add_mutually_exclusive_group()
    some.add_argument(
        "--written", type=int, choices=range(len(VARIANTS) + 1), default=len(VARIANTS), metavar="N"
    )
    some.add_argument("--quick", action="store_const", const=2, dest="written")
    parser.add_argument(
        "--cache", type=Path, default=cache_folder(os.environ), help="where the toolchains are"
    )
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/against_cpp_extension.json"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = measure(args.cache, args.written)
    if args.save:
        save("against_cpp_extension", result)
    print(json.dumps(result, indent=1) if args.json else table(result["targets"]))


if __name__ == "__main__":
    main()
