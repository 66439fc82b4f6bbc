"""One compiler command inside the launcher: parsed, looked up, weighed, run, logged and stored.

These modules run once per translation unit in an interpreter without `site`: they import next to
nothing, and use `os` instead of `pathlib`.
"""
