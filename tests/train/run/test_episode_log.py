"""Episodes of training are written as they end; slots in which none ends are known."""

from corral.rollouts.rollout import EpisodeSummary
from corral.train.run.directory import RECENT_EPISODES, RunDirectory
from corral.train.run.episode_log import EpisodeLog
from corral.train.sinks import jsonl


def ended(slot, return_=1.0):
    return EpisodeSummary(slot, 0, 7, return_, 10, True, {})


def test_all_episodes_are_written_and_the_latest_are_averaged(tmp_path):
    directory = RunDirectory(tmp_path)
    log = EpisodeLog(directory, (), resumed=False)
    log.add([ended(0, -1e6)], 8)
    log.add([ended(1, 3.0)] * RECENT_EPISODES, 16)
    assert log.means()["return"] == 3.0
    rows = jsonl.read(directory.episodes)
    assert [row["step"] for row in rows] == [8, *[16] * RECENT_EPISODES]


def test_slots_without_an_end_are_those_since_the_last_checkpoint(tmp_path):
    log = EpisodeLog(RunDirectory(tmp_path), range(3), resumed=False)
    log.add([ended(1)], 8)
    assert log.take_unended() == {0, 2}
    log.add([ended(0), ended(2)], 16)
    assert log.take_unended() == {1}


def test_a_resumed_run_knows_none_until_its_second_checkpoint(tmp_path):
    log = EpisodeLog(RunDirectory(tmp_path), range(2), resumed=True)
    assert not log.take_unended()
    assert log.take_unended() == {0, 1}
