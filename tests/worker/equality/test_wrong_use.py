"""Wrong use ends with an error that names what is wrong and what to do instead. Nothing starts from zero."""

import pytest

from tests.worker.equality import runs

SCRIPT = runs.HERE / "wrong.py"
ERRORS = {
    "another_data_set": ["StateError", "'data'", "length=32", "length=33", "Make the Sampler with length=32"],
    "another_model": ["StateError", "'model'", "[1, 4]", "[1, 5]", "choose another folder for checkpoints"],
    "another_object": ["StateError", "lacks scheduler", "give job.state() the same names"],
    "all_torn": ["CheckpointError", "checkpoints is complete", "step-2", "step-1", "delete that folder's content"],
    "newest_torn": ["went on from step 1"],
    "iterable_data_set": ["SamplerError", "IterableDataset (Stream)", "pass len(dataset)"],
    "iterable_data_set_in_an_evaluation": ["TypeError", "range_iterator has no length", "data set with indices"],
    "zero_redundancy_optimizer": ["TypeError", "ZeroRedundancyOptimizer", "use the optimizer itself"],
    "a_wrapped_model": ["TypeError", "DistributedDataParallel already", "pass the bare module to job.wrap"],
    "a_model_of_tensor_parallelism": ["TypeError", "0.weight", "tensor or pipeline parallelism", "fully_shard"],
    "an_option_of_ddp_that_is_the_jobs": ["TypeError", "process_group=...", "the job chooses the group"],
    "an_option_that_needs_as_many_micro_batches_on_all_ranks": ["TypeError", "static_graph=...", "leave it out"],
    "a_hook_with_a_state_that_newcomers_lack": ["TypeError", "allreduce", "dict", "job.state", "in_place=False"],
    "a_model_that_is_not_wrapped": ["StateError", "weight", "model=job.wrap(model)"],
    "a_parameter_of_no_model": ["StateError", "second", "(3,)", "belongs to no model", "job.wrap"],
    "the_bare_model_is_called": ["StepError", "added up over no other rank", "what job.wrap returned"],
    "a_loss_without_its_weight": ["StepError", "step.backward(loss * micro.weight)"],
    "a_backward_after_an_optimizers_step": ["StepError", "SGD", "all backwards first", "in_place=False"],
    "an_optimizer_that_communicates": ["StepError", "muon (Sharing)", "communicates in step()", "in_place=False"],
    "a_rank_with_other_weights": ["DivergedError", "step 2", "rank 2", "ranks 0, 1", "compare_every=0"],
    "a_step_without_update": ["StepError", "without an update", "call step.update()"],
    "a_batch_that_is_not_applied": ["StepError", "a batch was not applied", "with job.step(state) as step"],
    "a_step_outside_of_batches": ["StepError", "for batch in job.batches(...)"],
    "a_step_in_a_step": ["StepError", "once for each batch"],
    "update_too_early": ["StepError", "before step.backward() of the last micro-batch", "loop over all of batch.micro"],
    "own_optimizer_step_too_early": ["StepError", "before step.backward() of the last micro-batch"],
    "rank_before_restore": ["NotFormedError", "job.rank", "job.restore(state)"],
    "batches_before_restore": ["NotFormedError", "job.batches", "job.restore(state)"],
    "epochs_before_restore": ["NotFormedError", "job.epochs", "job.restore(state)"],
    "a_model_called_before_restore": ["RuntimeError", "before its group was formed", "job.restore(state) first"],
    "no_sampler": ["StateError", "one elastic.Sampler (as data=...)", "not 0"],
    "two_samplers": ["StateError", "one elastic.Sampler (as data=...)", "not 2"],
    "an_object_without_state": ["StateError", "history=...", "list has no state_dict", "wrap it in an object"],
    "a_state_that_no_checkpoint_takes": ["StateError", "average=...", "mode (Mode)", "add_safe_globals([Mode])"],
    "a_state_that_nobody_could_read_again": [
        "StateError",
        "average=...",
        "builtins.Ellipsis",
        "plain values and tensors",
    ],
    "another_sampler_in_batches": ["StateError", "the sampler that was given to job.state"],
    "another_state_in_step": ["StateError", "the state that was given to job.restore"],
    "a_checkpoint_without_a_folder": ["StateError", "job.checkpoint needs a folder", "elastic.init(checkpoints=...)"],
    "keep_none": ["ValueError", "keep is 0", "1 or more"],
    "no_master_address": ["SurroundingsError", "2 processes", "MASTER_ADDR is not set", "host of rank 0"],
    "no_master_address_under_srun": ["SurroundingsError", "2 processes", "MASTER_ADDR is not set"],
    "a_rank_that_is_no_number": ["SurroundingsError", "RANK must be a whole number, not 'one'"],
    "a_rank_beyond_the_world": ["SurroundingsError", "RANK", "2", "WORLD_SIZE"],
    "a_result_before_the_end": ["RuntimeError", "read .result after the loop"],
}
"""Case of wrong.py -> words of its error, on each rank."""
RANKS = {
    "the_bare_model_is_called": 2,
    "an_optimizer_that_communicates": 2,
    "a_rank_with_other_weights": 3,
}
"""One for the other cases."""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return runs.several(
        tmp_path_factory.mktemp("wrong"), {case: (RANKS.get(case, 1), [case]) for case in ERRORS}, script=SCRIPT
    )


@pytest.mark.parametrize("case", ERRORS)
def test_the_error_says_what_to_do(written, case):
    for rank in range(RANKS.get(case, 1)):
        file = written[case].folder / f"error-{rank}"
        assert file.exists(), f"no error on rank {rank}\n{written[case].output}"
        said = file.read_text()
        for words in ERRORS[case]:
            assert words in said, said
