"""After which of its files a folder's checkpoint is complete, where the writer gathers for a minute before each."""

from pathlib import PurePath

import pytest

from elastic_worker.checkpoint.candidates import GATHER_SECONDS, QUIET_SECONDS, Candidates
from elastic_worker.checkpoint.tree import FileChange, PathEvent

MINUTE = 60.0
HUGGING_FACE = [
    "checkpoint-8/model.safetensors checkpoint-8/training_args.bin",
    "checkpoint-8/optimizer.pt",
    "checkpoint-8/trainer_state.json",
]
OTHERS = ["8/model.bin", "8/optimizer.bin", "8/done"]


def completions(files, *, marker="", existing=()):
    """The files after which a checkpoint was complete, within the minute before the next one is written.

    Names in one string are of files that are written without a pause.
    """
    candidates, found = Candidates(marker), []
    candidates.learn([PathEvent(PurePath(name), FileChange.WRITTEN) for name in existing])
    for at, name in enumerate(files):
        candidates.note(
            [PathEvent(PurePath(each), FileChange.WRITTEN) for each in name.split()], at * MINUTE, is_folder=True
        )
        due_at = candidates.due_at()
        if due_at is not None and due_at < (at + 1) * MINUTE:
            assert candidates.unfinished(at * MINUTE)
            candidates.take()
            found.append(name)
            assert not candidates.unfinished(at * MINUTE)
    return found


@pytest.mark.parametrize(
    "files",
    [
        HUGGING_FACE,
        # Hugging Face's trainer with FSDP: a checkpoint of torch.distributed.checkpoint for the model, then another.
        [
            "checkpoint-8/pytorch_model_fsdp_0/__0_0.distcp",
            "checkpoint-8/pytorch_model_fsdp_0/.metadata",
            "checkpoint-8/optimizer_0/__0_0.distcp",
            "checkpoint-8/optimizer_0/.metadata",
            "checkpoint-8/trainer_state.json",
        ],
        # The same with DeepSpeed, whose own marker is not the last.
        [
            "checkpoint-8/global_step8/mp_rank_00_model_states.pt",
            "checkpoint-8/global_step8/zero_pp_rank_0_mp_rank_00_optim_states.pt",
            "checkpoint-8/latest",
            "checkpoint-8/trainer_state.json",
        ],
        ["8/mp_rank_00_model_states.pt", "8/zero_pp_rank_0_mp_rank_00_optim_states.pt", "latest"],
        ["iter_0000008/mp_rank_00/model_optim_rng.pt", "latest_checkpointed_iteration.txt"],
        ["iter_0000008/__0_0.distcp", "iter_0000008/.metadata", "latest_checkpointed_iteration.txt"],
        ["step-8/__0_0.distcp", "step-8/__1_0.distcp", "step-8/.metadata"],
        ["runs/a/step-8/__0_0.distcp", "runs/a/step-8/.metadata"],
        ["8.safetensors"],
    ],
)
def test_a_known_format_is_complete_with_its_last_file_however_quiet_it_is_before(files):
    assert completions(files) == files[-1:]


def test_of_an_unknown_format_quiet_is_all_there_is():
    assert completions(OTHERS[:2]) == OTHERS[:2]


@pytest.mark.parametrize("marker", ["done", "d*e"])
def test_the_marker_that_the_job_names_alone_counts(marker):
    assert completions(OTHERS, marker=marker) == OTHERS[2:]
    assert completions([*HUGGING_FACE, "step-8/.metadata"], marker=marker) == []
    assert completions(["8/model.bin", "8/done.log", "8/done.tmp"], marker="done*") == ["8/done.log", "8/done.tmp"]


def test_a_marker_counts_when_its_folder_has_got_its_name():
    assert completions(["8.tmp/model.bin", "8.tmp/done", "8/model.bin 8/done"], marker="done") == ["8/model.bin 8/done"]


@pytest.mark.parametrize("known", [{"existing": ["8/model.pt", "8/latest"]}, {}])
def test_a_marker_that_was_ever_seen_is_waited_for(known):
    files = ["8/latest", "16/model.pt", "16/optimizer.pt", "16/latest"]
    assert completions(files[bool(known) :], **known) == ["8/latest", "16/latest"][bool(known) :]


def test_a_checkpoint_is_under_way_until_its_marker_comes_or_nothing_more_does():
    candidates = Candidates("done")
    candidates.note([PathEvent(PurePath("8/model.bin"), FileChange.WRITTEN)], 0.0, is_folder=True)
    assert [candidates.unfinished(now) for now in (0.0, GATHER_SECONDS - 1.0, GATHER_SECONDS)] == [True, True, False]


def test_a_pod_that_wrote_parts_is_done_when_it_is_quiet_for_another_one_writes_what_follows():
    candidates = Candidates()
    candidates.note([PathEvent(PurePath("8/model/__1_0.distcp"), FileChange.WRITTEN)], 0.0, is_folder=True)
    assert [candidates.unfinished(now) for now in (0.0, QUIET_SECONDS - 0.1, QUIET_SECONDS)] == [True, True, False]


def test_a_part_whose_checkpoint_is_deleted_is_waited_for_no_more():
    candidates = Candidates()
    for below, event in [
        ("a/b/8/__0_0.distcp", FileChange.WRITTEN),
        ("9.pt", FileChange.WRITTEN),
        ("a/b", FileChange.GONE),
    ]:
        candidates.note([PathEvent(PurePath(below), event)], 0.0, is_folder=True)
    assert candidates.due_at() == 1.0


def test_of_several_checkpoints_the_newest_is_checked():
    candidates, folders = Candidates(), [f"checkpoint-{step}" for step in range(20)]
    for folder in folders:
        files = [f"{folder}/model.safetensors", f"{folder}/trainer_state.json"]
        events = [PathEvent(PurePath(file), FileChange.WRITTEN) for file in files]
        candidates.note(events, 0.0, is_folder=True)
        candidates.postpone(0.0)
    ends = [below.parent.name for below in candidates.take() if below.name == "trainer_state.json"]
    assert ends == folders
