"""`kbuild completions`: completion scripts for bash, zsh and fish, made from the parsers."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence

from kbuild.cli import COMMANDS
from kbuild.cli.context import Context
from kbuild.cli.generate_docs import ArgumentDescription, CommandDescription, describe_command


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=sorted(_SCRIPTS), help="bash, fish or zsh")


def execute(args: Namespace, ctx: Context) -> int:
    """Print the script."""
    ctx.ui.data(_SCRIPTS[args.shell]([describe_command(command) for command in COMMANDS]))
    return 0


def bash(commands: Sequence[CommandDescription]) -> str:
    """`eval "$(kbuild completions bash)"`."""
    names = " ".join(description.command.name for description in commands)
    cases = "\n".join(
        f'    {description.command.name}) words="{_flags(description)}" ;;'
        for description in commands
    )
    values = "\n".join(_bash_values(commands))
    return f"""\
_kbuild() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" words
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{names} --help --version" -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}} $previous" in
{values}
  esac
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    *) COMPREPLY=($(compgen -f -- "$current")) ;;
  esac
}}
complete -o filenames -F _kbuild kbuild
"""


def zsh(commands: Sequence[CommandDescription]) -> str:
    """`kbuild completions zsh > _kbuild`, in a folder of `$fpath`."""
    names = "\n".join(f"    '{d.command.name}:{_quoted(d.command.summary)}'" for d in commands)
    cases = "\n".join(
        f"    {d.command.name}) _arguments \\\n{_zsh_arguments(d)} ;;" for d in commands
    )
    return f"""\
#compdef kbuild
_kbuild() {{
  local -a subcommands=(
{names}
  )
  if (( CURRENT == 2 )); then
    _describe command subcommands
    return
  fi
  local subcommand=$words[2]
  shift words
  (( CURRENT-- ))
  case $subcommand in
{cases}
  esac
}}
if [ "$funcstack[1]" = _kbuild ]; then _kbuild "$@"; else compdef _kbuild kbuild; fi
"""


def fish(commands: Sequence[CommandDescription]) -> str:
    """`kbuild completions fish | source`."""
    return "\n".join(_fish_lines(commands)) + "\n"


def _flags(description: CommandDescription) -> str:
    return " ".join(flag for option in description.options for flag in option.flags)


def _bash_values(commands: Sequence[CommandDescription]) -> Iterator[str]:
    for description in commands:
        for option in description.options:
            if not option.choices:
                continue
            pattern = "|".join(f'"{description.command.name} {flag}"' for flag in option.flags)
            reply = f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$current"))'
            yield f"    {pattern}) {reply}; return ;;"
        for argument in description.positionals:
            if argument.choices:
                reply = f'COMPREPLY=($(compgen -W "{" ".join(argument.choices)}" -- "$current"))'
                name = description.command.name
                yield f'    "{name} {name}") {reply}; return ;;'


def _zsh_arguments(description: CommandDescription) -> str:
    options = [line for option in description.options for line in _zsh_option(option)]
    places = [f"'{_zsh_place(argument)}'" for argument in description.positionals]
    return " \\\n".join(f"      {line}" for line in (*options, *places))


def _zsh_option(option: ArgumentDescription) -> Iterator[str]:
    for flag in option.flags:
        yield f"'*{flag}[{_quoted(option.help)}]{_zsh_value(option)}'"


def _zsh_value(argument: ArgumentDescription) -> str:
    if not argument.takes_value:
        return ""
    if argument.choices:
        return f":{argument.metavar}:({' '.join(argument.choices)})"
    return f":{argument.metavar}:{'_files' if argument.is_path else ''}"


def _zsh_place(argument: ArgumentDescription) -> str:
    return f"{'' if argument.required else ':'}{_zsh_value(argument) or ':'}"


def _fish_lines(commands: Sequence[CommandDescription]) -> Iterator[str]:
    for d in commands:
        yield (
            "complete -c kbuild -n __fish_use_subcommand -f "
            f"-a {d.command.name} -d '{_escaped(d.command.summary)}'"
        )
    for d in commands:
        seen = f"complete -c kbuild -n '__fish_seen_subcommand_from {d.command.name}'"
        for option in d.options:
            yield f"{seen} {_fish_option(option)}"
        for argument in d.positionals:
            if argument.choices:
                yield f"{seen} -f -a '{' '.join(argument.choices)}'"


def _fish_option(option: ArgumentDescription) -> str:
    flags = (f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}" for f in option.flags)
    value = ""
    if option.choices:
        value = f" -x -a '{' '.join(option.choices)}'"
    elif option.takes_value:
        value = " -r" if option.is_path else " -x"
    return f"{' '.join(flags)}{value} -d '{_escaped(option.help)}'"


def _quoted(text: str) -> str:
    """Safe inside a single-quoted `_arguments` or `_describe` specification."""
    text = text.replace("\\", "\\\\").replace("'", "'\\''")
    return text.replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


_SCRIPTS: Mapping[str, Callable[[Sequence[CommandDescription]], str]] = {
    "bash": bash,
    "fish": fish,
    "zsh": zsh,
}
