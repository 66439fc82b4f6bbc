"""What a launcher hands to the driver, seen from the fake one."""

from __future__ import annotations

import struct
import threading

import pytest

from tests.support.launcher.launched import Record
from tests.support.launcher.rich import rich

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.compile, pytest.mark.torch]

DEVICES = {
    "9.0": 0,
    "8.0": 1,
    "8.6": 2,
    "8.9": 3,
    "10.0": 4,
    "10.3": 5,
    "12.0": 6,
    "7.5": 7,
}


def half(*shape):
    return torch.ones(shape, dtype=torch.float16)


def on(driver, device, *tensors):
    """The tensors, placed on a device. What an op allocates lies there of itself."""
    for tensor in tensors:
        driver.place(tensor, device)
    return tensors


def only(driver) -> Record:
    (record,) = driver.launches()
    return record


class TestArguments:
    def test_pointers_integers_and_the_grid(self, ops, driver):
        x, y = half(3, 700), half(3, 700)
        out = ops.add(x, y)
        assert (out.shape, out.dtype, out.is_contiguous()) == (x.shape, x.dtype, True)
        record = only(driver)
        pointers = [tensor.data_ptr() for tensor in (x, y, out)]
        assert [record.integer(at) for at in range(6)] == [*pointers, 2100, 0, 0]
        assert record.grid == (3, 1, 1)
        assert (record.facts["block"], record.facts["shared"]) == ("128", "0")
        assert record.attributes == []

    def test_scalars(self, ops, driver):
        x = torch.zeros(5)
        assert ops.scale_(x, 2, True, 0.1) is None
        record = only(driver)
        assert record.integer(0) == x.data_ptr()
        assert [len(parameter) for parameter in record.parameters[1:8]] == [4, 1, 2, 2, 4, 4, 4]
        assert [record.integer(at) for at in (1, 2, 5, 6, 7)] == [2, 1, 2_000_000_000, 132, 90]
        assert struct.unpack("<e", record.parameters[3])[0] == pytest.approx(0.1, abs=1e-4)
        assert struct.unpack("<e", record.parameters[4])[0] == 0.5

    def test_defaults(self, ops, driver):
        ops.scale_(torch.zeros(5))
        record = only(driver)
        assert [record.integer(at) for at in (1, 2)] == [2, 0]

    @pytest.mark.parametrize(
        "value", [0.0, -0.0, 1.0, 65504.0, 65519.9, 65520.0, 1e9, -1e9, 6e-8, 2.9e-8, 3e-8, 1e-5,
                  6.1e-5, 0.333333, 2049.0, 2051.0, float("inf")]
    )  # fmt: skip
    def test_halves_are_rounded_as_torch_does(self, ops, driver, value):
        ops.scale_(torch.zeros(5), 2, False, value)
        expected = torch.tensor([value], dtype=torch.float32).half()
        assert only(driver).parameters[3] == bytes(expected.view(torch.uint8).numpy())

    def test_doubles(self, ops, driver):
        ops.norm(half(2, 64), half(64), None, 0.1)
        record = only(driver)
        assert struct.unpack("<d", record.parameters[5])[0] == 0.1

    def test_strides_and_64_bits(self, ops, driver):
        a, b = half(5, 40), half(40, 24)
        out = ops.gemm(a, b)
        record = only(driver)
        assert out.shape == (5, 24)
        # stride_am 40 is not divisible by 16: the plain image takes strides of 1 as parameters
        assert "fast" not in record.image
        assert [record.integer(at) for at in range(3, 9)] == [5, 40, 1, 24, 1, 24]
        assert [len(parameter) for parameter in record.parameters[3:9]] == [4, 4, 4, 4, 4, 8]

    def test_what_is_none_is_no_parameter(self, ops, driver):
        ops.norm(half(2, 64), half(64))
        without = only(driver)
        ops.norm(half(2, 64), half(64), half(64))
        given = only(driver)
        assert "no-b" in without.image
        assert "HAS=False" in without.image
        assert "HAS=True" in given.image
        assert len(given.parameters) == len(without.parameters) + 1
        assert (without.integer(4), given.integer(5)) == (-1, 64)

    def test_scratch_memory_is_aligned_and_large_enough(self, ops, driver):
        ops.odd(torch.zeros(4), 7, 2)
        record = only(driver)
        assert record.integer(2) % 1024 == 0
        assert record.integer(2) != 0
        assert record.integer(3) == 0

    def test_strides_of_broadcast_results(self, ops):
        first, second = ops.split(torch.zeros(0, 8, dtype=torch.bfloat16), 4)
        assert (first.shape, second.shape) == ((0,), (4, 2))
        assert second.stride() == (2, 1)


