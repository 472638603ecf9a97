import pytest

from elastic_api.nnodes import frozen_nnodes
from tests.api.jobs import make_container, make_template
from tests.build.objects import SERVICE_IP, UID, env_of, make_main, make_pod, make_spec

COMMAND = {"command": ["bash", "launch.sh"], "args": None}


def conf_of(pod):
    return dict(option.split("=") for option in env_of(pod)["PET_RDZV_CONF"].split(","))


def test_agents_meet_at_the_services_address():
    env = env_of(make_pod())
    assert env["PET_RDZV_BACKEND"] == "c10d"
    assert env["PET_RDZV_ENDPOINT"] == f"{SERVICE_IP}:29400"
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == (SERVICE_IP, "29400")


def test_an_ipv6_address_stands_in_brackets_where_a_port_follows():
    env = env_of(make_pod(service_ip="fd00::7"))
    assert env["PET_RDZV_ENDPOINT"] == "[fd00::7]:29400"
    assert env["MASTER_ADDR"] == "fd00::7"


def test_each_incarnation_meets_under_an_id_of_its_own():
    assert env_of(make_pod(incarnation=3))["PET_RDZV_ID"] == f"{UID}-3"


def test_only_the_master_hosts_the_rendezvous():
    assert conf_of(make_pod(role="master"))["is_host"] == "true"
    assert conf_of(make_pod(role="worker"))["is_host"] == "false"


def test_all_pods_agree_on_the_rest_of_the_rendezvous_configuration():
    master, worker = (conf_of(make_pod(role=role)) for role in ("master", "worker"))
    assert {**master, "is_host": ""} == {**worker, "is_host": ""}


def test_torch_reads_whole_numbers_of_at_least_one():
    options = conf_of(make_pod())
    del options["is_host"]
    assert sorted(options) == [
        "join_timeout",
        "keep_alive_interval",
        "keep_alive_max_attempt",
        "last_call_timeout",
        "read_timeout",
    ]
    assert all(int(value) >= 1 for value in options.values())


def test_the_pods_wait_for_a_master_as_long_as_the_user_says():
    spec = make_spec(recovery={"masterLossTimeoutSeconds": 77})
    assert conf_of(make_pod(spec))["read_timeout"] == "77"


def test_agents_outwait_any_pause_below_the_minimum():
    assert int(conf_of(make_pod())["join_timeout"]) >= 7 * 86_400


def test_each_pod_is_known_by_its_own_address():
    variables = make_main()["env"]
    assert {"name": "PET_LOCAL_ADDR", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}} in variables


def test_where_torchrun_is_added_only_the_operator_limits_the_size_from_above():
    spec = make_spec(min_=2, max_=4)
    assert frozen_nnodes(spec) == (2, 4096)
    assert env_of(make_pod(spec))["PET_NNODES"] == "2:4096"
    assert env_of(make_pod(spec))["WORLD_SIZE"] == "4"


def test_a_users_own_command_gets_the_sizes_as_they_are_when_the_pods_are_made():
    spec = make_spec(make_template(make_container(**COMMAND)), min_=2, max_=4)
    assert frozen_nnodes(spec) == (2, 4)
    assert env_of(make_pod(spec))["PET_NNODES"] == "2:4"
    assert env_of(make_pod(spec))["WORLD_SIZE"] == "4"


def test_a_pasted_torchrun_line_runs_as_the_script_alone_would():
    words = ["torchrun", "--nnodes=1:3", "--rdzv_endpoint=192.0.0.1:1234", "--max_restarts=3", "train.py"]
    pasted, plain = (make_pod(make_spec(make_template(make_container(args=args)))) for args in (words, words[3:]))
    main, other = (pod["spec"]["containers"][0] for pod in (pasted, plain))
    assert main == other
    assert main["args"] == ["--max_restarts=3", "train.py"]


def test_a_pod_made_later_gets_the_sizes_of_its_incarnation():
    spec = make_spec(make_template(make_container(**COMMAND)), min_=1, max_=8)
    env = env_of(make_pod(spec, nnodes=(2, 4)))
    assert (env["PET_NNODES"], env["WORLD_SIZE"]) == ("2:4", "4")


def test_the_masters_template_decides_for_all_pods():
    own = make_container(**COMMAND)
    spec = make_spec(master={"template": make_template(own)})
    assert frozen_nnodes(spec) == (2, 4)
    spec = make_spec(worker={"template": make_template(own)})
    assert frozen_nnodes(spec) == (2, 4096)


def test_the_rendezvous_needs_the_smallest_allowed_size():
    assert frozen_nnodes(make_spec(min_=1, max_=8, allowedReplicas=[4, 8])) == (4, 4096)


def test_a_pod_gets_the_processes_of_its_own_role():
    def template(gpus):
        return make_template(make_container(resources={"limits": {"nvidia.com/gpu": gpus}}))

    spec = make_spec(template(4), master={"template": template(2)})
    assert env_of(make_pod(spec, role="master"))["PET_NPROC_PER_NODE"] == "2"
    assert env_of(make_pod(spec, role="worker"))["PET_NPROC_PER_NODE"] == "4"


@pytest.mark.parametrize(("grace", "stop"), [(120, 115), (7, 2), (5, 1), (1, 1), (0, 1)])
def test_processes_are_killed_early_enough_for_the_agent_to_end_within_the_grace(grace, stop):
    env = env_of(make_pod(make_spec(elasticity={"gracePeriodSeconds": grace})))
    assert env["PET_SHUTDOWN_TIMEOUT"] == str(stop)


def test_a_pod_knows_who_it_is():
    env = env_of(make_pod(role="worker", index=5, incarnation=2))
    mine = {name: value for name, value in env.items() if name.startswith("ELASTIC_")}
    assert mine == {
        "ELASTIC_JOB_NAME": "toy",
        "ELASTIC_JOB_UID": UID,
        "ELASTIC_ROLE": "worker",
        "ELASTIC_INDEX": "5",
        "ELASTIC_INCARNATION": "2",
        "ELASTIC_POD_RANK": "6",
    }
    assert env_of(make_pod(role="master"))["ELASTIC_POD_RANK"] == "0"


def test_the_store_is_not_shared_and_output_is_not_buffered():
    env = env_of(make_pod())
    assert env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert env["PYTHONUNBUFFERED"] == "1"
    assert env["PET_MAX_RESTARTS"] == "10"


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "PET_MONITOR_INTERVAL"])
def test_what_depends_on_the_machine_is_left_to_the_user(name):
    assert name not in env_of(make_pod())


def test_a_variable_of_the_users_wins_and_stands_once():
    secret = {"name": "PYTHONUNBUFFERED", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    restarts = {"name": "PET_MAX_RESTARTS", "value": "3"}
    variables = make_main(make_container(env=[restarts, secret]))["env"]
    assert [v for v in variables if v["name"] == "PET_MAX_RESTARTS"] == [restarts]
    assert [v for v in variables if v["name"] == "PYTHONUNBUFFERED"] == [secret]


def test_the_users_variables_can_refer_to_ours():
    own = {"name": "STORE", "value": "tcp://$(MASTER_ADDR):$(MASTER_PORT)"}
    assert make_main(make_container(env=[own]))["env"][-1] == own
