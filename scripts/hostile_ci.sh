#!/usr/bin/env bash
# Run .ci/run, or the command that is given, as on a machine that is set up quite differently:
# a home of its own, where git signs and has hooks that fail and templates, pip has constraints,
# a log and an odd place for certificates; umask 077, a long TMPDIR, another locale and time zone.
# Where packages come from stays as it is.
#
#   bash scripts/hostile_ci.sh [COMMAND...]
#   HOSTILE_LOCALE=POSIX bash scripts/hostile_ci.sh ...
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
umask 077
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
home=$work/home
mkdir -p "$home/.config/pip" "$home/hooks" "$home/template/hooks" "$home/odd place"

# pip: what decides where packages come from is this user's, the rest is not.
PIP_QUIET=0 python3 -m pip config list >"$work/listing"
python3 "$root/kbuild/toolchains/wheels/settings.py" <"$work/listing" >"$work/settings.sh"
(
  # shellcheck source=/dev/null
  source "$work/settings.sh"
  printf '[global]\n'
  for name in index-url extra-index-url find-links no-index trusted-host client-cert proxy timeout; do
    variable=PIP_$(tr 'a-z-' 'A-Z_' <<<"$name")
    if [ -n "${!variable:-}" ]; then printf '%s = %s\n' "$name" "${!variable}"; fi
  done
  if [ -f "${PIP_CERT:-}" ]; then
    cp "$PIP_CERT" "$home/odd place/ca.pem"
    printf 'cert = %s\n' "$home/odd place/ca.pem"
  fi
  printf 'constraint = %s\nrequire-virtualenv = true\nlog = %s\n' "$home/constraints.txt" "$home/pip.log"
) >"$home/.config/pip/pip.conf"
if [ -f ~/.netrc ]; then cp ~/.netrc "$home/.netrc"; fi
printf 'no-such-package-as-this<1\n' >"$home/constraints.txt"

printf '#!/bin/sh\necho "a hook of this user ran" >&2\nexit 1\n' >"$home/hooks/pre-commit"
chmod +x "$home/hooks/pre-commit"
for hook in commit-msg post-checkout post-index-change reference-transaction; do
  cp "$home/hooks/pre-commit" "$home/hooks/$hook"
done
cp "$home/hooks/"* "$home/template/hooks"
printf '*.so\n*.whl\nbuild/\n*.log\n' >"$home/ignored"
cat >"$home/.gitconfig" <<END
[user]
  useConfigOnly = true
[commit]
  gpgsign = true
[tag]
  gpgsign = true
[gpg]
  program = false
[init]
  defaultBranch = odd/trunk
  templateDir = $home/template
[core]
  hooksPath = $home/hooks
  autocrlf = true
  excludesFile = $home/ignored
  editor = false
  pager = false
[color]
  ui = always
[status]
  showUntrackedFiles = no
[diff]
  noprefix = true
END

# A Turkish locale where one can be made; else the plainest, in which nothing is UTF-8.
locale=${HOSTILE_LOCALE:-tr_TR.UTF-8}
if [ "$locale" != POSIX ]; then
  mkdir -p "$work/locales"
  if localedef -i "${locale%.*}" -f UTF-8 "$work/locales/$locale" 2>/dev/null; then
    export LOCPATH=$work/locales
  else
    locale=POSIX
  fi
fi
long=$work/temporary.files+of-a-machine/with-a-path-longer.than-most
mkdir -p "$long"

cd "$root"
while IFS= read -r name; do unset "$name"; done < <(compgen -e | grep -E '^(PIP|GIT|XDG|LC|KBUILD)_')
env HOME="$home" TMPDIR="$long" LANG="$locale" LC_ALL="$locale" LANGUAGE= TZ=Asia/Kathmandu \
  COLUMNS=40 EDITOR=false PAGER=false CDPATH=. "${@:-.ci/run}"
