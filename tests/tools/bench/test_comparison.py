"""Which candidates a comparison builds depends on what the env was seen to do."""

from corral.tools.bench.benchmark import Comparison
from corral.tools.bench.results import BenchSettings


class SilentListener:
    """A listener that shows nothing."""

    def expect(self, turns):
        pass

    def show_status(self, text):
        pass

    def turn(self):
        pass


def test_an_env_that_waits_is_raced_with_a_thread_for_each():
    settings = BenchSettings(
        env="waiting_env:Waiting",
        kwargs={},
        num_envs=(6,),
        backends=None,
        workers=(),
        against=(),
        policy_ms=0.0,
        rounds=1,
        seconds=0.1,
        seed=0,
        deadline=60.0,
    )
    comparison = Comparison(
        settings, 6, 2, (), policy_iterations=0, watcher=SilentListener()
    )
    try:
        waits = comparison._try_loop()
    finally:
        comparison.close(10.0)
    assert waits
    titles = {one.title for one in comparison._candidates(waits)}
    assert {"Corral, 6 threads", "Corral, 6 processes"} <= titles
