from demo.lives import Register, Step, gpus_of


def pod(name="p", *, uid="1", node="", nominated="", phase="Pending", leaving=False, unschedulable=False, gpus=1):
    """A pod as the API has it."""
    status = {"phase": phase, "nominatedNodeName": nominated}
    if unschedulable:
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    meta = {"namespace": "team", "name": name, "uid": uid}
    return {
        "metadata": meta | ({"deletionTimestamp": "2026-01-31T12:00:00Z"} if leaving else {}),
        "spec": {"nodeName": node, "containers": [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]},
        "status": status,
    }


def told(*looks):
    """A register that saw these pods one second after the other."""
    register = Register()
    for second, look in enumerate(looks):
        register.note(look, seconds=float(second))
    return register


def test_each_step_has_the_time_at_which_it_was_first_seen():
    register = told(
        pod(),
        pod(unschedulable=True),
        pod(unschedulable=True, nominated="n1"),
        pod(node="n1", nominated="n1"),
        pod(node="n1", phase="Running"),
        pod(node="n1", phase="Running", leaving=True),
    )
    register.note_gone("1", seconds=6.0)
    (life,) = register.lives.values()
    assert life.seen == {
        Step.CREATED: 0.0,
        Step.WAITS: 1.0,
        Step.NOMINATED: 2.0,
        Step.BOUND: 3.0,
        Step.RUNNING: 4.0,
        Step.EVICTED: 5.0,
        Step.GONE: 6.0,
    }
    assert [str(s) for s in register.sightings][2:4] == ["team/p is promised a node (n1)", "team/p is bound (n1)"]


def test_what_was_seen_before_is_not_told_again():
    register = told(pod(), pod(), pod())
    assert [s.step for s in register.sightings] == [Step.CREATED]


def test_two_pods_of_one_name_have_two_lives():
    register = told(pod(uid="1"), pod(uid="1", leaving=True), pod(uid="2"))
    assert [(uid, life.alive) for uid, life in register.lives.items()] == [("1", False), ("2", True)]


def test_a_pod_that_a_list_does_not_have_any_more_is_gone():
    register = told(pod("a", uid="1"), pod("b", uid="2"))
    register.note_all([pod("b", uid="2")], seconds=5.0)
    assert [life.at(Step.GONE) for life in register.lives.values()] == [5.0, None]


def test_the_end_of_a_pod_that_was_never_seen_is_no_news():
    register = Register()
    register.note_gone("1", seconds=1.0)
    assert (register.lives, register.sightings) == ({}, [])


def test_a_bound_pod_is_where_it_was_bound_and_not_where_it_was_promised_to_be():
    register = told(pod(nominated="n1"), pod(node="n2", nominated="n1"))
    assert register.lives["1"].node == "n2"


def test_the_gpus_of_all_containers_count():
    two = [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}, {"resources": {"limits": {"nvidia.com/gpu": "1"}}}, {}]
    assert gpus_of({"containers": two}) == 3
