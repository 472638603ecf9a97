from io import StringIO

from rich.console import Console

from demo.costs import show_costs
from demo.journal import Epoch, Journal, epochs_of, pauses_of
from demo.plot import svg_of

GROUP = "Initializing process group with: {{'RANK': '0', 'WORLD_SIZE': '{size}', 'LOCAL_RANK': '0'}}"


def log(*lines):
    """Lines as `kubectl logs --timestamps` prints them, one second apart."""
    return [f"2026-01-31T12:00:{i:02}.250000000Z {line}" for i, line in enumerate(lines)]


def epoch(number, *, rank=0, local_rank=0):
    return f"[12] epoch {number} (rank = {rank}, local_rank = {local_rank}) loss = 1.0"


def test_epochs_have_their_time_and_the_world_size_last_announced():
    epochs = epochs_of(log("[12] " + GROUP.format(size=4), epoch(0), "[13] " + GROUP.format(size=8), epoch(1)))
    assert [(e.number, e.world_size) for e in epochs] == [(0, 4), (1, 8)]
    assert epochs[1].time - epochs[0].time == 2.0


def test_only_the_first_process_of_a_pod_counts():
    assert [e.number for e in epochs_of(log(epoch(0), epoch(0, rank=1, local_rank=1), epoch(1, rank=4)))] == [0, 1]


def test_a_script_with_the_library_says_epoch_and_size_in_one_line():
    lines = log("epoch 0 on 1 processes: error = 0.5", "[default0]:epoch 1 on 3 processes: error = 0.4")
    assert [(e.number, e.world_size) for e in epochs_of(lines)] == [(0, 1), (1, 3)]


def test_a_line_may_say_which_process_of_its_pod_it_is_of():
    lines = [f"[default0]:{line}" for line in ("[12] " + GROUP.format(size=4), epoch(3))]
    assert [(e.number, e.world_size) for e in epochs_of(log(*lines))] == [(3, 4)]


def test_a_pause_is_the_gap_at_a_change_of_the_world_size():
    epochs = [Epoch(0.0, 0, 4), Epoch(1.0, 1, 4), Epoch(9.0, 2, 8), Epoch(10.0, 3, 8)]
    (pause,) = pauses_of(epochs)
    assert (pause.seconds, pause.repeated) == (8.0, 0)


def test_epochs_trained_again_are_counted():
    (pause,) = pauses_of([Epoch(0.0, 5, 4), Epoch(9.0, 4, 8)])
    assert pause.repeated == 2


def test_what_a_pod_has_logged_outlives_it():
    lines = log("[12] " + GROUP.format(size=3), epoch(0), epoch(1), "[13] " + GROUP.format(size=2), epoch(2))
    journal = Journal()
    journal.note("first", "\n".join(lines[:2]))
    journal.note("first", "\n".join(lines[:3]))
    journal.note("first", "")
    journal.note("first", "unable to retrieve container logs")
    journal.note("second", "\n".join(lines[3:]))
    assert [(epoch.number, epoch.world_size) for epoch in journal.epochs] == [(0, 3), (1, 3), (2, 2)]


def test_the_picture_has_a_panel_for_each_training_and_a_dot_for_each_epoch():
    epochs = [Epoch(0.0, 0, 4), Epoch(1.0, 1, 8)]
    picture = svg_of({"Torchrun": epochs, "Elastic": epochs[:1]}, title="toy")
    assert picture.count('r="4"') == 2 + 3  # the legend has one for each world size
    assert "Torchrun</text>" in picture
    assert "Elastic</text>" in picture


def test_the_table_has_the_modes_beside_each_other_for_each_change():
    console = Console(file=StringIO(), width=140)
    slow = [Epoch(0.0, 0, 4), Epoch(15.0, 0, 8), Epoch(16.0, 1, 8), Epoch(30.0, 1, 4)]
    fast = [Epoch(0.0, 0, 4), Epoch(0.5, 1, 8), Epoch(1.2, 2, 4)]
    show_costs(console, {"Torchrun": slow, "Elastic": fast})
    rows = [line for line in console.file.getvalue().splitlines() if "processes" in line]
    assert [[cell.strip() for cell in row.strip(" │").split("│")] for row in rows] == [
        ["4 -> 8 processes", "Torchrun", "0", "0", "15.0 s", "1"],
        ["4 -> 8 processes", "Elastic", "0", "1", "0.5 s", "0"],
        ["8 -> 4 processes", "Torchrun", "1", "1", "14.0 s", "1"],
        ["8 -> 4 processes", "Elastic", "1", "2", "0.7 s", "0"],
    ]
