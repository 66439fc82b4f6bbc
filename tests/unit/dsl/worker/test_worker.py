"""The worker's own modules, without Triton: sources, stand-ins, parameters, functions."""

from __future__ import annotations

import importlib
import inspect
import sys
from types import SimpleNamespace

import pytest

from kbuild.dsl.worker import compiler_output, torch_stub, torch_types, triton_functions
from kbuild.dsl.worker.protocol import RefusalError
from kbuild.dsl.worker.sources import REMOVED_MODULES, SourceCache, module_name, module_names


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("k.py", "k"),
        ("my_k/ops.py", "my_k.ops"),
        ("torch-ext/my_k/ops.py", "my_k.ops"),
        ("torch-ext/my_k/__init__.py", "my_k"),
        ("json/ops.py", "json_.ops"),
        ("pytest/k.py", "pytest_.k"),
    ],
)
def test_names_of_modules(file, name):
    assert module_name(file) == name


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["src/lib/a/k.py"], ["lib.a.k"]),
        (["src/k.py", "src/lib/k.py"], ["src.k", "lib.k"]),
        (["src/lib/k.py", "src/__init__.py"], ["src.lib.k", "src"]),
        (["python/lib/a/k.py", "python/lib/__init__.py"], ["lib.a.k", "lib"]),
        (["lib/a/k.py", "lib/__init__.py"], ["lib.a.k", "lib"]),
        (["src/json/k.py"], ["src.json.k"]),
    ],
)
def test_names_begin_at_the_outermost_package(files, names):
    assert list(module_names(files).values()) == names


def test_a_module_has_both_names(project):
    """As the package calls it, and as it is called from the project's folder."""
    text = "from lib.c import C\nimport src.lib.c as whole\nVALUE = C is whole.C"
    shelf = SourceCache()
    first = shelf.get(project("one", src__lib__k=text, src__lib__c="C = object()")).main()
    assert first.VALUE
    assert first.__name__ == "lib.k"
    shelf.get(project("two", k="A = 1"))
    assert not {"lib", "lib.c", "src", "src.lib", "src.lib.c"} & sys.modules.keys()


def test_names_do_not_depend_on_what_is_in_sight(project):
    """A source is imported anew for another device, while its package is there."""
    request = project("one", src__lib__k="from lib.c import C\nVALUE = C", src__lib__c="C = 1")
    shelf = SourceCache()
    for arch in ("8.0", "9.0"):
        sources = shelf.get({**request, "device": {"backend": "cuda", "arch": arch}})
        sources.device.ask("torch.cuda.get_device_capability()")
        assert (sources.main().__name__, sources.main().VALUE) == ("lib.k", 1)


def test_a_name_that_cannot_be_imported():
    with pytest.raises(RefusalError, match=r"`a/my-kernel\.py` cannot be imported"):
        module_name("a/my-kernel.py")


REMOVED = "dsl 4.8.1 has no `dsl.part.removed`: write `import other`"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write files; the import system is as before afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = dict(sys.modules)

    def write(name: str, **files: str):
        for file, text in files.items():
            path = tmp_path / name / f"{file.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        sources = [f"{file.replace('__', '/')}.py" for file in files]
        return {"root": str(tmp_path / name), "sources": sources}

    yield write
    sys.modules.clear()
    sys.modules.update(before)


def test_two_states_of_the_same_names(project):
    """A worker that lives on meets a later project, and then the first again."""
    shelf = SourceCache()
    one = project("one", pkg__k="from .c import C\nVALUE = C", pkg__c="C = 1")
    two = project("two", pkg__k="from .c import C\nVALUE = C", pkg__c="C = 2")
    first = shelf.get(one).main()
    assert first.VALUE == 1
    assert shelf.get(two).main().VALUE == 2
    assert importlib.import_module("pkg.c").C == 2
    assert shelf.get(one).main() is first
    assert importlib.import_module("pkg.c").C == 1


def test_only_what_is_listed(project, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "beside.py").write_text("X = 1")
    request = project("one", pkg__k="import beside")
    with pytest.raises(RefusalError, match="No module named 'beside'") as caught:
        SourceCache().get(request).main()
    assert (caught.value.file, caught.value.line) == ("pkg/k.py", 1)
    request = project("two", pkg__k="x = 1\nfrom . import other")
    with pytest.raises(RefusalError) as caught:
        SourceCache().get(request).main()
    assert (caught.value.file, caught.value.line) == ("pkg/k.py", 2)


