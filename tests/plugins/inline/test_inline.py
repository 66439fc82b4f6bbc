"""`load_inline`: its arguments, and the project that it writes."""

from __future__ import annotations

import inspect
import re
import sys
from types import ModuleType, SimpleNamespace

import pytest

from kbuild.backends.capability import read_arch_list
from kbuild.loading.request import VariantRequest
from kbuild.plugins.inline import build as inline_build
from kbuild.plugins.inline import headers as inline_headers
from kbuild.plugins.inline import load_inline
from kbuild.plugins.inline import project as inline_project
from kbuild.plugins.inline.request import InlineRequest
from kbuild.system.errors import BuildError, CheckError, ConfigError, UsageError

RELU = "torch::Tensor relu(torch::Tensor x) { auto y = torch::empty_like(x); return y; }\n"


def request(*cpp, **others):
    values = {
        "name": "Fast_ReLU",
        "backend": "cpu",
        "cpp": cpp,
        "cuda": (),
        "sycl": (),
        "functions": {"relu": ""},
        "cflags": (),
        "cuda_cflags": (),
        "sycl_cflags": (),
        "ldflags": (),
        "include_paths": (),
        "implicit_headers": True,
    }
    return InlineRequest(**{**values, **others})


@pytest.fixture
def torch(tmp_path):
    """A folder of a Torch with a few operators."""
    operators = tmp_path / "torch" / "include" / "ATen" / "ops"
    operators.mkdir(parents=True)
    for name in ("empty_like", "add", "relu", "max", "cat"):
        (operators / f"{name}.h").touch()
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.13.0+cpu'\n")
    return tmp_path / "torch"


@pytest.fixture
def write(tmp_path, torch):
    def written(asked, *, is_whole=False):
        inline_project.write_project(tmp_path / "project", asked, torch, is_whole=is_whole)
        return {
            path.relative_to(tmp_path / "project").as_posix(): path.read_text()
            for path in (tmp_path / "project").rglob("*")
            if path.is_file()
        }

    return written


@pytest.mark.torch
def test_the_arguments_are_those_of_torch():
    """In the same order, with the same defaults."""
    theirs = pytest.importorskip("torch.utils.cpp_extension").load_inline
    parameters = inspect.signature(theirs).parameters.values()
    parts = inspect.signature(load_inline).parameters.values()
    ours = [part for part in parts if part.kind is not part.KEYWORD_ONLY]
    own = ["triton_sources", "triton_captures", "triton_fallback", "archs"]
    assert [part.name for part in parts][len(ours) :] == own
    assert [(part.name, part.default) for part in ours] == [
        (part.name, part.default) for part in parameters
    ]


def test_a_source_gets_the_operators_that_it_names(write):
    text = "torch::Tensor relu(torch::Tensor x) { return at::cat({x, std::max(x)}).add(x); }"
    main = write(request(text))["src/main.cpp"]
    includes = [line for line in main.splitlines() if line.startswith("#include <")]
    assert includes == [
        "#include <torch/extension.h>",
        "#include <ATen/TensorOperators.h>",
        "#include <ATen/ops/cat.h>",
        "#include <ATen/core/Tensor.h>",
    ]


def test_a_function_of_the_device_code_is_declared(write):
    cuda = "torch::Tensor relu(torch::Tensor x, int n = 2) { return x; }"
    files = write(request("", cuda=(cuda,), backend="cuda"))
    declaration = "torch :: Tensor relu(torch :: Tensor x, int n);"
    assert declaration in files["src/main.cpp"].splitlines()
    assert "#include <torch/types.h>" in files["src/cuda.cu"]


def test_python_functions_have_names_defaults_and_docstrings(write):
    text = 'void f(at::Tensor x, int n = 3, std::string s = "a");'
    files = write(request(text, functions={"f": 'says "hello"'}))
    package = files["torch-ext/fast_relu/__init__.py"]
    assert 'def f(x, n=3, s="a"):' in package
    assert "    'says \"hello\"'" in package


