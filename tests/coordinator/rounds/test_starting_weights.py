"""What a run starts from: files of weights, published weights, and models of earlier runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from edgefed.algorithms.interface.member import Member
from edgefed.cli.runs.run_check import _shown
from edgefed.config.recipes.recipe import ModelSection
from edgefed.config.values.address import Address
from edgefed.coordinator.process.run_check import RunCheck, check_start
from edgefed.coordinator.process.service_settings import ServiceSettings
from edgefed.coordinator.rounds.starting_weights import put_initial_weights
from edgefed.coordinator.storage.compatibility import DataSpec
from edgefed.errors import EdgeFedError
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.simulator.run import Simulation
from edgefed.wire.tensors import weights_digest
from tests.run_fixture import SHAPE as RUN_SHAPE
from tests.run_fixture import Ticking, World
from tests.run_fixture import recipe as small_recipe

SHAPE = (6,)
MLP = {"name": "mlp", "hidden": [4]}
NAMES = ("ant", "bee", "cat")


def model(classes: int = 3, seed: int = 1, **keys: Any) -> Model:
    return build(ModelSection.model_validate({**MLP, **keys}), SHAPE, classes, seed)


def put(
    into: Model, folder: Path, names: tuple[str, ...] = (), runs: Path | None = None, **keys: str
) -> tuple[str, ...]:
    section = ModelSection.model_validate({**MLP, **keys})
    spec = DataSpec(SHAPE, into.classes, names)
    return put_initial_weights(into, section, spec, folder, lambda run: (runs or folder) / run)


def equal(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


def whole(of: Model) -> Tensors:
    return of.complete(of.weights())


def head_of(of: Model) -> str:
    return of.output_layer.name


def saved(path: Path, weights: Tensors, kind: str) -> str:
    """Write a file of weights as other programs do, and return its name."""
    tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
    name = path / f"weights.{'safetensors' if kind == 'safetensors' else 'pth'}"
    if kind == "safetensors":
        save_file(dict(weights), name)
    else:
        torch.save({"state_dict": tensors} if kind == "nested" else tensors, name)
    return name.name


def run_file(path: Path, of: Model, names: tuple[str, ...] = (), **more: str) -> Path:
    """Write a model file as a run does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    assert of.section is not None
    metadata = {
        "model": of.section.model_dump_json(),
        "shape": json.dumps(of.shape),
        "outputs": str(of.classes),
        "loss": "cross_entropy",
        "run": "r-0007-aaaa",
        "algorithm": "fedavg",
        "round": "3",
        "weights_digest": weights_digest(whole(of)),
        **({"classes": json.dumps(names)} if names else {}),
        **more,
    }
    save_file(whole(of), path, metadata)
    return path


@pytest.mark.parametrize("kind", ["safetensors", "plain", "nested"])
@pytest.mark.parametrize("train", ["all", "head"])
def test_a_file_of_weights_is_taken(tmp_path: Path, kind: str, train: str) -> None:
    source, ours = model(seed=2), model(train=train)
    file = saved(tmp_path, whole(source), kind)
    assert put(ours, tmp_path, weights=file) == ()
    assert equal(whole(ours), whole(source))


def test_an_output_layer_of_other_classes_stays_as_it_was_drawn(tmp_path: Path) -> None:
    source, ours = model(classes=7, seed=2), model()
    drawn, head = whole(ours), head_of(ours)
    (told,) = put(ours, tmp_path, weights=saved(tmp_path, whole(source), "plain"))
    now, theirs = whole(ours), whole(source)
    assert f"the output layer {head} is new" in told
    for name in now:
        wanted = drawn if name.startswith(head) else theirs
        assert np.array_equal(now[name], wanted[name]), name