def test_a_source_beside_that_is_not_listed_is_named(project):
    with pytest.raises(RefusalError) as caught:
        SourceCache().get(project("one", pkg__k="from pkg.other import x")).main()
    assert caught.value.hint == "add the file to `src`"


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("import absent", "No module named 'absent'", "if the kernels need `absent`, pin it in"),
        ("import absent.part", "No module named 'absent'", "if the kernels need `absent`, pin it"),
        ("import dsl.part.gone", "No module named 'dsl.part.gone'", "dsl 4.8.1 has no `dsl.part."),
        ("from dsl.gone import x", "No module named 'dsl.gone'", "dsl 4.8.1 has no `dsl.gone`: im"),
        ("import dsl.part.gone.more as m", "No module named 'dsl.part.gone'", "dsl 4.8.1 has no `"),
        ("from dsl import gone", "cannot import name 'gone' from 'dsl'", "dsl 4.8.1 has no `dsl.g"),
        ("from dsl.part import gone", "cannot import name 'gone' from 'dsl.part'", "dsl 4.8.1 has"),
        (
            "import plain.gone",
            "No module named 'plain.gone'; 'plain' is",
            "the installed plain has",
        ),
        ("import dsl.part.removed as c", "No module named 'dsl.part.removed'", REMOVED),
        ("from dsl.part import removed", "cannot import name 'removed' from 'dsl.part'", REMOVED),
        ("from dsl.part.removed import s", "No module named 'dsl.part.removed'", REMOVED),
    ],
)
def test_a_module_that_is_not_installed(project, tmp_path, monkeypatch, line, message, hint):
    """Nobody is sent to install a package that is there."""
    installed = tmp_path / "installed"
    for package in ("dsl", "dsl/part"):
        (installed / package).mkdir(parents=True)
        (installed / package / "__init__.py").write_text("__version__ = '4.8.1'")
    (installed / "plain.py").touch()
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setitem(REMOVED_MODULES, "dsl.part.removed", "write `import other`")
    with pytest.raises(RefusalError) as caught:
        SourceCache().get(project("one", pkg__k=f"import sys\n{line}")).main()
    assert caught.value.message.startswith(message)
    assert str(installed) not in caught.value.message
    assert caught.value.hint.startswith(hint)
    assert (caught.value.file, caught.value.line) == ("pkg/k.py", 2)


@pytest.fixture
def torch(project):
    """The stand-in, whether Torch is installed or not."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        del sys.modules[name]
    sys.meta_path.insert(0, torch_stub.StubFinder(["torch"]))
    return importlib.import_module("torch")


def test_dtypes(torch):
    assert torch.float16 is torch.half
    assert {torch.float16: 1}[torch.half] == 1
    assert torch.float16 != torch.bfloat16
    assert (torch.bfloat16.itemsize, repr(torch.float8_e5m2)) == (2, "torch.float8_e5m2")
    assert isinstance(torch.int8, torch.dtype)
    assert torch.finfo(torch.float32).max == pytest.approx(3.4028235e38)
    assert torch.finfo(torch.float16).eps == 2.0**-10
    assert (torch.iinfo(torch.uint8).max, torch.iinfo(torch.int32).min) == (255, -(2**31))


def test_what_is_around_kernels(torch):
    namespace: dict[str, object] = {}
    source = """
from __future__ import annotations
import torch
import torch.nn.functional as F
from torch import nn, Tensor
from torch.utils._pytree import tree_map
from typing import Optional, Union
Either = Optional[Union[Tensor, torch.Size]]
Other = Tensor | None
class Function(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x): return F.relu(x)
@torch.compile
@torch.no_grad()
def wrapper(x: torch.Tensor) -> tuple[torch.Tensor, int]: return x
@torch.library.custom_op("a::b", mutates_args=())
def op(x: Tensor) -> Tensor: return x
@op.register_fake
def fake(x): return x
AVAILABLE = torch.cuda.is_available() and torch.version.hip is None
apply = Function.apply
class Layer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size, self.weight = size, nn.Parameter(torch.empty(size))
    def forward(self, x): return F.relu(x)