def test_sources_of_the_stable_abi_read_no_other_header(write):
    text = (
        "#include <torch/csrc/stable/tensor.h>\nusing torch::stable::Tensor;\nTensor relu(Tensor);"
    )
    files = write(request(text))
    assert 'stable-abi = "2.13"' in files["build.toml"]
    assert "torch/extension.h" not in files["src/main.cpp"]
    assert "ATen" not in files["src/main.cpp"]
    assert not [path for path in files if path.startswith("include/")]


@pytest.mark.parametrize(
    ("body", "is_whole"),
    [
        ("return torch::nn::functional::relu(x);", True),
        ("return torch::tensor({1, 2});", True),
        ("return torch::empty({2}, torch::requires_grad());", True),
        ("return torch::relu(x);", False),
        ("return other::nn::relu(x);", False),
    ],
)
def test_some_sources_need_all_headers(body, is_whole):
    text = f"at::Tensor relu(at::Tensor x) {{ {body} }}"
    assert inline_headers.needs_whole_headers(request(text)) is is_whole


@pytest.mark.parametrize(
    ("text", "is_all"),
    [
        ("#include <ATen/cuda/CUDAContext.h>", False),
        ("#include <ATen/cuda/Atomic.cuh>", True),
        ("#include <ATen/native/cuda/Loops.cuh>", True),
        ("#include <ATen/TensorUtils.h>", True),
        ("const at::cuda::OptionalCUDAGuard guard(at::device_of(x));", True),
        ("auto y = torch::cat({x, x});", True),
        ("auto concatenated = torch::stack({x, x});", False),
        ("at::checkAllSameGPU(where, args);", True),
        ("check_contiguous(x);", False),
    ],
)
def test_what_the_headers_of_operators_include(write, text, is_all):
    files = write(request(f"{text}\n{RELU}"))
    assert ("#define KBUILD_INLINE_ALL" in files["src/main.cpp"].splitlines()) is is_all


def test_flags_and_folders_reach_the_compilers(write):
    asked = request(
        RELU,
        cuda=("int a;",),
        backend="cuda",
        cflags=("-O2 -std=c++17", "-DX"),
        cuda_cflags=("--use_fast_math",),
        include_paths=("/headers",),
    )
    text = write(asked)["build.toml"]
    assert 'cxx-flags = ["-I/headers", "-O2", "-DX"]' in text
    assert 'cuda-flags = ["-I/headers", "--use_fast_math"]' in text


@pytest.mark.parametrize(
    ("text", "functions", "message"),
    [
        ("void relu(py::dict x);", {"relu": ""}, "cpp_sources:1: `py::` is pybind11"),
        ("void other(int n);", {"relu": ""}, "there is no function `relu`"),
        ("void relu(int n);", None, "nothing is bound"),
        ('PYBIND11_MODULE(a, m) {\n m.def("f", &g);\n m.def("f", &h);\n}', None,
         "cpp_sources:3: `f` is overloaded: line 2 binds it as well"),
        ("void relu(int n);\nvoid relu(double n);", {"relu": ""},
         "cpp_sources:1: `relu` is overloaded: cpp_sources:2 declares it"),
    ],
)  # fmt: skip
def test_what_cannot_be_bound(write, text, functions, message):
    with pytest.raises(ConfigError, match=message):
        write(request(text, functions=functions))


def test_each_argument_changes_the_content():
    digests = {
        request(RELU).digest,
        request(RELU, "int a;").digest,
        request(RELU, cflags=("-O0",)).digest,
        request(RELU, functions=None).digest,
        request(RELU, generation=1).digest,
    }
    assert len(digests) == 5


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("All", r"the variable TORCH_CUDA_ARCH_LIST \(`All`\): `All` is not"),
        ("8.0,9.0", r"TORCH_CUDA_ARCH_LIST \(`8.0,9.0`\): `8.0,9.0` is not"),
        ("Pascal", r"TORCH_CUDA_ARCH_LIST \(`Pascal`\): none of `6.0`, `6.1\+PTX` is a target of"),
        ("9.9", r"TORCH_CUDA_ARCH_LIST \(`9.9`\): no GPU that kbuild knows has `9.9`"),
    ],
)
def test_archs_that_are_none_are_those_of_the_variable(
    monkeypatch, tmp_path, torch, value, message
):
    (torch / "version.py").write_text("__version__ = '2.13.0+cu130'\ncuda: str | None = '13.0'\n")
    monkeypatch.setattr(inline_build, "torch_folder", lambda: torch)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", value)
    variant = VariantRequest(tmp_path, "cuda", read_arch_list(value))
    with pytest.raises(UsageError, match=message):
        inline_build.build_inline(request(RELU, backend="cuda"), variant, tmp_path)


