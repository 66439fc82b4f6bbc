"""Tables that others measured: NineToothed's CSV, and JSON with a configuration for each M.

`files` reads them into entries, `joining` finds the project's candidates that they mean.
"""
