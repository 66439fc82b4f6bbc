import os
import subprocess

from setuptools import find_packages, setup
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CppExtension, CUDAExtension

ROOT = os.path.dirname(os.path.abspath(__file__))


def cuda_flags():
    version = subprocess.check_output([os.path.join(CUDA_HOME, "bin", "nvcc"), "-V"], text=True)
    flags = ["-O3", "--use_fast_math", "-gencode", "arch=compute_80,code=sm_80"]
    if "release 13" in version or "release 12" in version:
        flags += ["-gencode", "arch=compute_90a,code=sm_90a"]
        flags += ["-gencode=arch=compute_90,code=compute_90"]
    return flags


setup(
    name="fused-scale",
    version="0.3.0",
    license="MIT",
    packages=find_packages(),
    ext_modules=[
        CUDAExtension(
            "fused_scale._C",
            ["csrc/bindings.cpp", "csrc/scale_kernel.cu"],
            include_dirs=[os.path.join(ROOT, "csrc")],
            define_macros=[("FUSED", None), ("LEVEL", "2")],
            extra_compile_args={"cxx": ["-O3", "-std=c++17"], "nvcc": cuda_flags()},
            libraries=["cublas"],
        )
        if os.environ.get("FORCE_CPU") != "1"
        else CppExtension("fused_scale._C", ["csrc/bindings.cpp"])
    ],
    cmdclass={"build_ext": BuildExtension.with_options(no_python_abi_suffix=True)},
)
