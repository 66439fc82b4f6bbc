"""The exported C, compiled and called: a driver that counts stands in for CUDA's and AMD's."""

from __future__ import annotations

import struct

import pytest

from kbuild.system.errors import UsageError
from tests.support.exported_functions import ADD, CODE, FAST, compiled, files, run, symbol

CALL = "call = lambda n, x=32: f(None, c_uint64(x), c_uint64(48), c_uint64(64), c_int32(n))\n"
# For a library with several functions: `call` calls the one whose name is in `name`.
SEVERAL = """found = []
def call(n): return lib[name](None, c_uint64(32), c_uint64(48), c_uint64(64), c_int32(n))
"""


@pytest.fixture(params=["c11", "c++17"])
def language(request):
    return request.param


def called(tmp_path, script, exported, driver="libcuda.so.1", language="c11"):
    name = symbol(exported)
    head = (
        f"f, load, unload, fits = lib.{name}, lib.load_{name}, lib.unload_{name}, lib.fits_{name}\n"
    )
    return run(compiled(tmp_path, exported, language=language), head + script, driver)


def test_a_launch(tmp_path, language):
    script = CALL + "sizes(8, 8, 8, 4, 8, 8)\nsay(call(5000), report())"
    code, seen = called(tmp_path, script, files(), language=language)
    assert code == 0
    assert (seen["loads"], seen["launches"], seen["grid"], seen["block"]) == (1, 1, [5, 1, 1], 128)
    assert seen["values"][3] == struct.pack("<i", 5000).hex()
    assert [int.from_bytes(bytes.fromhex(v), "little") for v in seen["values"][:3]] == [32, 48, 64]
    assert seen["values"][4:] == ["0" * 16] * 2
    assert seen["head"] == CODE[:8].hex()


def test_it_is_loaded_once_and_again_after_unload(tmp_path):
    script = CALL + (
        "codes = [unload(), fits(), load(), load(), call(1), call(2)]\n"
        "codes += [unload(), call(3), unload()]\n"
        "say(codes, report())"
    )
    codes, seen = called(tmp_path, script, files())
    assert codes == [0] * 9
    assert (seen["loads"], seen["unloads"], seen["launches"]) == (2, 2, 3)


def test_threads_load_it_once(tmp_path):
    script = CALL + (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(16) as pool: codes = set(pool.map(call, range(1, 4001)))\n"
        "say(list(codes), report())"
    )
    codes, seen = called(tmp_path, script, files())
    assert codes == [0]
    assert (seen["loads"], seen["launches"]) == (1, 4000)


def test_every_device_has_its_own_state(tmp_path):
    """One image serves all devices of CUDA, but each has to allow its shared memory."""
    script = CALL + (
        "codes = []\n"
        "for device in (0, 1, 0, 5): fake.fake_device(device); codes.append(call(1))\n"
        "fake.fake_device(64); codes.append(call(1))\n"
        "fake.fake_device(-1); codes.append(call(1))\n"
        "say(codes, report())"
    )
    codes, seen = called(tmp_path, script, files(shared=65536))
    assert codes == [0, 0, 0, 0, 101, 201]
    assert seen["on"] == [2, 1, 0, 0, 0, 1, 0, 0]
    assert (seen["loads"], seen["kernel_attributes"], seen["shared"]) == (1, 3, 65536)


def test_more_shared_memory_than_there_is(tmp_path):
    script = CALL + "fake.fake_optin(65535)\nsay(call(1), load(), report())"
    *codes, seen = called(tmp_path, script, files(shared=65536))
    assert codes == [701, 701]
    assert seen["launches"] == 0


def test_what_is_assumed_is_tested(tmp_path):
    script = (
        "call = lambda p, n, s: f(None, c_uint64(p), c_int32(n), c_int64(s))\n"
        "sizes(8, 4)\n"
        "say(call(16, 32, 1), call(8, 32, 1), call(16, 8, 1), call(16, 32, 2), report())"
    )
    exported = files("*fp16:16, i32:16, i64:1, 1", "p, n, s, BLOCK!", "n, 1, 1")
    *codes, seen = called(tmp_path, script, exported)
    assert codes == [0, 716, 1, 1]
    assert seen["launches"] == 1
    assert seen["values"] == [struct.pack("<Q", 16).hex(), struct.pack("<i", 32).hex()]


def test_archs(tmp_path):
    cases = [
        ((8, 0), "sm_80", 0),
        ((8, 9), "sm_80", 0),
        ((8, 0), "sm_86", 209),
        ((9, 0), "sm_80", 209),
        ((9, 0), "sm_90a", 0),
        ((10, 0), "sm_90a", 209),
        ((10, 3), "sm_100f", 0),
        ((10, 3), "sm_100a", 209),
        ((12, 0), "compute_80", 0),
        ((7, 5), "compute_80", 209),
    ]
    sets = [files(target=target, name=f"case_{at}") for at, (_, target, _) in enumerate(cases)]
    script = SEVERAL + "".join(
        f"fake.fake_capability(*{device})\nname = {symbol(one)!r}\n"
        "found.append([lib['fits_' + name](), call(1), lib['load_' + name]()])\n"
        for (device, *_), one in zip(cases, sets, strict=True)
    )
    (found,) = run(compiled(tmp_path, *sets), script + "say(found)")
    assert found == [[code] * 3 for *_, code in cases]


