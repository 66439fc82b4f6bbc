"""Several images behind one function: which one is taken, and what does not belong together."""

from __future__ import annotations

import pytest

from kbuild.dsl.languages.triton.export.command import link, read_header
from kbuild.system.errors import UsageError
from tests.support.exported_functions import compiled, files, run, symbol

PLAIN = "*fp32, *fp32, *fp32, i32, 1024"
FAST = "*fp32:16, *fp32:16, *fp32:16, i32:16, 1024"
ONE = "*fp32, *fp32, *fp32, i32:1, 1024"


def headers(*sets):
    found = []
    for one in sets:
        ((path, data),) = [pair for pair in one.items() if pair[0].endswith(".h")]
        found.append(read_header(f"folder/{path}", data.decode()))
    return found


def joined(tmp_path, script, *sets, language="c11", driver="libcuda.so.1"):
    library = compiled(tmp_path, *sets, link(headers(*sets), "joined"), language=language)
    head = (
        "sizes(8)\n"
        "def call(n, x=32, algo=0):\n"
        "    before = report()['launches']\n"
        "    code = lib.add(None, c_uint64(x), c_uint64(48), c_uint64(64), c_int32(n), algo)\n"
        "    seen = report()\n"
        "    return [code, seen['block'] if seen['launches'] > before else 0]\n"
    )
    return run(library, head + script, driver)


@pytest.mark.parametrize("language", ["c11", "c++17"])
def test_hints(tmp_path, language):
    """The most specialised image whose assumptions hold; threads tell which one ran."""
    sets = [files(PLAIN, threads=32), files(FAST, threads=64), files(ONE, threads=128)]
    script = "say(call(32), call(32, 40), call(1), call(17), lib.add_get_num_algos())"
    found = joined(tmp_path, script, *sets, language=language)
    assert found == [[0, 64], [0, 32], [0, 128], [0, 32], 1]


def test_an_argument_with_the_name_of_the_kernel(tmp_path):
    sets = [files(names="add, y_ptr, out_ptr, n, BLOCK!")]
    call = "lib.add_default(None, c_uint64(32), c_uint64(48), c_uint64(64), c_int32(32))"
    assert joined(tmp_path, f"say({call})", *sets) == [0]


def test_without_a_plain_image(tmp_path):
    script = "say(call(32), call(31), call(32, 1), lib.load_add(), report()['loads'])"
    assert joined(tmp_path, script, files(FAST)) == [[0, 128], [1, 0], [1, 0], 0, 1]


def test_archs(tmp_path):
    """Code for the chip itself, else the nearest before it, else PTX."""
    targets = {"compute_80": 32, "sm_80": 64, "sm_90a": 96, "sm_86": 128, "sm_100f": 160}
    sets = [files(PLAIN, target=target, threads=n) for target, n in targets.items()]
    script = (
        "found = []\n"
        "for device, cc in enumerate([(8, 0), (8, 6), (8, 9), (9, 0), (10, 3), (12, 0), (7, 5)]):\n"
        "    fake.fake_device(device); fake.fake_capability(*cc); found.append(call(5))\n"
        "say(found)"
    )
    (found,) = joined(tmp_path, script, *sets)
    assert found == [[0, n] for n in (64, 128, 128, 96, 160, 32)] + [[209, 0]]


def test_algos(tmp_path):
    """In the order of the headers; constants and options tell them apart."""
    sets = [
        files(PLAIN, threads=128),
        files(PLAIN, threads=256, options=(("num_warps", 8),)),
        files(PLAIN.replace("1024", "2048"), threads=64),
    ]
    script = (
        "default = lib.add_default(None, c_uint64(1), c_uint64(2), c_uint64(3), c_int32(5))\n"
        "say(call(5, algo=0), call(5, algo=1), call(5, algo=2), call(5, algo=3), call(5, algo=-1),"
        " lib.add_get_num_algos(), default)"
    )
    assert joined(tmp_path, script, *sets) == [*([0, 128], [0, 256], [0, 64], [1, 0], [1, 0], 3, 0)]


def test_load_and_unload(tmp_path):
    """Those for other devices are left alone."""
    sets = [files(PLAIN), files(FAST), files(PLAIN, target="sm_90a")]
    script = (
        "first = lib.load_add()\n"
        "loads = report()['loads']\n"
        "codes = [lib.unload_add(), call(5)[0], lib.unload_add()]\n"
        "fake.fake_device(1); fake.fake_capability(7, 5)\n"
        "say(first, loads, codes, lib.load_add(), report()['unloads'])"
    )
    assert joined(tmp_path, script, *sets) == [0, 2, [0, 0, 0], 209, 3]


def test_errors_that_are_not_about_archs_come_back(tmp_path):
    script = "fake.fake_device(-1)\nsay(call(5), lib.load_add())"
    assert joined(tmp_path, script, files(PLAIN), files(FAST)) == [[201, 0], 201]


def test_several_kernels(tmp_path):
    sets = [files(PLAIN), files("fp32, *fp32", "a, p", "1", name="axpy", threads=64)]
    script = "say(call(5), lib.axpy(None, c_float(1), c_uint64(0), 0), lib.axpy_get_num_algos())"
    assert joined(tmp_path, script, *sets) == [[0, 128], 0, 1]


def test_amd(tmp_path):
    sets = [files(PLAIN, target=t, threads=n) for t, n in (("gfx942", 64), ("gfx90a", 128))]
    script = (
        "found = [call(5)]\n"
        "fake.fake_device(1); fake.fake_gfx(b'gfx90a'); found.append(call(5))\n"
        "fake.fake_device(2); fake.fake_gfx(b'gfx1100'); found.append(call(5))\n"
        "say(found)"
    )
    (found,) = joined(tmp_path, script, *sets, driver="libamdhip64.so.6")
    assert found == [[0, 64], [0, 128], [209, 0]]


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ([files(PLAIN), files(PLAIN)], "would be used for the same calls"),
        ([files(PLAIN), files(PLAIN, grid="n")], "would be used for the same calls"),
        ([files(PLAIN), files(PLAIN, target="gfx942")], "is for cuda, `folder/add.gfx942"),
        ([files(PLAIN), files(PLAIN.replace("i32", "i64"))], "`add` has different arguments: ("),
        ([files(PLAIN), files(PLAIN.replace("fp32", "fp16"))], "`add` has different arguments"),
        ([], "there are no headers to link"),
    ],
)
def test_what_does_not_belong_together(sets, words):
    with pytest.raises(UsageError) as caught:
        link(headers(*sets), "joined")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "// kbuild-aot: nothing",
        "// kbuild-aot: {}",
        '// kbuild-aot: {"format": 99}',
        '// kbuild-aot: {"format": 1, "name": "a", "target": "sm_80", "arguments": [[1]]}',
        "// tt-linker: add_1:CUstream stream:1",
    ],
)
def test_headers_of_others(text):
    with pytest.raises(UsageError, match=r"`a\.h` cannot be linked"):
        read_header("a.h", text)


def test_the_header_lists_what_there_is():
    both = link(headers(files(PLAIN), files(PLAIN, target="sm_90a")), "out/joined")
    assert [path for path, _ in both.items()] == ["out/joined.c", "out/joined.h"]
    text = both["out/joined.h"].decode()
    assert "/* algo 0: BLOCK=1024, num_warps=4; for sm_90a, sm_80 */" in text
    assert '#include "joined.h"' in both["out/joined.c"].decode()
    assert symbol(files(PLAIN)) in both["out/joined.c"].decode()
