"""How the story looks: chapters, sentences, calls with what they answered, tables."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

STATES = {
    "placed": "cyan",
    "pending": "yellow",
    "binding": "blue",
    "active": "bold green",
    "released": "magenta",
    "cancelled": "magenta",
    "awaiting-confirmation": "yellow",
    "approved": "bold green",
}


class Teller:
    """Prints the story to a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._chapters = 0

    def chapter(self, title: str) -> None:
        """A numbered heading."""
        self._chapters += 1
        self._console.print()
        self._console.rule(f"[bold]{self._chapters}. {escape(title)}", align="left", style="dim")

    def say(self, text: str) -> None:
        """A sentence, with rich's markup."""
        self._console.print(text, highlight=False)

    def call(self, who: str, method: str, words: str) -> None:
        """What somebody asks for."""
        self._console.print(f"[bold]{escape(who)}[/]  {method}  [dim]{escape(words)}[/]", highlight=False)

    def answer(self, words: str) -> None:
        """What the platform answered, with rich's markup."""
        self._console.print(f"    → {words}", highlight=False)

    def refusal(self, status: int, error: dict[str, Any]) -> None:
        """An error as the wire has it, without its address for reading more."""
        self.answer(f"[bold red]{status} {error['code']}[/]  {escape(error['message'])}")
        if details := error.get("details"):
            shown = ", ".join(f"{name} [bold]{escape(str(value))}[/]" for name, value in details.items())
            self._console.print(f"      {shown}", highlight=False)
        self._console.print(f"      [dim]{escape(error['fix'])}[/]", highlight=False)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A small table; cells are rich's markup."""
        table = Table(*columns, box=None, header_style="dim", padding=(0, 1, 0, 0))
        for row in rows:
            table.add_row(*row)
        self._console.print(table)


def state(name: str) -> str:
    """A state in its colour."""
    return f"[{STATES.get(name, 'white')}]{name}[/]"


def clock(milliseconds: int) -> str:
    """A time of day, UTC, to the millisecond."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
