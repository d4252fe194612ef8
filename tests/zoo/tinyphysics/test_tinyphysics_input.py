"""Models and routes: those made here, and what is said about bad ones."""

import os
import pickle

import numpy as np
import onnx
import onnxruntime
import pytest
from gymnasium.utils.env_checker import check_env

from corral.errors import OptionError
from corral.zoo.tinyphysics import (
    Model,
    RouteOrder,
    find_routes,
    load_model,
    load_route,
    make_tinyphysics,
    make_tinyphysics_batched,
)
from corral.zoo.tinyphysics.onnx_graphs import (
    GAIN,
    NOISE,
    node,
    onnx_bytes,
    small_model,
)
from corral.zoo.tinyphysics.tokens import BINS, TEMPERATURE


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized")
@pytest.mark.filterwarnings("ignore:.*value is -?infinity")
def test_it_is_a_gymnasium_env():
    check_env(make_tinyphysics(), skip_render_check=True)


# The model


def test_the_generated_model_is_a_valid_one():
    onnx.checker.check_model(onnx.load_from_string(small_model()), full_check=True)


def test_the_generated_model_follows_steer_and_roll():
    states = np.zeros((2, 20, 4), np.float32)
    states[0, :, 0] = 1.0
    states[1, :, 1] = 0.5
    tokens = np.full((2, 20), 512)
    logits = load_model().logits(states, tokens).astype(float) / TEMPERATURE
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    means = chances @ BINS
    assert means == pytest.approx([0.35 * GAIN, 0.35 * 0.5], abs=0.01)
    spread = np.sqrt(chances @ BINS**2 - means**2)
    assert spread == pytest.approx([NOISE, NOISE], rel=0.05)


def test_a_process_loads_a_model_once_and_sends_its_path_elsewhere():
    model = load_model()
    assert make_tinyphysics()._model is model
    assert make_tinyphysics_batched(2)._model is model
    assert pickle.loads(pickle.dumps(model)) is model
    assert Model() is not model


def test_models_of_one_name_in_two_places_are_two(tmp_path, monkeypatch):
    loaded = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "car.onnx").write_bytes(small_model())
        monkeypatch.chdir(tmp_path / name)
        loaded.append(load_model("car.onnx"))
    assert loaded[0] is not loaded[1]
    assert load_model("car.onnx") is loaded[1]


def other_model(states="states", shape=("b", 20, 4), tokens=1024, rows=(1, 1)):
    nodes = [
        node("ReduceSum", [states], "sum", keepdims=0),
        node("Add", ["sum", "zeros"], "output"),
    ]
    shapes = {states: shape, "tokens": [shape[0], 20], "output": [*rows, tokens]}
    zeros = np.zeros((*rows, tokens), np.float32)
    return onnx_bytes(nodes, {"zeros": zeros}, **shapes)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "model.onnx cannot be read: No such file"),
        (b"no model", "model.onnx is not an ONNX model"),
        (b"", "model.onnx is not an ONNX model"),
        (other_model("state"), r"found state tensor\(float\) \['b', 20, 4\]"),
        (other_model(shape=("b", 10, 4)), r"expected states float32 \[b, 20, 4\]"),
        (other_model(tokens=512), r"1024\] out; found .* output .* 512\]"),
        (other_model(rows=(1,)), r"found .* output tensor\(float\) \[1, 1024\]"),
    ],
)
def test_a_model_of_another_kind_is_refused(tmp_path, content, told):
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OptionError, match=told):
        make_tinyphysics(None, str(path))


