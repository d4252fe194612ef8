"""The layout that is recommended, and the line that makes it."""

from samples import ASYNC, entry, failed, group, named

from corral.tools.bench.candidates import LOOP, layout
from corral.tools.bench.recommend import best_of, recommend
from corral.tools.bench.results import group_of


def of(num_envs, **rates):
    """A group of ours by backend and rate."""
    ours = [
        entry(layout(backend, 1 if backend == "serial" else 2), rate)
        for backend, rate in rates.items()
    ]
    return group_of(num_envs, 2, [entry(LOOP, 1000.0, episodes=0), *ours])


def test_the_fastest_is_the_best():
    assert best_of(of(8, serial=900.0, process=1800.0)).candidate.kind == "process"


def test_a_simpler_layout_that_is_nearly_as_fast_is_better():
    assert best_of(
        of(8, serial=960.0, thread=1000.0, process=990.0)
    ).candidate.kind == ("serial")


def test_a_layout_that_failed_is_not_the_best():
    broken = failed(layout("process", 2), "it broke")
    group = group_of(8, 2, [entry(LOOP, 1.0), entry(layout("serial"), 1.0), broken])
    assert best_of(group).candidate.kind == "serial"


def test_nothing_measured_nothing_recommended():
    group = group_of(8, 2, [entry(LOOP, 1.0), failed(layout("serial"), "it broke")])
    assert recommend([group], named(), {}) is None


def test_no_more_envs_than_pay():
    groups = [of(1, serial=900.0), of(8, process=1800.0), of(64, process=1850.0)]
    assert recommend(groups, named(), {}).num_envs == 8


def test_a_machine_that_slowed_down_between_sizes_misleads_nobody():
    slowed = [entry(LOOP, 100.0, episodes=0), entry(layout("process", 2), 190.0)]
    groups = [of(1, serial=900.0), group_of(8, 2, slowed)]
    assert recommend(groups, named(), {}).num_envs == 8


def test_a_size_whose_loop_failed_is_not_passed_over():
    without_loop = [failed(LOOP, "it broke"), entry(layout("process", 2), 1800.0)]
    groups = [of(1, serial=900.0), group_of(8, 2, without_loop)]
    assert recommend(groups, named(), {}).num_envs == 8


def test_the_line_leaves_out_what_auto_chooses():
    code = recommend([group()], named('"Sample-v0"'), {}).code
    assert code == (
        'envs = corral.make("Sample-v0", num_envs=8)  # "auto" chooses process'
    )


def test_the_line_says_what_auto_would_not_choose():
    chosen = recommend(
        [of(8, process=1800.0)], named("make", "from mine import make"), {"size": 2}
    )
    assert chosen.code == (
        "from mine import make\n"
        "envs = corral.make(make, num_envs=8, env_kwargs={'size': 2}, "
        'backend="process", workers=2)'
    )


def test_the_line_is_a_program():
    chosen = recommend([of(2, serial=900.0)], named('"CartPole-v1"'), {})
    names = {}
    exec(f"import corral\n{chosen.code}", names)
    assert names["envs"].layout.backend == "serial"
    names["envs"].close()


def test_the_sentence_has_the_figures_and_the_fastest_peer():
    sentence = recommend([group(8, 2, entry(ASYNC, 90.0))], named(), {}).sentence
    assert sentence == (
        "Use 8 envs in 2 processes: 1,800 steps/s, 1.80 × a for loop, "
        "90% of the limit, 2.2 × Gymnasium Sync."
    )


def test_one_env_is_worded_as_one():
    sentence = recommend([of(1, serial=900.0)], named(), {}).sentence
    assert sentence.startswith("Use one env in the caller (serial): 900 steps/s")


def test_what_is_slower_than_a_loop_is_not_praised():
    faster = "One env in a for loop is faster"
    slow, fast = of(2, serial=300.0), of(8, process=1800.0)
    assert faster in recommend([slow], named(), {}).sentence
    assert faster not in recommend([slow, fast], named(), {}).sentence
