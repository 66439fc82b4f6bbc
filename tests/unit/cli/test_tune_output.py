"""What `kbuild tune` prints, on a terminal of 80 columns, also of calls that it did not measure."""

from __future__ import annotations

import io

from kbuild.cli.tune import print_tuning, summarize_reasons
from kbuild.dsl.tune.cases import make_case
from kbuild.dsl.tune.host import Device
from kbuild.dsl.tune.jobs import OpBenchmark, RaceJob
from kbuild.dsl.tune.results import RaceOutcome, results_of
from kbuild.dsl.tune.tuning import TuneResult
from kbuild.ops.manifest import ManifestKernel
from kbuild.ops.section import read_section
from kbuild.system.ui import Ui
from tests.support.sections import op_of, text_of

CONFIG = "{{ BLOCK_M = {0}, BLOCK_N = 256, BLOCK_K = 64, GROUP_M = 8, num_warps = {0} }}"
CONFIGS = f"[{', '.join(CONFIG.format(number) for number in (1, 2, 4))}]"


def output(*outcomes: RaceOutcome) -> tuple[list[str], list[str]]:
    op = op_of(text_of(key='["N", "1024 * N", "1024 * N"]', configs=CONFIGS, grid='["N"]'))
    work = OpBenchmark(ManifestKernel(read_section("gemm", {}), ()), op, 0, ())
    measured = []
    for number, outcome in enumerate(outcomes):
        sizes = (("...", (1,)), ("N", 8 << number))
        case = make_case(op, op.dtype_sets()[0], sizes, {"sm_count()": 1})
        measured.append((RaceJob(work, case, 0, (0, 1, 2)), outcome))
    out, err = io.StringIO(), io.StringIO()
    device = Device("cuda:0", "NVIDIA H100 80GB HBM3", "sm_90", 132)
    tuned = TuneResult(device, results_of(measured), path="tuned/nvidia-h100-80gb-hbm3.json")
    print_tuning(tuned, Ui(out=out, err=err, environ={}), has_table=True)
    return out.getvalue().splitlines(), err.getvalue().splitlines()


def test_winner_spread_and_ties_fit():
    times = {0: 1646.5, 1: 1512.2, 2: 1510.0}
    readings = {at: (us, us * 1.01, us) for at, us in times.items()}
    out, err = output(
        RaceOutcome(times, default=0, readings=readings), RaceOutcome({0: 10.0}, default=0)
    )
    assert out[0].split()[4:] == ["winner", "us", "spread", "default", "gain"]
    assert out[1].split()[4:] == ["#2", "1512.2", "1.0%", "1646.5", "+8.9%"]
    assert out[2].split()[4:] == ["default", "10.0", "-", "10.0", "-"]
    assert [line for line in out if line.startswith("k, launch 0, #2: { BLOCK_M = 2,")]
    assert "k 8,8192,8192 float16: #3 is as fast as #2, which comes first" in err
    assert max(map(len, (*out, *err[:1]))) <= 80


def test_many_calls_have_a_line_for_each_reason():
    calls = [(f"mm M={m}", "no candidate runs") for m in range(5)]
    assert list(summarize_reasons([*calls, ("mm M=7", "it hangs")])) == [
        "mm M=0 and 4 more: no candidate runs",
        "mm M=7: it hangs",
    ]