layer = Layer(3)
LIBRARY = torch.library.Library("a", "FRAGMENT")
LIBRARY.define("c(Tensor x) -> Tensor")
STREAM, SEED, DEVICE = torch.cuda.Stream(), torch.manual_seed(0), torch.device("cuda:1")
TABLE = {torch.float16: 1, torch.relu: 2, torch.strided: 3, DEVICE: 4}
with torch.no_grad(): pass
class Mode(torch.overrides.TorchFunctionMode): pass
def caught():
    try: raise torch.cuda.OutOfMemoryError
    except torch.cuda.OutOfMemoryError: return True
"""
    exec(source, namespace)  # noqa: S102
    assert namespace["wrapper"](3) == 3
    assert namespace["op"](4) == 4
    assert namespace["AVAILABLE"] is False
    assert (namespace["layer"].size, namespace["caught"]()) == (3, True)
    assert namespace["TABLE"][torch.relu] == 2
    assert namespace["TABLE"][torch.device("cuda", 1)] == 4
    assert (str(namespace["DEVICE"]), namespace["DEVICE"].type) == ("cuda:1", "cuda")
    assert issubclass(namespace["Layer"], torch.nn.Module)
    assert isinstance(namespace["layer"], torch.nn.Module)
    assert not isinstance(3, (torch.Tensor, torch.nn.Parameter))


@pytest.mark.parametrize("call", ["torch.empty(3)", "torch.ops.x.y(1)", "torch.Tensor()"])
@pytest.mark.parametrize(
    "use",
    [
        *("bool(V)", "int(V)", "list(V)", "V == 3", "V + 1 > 2", "f'{V}'", "{V: 1}", "3 in V"),
        *("range(V.shape[0])", "'x' if V.is_cuda else 'y'", "V.numel() in {1, 2}", "min(V, 3)"),
    ],
)
def test_nothing_is_decided_with_what_is_not_known(torch, call, use):
    value = eval(call, {"torch": torch})  # noqa: S307
    with pytest.raises(RefusalError, match=r"is not known when a kernel is compiled"):
        eval(use, {"V": value})  # noqa: S307


def test_names_that_torch_does_not_have(torch):
    """Sources look whether a name is there, and go another way where it is not."""
    assert not hasattr(torch, "npu")
    assert not hasattr(torch.cuda, "get_device_color")
    assert hasattr(torch.library, "triton_op")
    assert hasattr(torch.amp, "custom_fwd")
    for name in ("torch.nothing", "torch._inductor.nothing", "torch.cuda.Stream"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
    assert importlib.import_module("torch.distributed.tensor").DTensor
    with pytest.raises(AttributeError, match="has no attribute 'flaot16'"):
        _ = torch.flaot16


def test_values_are_those_of_torch():
    real = pytest.importorskip("torch")
    for name in torch_types.DTYPES:
        ours, theirs = torch_types.dtype(name), getattr(real, name)
        for fact in ("itemsize", "is_floating_point", "is_complex", "is_signed"):
            assert getattr(ours, fact) == getattr(theirs, fact), (name, fact)
        if not theirs.is_complex and name not in {"bool", "float8_e8m0fnu", "float4_e2m1fn_x2"}:
            found = vars(torch_types.limits(ours))
            limits = real.finfo(theirs) if theirs.is_floating_point else real.iinfo(theirs)
            assert found == {
                fact: pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
                for fact in found
                for value in [getattr(limits, fact)]
            }, name
    for alias, name in torch_types.ALIASES.items():
        assert getattr(real, alias) == getattr(real, name)


def test_versions_are_compared_as_versions(torch):
    assert torch.__version__ >= "2.4"
    assert torch.__version__ > (2, 9)
    assert not torch.__version__ < "2.4.0"
    assert torch.__version__ != "2.4"
    assert (torch.__version__.split(".")[0], torch.__version__ == "x") == ("2", False)
    with pytest.raises(RefusalError, match="cannot be compared"):
        _ = torch.__version__ < "new"


AMD = """\
	.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           4
        .value_kind:     by_value
      - .offset:         16
        .size:           8
        .value_kind:     hidden_global_offset_x
    .group_segment_fixed_size: 0