def test_weights_of_another_network_are_refused_and_what_does_not_fit_is_named(
    tmp_path: Path,
) -> None:
    other = build(ModelSection.model_validate({"name": "mlp", "hidden": [9, 2]}), SHAPE, 3, 1)
    ours = model()
    drawn = whole(ours)
    with pytest.raises(EdgeFedError) as caught:
        put(ours, tmp_path, weights=saved(tmp_path, whole(other), "plain"))
    assert caught.value.code == "model.weights"
    assert "fc1.weight is 9x6, not 4x6" in caught.value.message
    assert "fc2.weight is not a part of the network" in caught.value.message
    assert equal(whole(ours), drawn), "nothing was taken"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cannot be read"),
        (b"not a file of torch's", "cannot be read"),
        ({"epoch": 3, "weights": [1, 2]}, "not a state_dict"),
        ([torch.zeros(2)], "not a state_dict"),
    ],
)
def test_a_file_that_holds_no_weights_is_refused(tmp_path: Path, content: Any, reason: str) -> None:
    path = tmp_path / "weights.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(EdgeFedError) as caught:
        put(model(), tmp_path, weights="weights.pth")
    assert caught.value.code == "model.weights"
    assert reason in caught.value.message


class Harmful:
    """Creates a file where it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self.target,)


def test_a_file_that_would_run_code_is_not_opened(tmp_path: Path) -> None:
    target = tmp_path / "touched"
    torch.save({"fc1.weight": Harmful(target)}, tmp_path / "weights.pth")
    with pytest.raises(EdgeFedError) as caught:
        put(model(), tmp_path, weights="weights.pth")
    assert "more than tensors" in caught.value.message
    assert not target.exists()


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    wrong = whole(model(seed=2))
    wrong["fc1.weight"][0, 0] = np.nan
    with pytest.raises(EdgeFedError, match="not finite"):
        put(model(), tmp_path, weights=saved(tmp_path, wrong, "plain"))


def test_published_weights_exist_for_torchvision_s_networks_only(tmp_path: Path) -> None:
    with pytest.raises(EdgeFedError) as caught:
        put(model(), tmp_path, weights="default")
    assert caught.value.code == "model.weights"


def test_published_weights_come_from_torch_s_cache_or_say_which_file_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torchvision

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    name, shape = "torchvision:shufflenet_v2_x0_5", (3, 32, 32)
    section = ModelSection.model_validate({"name": name, "weights": "default", "train": "head"})
    ours = build(section, shape, 4, 1)
    spec = DataSpec(shape, 4)
    entry = torchvision.models.get_model_weights("shufflenet_v2_x0_5").DEFAULT
    # No check that can fail on the network: the address leads nowhere.
    nowhere = "http://127.0.0.1:9/" + Path(entry.url).name
    monkeypatch.setattr(type(entry), "url", property(lambda _self: nowhere))
    with pytest.raises(EdgeFedError) as caught:
        put_initial_weights(ours, section, spec, None, lambda run: tmp_path / run)
    assert caught.value.code == "model.download"
    target = tmp_path / "hub" / "checkpoints" / Path(entry.url).name
    assert str(target) in caught.value.hint


def test_a_run_starts_from_the_model_of_an_earlier_one(tmp_path: Path) -> None:
    source = model(seed=2)
    run_file(tmp_path / "runs" / "r-0007-aaaa" / "model.safetensors", source)
    for start in ("run:r-0007-aaaa", "run:r-0007"):
        ours = model()
        put(ours, tmp_path, runs=tmp_path / "runs", start=start)
        assert equal(whole(ours), whole(source))
    ours = model()
    put(ours, tmp_path, start=str(tmp_path / "runs" / "r-0007-aaaa" / "model.safetensors"))
    assert equal(whole(ours), whole(source))


def test_classes_keep_their_rows_by_name_and_new_ones_get_their_own(tmp_path: Path) -> None:
    source, ours = model(seed=2), model(classes=4)
    run_file(tmp_path / "model.safetensors", source, NAMES)
    drawn, head = whole(ours), head_of(ours)
    names = ("dog", "cat", "ant", "eel")
    (told,) = put(ours, tmp_path, names, start="model.safetensors")
    assert "keeps 2 classes" in told
    assert "2 new ones" in told
    now, theirs = whole(ours), whole(source)
    for kind in ("weight", "bias"):
        rows, before = now[f"{head}.{kind}"], theirs[f"{head}.{kind}"]
        assert np.array_equal(rows[1], before[2])
        assert np.array_equal(rows[2], before[0])
        assert np.array_equal(rows[[0, 3]], drawn[f"{head}.{kind}"][[0, 3]])
    assert np.array_equal(now["fc1.weight"], theirs["fc1.weight"])


def test_numbered_classes_keep_the_rows_of_their_numbers(tmp_path: Path) -> None:
    source, ours = model(seed=2), model(classes=5)
    run_file(tmp_path / "model.safetensors", source)
    drawn, head = whole(ours), head_of(ours)
    put(ours, tmp_path, start="model.safetensors")
    now = whole(ours)[f"{head}.weight"]
    assert np.array_equal(now[:3], whole(source)[f"{head}.weight"])
    assert np.array_equal(now[3:], drawn[f"{head}.weight"][3:])


@pytest.mark.parametrize(
    ("start", "code"),
    [
        ("run:r-0099", "run.unknown"),
        ("run:", "run.unknown"),
        ("run:/etc", "run.unknown"),
        ("run:r-*", "run.unknown"),
        ("run:**", "run.unknown"),
        ("run:../../secret", "run.unknown"),
        ("run:r-empty", "model.start"),
        ("nothing.safetensors", "data.missing"),
        ("foreign.safetensors", "model.file"),
        ("broken.safetensors", "model.file"),
        ("experts.safetensors", "model.start"),
    ],
)
def test_a_start_that_cannot_be_used_is_refused(tmp_path: Path, start: str, code: str) -> None:
    (tmp_path / "r-empty").mkdir()
    save_file(whole(model()), tmp_path / "foreign.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    run_file(tmp_path / "experts.safetensors", model(), models='["expert-0", "expert-1"]')
    with pytest.raises(EdgeFedError) as caught:
        put(model(), tmp_path, start=start)
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.parametrize("names", [(), NAMES])
def test_a_start_of_another_network_with_other_classes_is_refused(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    other = build(ModelSection.model_validate({"name": "mlp", "hidden": [9]}), SHAPE, 3, 1)
    run_file(tmp_path / "model.safetensors", other, names)
    ours = model(classes=4)
    with pytest.raises(EdgeFedError, match="does not fit the model mlp") as caught:
        put(
            ours, tmp_path, ("ant", "bee", "dog", "eel") if names else (), start="model.safetensors"
        )
    assert caught.value.code == "model.weights"


def test_a_start_on_images_of_another_scale_is_told(tmp_path: Path) -> None:
    scale = {"mean": [0.5], "std": [0.25]}
    source = build(ModelSection.model_validate(MLP), RUN_SHAPE, 3, 2)
    file = run_file(tmp_path / "model.safetensors", source, scale=json.dumps(scale))
    start = {**MLP, "start": str(file)}
    told = []
    for number, images in enumerate(({}, scale)):
        world = World(tmp_path / str(number), small_recipe(model=start, images=images))
        world.engine().run()
        told.append([each["text"] for each in world.seen("note")])
        world.close()
    other, same = told
    assert any("mean [0.5] and std [0.25], and this run's have no mean" in text for text in other)
    assert not any("[images]" in text for text in same)


def test_both_sources_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EdgeFedError, match="not from both"):
        put(model(), tmp_path, weights="a.pth", start="run:r-0001")


def test_a_second_run_goes_on_where_the_first_one_ended(tmp_path: Path) -> None:
    first = World(tmp_path / "first", small_recipe())
    first.engine().run()
    file = tmp_path / "first" / "runs" / first.run / "model.safetensors"
    start = {"name": "mlp", "hidden": [4], "start": str(file)}
    none = {"learning_rate": 1e-12, "batch_size": 4}
    second = World(tmp_path / "second", small_recipe(model=start, training=none))
    record = second.engine().run()
    assert record.status == "finished", record.reason
    ended = load_file(file)
    now = load_file(tmp_path / "second" / "runs" / second.run / "model.safetensors")
    assert all(np.allclose(now[name], ended[name], atol=1e-7) for name in ended)
    assert RUN_SHAPE == (8,)
    first.close()
    second.close()


def test_a_run_whose_weights_do_not_fit_fails_before_any_device_is_asked(tmp_path: Path) -> None:
    other = build(ModelSection.model_validate({"name": "mlp", "hidden": [9]}), RUN_SHAPE, 3, 1)
    save_file(whole(other), tmp_path / "other.safetensors")
    wanted = {"name": "mlp", "hidden": [4], "weights": str(tmp_path / "other.safetensors")}
    world = World(tmp_path / "run", small_recipe(model=wanted))
    record = world.engine().run()
    assert (record.status, record.error) == ("failed", "model.weights")
    assert not world.seen("exchange")
    world.close()


@pytest.mark.parametrize(
    ("keys", "code"),
    [({"weights": "none.pth"}, "data.missing"), ({"start": "run:r-0077"}, "run.unknown")],
)
def test_a_missing_source_is_told_before_there_is_a_run(
    tmp_path: Path, keys: dict[str, str], code: str
) -> None:
    chosen = small_recipe(model={**MLP, **keys})
    settings = ServiceSettings(Address("127.0.0.1", 1), "tests", tmp_path)
    with pytest.raises(EdgeFedError) as caught:
        check_start(chosen, settings)
    assert caught.value.code == code
    with pytest.raises(EdgeFedError) as caught:
        RunCheck(settings).report(chosen, ())
    assert caught.value.code == code
    with pytest.raises(EdgeFedError) as caught:
        Simulation(chosen, tmp_path, Ticking())
    assert caught.value.code == code
    assert not (tmp_path / "runs").exists()


def test_an_old_torch_opens_no_pth_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {kind: saved(tmp_path, whole(model(seed=2)), kind) for kind in ("plain", "safetensors")}
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.raises(EdgeFedError) as caught:
        put(model(), tmp_path, weights=names["plain"])
    assert (caught.value.code, caught.value.exit_code) == ("model.torch", 2)
    assert "install torch 2.6 or newer" in caught.value.hint
    chosen = small_recipe(model={**MLP, "weights": str(tmp_path / names["plain"])})
    with pytest.raises(EdgeFedError) as caught:
        check_start(chosen, ServiceSettings(Address("127.0.0.1", 1), "tests", tmp_path))
    assert caught.value.code == "model.torch"
    put(model(), tmp_path, weights=names["safetensors"])
    monkeypatch.setattr(torch, "__version__", "2.6.0+cpu")
    put(model(), tmp_path, weights=names["plain"])


@pytest.mark.parametrize("there", ["yes", "no", "unknown"])
def test_run_check_tells_whether_the_weights_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    """Published weights are on disk, are those of another network, or would be downloaded."""
    import torchvision

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    name = "torchvision:shufflenet_v2_x0_5"
    chosen = small_recipe(
        model={"name": name, "weights": "default"}, data={"name": "none"}, evaluation={"every": 0}
    )
    url = torchvision.models.get_model_weights("shufflenet_v2_x0_5").DEFAULT.url
    kept = tmp_path / "hub" / "checkpoints" / Path(url).name
    kept.parent.mkdir(parents=True)
    if there != "unknown":
        content = torchvision.models.shufflenet_v2_x0_5(num_classes=1000).state_dict()
        torch.save(content if there == "yes" else {"conv1.weight": torch.ones(2)}, kept)
    settings = ServiceSettings(Address("127.0.0.1", 1), "tests", tmp_path)
    told = RunCheck(settings).report(chosen, (Member("device-00", 5, (3, 32, 32), 3),))
    reason = told["weights"]["reason"]
    assert told["weights"]["usable"] == there
    assert told["fits"] is (there != "no")
    shown = _shown({**told, "busy": ""}).splitlines()[-1]
    if there == "yes":
        assert (reason, told["problem"], shown) == ("", None, "weights  yes")
    elif there == "no":
        assert told["problem"]["code"] == "model.weights"
        assert "does not fit the model" in reason
        assert shown.startswith("weights  no: ")
    else:
        assert told["problem"] is None
        assert shown == f"weights  not known: the weights of {name} would be downloaded"