NAMES = ("ops", "_library", "torch", "torch_", "scale", "_scale", "__scale", "_0", "_op_0", "name",
         "lambda", "op_0", "kbuild_op_scale", "größe", "__all")  # fmt: skip


def test_generated_names_are_never_the_authors(write, monkeypatch):
    """Each function calls its own op, with its argument, whatever both are called."""
    text = "".join(f"int {name}(int _op_{at}, int ops) {{}}\n" for at, name in enumerate(NAMES))
    files = write(request(text, functions=dict.fromkeys(NAMES, "")))
    registered = re.findall(
        r'impl\("(\w+)", TORCH_BOX\(&kbuild_inline::op_(\d+)\)', files["src/main.cpp"]
    )
    assert len({op for op, _ in registered}) == len(NAMES)
    called = [
        re.search(rf" op_{at}\(.*\n?.*::(\w+)\(", files["src/main.cpp"])[1] for _, at in registered
    ]
    calls = {
        op: SimpleNamespace(default=SimpleNamespace(_op=lambda *a, name=name: (name, a)))
        for (op, _), name in zip(registered, called, strict=True)
    }
    fake = SimpleNamespace(ops=SimpleNamespace())
    namespace = re.search(r"torch\.ops\.(\w+)", files["torch-ext/fast_relu/__init__.py"])[1]
    setattr(fake.ops, namespace, SimpleNamespace(**calls))
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setitem(sys.modules, "own", ModuleType("own"))
    monkeypatch.setitem(sys.modules, "own._ops", ModuleType("own._ops"))
    module = {"__package__": "own", "__name__": "own"}
    exec(files["torch-ext/fast_relu/__init__.py"], module)  # noqa: S102 - the package's own code
    assert module["__all__"] == [*NAMES]
    for name in NAMES:
        assert module[name](1, ops=2) == (name, (1, 2))


class TestTritonSources:
    TEXT = "import triton\n\n\ndef launch(x):\n    return x\n"

    def test_alone_nothing_is_compiled(self, write):
        files = write(request("", triton=(self.TEXT,), functions={"launch": ""}))
        assert "[torch-noarch]" in files["build.toml"]
        assert files["torch-ext/fast_relu/triton_sources_0.py"] == self.TEXT
        assert "from .triton_sources_0 import launch" in files["torch-ext/fast_relu/__init__.py"]
        assert "src/main.cpp" not in files

    def test_beside_others(self, write):
        asked = request(RELU, triton=(self.TEXT,), functions={"relu": "", "launch": ""})
        package = write(asked)["torch-ext/fast_relu/__init__.py"]
        assert '__all__ = ["relu", "launch"]' in package
        assert "def relu(x):" in package

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("x = 1\ndef launch(:", "triton_sources:2: not valid Python"),
            ("def other(): ...", "there is no function `launch`"),
        ],
    )
    def test_errors(self, write, text, message):
        with pytest.raises(ConfigError, match=message):
            write(request("", triton=(text,), functions={"launch": ""}))


