#!/bin/sh
# Install kbuild for this user, isolated from every other Python environment.
#
#   sh install.sh                      install or upgrade
#   sh install.sh --with-nix           Nix first, for `kbuild build --driver nix`; an installed one stays
#   sh install.sh --from DIR_OR_SPEC   from a checkout, or what pip would install (e.g. kbuild==0.1.0)
#   sh install.sh --uninstall          remove kbuild again; with --with-nix also what was made for Nix
#   sh install.sh --dry-run            with any of these: show every step, change nothing
#
# kbuild comes by uv, else pipx, else venv and pip (into ~/.local/share/kbuild with a link in ~/.local/bin).
# KBUILD_INSTALLER=uv|pipx|venv chooses; KBUILD_PYTHON names the Python to use.
#
# Nix comes by the Determinate installer where it can be reached, else as the distribution's package.
# KBUILD_NIX_FROM=determinate|distribution chooses; KBUILD_NIX_INSTALLER names another address.
# System files are changed as root, through sudo; without a terminal nothing is asked. Settings go to
# /etc/nix/kbuild.conf; an existing nix.conf gets one line that includes it and keeps what it says.
# KBUILD_ROOT=DIR, for tests: where /etc, /nix, /run and /var are.
set -eu

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $1"; [ $# -lt 2 ] || say "  hint: $2"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

share="${XDG_DATA_HOME:-$HOME/.local/share}/kbuild"
bin="${XDG_BIN_HOME:-$HOME/.local/bin}"
mark="$share/.made-by-install.sh"
python="${KBUILD_PYTHON:-python3}"
root="${KBUILD_ROOT:-}"
nix_installer="${KBUILD_NIX_INSTALLER:-https://install.determinate.systems/nix}"
conf="$root/etc/nix/nix.conf"
[ ! -e "$root/etc/nix/nix.custom.conf" ] || conf="$root/etc/nix/nix.custom.conf" # Determinate's own
ours="$root/etc/nix/kbuild.conf"
made="$root/var/lib/kbuild/made-by-install.sh"
include="!include kbuild.conf"
from=""
action=install
nix=""
dry=""
if [ -t 0 ] && [ -t 2 ]; then terminal=1; else terminal=""; fi

while [ $# -gt 0 ]; do
  case "$1" in
    --from) [ $# -ge 2 ] || fail "--from takes a folder or a requirement"; from="$2"; shift ;;
    --from=*) from="${1#--from=}" ;;
    --with-nix) nix=1 ;;
    --uninstall) action=uninstall ;;
    --dry-run) dry=1 ;;
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

# --- Steps: what changes something is said first in a dry run, and done otherwise.

run() { if [ -n "$dry" ]; then say "would run: $*"; else "$@"; fi; }

as_root() {
  if [ "$(id -u)" = 0 ]; then run "$@"
  elif ! have sudo; then fail "this needs root: $*" "run this script as root, or install sudo"
  elif [ -n "$terminal" ]; then run sudo "$@"
  else run sudo -n "$@" || fail "could not run as root: $*" "run it in a terminal, or as root"
  fi
}

# Appends to a system file what comes on stdin.
append() {
  if [ -n "$dry" ]; then say "would append to $1:"; sed 's/^/  | /' >&2; return; fi
  as_root mkdir -p "$(dirname "$1")"
  as_root tee -a "$1" >/dev/null
}

# Notes for --uninstall that this script made something.
note() { if [ -n "$dry" ]; then say "would note in $made: $*"; else echo "$*" | append "$made"; fi; }
noted() { [ -f "$made" ] && grep -qx "$*" "$made"; }

# --- Nix

nix_program() {
  for candidate in "$(command -v nix || true)" "$root/nix/var/nix/profiles/default/bin/nix"; do
    if [ -n "$candidate" ] && [ -x "$candidate" ]; then echo "$candidate"; return; fi
  done
}

systemd() { [ -d "$root/run/systemd/system" ]; }

reachable() {
  have curl && curl --proto '=https' --tlsv1.2 -sSfIL --max-time 15 -o /dev/null "$nix_installer" 2>/dev/null
}

nix_source() {
  case "${KBUILD_NIX_FROM:-}" in
    determinate|distribution) echo "$KBUILD_NIX_FROM" ;;
    "") if [ -z "$root" ] && reachable; then echo determinate; else echo distribution; fi ;;
    *) fail "KBUILD_NIX_FROM=$KBUILD_NIX_FROM is not determinate or distribution" ;;
  esac
}

settings() {
  echo "extra-experimental-features = nix-command flakes"
  echo "sandbox = true"
  echo "sandbox-fallback = false"
}

