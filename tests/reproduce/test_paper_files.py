"""The papers' files: what a mistake in one says, and what a file's parts come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.errors import RecipeError
from edgefed.reproduce.paper_tables import read_tables
from edgefed.reproduce.table import EACH, SCALES, Claim, PaperScore, Term, read_claim

PAPER = """\
key = "tiny"
authors = "Nobody"
title = "Nothing"
where = "nowhere"
seeds = [1, 2]
takes = { smoke = "a moment", small = "a minute", paper = "an hour" }
absent = "too large"

[shared]
notes = ["@first", "second"]
first = "one"

[rows]
FedAvg = { algorithm.name = "fedavg" }
FedProx = { algorithm = { name = "fedprox", mu = 0.1 } }
pooled = { extends = ["FedAvg"], derived = ["pooled"], simulation.devices = 1 }

[bases.common]
of = "MNIST"
score = "device_accuracy"
target = 0.5
methods.fedprox.algorithm.mu = 0.2
training = { epochs = 2, batch_size = 8 }
simulation.devices = 4

[setups.mnist]
smoke = { extends = ["common"], label = "digits", training.batch_size = 4 }
paper = { extends = ["common"], label = "MNIST", rows.FedAvg.training.epochs = 5 }

[[tables]]
name = "tiny-table1"
title = "a table"
known = "nothing"
rows = ["FedAvg", "FedProx", "pooled"]
claims = ["FedAvg > FedProx | E = 2"]
notes = ["@notes", "last"]

[[tables.columns]]
setup = "mnist"
of = "E = {E}"
rows.FedProx.rounds.count = 7
axes.E = { key = "training.epochs", smoke = { 2 = 1 }, paper = [2, 4] }

[[tables.published]]
source = "the paper"
columns = ["E = 2", "E = 4"]
values.FedAvg = [50.0, 60.0]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read_as_tables(tmp_path: Path) -> None:
    (table,) = read_tables(written(tmp_path, PAPER))
    assert table.notes == ("one", "second", "last")
    smoke, paper = table.scales["smoke"], table.scales["paper"]
    assert [column.label for column in smoke.columns] == ["digits, E = 1"]
    assert [(each.label, each.of) for each in paper.columns] == [
        ("MNIST, E = 2", "E = 2"),
        ("MNIST, E = 4", "E = 4"),
    ]
    (first,) = smoke.columns
    assert first.setup["training.batch_size"] == 4, "it overrides what it extends"
    assert first.setup["training.epochs"] == 2
    assert (first.varies, first.target) == ({"training.epochs": 1}, 0.5)
    assert first.score == PaperScore("device_accuracy")
    assert first.rows == {
        "FedProx": {"algorithm.mu": 0.2, "rounds.count": 7},
        "pooled": {"data.parts_per_device": 4},
    }
    assert paper.columns[0].rows["FedAvg"] == {"training.epochs": 5}
    assert table.scales["small"].columns == ()
    assert smoke.left_out == {"E = 4": "too large"}
    assert [(each.column, each.value) for each in table.published] == [("E = 2", 50), ("E = 4", 60)]


def test_what_a_column_varies_is_not_overridden_by_the_method(tmp_path: Path) -> None:
    text = PAPER.replace('key = "training.epochs", smoke', 'key = "algorithm.mu", smoke')
    (table,) = read_tables(written(tmp_path, text))
    (column,) = table.scales["smoke"].columns
    assert column.varies == {"algorithm.mu": 1}
    assert column.rows["FedProx"] == {"rounds.count": 7}


