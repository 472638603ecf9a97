"""The costs of changes of size, as a table: of one training, or of the same training in several modes."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from demo.journal import Epoch, pauses_of

COLUMNS = ("change", "runtime.mode", "from epoch", "to epoch", "training stood still", "epochs repeated")


def show_costs(console: Console, trainings: Mapping[str, list[Epoch]]) -> None:
    """Print a row for each change of each training, `trainings` by their mode. The first changes of all come first."""
    table = Table(title="What a change of size cost (epochs take 1 s)", expand=False)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    costs = {mode: pauses_of(epochs) for mode, epochs in trainings.items()}
    for change in range(max(map(len, costs.values()), default=0)):
        for mode, pauses in costs.items():
            for pause in pauses[change : change + 1]:
                table.add_row(
                    f"{pause.before.world_size} -> {pause.after.world_size} processes",
                    mode,
                    str(pause.before.number),
                    str(pause.after.number),
                    f"{pause.seconds:.1f} s",
                    str(pause.repeated),
                )
        table.add_section()
    console.print(table)
