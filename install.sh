#!/bin/sh
# Install kbuild for this user, isolated from every other Python environment.
#
#   sh install.sh                      install or upgrade
#   sh install.sh --from DIR_OR_SPEC   from a checkout, or what pip would install (e.g. kbuild==0.1.0)
#   sh install.sh --uninstall          remove it again
#   sh install.sh --with-nix           there is no Nix support yet; says so and installs the rest
#
# Takes uv, else pipx, else venv and pip (into ~/.local/share/kbuild with a link in ~/.local/bin).
# KBUILD_INSTALLER=uv|pipx|venv chooses; KBUILD_PYTHON names the Python to use.
set -eu

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $1"; [ $# -lt 2 ] || say "  hint: $2"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

share="${XDG_DATA_HOME:-$HOME/.local/share}/kbuild"
bin="${XDG_BIN_HOME:-$HOME/.local/bin}"
mark="$share/.made-by-install.sh"
python="${KBUILD_PYTHON:-python3}"
from=""
action=install

while [ $# -gt 0 ]; do
  case "$1" in
    --from) [ $# -ge 2 ] || fail "--from takes a folder or a requirement"; from="$2"; shift ;;
    --from=*) from="${1#--from=}" ;;
    --with-nix) say "note: Nix comes later; installing without it" ;;
    --uninstall) action=uninstall ;;
    -h|--help) sed -n '2,/^set -eu/{s/^# \{0,1\}//;/^set -eu/d;p;}' "$0"; exit 0 ;;
    *) fail "unknown argument: $1" "sh install.sh --help" ;;
  esac
  shift
done

# Without --from: the checkout that this script is part of.
if [ -z "$from" ] && [ "$action" = install ]; then
  here=$(cd "$(dirname "$0")" 2>/dev/null && pwd || true)
  if [ -n "$here" ] && [ -f "$here/pyproject.toml" ] && [ -f "$here/kbuild/__init__.py" ]; then
    from="$here"
  else
    fail "kbuild is on no package index yet" "sh install.sh --from DIR, a checkout of kbuild"
  fi
fi

installer() {
  if [ -n "${KBUILD_INSTALLER:-}" ]; then echo "$KBUILD_INSTALLER"
  elif have uv; then echo uv
  elif have pipx; then echo pipx
  else echo venv
  fi
}

check_python() {
  have "$python" || fail "no $python found" "apt-get install python3 python3-venv"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$("$python" --version) is too old: kbuild needs Python 3.10 or newer" \
      "KBUILD_PYTHON=python3.12 sh install.sh"
}

install_venv() {
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python has no venv" "apt-get install python3-venv"
  if [ -e "$share" ] && [ ! -e "$mark" ]; then
    fail "$share exists and this script did not make it" "move it away"
  fi
  mkdir -p "$share" "$bin"
  : > "$mark"
  if [ -e "$bin/kbuild" ] && [ ! -L "$bin/kbuild" ]; then
    fail "$bin/kbuild exists and is no link" "move it away"
  fi
  # The new environment is complete before the link moves, so a failure leaves the old one working.
  fresh="$share/venv-$$"
  trap 'rm -rf "$fresh"' EXIT
  "$python" -m venv "$fresh"
  "$fresh/bin/python" -m pip install --quiet --disable-pip-version-check "$from"
  "$fresh/bin/kbuild" --version >/dev/null
  ln -sfn "$fresh/bin/kbuild" "$bin/kbuild"
  trap - EXIT
  for old in "$share"/venv-*; do
    [ "$old" = "$fresh" ] || rm -rf "$old"
  done
}

uninstall() {
  gone=""
  if have uv && uv tool list 2>/dev/null | grep -q '^kbuild '; then uv tool uninstall kbuild; gone=1; fi
  if have pipx && pipx list --short 2>/dev/null | grep -q '^kbuild '; then pipx uninstall kbuild; gone=1; fi
  if [ -L "$bin/kbuild" ]; then
    case "$(readlink "$bin/kbuild")" in "$share"/venv-*) rm "$bin/kbuild"; gone=1 ;; esac
  fi
  if [ -e "$mark" ]; then rm -r "$share"; gone=1; fi
  [ -n "$gone" ] && say "kbuild is gone; its cache may stay in ${XDG_CACHE_HOME:-$HOME/.cache}/kbuild" ||
    say "there was no kbuild to remove"
}

if [ "$action" = uninstall ]; then uninstall; exit 0; fi

check_python
way=$(installer)
say "installing kbuild from $from with $way"
case "$way" in
  uv) uv tool install --quiet --force --reinstall-package kbuild --python "$python" "$from"
      bin=$(uv tool dir --bin) ;;
  pipx) pipx install --quiet --force --python "$python" "$from" >&2
      bin="${PIPX_BIN_DIR:-$HOME/.local/bin}" ;;
  venv) install_venv ;;
  *) fail "KBUILD_INSTALLER=$way is not uv, pipx or venv" ;;
esac

"$bin/kbuild" --version
case ":$PATH:" in
  *":$bin:"*) ;;
  *) say "note: $bin is not on PATH; add: export PATH=\"$bin:\$PATH\"" ;;
esac
have c++ || have g++ || have clang++ || say "note: no C++ compiler found; apt-get install g++"
say "next: kbuild doctor"
