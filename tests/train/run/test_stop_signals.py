"""The first Ctrl-C or SIGTERM stops after the update, the second one at once."""

from __future__ import annotations

import signal
import threading

import pytest

from corral.train.run.stop_signals import StopSignals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_answered(number, capfd) -> None:
    signals = StopSignals()
    with signals.heeded():
        assert not signals.came
        signal.raise_signal(number)
        assert signals.came
    assert capfd.readouterr().err == (
        "\nStopping after this update, to save it. Ctrl-C again stops at once.\n"
    )


def test_the_second_signal_ends_the_program() -> None:
    with pytest.raises(KeyboardInterrupt), StopSignals().heeded():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)


def test_the_handlers_from_before_are_there_again_afterwards() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    with pytest.raises(ZeroDivisionError), StopSignals().heeded():
        assert [signal.getsignal(number) for number in numbers] != before
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_run_in_another_thread_leaves_signals_alone() -> None:
    seen = []

    def train() -> None:
        with StopSignals().heeded():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
