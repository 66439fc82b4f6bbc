"""What can be proved of sources on a machine that has no compiler for them.

A backend says in `type_check` and `include_check` which of it makes sense; nothing here compiles.
"""
