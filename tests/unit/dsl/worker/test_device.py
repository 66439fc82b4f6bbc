"""What sources are told of the device that they are compiled for, and what comes of it."""

from __future__ import annotations

import sys

import pytest

from kbuild.dsl.devices import cuda_devices, device_facts
from kbuild.dsl.worker import torch_stub
from kbuild.dsl.worker.doubts import fresh_process
from kbuild.dsl.worker.protocol import RefusalError
from kbuild.dsl.worker.sources import SourceCache
from kbuild.dsl.worker_client import functions_from_answers
from kbuild.ops.unit import ImageTarget
from kbuild.system.errors import BuildError


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Import a source for some archs, with the stand-in for Torch; gives its module for each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [torch_stub.StubFinder(["torch"]), *sys.meta_path])
    before = dict(sys.modules)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        del sys.modules[name]
    shelf, roots = SourceCache(), {}

    def asking(text: str, *archs: str, flavour: str = "cuda13"):
        root = roots.setdefault(text, tmp_path / str(len(roots)))
        (root / "pkg").mkdir(parents=True, exist_ok=True)
        (root / "pkg" / "kern.py").write_text(f"import torch\n{text}")
        modules = []
        for arch in archs:
            facts = device_facts(ImageTarget.parse(arch), flavour)
            request = {"root": str(root), "sources": ["pkg/kern.py"], "device": facts}
            modules.append(shelf.get(request).main())
        return modules

    yield asking
    sys.modules.clear()
    sys.modules.update(before)


@pytest.mark.parametrize("arch", ["sm_75", *cuda_devices(), "compute_80", "sm_90a", "sm_100f"])
def test_every_arch_of_nvidia(asked, arch):
    (module,) = asked(
        """
FACTS = torch.cuda.get_device_properties(0)
FOUND = (FACTS.major, FACTS.minor), FACTS.warp_size, FACTS.shared_memory_per_block
SAME = torch.cuda.get_device_capability() == FOUND[0] and torch.cuda.is_available()
THERE = torch.version.cuda is not None and not torch.version.hip and FACTS.name is not None
MOST = FACTS.shared_memory_per_block_optin <= FACTS.shared_memory_per_multiprocessor
NONE = hasattr(FACTS, "gcnArchName") or torch.xpu.is_available()
""",
        arch,
    )
    capability = ImageTarget.parse(arch).capability
    assert (capability.base, 32, 49152) == module.FOUND
    assert (module.SAME, module.THERE, module.MOST, module.NONE) == (True, True, True, False)


def test_amd(asked):
    (module,) = asked(
        """
FACTS = torch.cuda.get_device_properties(0)
FOUND = FACTS.gcnArchName.split(":")[0], FACTS.warp_size, torch.cuda.get_device_capability()
HIP = bool(torch.version.hip) and torch.version.cuda is None
""",
        "gfx942",
        flavour="rocm",
    )
    assert (module.FOUND, module.HIP) == (("gfx942", 64, (9, 4)), True)
    for arch, wanted in {"gfx90a": [9, 0], "gfx1101": [11, 0], "gfx1030": [10, 3]}.items():
        assert device_facts(ImageTarget.parse(arch), "rocm")["capability"] == wanted


def test_the_cpu(asked):
    (module,) = asked("FOUND = torch.cuda.is_available(), torch.cuda.device_count()", "cpu")
    assert module.FOUND == (False, 0)
    with pytest.raises(RefusalError, match="not compiled for one"):
        asked("torch.cuda.get_device_capability()", "cpu")


def test_a_source_that_asks_is_imported_for_each_arch(asked):
    """Also when it asks long after it was imported, and keeps the answer."""
    text = """
import functools
@functools.lru_cache
def major():
    return torch.cuda.get_device_capability()[0]
"""
    (first,) = asked(text, "sm_80")
    assert first.major() == 8
    (second,) = asked(text, "sm_90")
    assert second.major() == 9
    third, fourth = asked(text, "sm_90a", "sm_80")
    assert (third, fourth) == (second, first)
    assert (third.major(), fourth.major()) == (9, 8)


def test_what_differs_from_device_to_device_may_be_handed_on(asked):
    (module,) = asked(
        """
COUNT = torch.cuda.get_device_properties(0).multi_processor_count * 2
def grid(n): return (min(COUNT, n),)
""",
        "sm_80",
    )
    with pytest.raises(RefusalError, match=r"differs among the devices that run code for 8\.0"):
        module.grid(3)


@pytest.mark.parametrize(
    "line",
    [
        "X = 1 if torch.cuda.get_device_properties(0).multi_processor_count > 100 else 2",
        "X = int(torch.cuda.get_device_properties(0).total_memory)",
        "X = [one for one in range(3) if torch.cuda.mem_get_info()[0] // 4 > one]",
        "X = torch.zeros(3).sum().item() == 0",
        "X = os.path.join(torch.utils.cpp_extension.CUDA_HOME.lower(), 'bin')",
    ],
)
def test_nothing_is_decided_by_it(asked, line):
    with pytest.raises(RefusalError) as caught:
        asked(f"import os\n{line}", "sm_80")
    assert (caught.value.file, caught.value.line) == ("pkg/kern.py", 3)


@pytest.mark.parametrize("catch", ["except Exception", "except BaseException", "except"])
def test_a_refusal_that_is_caught_counts(asked, catch):
    """Where there is a GPU nothing would be raised, and the source would not go that way."""
    text = f"""
try:
    COUNT = int(torch.cuda.get_device_properties(0).multi_processor_count)
{catch}:
    COUNT = 1
"""
    with pytest.raises(RefusalError, match="multi_processor_count` differs") as caught:
        asked(text, "sm_80")
    assert caught.value.line == 4


