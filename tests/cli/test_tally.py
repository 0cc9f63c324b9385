"""Figures of dense labels that are added up by batches are those of all elements at once."""

import pytest
import torch

import leanbayes as lb
from leanbayes.cli.card import Card
from leanbayes.cli.figures import Judge, Kept, rows_at, rows_of_pass, size_of
from leanbayes.cli.tally import DenseTally, class_ious, confusion
from leanbayes.errors import DataError
from leanbayes.prediction import BinaryClassification, Classification

VOID = 9
NAMES = ("sky", "road", "tree", "car")


def scenes(seed, sharpness=2.0, images=7, classes=4):
    """Random class probabilities [images, classes, 6, 5] whose labels are right more often than by
    chance, and some without a label."""
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(images, classes, 6, 5, generator=generator).double()
    target = torch.distributions.Categorical(logits=logits.movedim(1, -1) / 2)
    torch.manual_seed(seed)
    labels = target.sample()
    labels[torch.rand(labels.shape, generator=generator) < 0.2] = VOID
    probs = logits.softmax(1)
    return Classification(None, torch.ones(1), probs, torch.zeros(images, 6, 5).double()), labels


def rows(p, start, stop):
    return Classification(None, p.weights, p.probs[start:stop], p.aleatoric[start:stop])


def tallied(p, labels, batch):
    tally = DenseTally(p.probs.shape[1], VOID, NAMES)
    for start in range(0, len(labels), batch):
        tally.add(rows(p, start, start + batch), labels[start : start + batch])
    return tally.figures()


def whole(p, labels):
    """All elements at once, by the functions of `lb.metrics` and pairs of elements."""
    known = labels != VOID
    probs, labels = p.probs.movedim(1, -1)[known], labels[known]
    right, total = probs.argmax(1) == labels, p.total[known]
    scores = {name: getattr(lb.metrics, name)(probs, labels) for name in ("accuracy", "nll")}
    scores |= {name: getattr(lb.metrics, name)(probs, labels) for name in ("ece", "brier")}
    for k in range(probs.shape[1]):
        both = ((probs.argmax(1) == k) & (labels == k)).sum()
        either = ((probs.argmax(1) == k) | (labels == k)).sum()
        scores[f"iou_{NAMES[k]}"] = both.double() / either
    scores["mean_iou"] = sum(scores[f"iou_{name}"] for name in NAMES) / len(NAMES)
    scores["error_auroc"] = lb.metrics.auroc(total[right], total[~right])
    return {name: float(value) for name, value in scores.items()}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("batch", [1, 3, 7])
def test_batches_add_up_to_the_figures_of_all_elements(seed, batch):
    p, labels = scenes(seed)
    found, expected = tallied(p, labels, batch), whole(p, labels)
    assert set(found) == set(expected)
    resolution = {"error_auroc": 1e-3}
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=resolution.get(name, 1e-9)), name


@pytest.mark.parametrize("sharpness", [0.3, 5.0, 40.0])
def test_the_histogram_resolves_uncertainty_of_every_size(sharpness):
    """Near ln 4, where elements are uncertain, and near 0, down to 1e-30."""
    p, labels = scenes(1, sharpness, images=40)
    found, expected = tallied(p, labels, 8), whole(p, labels)
    assert found["error_auroc"] == pytest.approx(expected["error_auroc"], abs=1e-3)


def test_the_area_is_off_by_at_most_half_the_pairs_of_a_common_bin():
    p, labels = scenes(2, images=60)
    known = labels != VOID
    right = (p.label == labels)[known]
    cell = p.total[known].float().view(torch.int32) >> 11
    common = (cell[right][:, None] == cell[~right]).double().mean().item()
    gap = abs(tallied(p, labels, 16)["error_auroc"] - whole(p, labels)["error_auroc"])
    assert gap <= common / 2 < 1e-3


def test_equal_uncertainties_count_one_half():
    probs = torch.tensor([0.75, 0.25]).double().reshape(1, 2, 1, 1).expand(1, 2, 1, 4)
    p = Classification(None, torch.ones(1), probs, torch.zeros(1, 1, 4))
    assert tallied_two(p, torch.tensor([[[0, 0, 1, 1]]]))["error_auroc"] == 0.5


def tallied_two(p, labels):
    tally = DenseTally(2, VOID)
    tally.add(p, labels)
    return tally.figures()


def test_without_errors_there_is_no_area_and_classes_go_by_number():
    p = Classification(None, torch.ones(1), torch.eye(2).double()[None, :, None], torch.zeros(1))
    found = tallied_two(p, torch.tensor([[[0, 1]]]))
    assert "error_auroc" not in found
    assert {"iou_0": 1.0, "iou_1": 1.0, "accuracy": 1.0, "nll": 0.0}.items() <= found.items()