WHOLE = """\
key = "whole"
authors = "Nobody"
title = "Nothing"
where = "nowhere"
seeds = [1, 2]
takes = { smoke = "a moment", small = "a minute", paper = "an hour" }
known = "something"
exact = true

[rows]
first = { label = "FedMA", derived = ["output_epochs"], algorithm.name = "fedma" }
once = { derived = ["trained_once"], algorithm.name = "ensemble" }
all = { derived = ["pooled"], algorithm.name = "fedavg", simulation.devices = 1 }

[bases.one]
training = { batch_size = 8, learning_rate = 0.5 }

[bases.two]
training.batch_size = 16

[setups.images.smoke]
extends = ["one", "two"]
label = "digits"
of = "MNIST"
target = 0.5
score = "device_accuracy"
last = 3
amounts = { alone = 7, pooled = 9, epochs = 5, output = 2 }
simulation.devices = 4

[setups.images.paper]
label = "MNIST"
amounts.epochs = 5
training.epochs = 6
simulation.devices = 40

[[tables]]
name = "whole-first"
title = "a table"
rows = ["first", "once", "all"]
left_out_at.smoke.large = "too dear"
left_out.far = "too far"
[[tables.columns]]
setup = "images"
optional = true
[[tables.columns]]
setup = "images"
of = "K"
untargeted = true
score = "accuracy"
methods.fedma.algorithm.gamma = 2.0

[[tables]]
name = "whole-second"
title = "another"
known = "nothing"
seeds = [5]
takes.smoke = "a second"
exact = false
rows = ["first", "all"]
[[tables.columns]]
setup = "images"
of = "{E}, {sigma}"
label = "{setup}: {E}, {sigma}, {of}"
axes.E = { key = "training.epochs", values = { 20 = 2 } }
axes.sigma = { rows = ["FedMA"], values.low = { algorithm.sigma = 0.1 } }
"""


def test_what_columns_and_rows_have_of_their_own(tmp_path: Path) -> None:
    first, second = read_tables(written(tmp_path, WHOLE))
    smoke = first.scales["smoke"]
    plain, other = smoke.columns
    assert [row.label for row in first.rows] == ["FedMA", "once", "all"]
    assert plain.setup["training.batch_size"] == 16, "the later one overrides"
    assert plain.rows == {
        "FedMA": {"algorithm.last_epochs": 10},
        "once": {"training.epochs": 7},
        "all": {"data.parts_per_device": 4, "training.epochs": 1, "rounds.count": 9},
    }
    assert (plain.of, plain.target, plain.score) == ("MNIST", 0.5, PaperScore("device_accuracy", 3))
    assert (plain.optional, other.optional) == (True, False)
    assert (other.label, other.target, other.score) == (
        "digits, K",
        None,
        PaperScore("accuracy", 3),
    )
    assert other.rows["FedMA"] == {"algorithm.last_epochs": 10, "algorithm.gamma": 2.0}
    paper = first.scales["paper"].columns[0].rows
    assert paper["FedMA"] == {"algorithm.last_epochs": 18}, "the set-up has epochs"
    assert paper["all"] == {"data.parts_per_device": 40}
    (column,) = second.scales["smoke"].columns
    assert (column.label, column.of) == ("digits: 2, low, 20, low", "20, low")
    assert column.varies == {"training.epochs": 2}
    assert column.rows["FedMA"] == {"algorithm.last_epochs": 4, "algorithm.sigma": 0.1}
    assert "algorithm.sigma" not in column.rows["all"]