def test_a_name_that_only_some_models_have(asked):
    """The answers differ, and what is made of them must not."""
    text = 'HOPPER = "NVIDIA H" in torch.cuda.get_device_name(0) or {}'
    capability = "torch.cuda.get_device_capability()[0] >= 9"
    (module,) = asked(text.format(capability), "sm_90a")
    assert module.HOPPER is True
    with pytest.raises(RefusalError, match=r"`pkg\.kern\.HOPPER` depends on") as caught:
        asked(text.format("False"), "sm_90")
    assert "NVIDIA GH200" in caught.value.message
    assert caught.value.line == 2


def test_the_release_of_cuda(asked):
    text = 'NEW = torch.version.cuda.startswith("13")'
    assert [one.NEW for one in asked(text, "sm_90a")] == [True]
    assert [one.NEW for one in asked(text, "sm_80", flavour="cuda12")] == [False]
    with pytest.raises(RefusalError, match=r"depends on `torch\.version\.cuda`"):
        asked('NEW = tuple(map(int, torch.version.cuda.split("."))) >= (13, 1)', "sm_100a")


@pytest.mark.parametrize(
    "line",
    [
        'NEW = torch.__version__ >= "2.6"',
        'NEW = torch.__version__ >= "2.6"\nclass F(torch.autograd.Function):\n    pass',
        "VERSION = torch.__version__",
        "VERSION = tuple(map(int, torch.__version__.split('.')[:2]))",
        "MAJOR, MINOR = map(int, torch.version.__version__.split('.')[:2])",
        "NUMBER = int(''.join(torch.__version__.split('.')[:2]))",
        "NEW = torch.__version__ > (2, 13) or True",
    ],
)
@pytest.mark.parametrize("arch", ["sm_90a", "cpu"])
def test_the_release_of_torch(asked, line, arch):
    (module,) = asked(line, arch)
    assert "2.13" in module.torch.__version__


@pytest.mark.parametrize(
    "text",
    [
        "{} = torch.__version__ >= '2.14'",
        "{} = tuple(map(int, torch.__version__.split('.')[:2])) >= (2, 12)",
        "{} = constexpr(32 if torch.__version__ < '2.12' else 64)",
        "{} = [32 if '2.12' in torch.version.__version__ else 64]",
    ],
)
def test_what_depends_on_the_release_of_torch(asked, text):
    """One image serves every Torch that the variant runs with."""
    made = "class constexpr:\n    def __init__(self, value): self.value = value\n"
    with pytest.raises(
        RefusalError, match=r"`pkg\.kern\.N` depends on `torch\.__version__`"
    ) as caught:
        asked(made + text.format("N"), "sm_90a")
    assert (caught.value.file, caught.value.line) == ("pkg/kern.py", 4)
    assert "the Torch releases that kbuild builds for: '2.13.0', '2.1" in caught.value.message
    assert "in a function" in caught.value.hint


def test_a_release_of_torch_that_the_source_cannot_be_imported_with(asked):
    text = 'if torch.__version__ >= "2.14":\n    torch.new_in_it'
    with pytest.raises(RefusalError, match=r"if `torch\.__version__` is '2\.14\.0'") as caught:
        asked(text, "sm_90a")
    assert (caught.value.file, caught.value.line) == ("pkg/kern.py", 3)


def test_the_release_of_torch_in_a_function_that_is_called_later(asked):
    text = 'V = torch.__version__\ndef old(): return V < "2.4"\ndef new(): return V != "2.14"'
    (module,) = asked(text, "sm_90a")
    assert module.old() is False
    with pytest.raises(RefusalError, match=r"compared with '2\.14': the answer differs") as caught:
        module.new()
    assert caught.value.line == 4


PATCH = "import math\nassert not hasattr(math, 'patched')\nmath.patched = {}\n"


@pytest.mark.parametrize(
    "line", ["NEW = torch.__version__ > '2'", "NEW = torch.version.cuda > '1'"]
)
def test_an_import_that_patches_is_repeated_elsewhere(asked, monkeypatch, line):
    import math

    monkeypatch.setattr(math, "patched", None, raising=False)
    monkeypatch.delattr(math, "patched")
    (module,) = asked(PATCH + line, "sm_80")
    assert module.NEW is True
    with pytest.raises(RefusalError, match=r"`pkg\.kern\.NEW` depends on"):
        asked("NEW = torch.__version__ > '2.14'", "sm_80")


def answer(*blocks: int, constant: bool = True, name: str = "k"):
    candidates = [{"constants": {"B": block}, "options": {}} for block in blocks]
    parameter = {"name": "B", "constant": constant, "default": False}
    told = {"name": name, "parameters": [parameter], "candidates": candidates}
    return {"functions": [{**told, "key": [], "computed": [], "notes": []}]}


def test_candidates_of_archs_are_put_together():
    found = functions_from_answers("x", {"8.0": answer(1), "9.0": answer(1)})
    assert [one.archs for one in found["k"].candidates] == [()]
    assert list(functions_from_answers("x", {"8.0": answer(1), "9.0": answer(1, name="h")})) == [
        *("k", "h")
    ]
    with pytest.raises(BuildError, match=r"`k` has different parameters for 9\.0 than for 8\.0"):
        functions_from_answers("x", {"8.0": answer(1), "9.0": answer(1, constant=False)})


def test_a_source_that_ends_the_process_is_no_answer():
    with fresh_process(sys.exit) as ask:
        assert ask("no release of Torch that I know") is None
