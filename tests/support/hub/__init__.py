"""A Hub to test against: real HTTP on loopback, faults on demand.

It speaks the part of the Hub's API that `huggingface_hub` and the `kernels` client use for kernel
repositories (and, with the same code, for models). Both talk to it unchanged, through
`HF_ENDPOINT`.

Why not somebody else's: of the Hub-compatible servers that are kept up, olah mirrors what the real
Hub has and takes no uploads; KohakuHub knows models, data sets and Spaces but no kernels, is not on
PyPI, and needs a database, LakeFS and an object store beside it. None can be told to
cut a connection between applying a commit and answering it, which is what an upload has to survive.

There is no Xet. `hf_xet` does not fall back to LFS when a Hub has none, so that clients need
`HF_HUB_DISABLE_XET=1`, unless `hf_xet` is not installed.

What is assumed about the real Hub, because no documentation says it, is marked with "assumed" where
it is decided.
"""
