"""`flintmq completion bash|zsh|fish`: a script for the shell, made of the parsers of all commands."""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "fish")

BASH = """# flintmq completion bash > /etc/bash_completion.d/flintmq
_flintmq() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" key="${{COMP_WORDS[1]}}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
        return
    fi
    case "$key" in
{cases}
        *) COMPREPLY=($(compgen -f -- "$word")) ;;
    esac
}}
complete -F _flintmq flintmq
"""
ZSH = """#compdef flintmq
# flintmq completion zsh > "${{fpath[1]}}/_flintmq"
autoload -U +X bashcompinit && bashcompinit
{bash}"""


def add(command: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(run=completion)


def completion(options: argparse.Namespace) -> int:
    words = words_of()
    if options.shell == "fish":
        print("\n".join(fish(words)))
    elif options.shell == "zsh":
        print(ZSH.format(bash=bash(words)), end="")
    else:
        print(bash(words), end="")
    return 0


def words_of() -> dict[str, list[str]]:
    """By command: the options and the tasks that may follow it."""
    from flintmq.cli import ALL, parser
    from flintmq.cli.ctl.command_table import COMMANDS

    found = {name: sorted(set(following(each))) for name, each in commands_of(parser(ALL)).items()}
    found["ctl"] = sorted(COMMANDS)
    return found


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found.update(action.choices)
    return found


def following(parser: argparse.ArgumentParser) -> list[str]:
    words = [option for action in parser._actions for option in action.option_strings if option[:2] == "--"]
    for action in parser._actions:
        if action.choices is not None and not isinstance(action, argparse._SubParsersAction):
            words += [] if action.option_strings else [str(choice) for choice in action.choices]
    for name, task in commands_of(parser).items():
        words += [name, *following(task)]
    return words


def bash(words: dict[str, list[str]]) -> str:
    cases = "\n".join(
        f'        {name}) COMPREPLY=($(compgen -W "{" ".join(each)}" -- "$word")) ;;'
        for name, each in words.items()
    )
    return BASH.format(commands=" ".join(words), cases=cases)


def fish(words: dict[str, list[str]]) -> list[str]:
    lines = ["# flintmq completion fish > ~/.config/fish/completions/flintmq.fish"]
    names = " ".join(words)
    lines.append(f"complete -c flintmq -n __fish_use_subcommand -f -a '{names}'")
    for name, each in words.items():
        condition = f"'__fish_seen_subcommand_from {name}'"
        for word in each:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-f -a {word}"
            lines.append(f"complete -c flintmq -n {condition} {what}")
    return lines
