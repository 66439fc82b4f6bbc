"""Toolchains from wheels: pinned, fetched through the user's pip settings, kept in the store."""