class TestAttributes:
    def test_clusters(self, ops, driver):
        ops.odd(torch.zeros(16), 5)
        said = driver.said()
        record = Record(next(line for line in said if line.startswith("launch")))
        assert record.grid == (80, 1, 1)
        assert record.attributes == ["4:16x1x1", "5:1", "2:1"]
        assert any(" 14=1 on 0" in line for line in said)
        assert any(" 8=60000 on 0" in line for line in said)

    def test_a_small_cluster_needs_no_permission(self, ops, driver):
        ops.odd(torch.zeros(3), 5)
        said = driver.said()
        assert any("attribute=4:3x1x1" in line for line in said)
        assert not any(" 14=1" in line for line in said)

    def test_dependent_launches(self, ops, driver):
        ops.odd(torch.zeros(4), 5)
        assert only(driver).attributes == ["6:1"]


class TestGrids:
    def test_an_empty_one_launches_nothing(self, ops, driver):
        out = ops.add(half(0, 4), half(0, 4))
        assert out.shape == (0, 4)
        ops.odd(torch.zeros(4), 3, 0)
        assert driver.launches() == []

    @pytest.mark.parametrize(
        ("blocks", "y", "words"),
        [
            (-1, 1, "`odd`: `grid[0]` of `odd` is negative: -1"),
            (2**31, 1, "`grid[0]` of `odd` is 2147483648; a device takes at most 2147483647"),
            (1, 65536, "`grid[1]` of `odd` is 65536; a device takes at most 65535"),
        ],
    )
    def test_limits(self, ops, driver, blocks, y, words):
        with pytest.raises(RuntimeError) as caught:
            ops.odd(torch.zeros(3), blocks, y)
        assert words in str(caught.value)
        assert driver.launches() == []

    def test_the_largest(self, ops, driver):
        ops.odd(torch.zeros(3), 715827882, 65535)
        assert only(driver).grid == (2147483646, 65535, 1)


class TestLaunches:
    def test_several_with_a_temporary(self, ops, driver):
        a = torch.ones(130, 8, dtype=torch.bfloat16)
        first, second = ops.split(a, 4)
        part, whole = driver.launches()
        assert (part.entry, part.grid, part.integer(2)) == ("part", (3, 1, 4), 2)
        assert (whole.entry, whole.grid, whole.integer(3)) == ("whole", (65, 1, 1), 130)
        assert part.integer(1) == whole.integer(0)
        assert [whole.integer(1), whole.integer(2)] == [first.data_ptr(), second.data_ptr()]
        assert (first.dtype, second.dtype) == (torch.bfloat16, torch.int64)

    def test_one_that_is_skipped(self, ops, driver):
        ops.scale_(torch.zeros(3), 3)
        assert driver.launches() == []

    def test_the_current_stream_of_the_device(self, ops, driver):
        driver.use_stream(0, 0xABC0)
        driver.use_stream(1, 0xDEF0)
        x = half(8)
        ops.add(x, x)
        on(driver, 1, x)
        ops.add(x, x)
        assert [one.facts["stream"] for one in driver.launches()] == ["0xabc0", "0xdef0"]

    def test_the_current_context_is_restored(self, ops, driver):
        (x,) = on(driver, 3, half(8))
        ops.add(x, x)
        assert only(driver).facts["device"] == "3"
        assert driver.library.fake_depth() == 0

    def test_tensor_maps(self, ops, driver):
        x = half(6, 80)[:, 16:]
        ops.copy(x)
        said = driver.said()
        expected = "type=6 steps=1 interleave=0 swizzle=3 promotion=2 fill=0 64/160/64 6/0/128"
        assert f"map {expected}" in said
        record = Record(next(line for line in said if line.startswith("launch")))
        assert record.parameters[0] == b"\x5a" * 128
        assert [record.integer(at) for at in range(1, 5)] == [6, 64, 80, 1]