def test_a_table_overrides_its_file(tmp_path: Path) -> None:
    first, second = read_tables(written(tmp_path, WHOLE))
    smoke, paper = first.scales["smoke"], first.scales["paper"]
    assert (first.known, second.known) == ("something", "nothing")
    assert (smoke.seeds, second.scales["smoke"].seeds) == ((1, 2), (5,))
    assert (smoke.takes, paper.takes) == ("a moment", "an hour")
    takes = [second.scales[scale].takes for scale in SCALES]
    assert takes == ["a second", "a minute", "an hour"]
    assert (smoke.exact, paper.exact, second.scales["paper"].exact) == (False, True, False)
    assert smoke.left_out == {"far": "too far", "large": "too dear"}
    assert paper.left_out == {"far": "too far"}


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ('label = "digits"', 'lable = "digits"', 'unknown key lable; did you mean "label"?'),
        (
            "training.batch_size",
            "training.batchsize",
            "unknown key training.batchsize; did you mean",
        ),
        ("rows.FedProx.rounds", "rows.FedProx.round", 'unknown key round; did you mean "rounds"?'),
        ('"device_accuracy"', '"devices_accuracy"', 'did you mean "device_accuracy"?'),
        ('["pooled"]', '["poled"]', 'did you mean "pooled"?'),
        ('notes = ["@notes"', 'notes = ["@note"', "there is no shared value 'note'"),
        (
            'paper = { extends = ["common"]',
            'paper = { extends = ["comon"]',
            "'comon'; did you mean",
        ),
        ('"FedProx", "pooled"]', '"FedPrx", "pooled"]', "there is no row 'FedPrx'"),
        ("FedAvg > FedProx |", "FedAvg > FedPrax |", "there is no row 'FedPrax'"),
        ("| E = 2", "| E = 3", "there is no column 'E = 3'"),
        ("FedAvg > FedProx |", "FedAvg beats FedProx |", "is no claim"),
        ('setup = "mnist"', 'setup = "mnits"', "there is no kind of set-ups 'mnits'"),
        ('of = "E = {E}"', 'of = "E = {F}"', "there is no axis 'F'"),
        ("rows.FedProx.r", "rows.FedPrx.r", "there is no row 'FedPrx'"),
        ("[50.0, 60.0]", "[50.0]", "must have 2 numbers, has 1"),
        ("values.FedAvg", "values.FedAgv", "there is no row 'FedAgv'"),
        ('known = "nothing"', 'knwon = "nothing"', "unknown key"),
        ("seeds = [1, 2]", "seeds = [1, 2", "not valid TOML"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_its_place(
    right: str, wrong: str, told: str, tmp_path: Path
) -> None:
    assert PAPER.count(right) == 1
    text = PAPER.replace(right, wrong)
    with pytest.raises(RecipeError) as caught:
        read_tables(written(tmp_path, text))
    message = caught.value.message
    place, _, rest = message.partition(": ")
    assert told in rest
    assert "\n" not in message
    lines = text.splitlines()
    line = int(place.removeprefix("tiny.toml:").split(":")[0])
    wanted = next(number for number, each in enumerate(lines, 1) if wrong in each)
    assert line in (wanted, wanted + 1), message


ROWS = ("A", "matched at once", "B, tuned: twice")


@pytest.mark.parametrize(
    ("written", "claim"),
    [
        ("A > matched at once", Claim("A > matched at once", (Term(1, "A"), Term(-1, ROWS[1])))),
        ("A ≈ A | E = 2", Claim("A ≈ A", (Term(1, "A", "E = 2"), Term(-1, "A", "E = 2")), "equal")),
        (
            "matched at once: E = 2 ≥ E = 5",
            Claim(
                "matched at once: E = 2 ≥ E = 5",
                (Term(1, ROWS[1], "E = 2"), Term(-1, ROWS[1], "E = 5")),
                "not below",
            ),
        ),
        (
            "matched at once at E = 5 > A at E = 2",
            Claim(
                "matched at once at E = 5 > A at E = 2",
                (Term(1, ROWS[1], "E = 5"), Term(-1, "A", "E = 2")),
            ),
        ),
        (
            "B, tuned: twice > A",
            Claim("B, tuned: twice > A", (Term(1, ROWS[2], EACH), Term(-1, "A", EACH))),
        ),
        (
            "A loses less than matched at once from easy to hard",
            Claim(
                "A loses less than matched at once from easy to hard",
                (
                    *(Term(1, "A", "hard"), Term(-1, "A", "easy")),
                    *(Term(-1, ROWS[1], "hard"), Term(1, ROWS[1], "easy")),
                ),
            ),
        ),
    ],
)
def test_a_claim_is_read(written: str, claim: Claim) -> None:
    assert read_claim(written, ROWS) == claim