def test_a_model_for_one_route_at_a_time_is_not_batched(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(other_model(shape=(1, 20, 4)))
    make_tinyphysics(None, str(path)).reset(seed=0)
    with pytest.raises(OptionError, match="takes 1 routes per call, but there are 2"):
        make_tinyphysics_batched(2, None, str(path))


# Routes


def test_a_route_that_was_written_is_read_again(data):
    made, read = load_route("synthetic:00002"), load_route(str(data / "00002.csv"))
    assert read.target.tolist() == made.target.tolist()
    assert read.steer == pytest.approx(made.steer)
    assert read.roll_lataccel == pytest.approx(made.roll_lataccel)
    assert find_routes(str(data))[2] == str(data / "00002.csv")
    lines = (data / "00002.csv").read_text().splitlines()
    without_times = "\n".join(line.partition(",")[2] for line in lines)
    (data / "marked.csv").write_text(without_times, encoding="utf-8-sig")
    marked = load_route(str(data / "marked.csv"))
    assert marked.v_ego.tolist() == read.v_ego.tolist()


def change(line, column, text):
    def edit(lines):
        cells = lines[line].split(",")
        cells[column] = text
        lines[line] = ",".join(cells)
        return lines

    return edit


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (change(0, 3, "bank"), "no column roll; expected vEgo, .* found t, vEgo, aEgo"),
        (
            change(8, 4, "nan"),
            "column targetLateralAcceleration, row 7: .* found 'nan'",
        ),
        (change(8, 1, ""), "column vEgo, row 7: expected a finite number, found ''"),
        (change(8, 2, "fast"), "column aEgo, row 7: .* found 'fast'"),
        (change(8, 1, "1e39"), "column vEgo, row 7: .* found '1e39'"),
        (change(100, 5, ""), "column steerCommand, row 99: .* found ''"),
        (
            lambda lines: lines[:400],
            "too short: expected at least 500 rows.* found 399",
        ),
        (lambda lines: [*lines[:9], "1.0,2"], "too short"),
        (lambda lines: [*lines[:9], "1.0,2", *lines[10:]], "column aEgo, row 8"),
        (lambda lines: [], "no column vEgo; expected .* found nothing"),
        (lambda lines: ["PK\3\4" + "\0" * 999], r"found 'PK\\x03\\x04(\\x00)+.{0,3}$"),
    ],
)
def test_a_bad_route_is_refused_with_file_and_column(data, edit, told):
    path = data / "00001.csv"
    path.write_text("\n".join(edit(path.read_text().splitlines())))
    env = make_tinyphysics(str(data))
    with pytest.raises(OptionError, match=f"00001.csv.*{told}"):
        env.reset(options={"route": str(path)})


def test_steers_behind_the_warm_up_need_not_be_there(data):
    path = data / "00001.csv"
    assert path.read_text().splitlines()[101].endswith(",")
    assert len(load_route(str(path)).steer) == 100


def test_routes_that_are_not_there_are_refused(data, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "notes.txt").touch()
    for routes, told in (
        (str(empty), f"no routes in {empty}: expected files NAME.csv"),
        ([], "no routes in an empty list"),
        (str(tmp_path / "none"), "none cannot be read: No such file"),
    ):
        with pytest.raises(OptionError, match=told):
            make_tinyphysics(routes)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(os.urandom(64) + b"\xff\xff")
    for asked, told in (
        (str(binary), "binary.csv"),
        ("synthetic:one", "is not a synthetic route"),
        (str(data / "9.csv"), "9.csv cannot be read: No such file"),
        (7, "name a route by its path"),
        ({"route": str(data / "00001.csv")}, "name a route by its path"),
    ):
        with pytest.raises(OptionError, match=told):
            make_tinyphysics(str(data)).reset(options={"route": asked})
    with pytest.raises(OptionError, match=r"by its path.*'file': 'a\.csv'"):
        make_tinyphysics(str(data)).reset(options={"task": {"file": "a.csv"}})
    with pytest.raises(OptionError, match="no routes in an empty list"):
        RouteOrder([], num_envs=2)
    with pytest.raises(OptionError, match="num_envs is 0"):
        RouteOrder(find_routes(), num_envs=0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"noise": "loud"}, "noise is 'loud'; choose one of route, episode"),
        ({"dtype": "float16"}, "dtype is 'float16'; choose one of float32, float64"),
        ({"slot": 3, "num_envs": 2}, r"slots are \[3\], but there are 2"),
    ],
)
def test_options_without_a_meaning_are_refused(options, told):
    with pytest.raises(OptionError, match=told):
        make_tinyphysics(**options)


def model_of_rows(mixing):
    """Twenty rows of logits: a sum over rows if they are mixed, then a layer."""
    weights = np.random.RandomState(0).normal(size=(4, 1024)).astype(np.float32)
    constants = {"weights": weights, "mixing": np.ones((20, 20), np.float32)}
    nodes = [
        node("MatMul", ["mixing", "states"], "mixed"),
        node("Tanh", ["mixed"], "bent"),
        node("MatMul", ["bent", "weights"], "logits"),
        # With a sum over all rows the last one is not to be had by itself.
        node("Add", ["logits", "total" if mixing else "logits"], "output"),
    ]
    if mixing:
        nodes.insert(3, node("ReduceSum", ["bent"], "total", keepdims=1))
    return onnx_bytes(
        nodes,
        constants,
        states=["b", 20, 4],
        tokens=["b", 20],
        output=["b", 20, 1024],
    )


@pytest.mark.parametrize("mixing", [False, True])
def test_only_what_does_not_change_the_last_row_is_left_out(tmp_path, mixing):
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of_rows(mixing))
    model = Model(str(path))
    assert model.lean == (not mixing)
    states = np.random.RandomState(1).normal(size=(2, 20, 4)).astype(np.float32)
    tokens = np.zeros((2, 20), np.int64)
    whole = onnxruntime.InferenceSession(str(path))
    (logits,) = whole.run(None, {"states": states, "tokens": tokens})
    assert np.array_equal(model.logits(states, tokens), logits[:, -1])