class TestImages:
    @pytest.mark.parametrize(
        ("capability", "image"),
        [
            ("8.0", "sm_80"),
            ("8.6", "sm_80"),
            ("8.9", "sm_89"),
            ("9.0", "sm_90a"),
            ("10.0", "sm_100f"),
            ("10.3", "sm_100f"),
            ("12.0", "compute_80"),
        ],
    )
    def test_of_each_arch(self, ops, driver, capability, image):
        (x,) = on(driver, DEVICES[capability], half(64))
        ops.add(x, x)
        assert only(driver).image.split()[0] == image

    def test_of_no_arch(self, ops, driver):
        (x,) = on(driver, DEVICES["7.5"], half(64))
        words = (
            "`add`: no image for sm_75; there are images for sm_80, sm_89, sm_90a, sm_100f "
            "and PTX for sm_80 and later"
        )
        with pytest.raises(RuntimeError) as caught:
            ops.add(x, x)
        assert str(caught.value).splitlines()[0] == words

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    def test_of_each_dtype(self, ops, driver, dtype):
        name = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}[dtype]
        x = torch.zeros(8, dtype=dtype)
        assert ops.add(x, x).dtype == dtype
        assert f"x:{name}" in only(driver).image

    @pytest.mark.parametrize("offset", range(9))
    def test_misaligned_pointers(self, ops, driver, offset):
        x = half(80)[offset : offset + 64]
        ops.add(x, half(64))
        assert ("fast" in only(driver).image) is (offset % 8 == 0)

    @pytest.mark.parametrize(
        ("rows", "inner", "columns", "assumed"),
        [
            (4, 32, 16, ["fast", "stride_am%16", "stride_bk%16"]),
            (16, 16, 32, ["fast", "stride_am%16", "stride_bk%16"]),
            (4, 40, 16, ["fast", "stride_bk%16"]),
            (4, 32, 24, []),
        ],
    )
    def test_divisible_integers(self, ops, driver, rows, inner, columns, assumed):
        """The image with the most assumptions of those that hold."""
        ops.gemm(half(rows, inner), half(inner, columns))
        record = only(driver)
        words = record.image.split("|")[0].split()
        assert [word for word in words if word == "fast" or word.endswith("%16")] == assumed
        assert len(record.parameters) == (9 if assumed else 11)

    def test_integers_that_must_be_one(self, ops, driver):
        ops.gemm(half(32, 16).t(), half(32, 16))
        assert "fast" not in only(driver).image

    def test_shared_memory_decides(self, ops, driver):
        a = half(16, 16)
        ops.gemm(a, a)
        large = only(driver)
        on(driver, 9, a)
        ops.gemm(a, a)
        small = only(driver)
        assert ("BLOCK=64" in large.image, large.facts["shared"]) == (True, "120000")
        assert ("BLOCK=32" in small.image, small.facts["shared"]) == (True, "40000")
        assert small.facts["block"] == "256"

    def test_devices_beyond_those_that_are_remembered(self, ops, driver):
        (x,) = on(driver, 17, half(64))
        ops.add(x, x)
        ops.add(x, x)
        assert [one.facts["device"] for one in driver.launches()] == ["17", "17"]