"""


def test_parameters_of_amdgcn():
    assert compiler_output.parameter_sizes_of_amdgcn(AMD) == [8, 4]
    with pytest.raises(RefusalError, match="has no metadata"):
        compiler_output.parameter_sizes_of_amdgcn("")


def test_scratch_memory_by_release():
    passed = [("x", "*fp16"), ("n", "i32"), ("f", "u1"), ("e", "fp32"), ("l", "i64")]
    own = [8, 4, 1, 4, 8]
    for extra, kinds in ((0, []), (1, ["global_scratch"]), (2, list(compiler_output.SCRATCH))):
        found = compiler_output.device_parameters(passed, mapped=False, actual=[*own, *[8] * extra])
        assert [one["kind"] for one in found] == ["pointer", "int", "int", "float", "int", *kinds]


@pytest.mark.parametrize("actual", [[8], [8, 8], [4, 4], [8, 4, 4], [8, 4, 8, 8, 8], []])
def test_parameters_that_were_not_expected(actual):
    with pytest.raises(RefusalError, match="has parameters of") as caught:
        compiler_output.device_parameters(
            [("x", "*fp16"), ("n", "i32")], mapped=False, actual=actual
        )
    assert "report" in caught.value.hint


@pytest.mark.parametrize("flags", [0, 1, 2])
def test_a_descriptor_without_a_tensor_map(flags):
    """Releases 3.4, 3.5 and later ones differ in the flags."""
    actual = [8, 8, 8, 8, 8, *[1] * flags, 4, 4, 8, 8]
    found = compiler_output.device_parameters(
        [("d", "tensordesc<fp16[64, 32]>")], mapped=False, actual=actual
    )
    assert found[0] == {"kind": "pointer", "type": "*fp16", "name": "d"}
    assert [one["name"] for one in found[5 : 5 + flags]] == ["d.nan", "d.tf32"][:flags]
    assert found[-1] == {"kind": "int", "type": "i64", "name": "d.stride.1"}


class JITFunction:
    """Has the name of Triton's, by which it is known."""

    def __init__(self, *names: str) -> None:
        self.arg_names = names
        self.__name__ = "k"
        self.params = [
            SimpleNamespace(name=name, is_constexpr=name.isupper(), default=inspect.Parameter.empty)
            for name in names
        ]


def config(pre_hook: object = None, **kwargs: object) -> SimpleNamespace:
    return SimpleNamespace(
        kwargs=kwargs, num_warps=4, num_stages=3, num_ctas=1, maxnreg=None, pre_hook=pre_hook
    )


def tuned(configs, prune=None, model=None):
    jit = JITFunction("x", "n", "B")
    return SimpleNamespace(
        configs=configs, keys=["n"], fn=jit, base_fn=jit, early_config_prune=prune, perf_model=model
    )


def described(tuner):
    return triton_functions.TritonKernel("k", tuner).describe()


@pytest.mark.parametrize(
    ("prune", "why"),
    [
        (lambda configs, named, **_: [c for c in configs if c.kwargs["B"] <= named["n"]], "`n`"),
        (lambda configs, named, **_: configs[: named.get("n", 0)], "asks for `n`"),
        (lambda configs, named, **_: configs[7], "says IndexError"),
    ],
)
def test_pruning_that_needs_a_call(prune, why):
    found = described(tuned([config(B=64), config(B=128)], prune))
    assert len(found["candidates"]) == 2
    (note,) = found["notes"]
    assert why in note
    assert note.endswith("all its candidates are kept")


def test_a_class_derived_from_triton_s():
    class Autotuner:
        def __init__(self):
            vars(self).update(vars(tuned([config(B=64)])))

    class Mine(Autotuner):
        pass

    class Choosing(Autotuner):
        def prune_configs(self, *given):
            return []

    for one in (Mine(), Choosing()):
        one.fn.__module__ = "own"
    found = triton_functions.find_kernels(SimpleNamespace(a=Mine(), b=Choosing()), lambda _: True)
    assert list(found) == ["a", "b"]
    assert found["a"].describe()["notes"] == []
    (note,) = found["b"].describe()["notes"]
    assert note.startswith("`Choosing.prune_configs` of `k` needs the arguments of a call")


def test_what_is_not_followed_is_said():
    configs = [config(B=64), config(B=None), config(B=(1, 2))]
    found = described(tuned(configs, model=lambda **_: 1.0))
    assert [note.partition("`k` ")[2] or note for note in found["notes"]] == [
        "needs the arguments of a call: all its candidates are kept",
        "has a candidate with B = (1, 2): left out",
    ]
    assert [one["constants"] for one in found["candidates"]] == [{"B": 64}, {"B": None}, {}]
