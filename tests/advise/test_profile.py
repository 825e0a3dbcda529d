"""Profiles: what a fleet's snapshot and a run's speeds give, files, and skew by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.advise.profile import DeviceProfile, Profile, profile_of, read_profile, write_profile
from edgefed.advise.skew import feature_skew, skew_of
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import DataError, UsageError
from edgefed.events.base.snapshot import DeviceSnapshot, Snapshot
from edgefed.report.speeds import MeasuredSpeed
from tests.advise.fleets import one_label_each


def test_a_profile_joins_announcements_and_measured_speeds() -> None:
    snapshot = Snapshot(
        fleet="plant",
        time="2026-11-29T10:00:00Z",
        devices=(
            DeviceSnapshot(
                device="a", samples=30, held_out=7, labels=(10, 20), shape=(4,), memory_total=8_000
            ),
            DeviceSnapshot(device="b", samples=5, labels=(5,), refuses=("labels", "means")),
            DeviceSnapshot(device="c", samples=7),
            DeviceSnapshot(device="bad", samples=9, standing="quarantined"),
            DeviceSnapshot(device="empty"),
        ),
    )
    made = profile_of(
        snapshot,
        [MeasuredSpeed("a", 0.5, 100.0), MeasuredSpeed("c", 0.25)],
        "r-1",
        Recipe(),
        {"a": 0.75, "b": 0.01},
        0.2,
    )
    assert made.round_overhead == 0.2
    assert (made.fleet, made.run, made.classes, made.shape) == ("plant", "r-1", 2, (4,))
    assert made.refuses == ("means", "labels")
    assert (made.model["name"], made.batch_size) == ("cnn", 16)
    assert made.devices == (
        DeviceProfile(
            name="a",
            samples=30,
            held_out=7,
            labels=(10, 20),
            seconds_per_sample=0.5,
            uplink=100.0,
            memory=8_000,
            absent=0.25,
        ),
        DeviceProfile(name="b", samples=5, held_out=0, labels=(5, 0), absent=0.9),
        DeviceProfile(name="c", samples=7, held_out=0, seconds_per_sample=0.25),
    )
    assert [device.name for device in made.with_labels] == ["a", "b"]


@pytest.mark.parametrize("name", ["profile.toml", "profile.json"])
def test_a_profile_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    made = one_label_each(refuses=("means", "mixes"))
    nothing = made.devices[0].model_copy(update={"held_out": 0, "absent": 0.5})
    made = made.model_copy(update={"devices": (nothing, *made.devices[1:])})
    write_profile(made, tmp_path / name)
    assert read_profile(tmp_path / name) == made


def test_a_profile_is_not_written_to_a_file_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"p\.yaml ends otherwise"):
        write_profile(one_label_each(), tmp_path / "p.yaml")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0 devices with data; advice compares methods for at least 2"),
        ('[[devices]]\nname = "a"\nsamples = 3\n', "1 device with data"),
        ("fleet = ", "cannot be used"),
        ('flet = "a"', 'there is no key flet; did you mean "fleet"?'),
        ('[[devices]]\nname = "a"\nsamples = 0\n', "device 1, samples: Input should be greater"),
        ('[[devices]]\nname = "a"\nsamples = "3"\n', "device 1, samples: Input should be a valid"),
        (2 * '[[devices]]\nname = "a"\nsamples = 3\n', "two devices are named a"),
        (
            '[[devices]]\nname = "a"\nsamples = 3\nlabels = [3]\n'
            '[[devices]]\nname = "b"\nsamples = 3\nlabels = [1, 2]\n',
            "different numbers of labels",
        ),
        (
            '[[devices]]\nname = "a"\nsamples = 3\n[[devices]]\nname = "b"\nsample = 3\n',
            'device 2, there is no key sample; did you mean "samples"?',
        ),
        (
            '[[devices]]\nname = "a"\nsamples = 5\nlabels = [1, 2]\n',
            "the labels of a add up to 3, and it has 5 samples",
        ),
    ],
)
def test_an_unusable_profile_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "profile.toml"
    file.write_text(text)
    with pytest.raises(DataError) as raised:
        read_profile(file)
    assert raised.value.code == "advise.profile"
    assert message in raised.value.message


def _fleet(*histograms: tuple[int, ...], **speeds: float) -> Profile:
    return Profile(
        devices=tuple(
            DeviceProfile(
                name=str(number),
                samples=sum(labels),
                labels=labels,
                seconds_per_sample=speeds.get(f"s{number}"),
            )
            for number, labels in enumerate(histograms)
        )
    )


def test_label_skew_is_the_distance_to_the_fleet_beyond_chance() -> None:
    # TV = ½(|1 - ½| + |0 - ½|) = ½ for each; by chance, n = 50: ½ · 2 √(2 · ¼ / (50 π)) = 0.056419.
    one_each = skew_of(_fleet((50, 0), (0, 50)))
    assert one_each.label == pytest.approx((0.5 - 0.0564190) / (1 - 0.0564190), abs=1e-6)
    assert one_each.label_word == "strong"
    even = skew_of(_fleet((25, 25), (26, 24)))
    assert (even.label, even.label_word) == (0.0, "none")
    assert skew_of(
        _fleet(*(tuple(90 * (c == d) for c in range(8)) for d in range(8)))
    ).label_word == ("extreme")


def test_unknown_values_are_said_to_be_unknown() -> None:
    hidden = Profile(
        devices=tuple(DeviceProfile(name=n, samples=s) for n, s in (("a", 10), ("b", 40)))
    )
    skew = skew_of(hidden)
    assert (skew.label, skew.unknown, skew.speed) == (None, 2, None)
    assert skew.quantity == pytest.approx(37 / 13)
    assert [text.partition(":")[0] for _, text in skew.lines()][::3] == ["unknown", "unknown"]
    timed = skew_of(_fleet((5, 5), (5, 5), s0=1.0, s1=11.0))
    assert timed.speed == pytest.approx(10 / 2)


def _channels(*channels: tuple[tuple[float, float], ...]) -> Profile:
    return Profile(
        devices=tuple(
            DeviceProfile(name=str(number), samples=10, channels=own)
            for number, own in enumerate(channels)
        )
    )


def test_feature_skew_is_the_spread_of_means_in_standard_deviations() -> None:
    # Means 1 and 3: variance 1; σ² = (3 + 5) / 2 + 1 = 5; the second channel does not differ.
    skewed = _channels(((1.0, 3**0.5), (7.0, 2.0)), (), ((3.0, 5**0.5), (7.0, 2.0)))
    assert feature_skew(skewed) == pytest.approx((0.5 * (1 / 5)) ** 0.5)
    assert skew_of(skewed).lines()[1] == (
        "feature skew",
        "strong (inputs differ by 0.32 standard deviations)",
    )
    assert feature_skew(_channels(((1.0, 1.0),), ((1.0, 1.0), (2.0, 1.0)))) is None
    assert feature_skew(_channels(((0.0, 0.0),), ((0.0, 0.0),))) == 0.0