class TestLoading:
    def test_one_load_serves_all_devices(self, ops, driver):
        x, y = torch.zeros(8), torch.zeros(8)
        on(driver, 8, y)
        for tensor in (x, y, x, y):
            ops.add(tensor, tensor)
        said = driver.said()
        assert len([line for line in said if line.startswith("load")]) <= 1
        assert len([line for line in said if line.startswith("launch")]) == 4

    def test_attributes_are_set_for_each_device(self, ops, driver):
        a = half(16, 32).to(torch.bfloat16)
        b = half(32, 16).to(torch.bfloat16)
        ops.gemm(a, b)
        on(driver, 8, a, b)
        ops.gemm(a, b)
        said = [line for line in driver.said() if line.startswith("set")]
        assert [line.split(" 8=120000 on ")[1] for line in said] == ["0", "8"]

    def test_threads_race_for_the_first_load(self, ops, driver):
        """An op that nothing else calls, from threads without a context."""
        x = torch.zeros(100)
        start = threading.Barrier(8)
        outcomes = []

        def work():
            start.wait()
            for _ in range(50):
                ops.race(x)
            outcomes.append(driver.library.fake_depth())

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        said = driver.said()
        assert outcomes == [0] * 8
        assert len([line for line in said if line.startswith("load")]) == 1
        assert len([line for line in said if line.startswith("launch")]) == 400

    def test_preload(self, ops, driver):
        ops._kbuild_preload()
        driver.said()
        x = torch.zeros(8, dtype=torch.bfloat16)
        ops.add(x, x)
        ops.odd(torch.zeros(3), 1)
        assert not [line for line in driver.said() if line.startswith("load")]


