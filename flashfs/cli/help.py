"""How the help of a command is laid out: plain lines of 78 columns at most, and examples at its end."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

#: the commands of ``flashfs --help`` by group, in the order in which they are wanted
GROUPS = {
    "Use an SSD": (
        "create", "mount", "umount", "up", "down", "status", "nbd", "clone", "resize", "remap", "upgrade", "presets",
        "ftls",
    ),
    "Look into it": ("dump", "top", "smart", "fsck"),
    "Experiment": ("replay", "plot", "compare", "sweep", "trace", "reproduce", "recovery-model", "cut", "fault"),
    "Build and test": ("new-ftl", "check", "crash"),
}  # fmt: skip


class Plain:
    """Of a command and of a group of commands: what click prints, with names alone for arguments and for flags."""

    def collect_usage_pieces(self: Any, ctx: Any) -> list[str]:
        """What stands in the usage line after the command."""
        arguments = [one for one in self.get_params(ctx) if one.param_type_name == "argument"]
        return ["[OPTIONS]", *(shown(one) if one.required else f"[{shown(one)}]" for one in arguments)]

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        """Arguments, options, and those that have a heading of their own."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for one in self.get_params(ctx):
            if not getattr(one, "hidden", False):
                argument = one.param_type_name == "argument"
                title = getattr(one, "rich_help_panel", None) or ("Arguments" if argument else "Options")
                sections.setdefault(title, []).append((shown(one) if argument else spelled(one), said(one)))
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def ending(self: Any) -> str:
        """What stands last, line for line: examples."""
        return self.epilog or ""

    def format_epilog(self: Any, ctx: Any, formatter: Any) -> None:
        """Line for line."""
        if self.ending():
            formatter.write(f"\n{self.ending()}\n")


class Command(Plain, TyperCommand):
    """A command."""


class Group(Plain, TyperGroup):
    """A command that has commands of its own."""

    def collect_usage_pieces(self: Any, ctx: Any) -> list[str]:
        words = super().collect_usage_pieces(ctx)
        return [*words, "[COMMAND]" if self.invoke_without_command else "COMMAND", "[ARGS]..."]

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self: Any, ctx: Any, formatter: Any) -> None:
        """One line for each command, under the heading of its group."""
        names = self.list_commands(ctx)
        widest = max(map(len, names))
        for title, listed in self.groups(names).items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), short(self.get_command(ctx, name))) for name in listed])

    def groups(self, names: list[str]) -> dict[str, list[str]]:
        """{heading: names of commands}."""
        return {"Commands": names}


class Root(Group):
    """``flashfs`` itself."""

    def groups(self, names: list[str]) -> dict[str, list[str]]:
        return {title: list(listed) for title, listed in GROUPS.items()}


def spelled(option: Any) -> str:
    """-v, --verbose; --size SIZE."""
    names = ", ".join(sorted([*option.opts, *option.secondary_opts], key=len))
    return names if option.is_flag else f"{names} {shown(option)}"


def shown(parameter: Any) -> str:
    """What stands for its value."""
    return str(parameter.metavar or parameter.name.upper().replace("_", "-"))


def said(parameter: Any) -> str:
    """Its help, with the default where the help shows it too."""
    default, show = parameter.default, getattr(parameter, "show_default", False)
    plain = isinstance(default, str | int | float) and not isinstance(default, bool)
    text = show if isinstance(show, str) else default if plain and show else None
    return (getattr(parameter, "help", None) or "") + (f" [default: {text}]" if text is not None else "")


def short(command: Any) -> str:
    """The first paragraph of a command's help, without its full stop."""
    return " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split()).removesuffix(".")


def section(title: str, lines: Iterable[str]) -> str:
    """Lines that stand as they are, under a heading."""
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines)])