class TestFallback:
    """Sources that need a header that was not chosen are compiled with all of Torch's."""

    @pytest.fixture
    def build(self, monkeypatch, tmp_path, torch):
        errors = []

        def run(*excerpts):
            tries = list(excerpts)

            def compiled(variant, _):
                errors.append((variant.root / "include/torch/types.h").is_file())
                if not tries:
                    return inline_build.Record({}, {}, "")
                raise BuildError("src/main.cpp did not compile", excerpt=[tries.pop(0)])

            monkeypatch.setattr(inline_build, "build_to_load", compiled)
            monkeypatch.setattr(inline_build, "torch_folder", lambda: torch)
            variant = inline_build.VariantRequest(tmp_path / "project")
            return inline_build.build_inline(request(RELU), variant, tmp_path), errors

        return run

    def test_a_missing_name(self, build):
        _, light = build("a.cpp:1:1: error: 'hamming_window' is not a member of 'torch'")
        assert light == [True, False]

    def test_a_syntax_error_is_reported_at_once(self, build, tmp_path):
        path = tmp_path / "project" / "src" / "cpp_sources_0.cpp"
        with pytest.raises(BuildError) as caught:
            build(f"{path}:2:7: error: expected ';'")
        assert str(caught.value).startswith("cpp_sources:2:7: error: expected ';'")


TABLE = {"arguments": {"x": {"shape": ["N"], "dtypes": ["float32"]}}}


class TestTritonAheadOfTime:
    TEXT = "def launch(x):\n    return x\n\n\ndef other(x):\n    return x\n"

    @pytest.fixture
    def build(self, tmp_path, monkeypatch):
        """What is written when a build would begin, and the messages of warnings."""

        def capture(declaration, root, section, environments, runner):
            raise CheckError(f"{root}/triton_sources_0.py:5: `triton_sources_0:other` loops", ())

        monkeypatch.setattr(inline_build, "capture", capture)
        monkeypatch.setattr(inline_build, "build_to_load", lambda variant, cache: None)

        def built(functions=("launch", "other"), archs=("9.0",), **more):
            asked = request(
                "", backend="cuda", triton=(self.TEXT,), functions=dict.fromkeys(functions, ""),
                captures={"other": TABLE}, triton_version="3.9.0", **more,
            )  # fmt: skip
            variant = VariantRequest(tmp_path / "project", "cuda", archs)
            inline_build.build_captured(asked, variant, tmp_path, "2.13")
            return tmp_path / "project"

        return built

    def test_a_function_that_cannot_be_captured_stays_as_it_is(self, build):
        message = r"^triton_sources:5: `other` loops; Triton compiles its kernels when they are"
        with pytest.warns(RuntimeWarning, match=message):
            root = build()
        package = (root / "torch-ext/fast_relu/__init__.py").read_text()
        assert "from .triton_sources_0 import other" in package
        assert "[torch-noarch]" in (root / "build.toml").read_text()

    def test_it_is_an_error_when_that_is_asked_for(self, build):
        with pytest.raises(CheckError, match=r"^triton_sources:5: `other` loops"):
            build(triton_fallback=False)

    def test_what_is_captured_is_no_module_of_the_package(self, build, monkeypatch):
        monkeypatch.setattr(inline_build, "capture", lambda *_: (None, ()))
        monkeypatch.setattr(inline_build, "write_capture", lambda *_: None)
        root = build(functions=("other",))
        package = root / "torch-ext/fast_relu"
        assert "from ._captured import other\n" in (package / "__init__.py").read_text()
        assert [path.name for path in package.iterdir()] == ["__init__.py"]
        text = (root / "build.toml").read_text()
        assert 'stable-abi = "2.13"' in text
        assert 'cuda-capabilities = ["9.0"]' in text
        assert 'function = "triton_sources_0:other"' in text

    def test_no_gpu(self, build, monkeypatch):
        monkeypatch.setattr(type(inline_build.BACKENDS.get("cuda")), "native_archs", lambda *_: ())
        with pytest.raises(UsageError, match="no GPU") as caught:
            build(archs=())
        assert 'archs=["9.0"]' in caught.value.hint

    def test_a_function_that_is_not_there(self, build):
        with pytest.raises(ConfigError, match="triton_captures: there is no function `other`"):
            build(functions=("launch",))

    @pytest.mark.parametrize(
        ("cpp", "triton", "message"),
        [("", None, "needs `triton_sources`"), ("int x;", "x = 1", "for `triton_sources` alone")],
    )
    def test_it_is_for_triton_alone(self, cpp, triton, message):
        with pytest.raises(UsageError, match=message):
            load_inline("a", cpp, triton_sources=triton, triton_captures={"f": TABLE})