def test_labels_that_do_not_fit_are_refused():
    p, labels = scenes(0)
    with pytest.raises(DataError, match="label 7 is outside the 4 classes"):
        tallied(p, torch.where(labels == 1, 7, labels), 7)
    with pytest.raises(DataError, match="the network labels 6x5 elements, the data have 3x5"):
        tallied(p, labels[:, :3], 7)
    with pytest.raises(DataError, match="no element has a label: all of them are 9"):
        tallied(p, torch.full_like(labels, VOID), 7)


def test_overlaps_are_those_of_the_classes_that_occur():
    labels, target = torch.tensor([0, 0, 1, 1, 1, 3]), torch.tensor([0, 1, 1, 1, 3, 1])
    assert class_ious(confusion(labels, target, 5)) == {0: 1 / 2, 1: 2 / 5, 3: 0.0}


@pytest.fixture
def judge():
    """A network that labels pixels, made Bayesian."""
    torch.manual_seed(0)
    net = torch.nn.Conv2d(3, 4, 3, padding=1)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.3), likelihood=lb.Categorical())
    data = {"task": "segmentation", "classes": list(NAMES)}
    return Judge(Card({}, data, {"shape": [3, 6, 5]}), model, 3, {"samples": 4, "seed": 0})


def test_a_judge_streams_and_gives_what_all_predictions_together_give(judge):
    _, labels = scenes(3)
    x = torch.randn(7, 3, 6, 5)
    p, target = judge.predicted((x, labels), None)
    assert torch.equal(target, labels)
    expected = whole(p, labels)
    found = judge.scored((x, labels), None, VOID)
    assert found == judge.judged((x, labels), None, VOID).figures
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-3 if "auroc" in name else 1e-9), name
    judged = judge.judged((x, labels), None, VOID)
    assert judged.count == 7
    for name in ("total", "epistemic"):
        means = getattr(p, name).flatten(1).mean(1)
        torch.testing.assert_close(getattr(judged.uncertainty, name), means)
    strange = judge.uncertainty((3 * x, labels), None)
    area = lb.metrics.auroc(judged.uncertainty.total, strange.total)
    assert judge.told_apart(judged.uncertainty, strange)["auroc_total"] == float(area)


def test_a_dataset_is_read_as_tensors_are(judge):
    x, (_, labels) = torch.randn(7, 3, 6, 5), scenes(3)
    lazy = torch.utils.data.TensorDataset(x, labels)
    assert judge.scored(lazy, None, VOID) == judge.scored((x, labels), None, VOID)
    assert size_of(lazy) == size_of((x, labels)) == 7
    for part in (lazy, (x, labels)):
        inputs, targets = rows_at(part, [1, 5])
        assert torch.equal(inputs, x[[1, 5]])
        assert torch.equal(targets, labels[[1, 5]])
    with pytest.raises(DataError, match="no examples"):
        judge.scored((x[:0], labels[:0]), None, VOID)


def test_no_more_than_one_batch_of_dense_probabilities_is_alive(judge, monkeypatch):
    import gc
    import weakref

    alive, most = weakref.WeakSet(), []
    predict = lb.predict

    def watched(*arguments, **options):
        gc.collect()
        most.append(len(alive))
        found = predict(*arguments, **options)
        alive.add(found.probs)
        return found

    monkeypatch.setattr(lb, "predict", watched)
    judge.scored((torch.randn(12, 3, 6, 5), torch.zeros(12, 6, 5).long()), None, VOID)
    assert len(most) == 4
    assert max(most) <= 1


def test_a_pass_of_large_images_is_short(judge):
    assert rows_of_pass(judge.card, 256) == 256
    scene = Card({}, judge.card.data, {"shape": [3, 1024, 2048]})
    assert rows_of_pass(scene, 256) == 1
    assert rows_of_pass(Card({}, {"task": "classification"}, {"shape": [3, 512, 512]}), 64) == 64


def test_two_classes_have_the_area_under_precision_and_recall():
    generator = torch.Generator().manual_seed(0)
    probs, labels = torch.rand(30, generator=generator), torch.arange(30) % 2
    area = float(lb.metrics.average_precision(probs[labels == 0], probs[labels == 1]))
    both = torch.stack([1 - probs, probs], 1)
    for p in (
        BinaryClassification(None, torch.ones(1), probs, torch.zeros(30)),
        Classification(None, torch.ones(1), both, torch.zeros(30)),
    ):
        kept = Kept(-100)
        kept.add(p, labels)
        assert kept.figures()["auc_pr"] == area
        single = Kept(-100)
        single.add(p, torch.zeros(30).long())
        assert "auc_pr" not in single.figures()
