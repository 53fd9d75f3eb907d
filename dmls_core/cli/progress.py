"""Progress bars, on terminals only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from dmls_core.cli.console import err


@contextmanager
def share_bar(label: str) -> Iterator[Callable[[float], None]]:
    """Show a bar on a terminal while the block runs; yields what takes the share that is done, 0 to 1."""
    if not err.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda share: bar.update(task, completed=share)


class StepLines:
    """Tells of steps as they end, a line each; on a terminal the ones under way are shown below.

    Called from the threads that run the steps.
    """

    def __init__(self) -> None:
        from rich.status import Status

        self._running: list[str] = []
        self._status = Status("", console=err) if err.is_terminal else None

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    def __call__(self, name: str, state: str, seconds: float) -> None:
        """Take one step's news: ``starting``, ``ready`` or ``failed``, and how long it took."""
        if state == "starting":
            self._running.append(name)
        else:
            if name in self._running:
                self._running.remove(name)
            mark = "[green]ready[/] " if state == "ready" else "[red]failed[/]"
            err.print(f"  {mark} {name:<22} {seconds:5.1f} s")
        if self._status:
            self._status.update(f"starting {', '.join(self._running)}" if self._running else "")
