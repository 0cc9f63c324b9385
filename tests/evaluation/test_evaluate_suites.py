"""Splits by name, what does not fit, and what is said about it."""

import pytest
import torch
from evaluation_cases import SCALE, data, evaluate, images, trained

import leanbayes as lb
from leanbayes.evaluation import Attack, Shift, Split, against


def names(suite):
    return [split.name for split in suite.splits]


def test_built_in_suites():
    foreign = {"other": torch.rand(5, 1, 9, 9)}
    quick, standard, full = (
        lb.Suite.of(data(), name, foreign=foreign) for name in ("quick", "standard", "full")
    )
    assert names(quick) == ["test"]
    kinds = [split.kind for split in standard.splits]
    assert (kinds.count("clean"), kinds.count("corrupted"), kinds.count("foreign")) == (1, 75, 1)
    assert standard.splits[1].name == "corrupted/gaussian_noise/1"
    assert names(full)[-3:] == ["ood/other", "pgd", "fgsm"]
    assert {"noise/0.4", "rotated/30", "salt_and_pepper/0.1"} < set(names(full))
    assert (standard.name, standard.data) == ("standard", "stripes")


def test_built_in_suites_leave_out_what_does_not_fit_the_data():
    table = (torch.randn(10, 4), torch.zeros(10).long())
    assert names(lb.Suite.of(table, "standard")) == ["test"]
    assert names(lb.Suite.of(table, "full"))[:2] == ["test", "noise/0.1"]
    assert not {"pgd", "corrupted/fog/1", "rotated/15"} & set(names(lb.Suite.of(table, "full")))
    ids = (torch.randint(9, (10, 4)), torch.zeros(10).long())
    assert names(lb.Suite.of(ids, "full")) == ["test"]
    scenes = (torch.rand(4, 3, 8, 8), torch.zeros(4, 8, 8).long())
    found = names(lb.Suite.of(scenes, "full"))
    assert "corrupted/fog/1" in found
    assert not [name for name in found if name.startswith("rotated")]


def test_a_group_of_corruptions_one_severity_and_own_levels():
    found = names(lb.Suite.of(data(), "test, corrupted:blur, corrupted:spatter/2, rotated:12.5"))
    assert len(found) == 1 + 4 * 5 + 2
    assert found[-2:] == ["corrupted/spatter/2", "rotated/12.5"]
    chosen = lb.Suite.of(data(), ["test", "noise"], levels={"noise": (0.25, 0.75)})
    assert names(chosen) == ["test", "noise/0.25", "noise/0.75"]
    assert names(lb.Suite.of(data(), "quick,test,corrupted:fog/1,corrupted:fog/1")) == [
        "test",
        "corrupted/fog/1",
    ]


def test_files_of_corrupted_images_are_used_where_the_data_have_them():
    x, y = data().test
    own = data(extra={"fog-3": (x + 0.5, y), "pairs": None, "strange": (x - 9, y)})
    suite = lb.Suite.of(own, "test,corrupted:fog/3,ood")
    assert names(suite) == ["test", "corrupted/fog/3", "ood/strange"]
    found = evaluate(trained(), suite)["splits"]["corrupted/fog/3"]
    p = lb.predict(trained(), x + 0.5, samples=4, seed=5)
    assert found["figures"]["nll"] == pytest.approx(float(lb.metrics.nll(p.probs, y)), rel=1e-6)
    assert found["shift"] == {"name": "fog", "severity": 3}


def test_a_part_of_another_scale_is_brought_to_that_of_the_network():
    x, y = images(30, seed=1)
    raw = data(30, normalize=None)
    suite = lb.Suite.of(raw, "test,corrupted:fog/2,pgd", normalize=SCALE)
    found = evaluate(trained(), suite)["splits"]
    expected = evaluate(trained(), lb.Suite.of(data(30), "test,corrupted:fog/2,pgd"))["splits"]
    for name, split in found.items():
        for figure, value in expected[name]["figures"].items():
            assert split["figures"][figure] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    p = lb.predict(trained(), SCALE(x), samples=4, seed=5)
    assert found["test"]["figures"]["nll"] == pytest.approx(
        float(lb.metrics.nll(p.probs, y)), rel=1e-6
    )


