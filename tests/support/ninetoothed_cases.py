"""Configs as NineToothed's code generator gives them, and sections for them."""

from __future__ import annotations

import itertools

from kbuild.dsl.languages.ninetoothed.complete import complete_op
from kbuild.dsl.languages.ninetoothed.configs import NineToothedKernel
from kbuild.dsl.worker.ninetoothed.merge import merge_configs
from kbuild.project.config.issue import IssueCollector, dotted
from tests.support.sections import read

ADD = """\
[kernel.k]
language = "ninetoothed"
toolchain = ["ninetoothed==0.26.0", "triton==3.9.0"]
src = ["k.py"]
[[kernel.k.op]]
schema = "k(Tensor x, Tensor y) -> Tensor out"
shapes = { x = ["N"], y = ["N"], out = ["N"] }
dtypes = ["float16"]
"""


def tensor(*shape, dtype="fp16", bounds=None, constant=False, value=None):
    return {
        "shape": list(shape),
        "bounds": bounds or [None] * len(shape),
        "dtype": dtype,
        "constant": constant,
        "value": value,
    }


def parameters(tensors):
    """The kernel's parameters, in the order of the generator: by name."""
    for name, facts in tensors.items():
        if not facts["shape"]:
            kind = "constant" if facts["constant"] else "scalar"
            yield {"name": name, "kind": kind, "tensor": name, "axis": 0}
            continue
        yield {"name": f"p_{name}", "kind": "pointer", "tensor": name, "axis": 0}
        for kind, axis in itertools.product(("size", "stride"), range(len(facts["shape"]))):
            if kind == "stride" or facts["shape"][axis] is None:
                one = {"name": f"{kind}_{name}_{axis}", "kind": kind}
                yield {**one, "tensor": name, "axis": axis}


def config(tensors=None, *, written=("out",), text="pass", grid=None, options=None, **arguments):
    """One config; `arguments` are what `premake` is given besides dtypes."""
    tensors = tensors or {name: tensor(None) for name in ("x", "y", "out")}
    own = list(parameters(tensors))
    words = ", ".join(one["name"] for one in own)
    first = next(iter(tensors))
    return {
        "arguments": arguments,
        "options": options or {},
        "tensors": tensors,
        "written": list(written),
        "parameters": own,
        "grid": grid or f"(size({first}, 0) + {arguments.get('block', 64)} - 1) // 64",
        "function": "application",
        "source": f"@triton.jit\ndef application({words}):\n    {text}",
        "helpers": {},
        "imports": ["import triton", "import triton.language"],
        "file": "k.py",
        "line": 3,
    }


def merged(*configs, meta=(), name="k"):
    return merge_configs(name, meta, configs or (config(),))


def facts(*configs, meta=()):
    return NineToothedKernel.from_json(merged(*configs, meta=meta).facts)


def completed(*configs, section=ADD, meta=(), **keys):
    """The completed op and what was said; one of them is nothing."""
    for key, value in keys.items():
        lines = [line for line in section.splitlines() if not line.startswith(f"{key} =")]
        section = "\n".join([*lines, f"{key} = {value}"] if value is not None else lines)
    reading = read(section)
    assert reading.issues == ()
    place = IssueCollector(("kernel", "k"))
    op = complete_op(reading.ops[0], {"k": facts(*configs, meta=meta)}, place)
    said = "\n".join(f"{dotted(one.path)}: {one.message} | {one.hint}" for one in place.issues)
    assert (op is None) == any(one.severity == "error" for one in place.issues), said
    return op, said
