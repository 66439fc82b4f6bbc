"""`kbuild tune --import`: what others measured becomes rows."""

from __future__ import annotations

import json

import pytest

BUILD = """\
[kernel.g]
language = "triton"
toolchain = "triton==3.9.0"
src = ["g.py"]

[[kernel.g.op]]
schema = "gemm(Tensor a, Tensor b) -> Tensor"
shapes = { a = ["M", "K"], b = ["K", "N"], out = ["M", "N"] }
dtypes = ["float16", "bfloat16"]
grid = ["cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)"]
key = ["M", "N", "K"]
configs = [
  { BLOCK_M = 16, BLOCK_N = 64, num_warps = 4 },
  { BLOCK_M = 64, BLOCK_N = 128, num_warps = 8 },
]
"""
FIXED = "N=4096,K=1024,device_name=NVIDIA_H100_80GB_HBM3.json"
CONFIGS = {
    "triton_version": "3.4.0",
    "1": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "num_warps": 4},
    "64": {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "num_warps": 8},
    "128": {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "num_warps": 8},
}


@pytest.fixture
def take(kbuild, here):
    (here / "build.toml").write_text(BUILD)
    (here / FIXED).write_text(json.dumps(CONFIGS, indent=1))

    def run(*argv: str, file: str = FIXED):
        return kbuild("tune", "--import", file, *argv)

    return run


def rows(here, name: str = "nvidia-h100-80gb-hbm3") -> list[dict]:
    return json.loads((here / "tuned" / f"{name}.json").read_text())["rows"]


class TestJson:
    def test_names_device_and_key_are_found(self, take, here):
        answer = take()
        assert answer.code == 0, answer.err
        head = json.loads((here / "tuned/nvidia-h100-80gb-hbm3.json").read_text())
        assert (head["device"], head["arch"]) == ("NVIDIA H100 80GB HBM3", "sm_90")
        found = {(row["dtypes"]["a"], *row["key"]): row["constants"] for row in rows(here)}
        assert found == {
            (dtype, m, 4096, 1024): {"BLOCK_M": block, "BLOCK_N": n}
            for dtype in ("float16", "bfloat16")
            for m, block, n in ((1, 16, 64), (64, 64, 128))
        }
        assert all(row["us"] == row["default_us"] == 0 for row in rows(here))
        # A candidate that is not there is said as it has to be written.
        assert "no candidate { BLOCK_M = 128, BLOCK_N = 128, num_warps = 8 }" in answer.err
        assert "add it to `configs`" in answer.err

    def test_a_key_in_other_words(self, take, here):
        assert take("--key", "M,N//2,cdiv(K, 3)").code == 0
        assert {tuple(row["key"][1:]) for row in rows(here)} == {(2048, 342)}

    def test_one_dtype_and_another_name(self, take, here):
        answer = take("--dtype", "float16", "--device", "NVIDIA H200", "--json")
        assert answer.json["imported"][0]["rows"] == 2
        assert {row["dtypes"]["a"] for row in rows(here, "nvidia-h200")} == {"float16"}

    def test_what_was_measured_stays(self, take, here):
        take("--dtype", "float16")
        take("--dtype", "bfloat16", "--key", "M,N,2*K")
        assert len(rows(here)) == 4

    def test_a_dry_run(self, take, here):
        answer = take("--dry-run")
        assert "4 rows for NVIDIA H100 80GB HBM3 (sm_90)" in answer.err
        assert not (here / "tuned").exists()

    def test_names_that_are_mapped(self, take, here):
        configs = {"1": {"ROWS": 16, "COLS": 64, "num_warps": 4, "SPLIT": 1}}
        (here / FIXED).write_text(json.dumps(configs))
        assert "no candidate sets `ROWS`" in take().err
        maps = ("--map", "ROWS=BLOCK_M", "--map", "COLS=BLOCK_N")
        answer = take(*maps)
        assert answer.code == 2
        assert "no candidate sets `SPLIT`" in answer.err
        assert "--map SPLIT= leaves it out" in answer.err
        assert take(*maps, "--map", "SPLIT=").code == 0
        assert [row["key"] for row in rows(here)] == [[1, 4096, 1024]] * 2

    @pytest.mark.parametrize(
        ("argv", "words"),
        [
            (("--map", "ROWS"), "is not NAME=NAME"),
            (("--map", "num_warps=BLOCK_X"), "no candidate sets `BLOCK_X`"),
            (("--key", "M,N"), "--key has 2 parts, the key of `gemm` is `M`, `N`, `K`"),
            (("--key", "M,,N +,K"), "--key: "),
            (("--key", "M,N,E"), "does not say 'E', which the key needs"),
            (("--op", "gem"), "did you mean `gemm`?"),
            (("--arch", "sm_90a"), "`sm_90a` is not an arch"),
            (("--device", "Some GPU"), "the arch of `Some GPU` is not known"),
            (("--device", "a", "--device", "b"), "--import takes one device"),
        ],
        ids=" ".join,
    )
    def test_what_is_refused(self, take, argv, words):
        answer = take(*argv)
        assert answer.code == 2
        assert words in answer.err

    def test_no_device(self, take, here):
        (here / "x.json").write_text("{}")
        assert "does not say on which device" in take(file="x.json").err

    @pytest.mark.parametrize("text", ["{", "[]", '{\n"1": 5}', '{"1": {"A": [1]}}'])
    def test_no_such_file(self, take, here, text):
        (here / FIXED).write_text(text)
        answer = take()
        assert answer.code == 3
        assert FIXED in answer.err


