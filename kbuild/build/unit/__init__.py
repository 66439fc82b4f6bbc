"""One compiler command inside the launcher: parsed, looked up, run, logged and stored.

These modules run once per translation unit in an interpreter without `site`: they import next to
nothing, and use `os` instead of `pathlib`.
"""

EXIT_OUT_OF_TIME = 75
"""Exit status of a unit that was not started because time is over; `EX_TEMPFAIL` of sysexits.h."""
EXIT_INPUTS_CHANGED = 76
"""Exit status of a unit whose inputs changed each time that it was compiled."""
