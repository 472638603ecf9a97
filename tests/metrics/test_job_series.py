"""The series of jobs: what there is of each, and that nothing stays of those that are gone."""

from dataclasses import replace

from elastic_api.status import ConditionType
from elastic_operator.metrics.job_times import TIME_KINDS, JobTimes
from elastic_operator.metrics.stats import JobStats, PolicyStats, WatchStats
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.last_plans import LastPlan
from tests.metrics.stats import make_report, of, samples_of, show, show_elastic
from tests.plan.jobs import BOTH, START, at, ended, group, make_job, make_spec, make_status, plan, see
from tests.plan.test_node_outage import UNREADY, kept, on_nodes


def test_a_job_is_one_series_of_info_and_one_of_status():
    found = samples_of(show(policy="research"), show(make_job(name="other")))
    assert of(found, "job_info") == {("mode=Torchrun", "policy=research"): 1, ("mode=Torchrun", "policy="): 1}
    assert found["job_status", "job_name=toy", "limited_by=AtMaximum", "namespace=team-a", "status=Running"] == 1
    assert len([key for key in found if key[0] == "job_status"]) == 2
    assert of(found, "jobs") == {("status=Running",): 2}


def test_nodes_that_many_jobs_wait_for_count_once():
    jobs = (on_nodes(kept()), on_nodes(kept(), name="other"))
    waiting = (JobStats(obs=see(job, unready=UNREADY), status=make_status()) for job in jobs)
    assert samples_of(*waiting)["kept_nodes",] == 2
    assert samples_of(show())["kept_nodes",] == 0


def test_jobs_that_request_uncounted_devices_are_counted():
    asks = make_job(
        name="other", warnings={ConditionType.DEVICES_NOT_COUNTED: Reason("DynamicResourceAllocation", "claims")}
    )
    assert samples_of(show(asks), show())["uncounted_jobs",] == 1


def test_pods_processes_and_gpus_of_a_job_are_its_present_ones():
    pods = group(workers=2, ready=False)
    found = samples_of(show(make_job(pods, spec=make_spec(maxReplicas=6))))
    assert of(found, "job_pods") == {
        ("state=minimum",): 2,
        ("state=maximum",): 6,
        ("state=target",): 2,
        ("state=running",): 3,
        ("state=ready",): 0,
    }
    assert of(found, "job_gpus") == of(found, "job_world_size") == {(): 3}
    assert of(found, "job_created_timestamp_seconds") == {(): START}


def test_a_job_that_has_ended_has_no_pods_to_be_missed():
    status = make_status(completion_time=at(100), restarts=2)
    found = samples_of(show(make_job([ended(pod, 0) for pod in group()], status=status)))
    assert of(found, "job_pods") == of(found, "job_gpus") == of(found, "job_last_progress_timestamp_seconds") == {}
    assert of(found, "job_restarts_total") == {(): 2}


def test_counts_of_a_job_are_those_of_its_status():
    """A plan that counts one more may fail to be written, and then it is made again."""
    lost = make_job(group(0), status=make_status(restarts=4, resizes=7))
    assert plan(lost, BOTH).status.restarts == 5
    found = samples_of(show(lost))
    assert (of(found, "job_restarts_total"), of(found, "job_resizes_total")) == ({(): 4}, {(): 7})


def test_how_the_training_goes_is_what_the_master_says():
    found = samples_of(show_elastic(moved_at=START + 195))
    told = {name: value for (name, *_), value in found.items() if name.startswith("job_")}
    assert told["job_step"] == 70
    assert told["job_epoch"] == 2
    assert told["job_loss"] == 0.25
    assert told["job_goodput_ratio"] == 0.875
    assert told["job_last_checkpoint_step"] == 60
    assert told["job_last_progress_timestamp_seconds"] == START + 195


def test_unknown_values_have_no_series():
    found = samples_of(
        show(make_job(name="plain")),
        show_elastic(make_report(epoch=None, loss=None, goodput=None, last_checkpoint_step=None)),
    )
    assert of(found, "job_step") == {(): 70}
    absent = ("job_epoch", "job_loss", "job_goodput_ratio", "job_last_checkpoint_step")
    assert [of(found, name) for name in absent] == [{}] * 4


def test_where_its_time_went_is_told_by_kind():
    found = samples_of(show(seconds={"productive": 7.5}))
    assert of(found, "job_time_seconds_total") == {
        (f"kind={kind}",): 7.5 * (kind == "productive") for kind in TIME_KINDS
    }


def test_series_of_jobs_and_policies_that_are_gone_are_gone():
    policy = PolicyStats("research", {"default": {"guaranteed": 8, "used": 2}}, {"Ready": True, "Conflict": False})
    assert of(samples_of(policies=(policy,)), "quota_gpus") == {
        ("flavor=default", "kind=guaranteed", "policy=research"): 8,
        ("flavor=default", "kind=used", "policy=research"): 2,
    }
    assert of(samples_of(policies=(policy,)), "quota_condition") == {
        ("condition=Ready", "policy=research"): 1,
        ("condition=Conflict", "policy=research"): 0,
    }
    found = samples_of()
    assert [name for name, *labels in found if labels and name.startswith(("job_", "quota_"))] == []


def test_who_does_not_lead_tells_of_watches_and_not_of_jobs():
    found = samples_of(show(), leads=False, watches={"pods": WatchStats(age=2.0, relists=1, errors=3)})
    assert [name for name, *_ in found if name.startswith(("job_", "jobs", "quota_"))] == []
    assert of(found, "watch_last_event_age_seconds") == {("kind=pods",): 2.0}
    assert (of(found, "watch_relists_total"), of(found, "watch_errors_total")) == (
        {("kind=pods",): 1},
        {("kind=pods",): 3},
    )


def test_a_picture_shows_a_job_as_it_was_last_planned_and_its_policy():
    times, job = JobTimes(), make_job()
    later = replace(job, uid="other", name="other", namespace="team-b")
    planned = [LastPlan(see(one), None, 0.0, plan(one, BOTH).status) for one in (job, later)]
    for one in planned:
        times.note_plan(one)
    all_stats = times.all_stats(planned, {"team-b": "b"})
    assert [(stats.obs.job.name, stats.policy) for stats in all_stats] == [(job.name, ""), ("other", "b")]