def test_splits_of_ones_own():
    x, y = data().test
    clean = Split(name="mine", kind="clean", part=(x, y), scale=SCALE)
    turned = Split(
        name="turned",
        kind="shifted",
        part=(x, y),
        of="mine",
        scale=SCALE,
        shift=Shift("rotate", level=90.0),
    )
    suite = lb.Suite(name="own", splits=(clean, turned), normalize=SCALE)
    found = evaluate(trained(), suite)
    assert list(found["splits"]) == ["mine", "turned"]
    by_name = evaluate(trained(), lb.Suite.of(data(), "test,rotated:90"))["splits"]
    assert found["splits"]["turned"]["figures"] == by_name["rotated/90"]["figures"]
    assert found["splits"]["turned"]["of"] == "mine"


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        ("tset", "no split is called 'tset'; did you mean 'test'"),
        ("", "no split is named"),
        ("test,corrupted:fgo", "unknown corruption 'fgo'; nearest: fog"),
        ("test,corrupted:fog/9", "severity is a whole number from 1 to 5"),
        ("test,corrupted:fog/x", "severity is a whole number from 1 to 5"),
        ("test,noise:much", "expected a number after the colon"),
        ("test,pgd:3", "takes no argument"),
        ("test,ood:digitz", "did you mean 'digits'"),
        ("test,ood:cifar10", "lb.data.read('cifar10', ...)"),
        ("pgd", "split 'pgd' is of 'test', which is no clean split before it"),
    ],
)
def test_wrong_names_are_said(splits, words):
    with pytest.raises(lb.ConfigError) as error:
        lb.Suite.of(data(), splits)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("corrupted", "images [C, H, W]"),
        ("rotated:3", "images [C, H, W]"),
        ("pgd", "Attack(bounds=None)"),
        ("salt_and_pepper", "floating numbers in [0, 1]"),
    ],
)
def test_a_split_that_does_not_fit_the_data_is_refused_where_it_is_named(name, words):
    table = (torch.randn(10, 4), torch.zeros(10).long())
    with pytest.raises(lb.ConfigError) as error:
        lb.Suite.of(table, f"test,{name}")
    assert "does not fit the data" in str(error.value)
    assert words in str(error.value)


def test_numbers_without_bounds_can_be_attacked_if_it_is_said():
    torch.manual_seed(0)
    x, y = torch.randn(20, 4), torch.arange(20) % 3
    model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField(), likelihood=lb.Categorical())
    suite = lb.Suite.of((x, y), "test,pgd", attack=Attack(bounds=None, eps=0.3, step_size=0.05))
    found = evaluate(model, suite)["splits"]
    assert found["pgd"]["figures"]["nll"] > found["test"]["figures"]["nll"] + 0.05


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda *_: lb.Suite.of(7, "test"), "found int"),
        (lambda x, y: lb.Suite.of((x[:0], y[:0]), "test"), "hold no examples"),
        (lambda *_: lb.Suite.of(data(), "test", part="validation"), "no part 'validation'"),
        (
            lambda *_: lb.Suite.of(data(), "test,noise:0.1", rows=0),
            "rows must be a whole number of at least 1",
        ),
        (lambda *_: lb.Suite(name="none", splits=()), "at least one split"),
        (lambda x, y: Split(name="a", kind="dirty", part=(x, y)), "kind is one of"),
        (lambda x, y: Split(name="a", kind="shifted", part=(x, y), of="b"), "needs a shift="),
        (lambda x, y: Split(name="a", kind="foreign", part=(x, y)), "of= names the clean"),
        (
            lambda *_: Split(name="a", kind="clean", part=torch.utils.data.DataLoader([1])),
            "loader.dataset",
        ),
        (lambda *_: Shift("fog", level=0.3), "has a severity"),
        (lambda *_: Shift("rotate", severity=3), "have a level"),
        (lambda *_: Attack(name="cw"), "'pgd' or 'fgsm'"),
        (lambda x, y: evaluate(trained(), (x, y)), "lb.Suite.of"),
        (lambda x, y: evaluate(trained(), lb.Suite.of((x, y), "test"), samples=0), "samples"),
        (lambda x, y: evaluate(trained(), lb.Suite.of((x, y + 1), "test")), "label 3 is outside"),
        (lambda x, y: evaluate(trained(), lb.Suite.of((x, y / 7), "test")), "whole numbers"),
    ],
)
def test_what_cannot_be_is_refused(action, words):
    with pytest.raises(lb.LeanBayesError) as error:
        action(*data().test)
    assert words in str(error.value)


