"""The world around kbuild: processes, files, locks, the store, git, messages and errors."""
