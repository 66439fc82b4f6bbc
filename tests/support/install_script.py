"""`install.sh` on a machine that is played: its programs are scripts, its system a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
REAL = (
    *("sh", "cat", "chmod", "dirname", "basename", "env", "grep", "sed", "head", "tail", "tee"),
    *("mkdir", "mktemp", "rm", "rmdir", "ln", "readlink", "touch", "printf", "uname"),
)
SAY = '#!/bin/sh\necho "$(basename "$0") $*" >> "$HOME/calls"\n'
PLAYED = {
    "uv": SAY + '[ "$*" = "tool dir --bin" ] && echo "$HOME/bin"; exit 0\n',
    "id": '#!/bin/sh\ncase "$1" in -u) cat "$HOME/uid" ;; -un) echo somebody ;; esac\n',
    "sudo": SAY + '[ "$1" = -n ] && shift\nexec "$@"\n',
    "curl": SAY + "exit 6\n",
    "systemctl": SAY,
    "usermod": SAY,
    "getent": '#!/bin/sh\ngrep -qx "$1 $2" "$HOME/accounts"\n',
    "groupadd": SAY + 'shift; echo "group $1" >> "$HOME/accounts"\n',
    "groupdel": SAY + 'sed -i "/^group $1\\$/d" "$HOME/accounts"\n',
    "useradd": SAY + 'for name; do :; done; echo "passwd $name" >> "$HOME/accounts"\n',
    "userdel": SAY + 'sed -i "/^passwd $1\\$/d" "$HOME/accounts"\n',
}
NIX = '#!/bin/sh\necho "nix (Nix) 2.8.0"\n'
GIVES_NIX = (
    SAY
    + """
tools=$(dirname "$0")
case "$*" in
  *install*nix*)
    printf '#!/bin/sh\\necho "nix (Nix) 2.8.0"\\n' > "$tools/nix"
    chmod +x "$tools/nix" ;;
  *purge*nix*|*remove*nix*|-R*nix*) rm -f "$tools/nix" ;;
esac
"""
)


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@dataclass(frozen=True)
class Machine:
    """A home, the programs on PATH, and the folder that stands for `/`."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def made(cls, home: Path, *, uid: int = 0, manager: str = "apt-get") -> Machine:
        machine = cls(home)
        for name in REAL:
            found = shutil.which(name)
            if found:
                machine.tool(name).parent.mkdir(parents=True, exist_ok=True)
                machine.tool(name).symlink_to(os.path.realpath(found) if name != "sh" else found)
        for name, text in PLAYED.items():
            program(machine.tool(name), text)
        program(machine.tool(manager), GIVES_NIX)
        program(home / "bin" / "kbuild", "#!/bin/sh\necho kbuild 0\n")
        (home / "uid").write_text(f"{uid}\n")
        (home / "accounts").write_text("")
        (home / "calls").write_text("")
        machine.system.mkdir()
        return machine

    @property
    def system(self) -> Path:
        return self.home / "system"

    @property
    def nix_conf(self) -> Path:
        return self.system / "etc" / "nix" / "nix.conf"

    @property
    def settings(self) -> Path:
        return self.system / "etc" / "nix" / "kbuild.conf"

    def tool(self, name: str) -> Path:
        return self.home / "tools" / name

    def systemd(self) -> None:
        (self.system / "run" / "systemd" / "system").mkdir(parents=True)

    def install(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: TID251
            ["sh", str(ROOT / "install.sh"), *argv],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env={
                "HOME": str(self.home),
                "PATH": str(self.home / "tools"),
                "KBUILD_PYTHON": sys.executable,
                "KBUILD_ROOT": str(self.system),
                **env,
            },
        )

    def calls(self) -> list[str]:
        return (self.home / "calls").read_text().splitlines()

    def accounts(self) -> set[str]:
        return set((self.home / "accounts").read_text().splitlines())

    def files(self) -> dict[str, str]:
        """What lies in the system, by path."""
        paths = (path for path in self.system.rglob("*") if path.is_file())
        return {path.relative_to(self.system).as_posix(): path.read_text() for path in paths}
