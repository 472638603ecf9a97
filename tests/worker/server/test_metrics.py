"""The page for Prometheus, read back by its own parser."""

from prometheus_client.parser import text_string_to_metric_families

from elastic_worker.launcher.metrics import Totals, render


def make_status(**values):
    status = {
        "epoch": 1,
        "generation": 5,
        "state": "Running",
        "members": ["toy-master-0", "toy-worker-0"],
        "worldSize": 4,
        "failures": 0,
        "training": {"step": 1234, "lastCheckpointStep": 1200},
        "changes": [
            {"generation": 5, "reason": "Join", "from": 1, "to": 2, "pauseSeconds": 0.5, "lostSteps": 3},
            {"generation": 4, "reason": "Loss", "from": 2, "to": 1},
        ],
        "warm": True,
    }
    return {**status, **values}


def parse(page):
    families = text_string_to_metric_families(page)
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def test_a_status_becomes_numbers():
    values = parse(render(make_status()))
    assert values == {
        ("elastic_worker_generation",): 5,
        ("elastic_worker_master_epoch",): 1,
        ("elastic_worker_members",): 2,
        ("elastic_worker_world_size",): 4,
        ("elastic_worker_failures",): 0,
        ("elastic_worker_steps_total",): 1234,
        ("elastic_worker_checkpoint_step",): 1200,
        ("elastic_worker_warm",): 1,
        ("elastic_worker_state", "Running"): 1,
        ("elastic_worker_changes_total", "Join"): 1,
        ("elastic_worker_changes_total", "Loss"): 1,
        ("elastic_worker_pause_seconds_sum",): 0.5,
        ("elastic_worker_pause_seconds_count",): 1,
        ("elastic_worker_lost_steps_total",): 3,
    }


def test_what_a_script_with_the_library_tells_becomes_numbers():
    goodput = {"share": 0.75, "seconds": {"productive": 3.0, "regroup": 1.0}}
    said = {"step": 7, "epoch": 2, "samplesSeen": 90, "loss": -0.5, "goodput": goodput}
    values = parse(render(make_status(training=said)))
    assert values[("elastic_worker_epoch",)] == 2
    assert values[("elastic_worker_samples_seen",)] == 90
    assert values[("elastic_worker_loss",)] == -0.5
    assert values[("elastic_worker_goodput_ratio",)] == 0.75
    assert values[("elastic_worker_time_seconds_total", "productive")] == 3.0
    assert values[("elastic_worker_time_seconds_total", "regroup")] == 1.0


def test_every_metric_says_what_it_is():
    said = {"epoch": 2, "samplesSeen": 90, "loss": 1.0, "goodput": {"share": 1.0, "seconds": {"lost": 1.0}}}
    families = list(text_string_to_metric_families(render(make_status(training=said))))
    assert all(family.documentation and family.type != "unknown" for family in families)


def test_what_is_not_known_is_not_shown():
    values = parse(render({"contract": "1"}))
    assert ("elastic_worker_generation",) not in values
    assert ("elastic_worker_steps_total",) not in values
    assert values[("elastic_worker_pause_seconds_count",)] == 0


def test_each_change_is_counted_once_however_often_it_is_listed():
    totals = Totals()
    render(make_status(), totals)
    late = make_status(changes=[{"generation": 4, "reason": "Loss", "pauseSeconds": 2.0, "lostSteps": 7}])
    render(late, totals)
    values = parse(render(late, totals))
    assert values[("elastic_worker_changes_total", "Join")] == 1
    assert values[("elastic_worker_changes_total", "Loss")] == 1
    assert values[("elastic_worker_pause_seconds_sum",)] == 2.5
    assert values[("elastic_worker_lost_steps_total",)] == 10


def test_the_same_generation_of_another_master_is_another_change():
    totals = Totals()
    render(make_status(), totals)
    values = parse(render(make_status(epoch=2), totals))
    assert values[("elastic_worker_changes_total", "Join")] == 2


def test_labels_may_hold_anything():
    state = 'a "quoted" \\ backslash\nand a line'
    assert parse(render(make_status(state=state)))[("elastic_worker_state", state)] == 1
