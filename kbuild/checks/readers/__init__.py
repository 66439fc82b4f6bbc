"""How the checks see a file: binaries and Python sources as frozen values. No check lives here."""