class TestCsv:
    def test_pairs_of_lines(self, take, here):
        (here / "gemm.csv").write_text("\n64,128\n64,4096,1024\n64,128\n1,8,8\n16,64\n")
        answer = take("--device", "NVIDIA A100-SXM4-80GB", file="gemm.csv")
        assert answer.code == 0, answer.err
        found = {tuple(row["key"]): row["constants"] for row in rows(here, "nvidia-a100-sxm4-80gb")}
        assert found == {
            (64, 4096, 1024): {"BLOCK_M": 64, "BLOCK_N": 128},
            (1, 8, 8): {"BLOCK_M": 16, "BLOCK_N": 64},
        }

    def test_columns_in_another_order(self, take, here):
        (here / "gemm.csv").write_text("1,8,8\n64,16\n")
        argv = ("--device", "NVIDIA A100", "--columns", "BLOCK_N,BLOCK_M", "--key", "K,N,M")
        assert take(*argv, file="gemm.csv").code == 0
        assert rows(here, "nvidia-a100")[0]["constants"] == {"BLOCK_M": 16, "BLOCK_N": 64}

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("1,8\n16,64\n", "gemm.csv:1: 2 numbers for 3 names (M, N, K)"),
            ("1,8,8\n16\n", "gemm.csv:2: 1 numbers for 2 names (BLOCK_M, BLOCK_N)"),
            ("1,8,8\na\n", "gemm.csv:2: `a` is not a list of integers"),
        ],
    )
    def test_what_is_wrong(self, take, here, text, words):
        (here / "gemm.csv").write_text(text)
        answer = take("--device", "NVIDIA A100", file="gemm.csv")
        assert answer.code == 3
        assert words in answer.err


class TestProjects:
    def test_candidates_that_only_the_kernel_knows(self, take, here):
        text = BUILD[: BUILD.index("configs")] + 'configs = "autotune"\n'
        (here / "build.toml").write_text(text)
        answer = take()
        assert answer.code == 2
        assert "--keep-all: --variant DIR" in answer.err

    def test_a_section_that_is_wrong(self, take, here):
        (here / "build.toml").write_text(BUILD.replace("float16", "float61", 1))
        answer = take()
        assert answer.code == 3
        assert "build.toml:9: kernel.g.op[0].dtypes" in answer.err

    def test_no_such_kernel(self, take, here):
        (here / "build.toml").write_text("")
        assert "has no kernel in a Python DSL" in take().err


@pytest.mark.parametrize(
    ("device", "arch"),
    [
        ("NVIDIA H200", "sm_90"),
        ("NVIDIA H20", "sm_90"),
        ("NVIDIA GH200 480GB", "sm_90"),
        ("NVIDIA L4", "sm_89"),
        ("NVIDIA L40S", "sm_89"),
        ("NVIDIA A100-SXM4-80GB", "sm_80"),
        ("NVIDIA A10G", "sm_86"),
        ("NVIDIA GeForce RTX 4090", "sm_89"),
        ("NVIDIA GeForce RTX 3080 Ti", "sm_86"),
        ("NVIDIA B200", "sm_100"),
        ("NVIDIA GB300", "sm_103"),
        ("AMD Instinct MI300X", "gfx942"),
        ("Tesla T4", "sm_75"),
        ("NVIDIA T400", None),
        ("Unknown", None),
    ],
)
def test_archs_by_name(device, arch):
    from kbuild.tune.table_import import arch_of

    assert arch_of(device) == arch
