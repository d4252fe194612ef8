"""Names of `corral.dropin` whose library is not installed say how to get it."""

import subprocess
import sys

import corral


def test_dropin_lists_every_name_it_has():
    assert corral.dropin.__all__ == [
        "AsyncPettingZooVecEnv",
        "AsyncVectorEnv",
        "DummyVecEnv",
        "SubprocVecEnv",
        "SyncVectorEnv",
    ]


def test_without_agilerl_its_name_says_what_to_install():
    code = (
        "import sys; sys.modules['agilerl'] = None\n"
        "import corral\n"
        "try:\n"
        "    corral.dropin.AsyncPettingZooVecEnv\n"
        "except corral.errors.MissingExtra as error:\n"
        "    print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert "pip install agilerl" in result.stdout, result.stderr