def test_foreign_inputs_of_another_shape_are_said():
    suite = lb.Suite.of(data(), "test,ood", foreign={"small": torch.rand(4, 1, 8, 8)})
    with pytest.raises(
        lb.DataError, match="'ood/small': the network cannot run on inputs of 1x8x8"
    ):
        evaluate(trained(), suite)


def test_a_network_of_doubles_stays_one():
    x, y = data().test
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(81, 3)).double()
    model = lb.bayesianize(net, lb.MeanField(), likelihood=lb.Categorical())
    own = lb.data.Data(
        name="d", task="classification", train=None, test=(x.double(), y), normalize=SCALE
    )
    suite = lb.Suite.of(own, "test,corrupted:fog/1,noise:0.2,rotated:9,pgd", rows=9)
    found = evaluate(model, suite)["splits"]
    p = lb.predict(model, lb.shifts.mix_noise(x[:9].double(), 0.2, seed=5), samples=4, seed=5)
    expected = float(lb.metrics.nll(p.probs, y[:9]))
    assert found["noise/0.2"]["figures"]["nll"] == pytest.approx(expected, rel=1e-12)


def test_a_model_without_a_likelihood_is_told_what_to_write():
    model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MAP())
    suite = lb.Suite.of((torch.rand(5, 4), torch.zeros(5).long()), "test")
    with pytest.raises(lb.ConfigError, match=r"likelihood=lb\.Categorical"):
        evaluate(model, suite)


def test_errors_relative_to_a_reference():
    suite = lb.Suite.of(data(), "test,corrupted:fog,corrupted:contrast", rows=30)
    own, other = (evaluate(trained(), suite, seed=seed) for seed in (5, 6))
    errors = [
        torch.tensor(
            [
                [1 - r["splits"][f"corrupted/{k}/{s}"]["figures"]["accuracy"] for s in range(1, 6)]
                for k in ("fog", "contrast")
            ],
            dtype=torch.float64,
        )
        for r in (own, other)
    ]
    found = evaluate(trained(), suite, seed=5, reference=other)["summary"]
    assert found["mce"] == pytest.approx(float(lb.metrics.mean_corruption_error(*errors)))
    single = lb.metrics.corruption_errors(*errors).tolist()
    assert [found["ce_fog"], found["ce_contrast"]] == pytest.approx(single)
    clean = [1 - r["summary"]["accuracy"] for r in (own, other)]
    table = lb.metrics.relative_mean_corruption_error(errors[0], clean[0], errors[1], clean[1])
    assert found["relative_mce"] == pytest.approx(float(table))
    assert against(own, own)["mce"] == 1.0
    with pytest.raises(lb.ConfigError, match="no corruption in common"):
        evaluate(trained(), lb.Suite.of(data(), "test"), reference=other)


def test_foreign_data_have_names():
    x, y = torch.rand(6, 1, 8, 8), torch.arange(6) % 3
    with pytest.raises(lb.ConfigError, match=r"data by name, found a Tensor.*foreign=\{"):
        lb.Suite.of((x, y), "test,ood", foreign=x)