def test_numbers_arrive_as_they_are(tmp_path):
    """A `double` where the kernel reads a float was silently 0."""
    signature = "fp32, fp64, fp16, bf16, i1, i8, u16, i64"
    script = (
        "sizes(4, 8, 2, 2, 1, 1, 2, 8)\n"
        "code = f(None, c_float(2.5), c_double(0.1), c_float(0.1), c_float(0.1), 1, -2, 65535,"
        " c_int64(-3))\n"
        "say(code, report()['values'])"
    )
    exported = files(signature, "a, b, c, d, e, g, h, i", "1")
    code, seen = called(tmp_path, script, exported)
    assert code == 0
    wanted = [("<f", 2.5), ("<d", 0.1), ("<e", 0.1), None, ("<B", 1), ("<b", -2), ("<H", 65535)]
    for value, form in zip(seen, [*wanted, ("<q", -3)], strict=True):
        assert value == (struct.pack(*form).hex() if form else "cd3d")


def test_half_floats_are_rounded_as_elsewhere(tmp_path):
    """To the nearest, ties to even: compared with Python's own conversion."""
    script = """
import random, struct
random.seed(7)
sizes(2, 2)
wrong = []
bits = [0, 1, 0x33000000, 0x33000001, 0x38800000, 0x387fffff, 0x477fefff, 0x477ff000, 0x7f800000,
        0x47800000, 0x3f801000, 0x3f803000, 0x33800000, 0x337fffff]
bits += [random.getrandbits(31) for _ in range(3000)]
bits += [random.randrange(0x33000000, 0x47800000) for _ in range(6000)]
for pattern in bits + [b | 0x80000000 for b in bits[:40]]:
    value = struct.unpack("<f", struct.pack("<I", pattern))[0]
    if value != value: continue
    f(None, c_float(value), c_float(value))
    half, brain = (int.from_bytes(bytes.fromhex(v), "little") for v in report()["values"])
    try: wanted = struct.unpack("<H", struct.pack("<e", value))[0]
    except OverflowError: wanted = 0x7c00 | (pattern >> 16 & 0x8000)
    rounded = (pattern + 0x7fff + (pattern >> 16 & 1)) >> 16
    if (half, brain) != (wanted, rounded): wrong.append((hex(pattern), hex(half), hex(wanted)))
f(None, c_float(float("nan")), c_float(float("nan")))
say(wrong[:5], report()["values"])
"""
    wrong, nans = called(tmp_path, script, files("fp16, bf16", "a, b", "1"))
    assert wrong == []
    assert nans == ["007e", "c07f"]


def test_grids(tmp_path):
    cases = [
        ("cdiv(n, BLOCK)", 0, 0, None),
        ("n, 0, 1", 5, 0, None),
        ("n - 2", 1, 1, None),
        ("n // (n - 1)", 1, 1, None),
        ("n % (n - 1)", 1, 1, None),
        ("n, 65536", 1, 1, None),
        ("n * n * n * n", 2**30, 1, None),
        ("n, 65535, 65535", 7, 0, [7, 65535, 65535]),
        ("next_pow2(n), min(n, 3), max(n, 9)", 5, 0, [8, 3, 9]),
        ("(0 - n) % 7", 3, 0, [4, 1, 1]),
        ("0 - (0 - n) // 2", 7, 0, [4, 1, 1]),
        ("2 if n > 4 and not n == 6 else 1", 5, 0, [2, 1, 1]),
        ("(n + 1023) / 1024", 1025, 0, [2, 1, 1]),
    ]
    sets = [files(grid=grid, name=f"case_{at}") for at, (grid, *_) in enumerate(cases)]
    script = SEVERAL + "".join(
        f"name, before = {symbol(one)!r}, report()['launches']\ncode, seen = call({n}), report()\n"
        "found.append([code, seen['grid'] if seen['launches'] > before else None])\n"
        for (_, n, *_), one in zip(cases, sets, strict=True)
    )
    (found,) = run(compiled(tmp_path, *sets), script + "say(found)")
    assert found == [[code, wanted] for *_, code, wanted in cases]


def test_attributes_of_launches(tmp_path):
    """Clusters multiply the grid, as Triton's own launcher does."""
    exported = files(target="sm_90a", cluster=(2, 1, 1), pdl=True, cooperative=True)
    script = CALL + "fake.fake_capability(9, 0)\nsay(call(5000), report())"
    code, seen = called(tmp_path, script, exported)
    assert code == 0
    assert seen["attributes"] == [4, 5, 2, 6]
    assert seen["grid"] == [10, 1, 1]


