"""Whether operators that grow are found out, and others are not."""

from tests.soak.weight import Weight, judge


def process(name, *, begin, end, megabytes=80.0, per_minute=0.0, files=30, wave=0.0, leads=True):
    """Samples every ten seconds. It takes 20 MB more in its first minute, and may swing from one sample to the next."""
    made = []
    for i, second in enumerate(range(begin, end, 10)):
        age = second - begin
        held = megabytes - 20 * max(0.0, 1 - age / 60) + per_minute * age / 60 + wave * (i % 2)
        made.append(Weight(float(second), name, held, files, leads))
    return made


def test_processes_with_constant_use_are_flat_even_if_some_are_killed():
    found = judge(
        [
            *process("1", begin=0, end=1800, wave=3.0),
            *process("2", begin=0, end=700),
            *process("3", begin=710, end=1800),
        ]
    )
    assert found.wrong == ()
    assert (found.processes, found.long_lived) == (3, 3)
    assert abs(found.growth_megabytes) < 1


def test_a_process_that_grows_all_the_time_is_found():
    found = judge([*process("1", begin=0, end=1800, per_minute=0.5), *process("2", begin=0, end=1800)])
    assert found.wrong == ("while operator 1 led, from 0 s on, it grew by 14.2 MB",)


def test_an_operator_that_stood_by_and_then_leads_has_not_grown():
    stood_by = process("1", begin=0, end=900, megabytes=78, leads=False)
    assert judge([*stood_by, *process("1", begin=900, end=1800, megabytes=90)]).wrong == ()


def test_an_operator_that_grows_while_it_stands_by_is_found():
    stood_by = process("1", begin=0, end=900, per_minute=1.0, leads=False)
    assert judge([*stood_by, *process("1", begin=900, end=1800, megabytes=90)]).wrong == (
        "while operator 1 stood by, from 0 s on, it grew by 13.3 MB",
    )


def test_a_process_that_takes_more_once_when_it_begins_to_lead_is_flat():
    life = [
        Weight(w.seconds, w.process, w.megabytes + 10 * (w.seconds > 1000), w.files)
        for w in process("1", begin=0, end=1800)
    ]
    assert judge(life).growth_megabytes == 0
    assert judge(life).wrong == ()


def test_processes_that_begin_ever_bigger_are_found_though_none_grows():
    lives = [process(str(i), begin=300 * i, end=300 * i + 290, megabytes=80 + 10 * i) for i in range(6)]
    found = judge([weight for life in lives for weight in life])
    assert found.wrong == ("operators held 90 MB in the first half of the run, 120 MB in the second",)


def test_files_that_are_never_closed_are_found():
    lives = [process(str(i), begin=300 * i, end=300 * i + 290, files=30 + 5 * i) for i in range(6)]
    found = judge([weight for life in lives for weight in life])
    assert found.wrong == ("operators had up to 40 files open in the first half of the run, 55 in the second",)


def test_a_run_in_which_no_operator_lives_long_says_so():
    assert judge(process("1", begin=0, end=60)).wrong == ("no operator lived long enough to be weighed",)
