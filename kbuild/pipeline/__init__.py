"""The commands' work in stages: plans, toolchains, build, checks, cards, uploads."""