install_determinate() {
  script=$(mktemp)
  trap 'rm -f "$script"' EXIT
  run curl --proto '=https' --tlsv1.2 -sSfL --retry 3 -o "$script" "$nix_installer"
  planner=""
  [ "$(uname -s)" != Linux ] || systemd || planner="linux --init none"
  if [ -n "$terminal" ]; then sure=""; else sure=--no-confirm; fi
  note determinate
  # shellcheck disable=SC2086 # words on purpose
  as_root sh "$script" install $planner $sure --extra-conf "$(settings)"
  rm -f "$script"
  trap - EXIT
}

# The packages that give Nix, and a daemon for other users where systemd runs.
install_distribution() {
  if have apt-get; then install_debian
  elif have dnf; then as_root dnf install -y nix; note packages nix
  elif have pacman; then as_root pacman -S --noconfirm --needed nix; note packages nix
  elif have zypper; then as_root zypper --non-interactive install nix; note packages nix
  else
    fail "no package manager here that is known to have Nix (apt-get, dnf, pacman, zypper)" \
      "install Nix by hand, then run this again"
  fi
}

install_debian() {
  as_root apt-get update -q
  apt_install nix-bin
  if systemd; then apt_install nix-setup-systemd; fi
  # Debian's newer Nix has bash-static as the sandbox's /bin/sh, and does not ask for the package.
  if [ -z "$dry" ] && nix --extra-experimental-features nix-command show-config 2>/dev/null |
    grep -q '^sandbox-paths.*=/usr/bin/bash-static'; then apt_install bash-static; fi
}

apt_install() {
  if dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q ' installed$'; then return; fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$1"
  note "packages $1"
}

# Builds run as users of their own: as root they could write to whatever is lent to the sandbox.
make_users() {
  if ! getent group nixbld >/dev/null; then
    as_root groupadd --system nixbld
    note "group nixbld"
  fi
  no_login=$(command -v nologin || echo /usr/sbin/nologin)
  for number in 1 2 3 4 5 6 7 8; do
    getent passwd "nixbld$number" >/dev/null && continue
    as_root useradd --system --gid nixbld --groups nixbld --home-dir /var/empty --no-create-home \
      --shell "$no_login" "nixbld$number"
    note "user nixbld$number"
  done
}

