"""kbuild packages compute kernels: from `build.toml` to artefacts that any PyTorch user can load.

The pipeline is a row of frozen values, each stage a function from one to the next:

    build.toml -> Project -> [Variant] -> VariantPlan -> FileSet -> Output -> build/<variant>/
"""

__version__ = "0.1.0"