class TestCandidates:
    def chosen(self, ops, driver, rows, n, device=1, dtype=torch.float16, b=None):
        """The candidate's BLOCK and the constant that the call decides."""
        driver.library.fake_forget()
        x, w = torch.zeros(rows, n, dtype=dtype), torch.zeros(n, dtype=dtype)
        ops.norm(*on(driver, device, x, w), b)
        words = dict(word.split("=") for word in only(driver).image.split() if "=" in word)
        return int(words["BLOCK"]), int(words["W"])

    def test_the_first_whose_condition_holds(self, ops, driver):
        assert self.chosen(ops, driver, 3, 60) == (1, 64)
        assert self.chosen(ops, driver, 3, 64) == (1, 64)
        assert self.chosen(ops, driver, 3, 65) == (2, 128)

    def test_constants_that_calls_decide_are_in_the_grid(self, ops, driver):
        ops.norm(*on(driver, 1, half(3, 200), half(200)))
        assert only(driver).grid == (6, 4, 1)

    def test_the_exact_key(self, ops, driver):
        assert self.chosen(ops, driver, 1, 256, device=0) == (4, 256)
        assert self.chosen(ops, driver, 1024, 256, device=0) == (2, 256)
        assert self.chosen(ops, driver, 1, 64, device=0) == (2, 64)

    def test_the_nearest_key(self, ops, driver):
        assert self.chosen(ops, driver, 2, 200, device=0) == (4, 256)
        assert self.chosen(ops, driver, 500, 200, device=0) == (2, 256)

    def test_another_device_of_the_arch(self, ops, driver):
        """All tables of the arch, the first of several rows that are as near."""
        assert self.chosen(ops, driver, 1, 100, device=8) == (4, 128)
        assert self.chosen(ops, driver, 1, 64, device=8) == (2, 64)

    def test_a_table_of_the_device_without_the_dtypes(self, ops, driver):
        """Then those of the arch decide."""
        assert self.chosen(ops, driver, 1, 130, device=0, dtype=torch.float32) == (4, 256)

    def test_no_table_for_the_arch(self, ops, driver):
        assert self.chosen(ops, driver, 1, 256, device=1) == (2, 256)

    @pytest.mark.parametrize(("device", "candidate"), [(0, 5), (1, 2), (2, 2), (6, 2)])
    def test_made_for_other_archs(self, ops, driver, device, candidate):
        """Where one has machine code for the device, PTX of one for older archs does not count."""
        ops.odd(*on(driver, device, torch.zeros(2)), 1)
        assert f" C={candidate} " in only(driver).image

    @pytest.mark.parametrize(
        ("rows", "n", "offset", "block", "fast"),
        [
            (3, 64, 0, 1, True),
            (2, 64, 0, 2, True),
            (3, 63, 0, 3, False),
            (2, 64, 1, 3, False),
            (3, 64, 8, 1, True),
        ],
    )
    def test_with_the_aligned_image_alone(self, ops, driver, rows, n, offset, block, fast):
        """Such a candidate is passed over where pointers or integers are not divisible by 16."""
        y = half(n + 8)[offset : offset + n]
        ops.exact(half(rows, n), y)
        image = only(driver).image
        assert (f" BLOCK={block} " in image, "fast" in image) == (True, fast)

    def test_with_the_aligned_image_alone_by_hand(self, ops):
        """As `kbuild tune` asks: it is skipped, and the reason is said."""
        number = [op.spec.name for op in rich() for _ in op.launches].index("exact")
        ops._kbuild_choose(number, 1)
        try:
            ops.exact(half(2, 64), half(64))
            with pytest.raises(RuntimeError) as caught:
                ops.exact(half(2, 63), half(63))
        finally:
            ops._kbuild_choose(number, -1)
        assert str(caught.value).splitlines()[0] == (
            "`exact`: candidate 1 of `exact` does not fit this call on sm_90: "
            "it is only for aligned calls"
        )

    @pytest.mark.parametrize("offset", [0, 1, 8])
    def test_unaligned_calls_run_the_default_candidate(self, ops, driver, offset):
        """The tuned table names another one, which has aligned images only."""
        x = half(256 + offset)[offset:]
        ops.norm(*on(driver, 0, x, half(256)), None)
        image = only(driver).image
        is_aligned = offset % 8 == 0
        block = 4 if is_aligned else 2
        assert (f" BLOCK={block} " in image, "fast" in image) == (True, is_aligned)

    def test_by_hand_nothing_else_runs(self, ops):
        """Not even the DSL itself: its time would be taken for the candidate's."""
        number = [op.spec.name for op in rich() for _ in op.launches].index("late")
        ops._kbuild_choose(number, 0)
        try:
            with pytest.raises(RuntimeError) as caught:
                ops.late(torch.zeros(20), None, 0.5)
        finally:
            ops._kbuild_choose(number, -1)
        words = "`late`: candidate 0 of `late` does not fit this call on sm_90"
        assert str(caught.value).splitlines()[0] == words

    def test_by_hand(self, ops, driver):
        assert self.chosen(ops, driver, 3, 60) == (1, 64)
        ops._kbuild_choose(1, 1)
        try:
            assert self.chosen(ops, driver, 3, 60) == (2, 64)
            ops._kbuild_choose(1, 3)
            assert self.chosen(ops, driver, 1, 60) == (8, 64)
            with pytest.raises(RuntimeError, match="candidate 3 of `norm_kernel` does not fit"):
                self.chosen(ops, driver, 1, 60, device=7)
        finally:
            ops._kbuild_choose(1, -1)
        assert self.chosen(ops, driver, 3, 60) == (1, 64)

    @pytest.mark.parametrize(
        ("launch", "candidate", "words"),
        [(1, 4, "no candidate 4"), (1, -2, "no candidate -2"), (99, 0, "no launch 99"),
         (-1, 0, "no launch -1")],
    )  # fmt: skip
    def test_what_cannot_be_chosen(self, ops, launch, candidate, words):
        with pytest.raises(RuntimeError, match=words):
            ops._kbuild_choose(launch, candidate)