# Whether root is to build as users that there are not: the default, unless settings say otherwise.
lacks_users() {
  if getent group nixbld >/dev/null; then return 1; fi
  if [ "$(id -u)" != 0 ] && [ -w "$root/nix/store" ]; then return 1; fi # somebody's own Nix
  ! grep -qE '^[[:space:]]*(build-users-group|auto-allocate-uids)[[:space:]]*=' "$root"/etc/nix/*.conf
}

# Of the settings, those about which an older nix.conf says nothing.
unsaid() {
  settings | while IFS= read -r line; do
    key=${line%% *}
    theirs=$(grep -hE "^[[:space:]]*${key}[[:space:]]*=" "$root"/etc/nix/*.conf | tail -n 1 || true)
    if [ -z "$theirs" ]; then echo "$line"
    elif [ "$theirs" != "$line" ]; then
      say "note: $root/etc/nix says \`$theirs\` and keeps it; kbuild would have \`$line\`"
    fi
  done
}

# $1: whether nix.conf is older than what this script did.
configure() {
  if noted "file $ours"; then return; fi
  if [ -L "$conf" ] || [ -e "$ours" ]; then
    say "note: $conf and $ours are left alone; what kbuild wants there:"
    settings | sed 's/^/  /' >&2
    return
  fi
  if [ "$1" = older ]; then wanted=$(unsaid); else wanted=$(settings); fi
  printf '# made by install.sh of kbuild\n%s\n' "$wanted" | append "$ours"
  note "file $ours"
  if [ -e "$conf" ]; then
    # A last line without an end would swallow ours.
    { [ -z "$(tail -c 1 "$conf")" ] || echo; echo "$include"; } | append "$conf"
    note "line $conf"
  else
    echo "$include" | append "$conf"
    note "file $conf"
  fi
}

start_daemon() {
  systemd && have systemctl || return 0
  unit="nix-daemon.service"
  if systemctl cat nix-daemon.socket >/dev/null 2>&1; then unit="nix-daemon.socket"; fi
  as_root systemctl enable --now "$unit"
  as_root systemctl try-restart nix-daemon.service
  member=$(id -un)
  if [ "$member" != root ] && getent group nix-users >/dev/null; then
    as_root usermod -aG nix-users "$member"
    say "note: log in again, so that you are in the group nix-users"
  fi
}

with_nix() {
  program=$(nix_program)
  if [ -e "$conf" ]; then age=older; else age=new; fi
  if [ -z "$program" ]; then source=$(nix_source); fi
  if [ -n "$program" ]; then
    say "Nix is there: $program, $("$program" --version)"
  elif [ "$source" = determinate ]; then
    say "installing Nix with the installer from $nix_installer"
    install_determinate
    return # with users, configuration and daemon
  elif [ "$(uname -s)" != Linux ]; then
    fail "$nix_installer cannot be reached, and $(uname -s) has no package of Nix" \
      "KBUILD_NIX_INSTALLER=ADDRESS sh install.sh --with-nix"
  else
    say "installing the distribution's Nix"
    install_distribution
  fi
  [ "$(uname -s)" = Linux ] || return 0
  if [ -z "$program" ] || [ "$age" = new ] || lacks_users; then make_users; fi
  configure "$age"
  if [ -z "$program" ]; then start_daemon; fi
}

without_nix() {
  if [ ! -f "$made" ]; then say "this script made nothing for Nix here"; return; fi
  # Newest first: users before their group, files before the package that may own their folder.
  sed -n '1!G;h;$p' "$made" | while read -r kind what; do
    case "$kind" in
      determinate) as_root "$root/nix/nix-installer" uninstall --no-confirm ;;
      file) as_root rm -f "$what" ;;
      line) if [ -e "$what" ]; then as_root sed -i "/^$include\$/d" "$what"; fi ;;
      user) if getent passwd "$what" >/dev/null; then as_root userdel "$what"; fi ;;
      group) if getent group "$what" >/dev/null; then as_root groupdel "$what"; fi ;;
      packages) remove_packages "$what" ;;
      *) say "note: $made says \`$kind\`, which is left alone" ;;
    esac </dev/null
  done
  as_root rm -f "$made"
  as_root rmdir "$(dirname "$made")" "$root/etc/nix" 2>/dev/null || true
  if [ -d "$root/nix" ]; then say "note: what was built stays; to remove it: rm -rf $root/nix"; fi
}

remove_packages() {
  # shellcheck disable=SC2086 # words on purpose
  if have apt-get; then as_root env DEBIAN_FRONTEND=noninteractive apt-get purge -qy $1
  elif have dnf; then as_root dnf remove -y $1
  elif have pacman; then as_root pacman -R --noconfirm $1
  elif have zypper; then as_root zypper --non-interactive remove $1
  fi
}

# --- kbuild

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
  if [ -e "$bin/kbuild" ] && [ ! -L "$bin/kbuild" ]; then
    fail "$bin/kbuild exists and is no link" "move it away"
  fi
  run mkdir -p "$share" "$bin"
  run touch "$mark"
  # The new environment is complete before the link moves, so a failure leaves the old one working.
  fresh="$share/venv-$$"
  trap 'run rm -rf "$fresh"' EXIT
  run "$python" -m venv "$fresh"
  run "$fresh/bin/python" -m pip install --quiet --disable-pip-version-check "$from"
  run "$fresh/bin/kbuild" --version >/dev/null
  run ln -sfn "$fresh/bin/kbuild" "$bin/kbuild"
  trap - EXIT
  for old in "$share"/venv-*; do
    [ "$old" = "$fresh" ] || [ ! -e "$old" ] || run rm -rf "$old"
  done
}

uninstall() {
  gone=""
  if have uv && uv tool list 2>/dev/null | grep -q '^kbuild '; then run uv tool uninstall kbuild; gone=1; fi
  if have pipx && pipx list --short 2>/dev/null | grep -q '^kbuild '; then run pipx uninstall kbuild; gone=1; fi
  if [ -L "$bin/kbuild" ]; then
    case "$(readlink "$bin/kbuild")" in "$share"/venv-*) run rm "$bin/kbuild"; gone=1 ;; esac
  fi
  if [ -e "$mark" ]; then run rm -r "$share"; gone=1; fi
  if [ -z "$gone" ]; then say "there was no kbuild to remove"
  elif [ -z "$dry" ]; then say "kbuild is gone; its cache may stay in ${XDG_CACHE_HOME:-$HOME/.cache}/kbuild"
  fi
}

if [ "$action" = uninstall ]; then
  uninstall
  if [ -n "$nix" ]; then without_nix
  elif [ -f "$made" ]; then say "note: Nix stays; sh install.sh --uninstall --with-nix"
  fi
  exit 0
fi

check_python
if [ -n "$nix" ]; then with_nix; fi
way=$(installer)
say "installing kbuild from $from with $way"
case "$way" in
  uv) run uv tool install --quiet --force --reinstall-package kbuild --python "$python" "$from"
      bin=$(uv tool dir --bin) ;;
  pipx) run pipx install --quiet --force --python "$python" "$from" >&2
      bin="${PIPX_BIN_DIR:-$HOME/.local/bin}" ;;
  venv) install_venv ;;
  *) fail "KBUILD_INSTALLER=$way is not uv, pipx or venv" ;;
esac
if [ -n "$dry" ]; then say "nothing was changed"; exit 0; fi

"$bin/kbuild" --version
case ":$PATH:" in
  *":$bin:"*) ;;
  *) say "note: $bin is not on PATH; add: export PATH=\"$bin:\$PATH\"" ;;
esac
have c++ || have g++ || have clang++ || say "note: no C++ compiler found; apt-get install g++"
say "next: kbuild doctor"
