"""A steering controller for comma's controls challenge, written by `corral export`.

Put this file into the folder `controllers` of the challenge, and run there

    python tinyphysics.py --model_path ./models/tinyphysics.onnx \
        --data_path ./data --num_segs 100 --controller controller
    python eval.py --model_path ./models/tinyphysics.onnx --data_path ./data \
        --num_segs 100 --test_controller controller --baseline_controller pid

with the name of this file instead of `controller`. It needs numpy, and nothing else.
"""

import base64
import sys

import numpy as np

# "turns": an action changes the steer. "steers": it is the steer.
VIEW = "turns"
# Whether the first steer starts where the wheel is after the warm-up. The challenge
# does not pass the steers of the warm-up to `update`, so they are read from the
# simulator that calls it. If False, the wheel starts where a PID controller would
# have it, which costs more.
READ_WHEEL = True
ACTIVATION = "tanh"
# Of the policy's action, before it is used.
LARGEST_ACTION = 10.0
# ("steers") of observations, and of the error's sum; None for no limit.
LIMIT = None
ERROR_SUM_LIMIT = None
SCALED = True
# (outputs, inputs) of each layer.
SHAPES = []
# Weights and biases, layer by layer: float32, base64.
WEIGHTS = ""

FIRST_ROW, CONTROL_START = 20, 100
STEER_LIMIT, AHEAD = 2.0, 49


class Net:
    """Dense layers with an activation between them."""

    ACTIVATIONS = {  # noqa: RUF012 - it stays as it is
        "tanh": np.tanh,
        "relu": lambda x: np.maximum(x, 0.0),
        "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
        "silu": lambda x: x / (1.0 + np.exp(-x)),
    }

    def __init__(self):
        numbers = np.frombuffer(base64.b64decode(WEIGHTS), np.float32)
        self._layers = []
        for outputs, inputs in SHAPES:
            weight, bias = np.split(
                numbers[: outputs * (inputs + 1)], [outputs * inputs]
            )
            self._layers.append((weight.reshape(outputs, inputs).T, bias))
            numbers = numbers[outputs * (inputs + 1) :]
        self._bend = self.ACTIVATIONS[ACTIVATION]

    def __call__(self, seen):
        """The action for an observation."""
        x = np.asarray(seen, np.float32).reshape(1, 1, -1)
        for weight, bias in self._layers[:-1]:
            x = self._bend(x @ weight + bias)
        weight, bias = self._layers[-1]
        action = np.float32((x @ weight + bias).item())
        return float(min(max(action, -LARGEST_ACTION), LARGEST_ACTION))


class Controller:
    """Steers as the policy of the run does."""

    def __init__(self):
        self._net = Net()
        self._row = FIRST_ROW
        self._error = self._error_sum = 0.0
        self._look = Turns() if VIEW == "turns" else Steers()

    def update(self, target_lataccel, current_lataccel, state, future_plan):
        """Return the steer of the next tenth of a second."""
        error = float(target_lataccel) - float(current_lataccel)
        change, self._error = error - self._error, error
        self._error_sum += error
        if ERROR_SUM_LIMIT is not None:
            self._error_sum = float(
                np.clip(self._error_sum, -ERROR_SUM_LIMIT, ERROR_SUM_LIMIT)
            )
        row, self._row = self._row, self._row + 1
        errors = (error, change, self._error_sum)
        if row < CONTROL_START:
            # The simulator uses the recorded steers, whatever is returned here.
            return pid(*errors)
        if row == CONTROL_START:
            self._look.begin(current_lataccel, pid(*errors), sys._getframe(1))
        target = np.array([target_lataccel, *future_plan.lataccel], np.float64)
        roll = np.array([state.roll_lataccel, *future_plan.roll_lataccel], np.float64)
        speed = np.array([state.v_ego, *future_plan.v_ego], np.float64)
        seen = self._look.see(errors, float(current_lataccel), target - roll, speed)
        return self._look.steer(self._net(seen))


def pid(error, change, total):
    """The steer of the challenge's PID controller."""
    return 0.195 * error + 0.100 * total - 0.053 * change


def padded(values):
    """The road ahead, with zeros after the end of the route."""
    return np.concatenate([values[1:], np.zeros(AHEAD + 1 - len(values))])


class Steers:
    """56 numbers: errors, the car, the curvature of the road. Actions are steers."""

    def begin(self, lataccel, steer, caller):
        pass

    def see(self, errors, lataccel, road, speed):
        curvature = road / (speed**2 + 1e-6)
        now = [lataccel, speed[0], curvature[0]]
        seen = np.concatenate([errors, now, padded(curvature), [0.0]])
        if SCALED:
            seen[6:] *= 1000.0
            seen[:6] *= (10.0, 1.0, 0.1, 2.0, 0.03, 1000.0)
        return seen if LIMIT is None else np.clip(seen, -LIMIT, LIMIT)

    def steer(self, action):
        return action


class Turns:
    """Errors, the road ahead, past turns and moves. Actions change the steer."""

    TURN, PAST, NEAR = 0.1, 6, 12
    FAR = (slice(12, 16), slice(16, 24), slice(24, 36), slice(36, 49))

    def begin(self, lataccel, steer, caller):
        if READ_WHEEL:
            simulator = caller.f_locals.get("self")
            past = getattr(simulator, "action_history", None)
            if not past:
                raise RuntimeError(
                    "the steer at the end of the warm-up is not known: update() was "
                    "not called by a simulator with action_history; set READ_WHEEL = "
                    f"False in {__file__}"
                )
            steer = past[-1]
        self._wheel = float(np.float32(np.clip(steer, -STEER_LIMIT, STEER_LIMIT)))
        self._turns, self._moves = np.zeros(self.PAST), np.zeros(self.PAST)
        self._change = self._lataccel = None

    def see(self, errors, lataccel, road, speed):
        error, change, _ = errors
        bend = 0.0
        if self._lataccel is not None:
            bend = change - self._change
            self._moves = np.append(lataccel - self._lataccel, self._moves[:-1])
        self._change, self._lataccel = change, lataccel
        ahead = padded(road) - road[0]
        seen = np.concatenate(
            [
                np.array([5.0, 10.0, 10.0]) * (error, change, bend),
                [0.5 * lataccel, speed[0] / 15.0 - 1.5, 0.5 * road[0], self._wheel],
                5.0 * ahead[: self.NEAR],
                [2.0 * ahead[part].mean() for part in self.FAR],
                self._turns / (0.3 * self.TURN),
                10.0 * self._moves,
            ]
        )
        return np.clip(seen, -10.0, 10.0)

    def steer(self, action):
        steer = min(max(self._wheel + self.TURN * action, -STEER_LIMIT), STEER_LIMIT)
        self._turns = np.append(steer - self._wheel, self._turns[:-1])
        # The simulator's model computes in float32.
        self._wheel = float(np.float32(steer))
        return self._wheel