def test_large_clusters_ask_for_permission(tmp_path):
    exported = files(target="sm_90a", cluster=(16, 1, 1))
    script = CALL + "fake.fake_capability(9, 0)\nsay(call(5000), report())"
    _, seen = called(tmp_path, script, exported)
    assert seen["kernel_attributes"] == 1


@pytest.mark.parametrize(("target", "driver"), [("sm_80", "cuda"), ("gfx942", "amdhip64")])
def test_scratch_memory(tmp_path, target, driver):
    """As much as all blocks need, handed back on the same stream also when the launch fails."""
    exported = files(target=target, scratch=256, scratch_align=128)
    script = CALL + (
        "sizes(8, 8, 8, 4, 8, 8)\nfirst = call(5000)\nfake.fake_fail(700)\n"
        "say(first, call(1), report())"
    )
    soname = {"cuda": "libcuda.so.1", "amdhip64": "libamdhip64.so.6"}[driver]
    first, second, seen = called(tmp_path, script, exported, soname)
    assert (first, second) == (0, 700)
    assert (seen["allocated"], seen["freed"]) == (6 * 256, 2)
    assert seen["values"][4] == struct.pack("<Q", 0x1000).hex()


def test_errors_come_back(tmp_path):
    script = CALL + "fake.fake_fail(719)\nsay(call(1), call(0))"
    assert called(tmp_path, script, files()) == [719, 0]
    script = CALL + "say(call(1), load(), report()['launches'])"
    assert called(tmp_path, script, files(entry="missing")) == [500, 500, 0]


def test_without_a_driver(tmp_path):
    script = CALL + "say(call(1), load(), fits(), unload(), call(0))"
    assert called(tmp_path, script, files(), "no driver") == [303, 303, 303, 0, 0]


def test_amd(tmp_path, language):
    script = CALL + (
        "sizes(8, 8, 8, 4)\ncodes = []\n"
        "for device in (0, 1, 1): fake.fake_device(device); codes.append(call(5000, 33))\n"
        "fake.fake_device(2); fake.fake_gfx(b'gfx90a:sramecc+'); codes.append(call(1))\n"
        "fake.fake_device(3); fake.fake_gfx(b'gfx9421'); codes.append(call(1))\n"
        "codes.append(unload())\n"
        "say(codes, report())"
    )
    exported = files("*fp32, *fp32, *fp32, i32, 1024", target="gfx942", shared=4096, threads=256)
    codes, seen = called(tmp_path, script, exported, "libamdhip64.so.6", language)
    assert codes == [0, 0, 0, 209, 209, 0]
    assert (seen["loads"], seen["unloads"]) == (2, 2)
    assert (seen["grid"], seen["block"], seen["shared"]) == ([5, 1, 1], 256, 4096)
    assert seen["on"][:2] == [1, 2]


def test_names_that_c_cannot_have(tmp_path):
    exported = files("i32, *fp32:16, fp32", "default, stream, register", "default")
    script = "sizes(4, 8, 4)\nsay(f(None, 3, c_uint64(16), c_float(1)), report()['grid'])"
    assert called(tmp_path, script, exported) == [0, [3, 1, 1]]
    with pytest.raises(UsageError, match="`größe` is not a name in C"):
        files("i32", "größe", "1")


def test_names_that_the_functions_use_themselves(tmp_path, language):
    cases = (
        *(
            "x, kb_x",
            "kb_halves, kb_halves_",
            "kb_x, KB_MOST_X",
            "stream, stream_",
            "kb_args, kb_grid",
        ),
        *("uint16_t, int64_t", "NULL, INT64_MAX", "CUstream, CUdeviceptr", "result, kb_result"),
        *("kb_bad, kb_bad_", "linux, unix", "kb_fp16, kb_launch", "int, int_"),
    )
    sets = [
        files("fp16, i32", names, f"cdiv({names.partition(', ')[2]}, 1)", name=f"case_{at}")
        for at, names in enumerate(cases)
    ]
    script = "sizes(2, 4)\nfound = []\n" + "".join(
        f"code, seen = lib.{symbol(one)}(None, c_float(1), {at}), report()\n"
        "found.append([code, seen['values'][:2], seen['grid'][0]])\n"
        for at, one in enumerate(sets, 3)
    )
    (found,) = run(compiled(tmp_path, *sets, language=language), script + "say(found)")
    one = struct.pack("<e", 1).hex()
    assert found == [[0, [one, struct.pack("<i", at).hex()], at] for at in range(3, 3 + len(cases))]


def test_an_image_with_other_parameters():
    with pytest.raises(UsageError, match=r"takes .* not"):
        files(FAST, ADD, parameters=())


@pytest.mark.parametrize(
    "change", [{"cluster": (1, 2, 1)}, {"target": "gfx942", "cluster": (2, 1, 1)}]
)
def test_clusters_that_cannot_be(change):
    with pytest.raises(UsageError, match="clusters of"):
        files(**change)


def test_amd_has_no_dependent_launches():
    with pytest.raises(UsageError, match="for CUDA only"):
        files(target="gfx942", pdl=True)
