"""A Hub to test against: real HTTP on loopback, faults on demand.

It speaks the part of the Hub's API that `huggingface_hub` and the `kernels` client use for kernel
repositories. Both talk to it unchanged, through `HF_ENDPOINT`. Other servers of this API cannot be
told to cut a connection between applying a commit and answering it, which is what an upload has to
survive.

There is no Xet, and `hf_xet` does not fall back to LFS when a Hub has none: clients need
`HF_HUB_DISABLE_XET=1`, unless `hf_xet` is not installed.
"""
