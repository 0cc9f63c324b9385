"""Bad input is refused in words: what was found, what was expected, what to write."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

import leanbayes as lb

S = lb.select
MEMBERS = (
    lb.SharedEnsemble,
    lb.Implicit,
    lb.Patching,
    lb.RankOne,
    lb.BatchEnsemble,
    lb.DeepEnsemble,
)


def by_name(cls):
    return getattr(cls, "name", None)


def small():
    return nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3))


def data(rows=6):
    return torch.randn(rows, 4), torch.arange(rows) % 3


def assert_conversion_refused(method, words, error=lb.ConversionError, **options):
    """The conversion fails in these words and leaves the network as it was."""
    net = small()
    before = copy.deepcopy(net)
    with pytest.raises(error, match=words):
        lb.bayesianize(net, method, **options)
    assert [type(m) for m in net.modules()] == [type(m) for m in before.modules()]
    assert net.state_dict().keys() == before.state_dict().keys()
    assert all(torch.equal(v, before.state_dict()[k]) for k, v in net.state_dict().items())


@pytest.mark.parametrize("cls", MEMBERS, ids=by_name)
@pytest.mark.parametrize("members", [0, -1, 2.5, True, math.nan, "4"])
def test_members_are_a_whole_number_of_at_least_one(cls, members):
    words = f"members must be a whole number of at least 1, found {members!r}"
    with pytest.raises(lb.ConfigError, match=words):
        cls(members=members)


@pytest.mark.parametrize("cls", MEMBERS, ids=by_name)
def test_members_may_be_an_integer_of_numpy(cls, tmp_path):
    """It becomes one of Python: no file could hold it."""
    method = cls(members=np.int64(3))
    assert method == cls(members=3)
    assert type(method.members) is int
    model = lb.bayesianize(small(), method)
    lb.save(model, tmp_path / "model")
    assert lb.load(small(), tmp_path / "model").method == method


@pytest.mark.parametrize("cls", MEMBERS, ids=by_name)
def test_one_member_is_enough(cls):
    model = lb.bayesianize(small(), cls(members=1)).train()
    assert model(data(1)[0]).isfinite().all()


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan, math.inf, True])
def test_a_rate_of_partial_is_a_fraction(rate):
    with pytest.raises(lb.ConfigError, match=f"fraction.*from 0 to 1; found {rate!r}"):
        lb.Partial(rate=rate)
    for end in (0, 1, 0.0, 1.0):
        assert lb.Partial(rate=end).rate == end


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.1, math.nan, True])
@pytest.mark.parametrize("cls", [lb.MCDropout, lb.DropConnect], ids=by_name)
def test_a_rate_of_dropout_is_a_probability_below_one(cls, rate):
    with pytest.raises(lb.ConfigError, match=f"at least 0 and below 1; found {rate!r}"):
        cls(rate=rate)


def test_a_rate_that_picks_no_parameter_is_an_error():
    assert_conversion_refused(
        lb.Partial(rate=0.001, criterion="magnitude"),
        r"rate=0.001 of 53 parameters is not one: write rate=1 / 53",
        lb.ConfigError,
    )


@pytest.mark.parametrize(
    "method",
    [
        lb.Implicit(members=4),
        lb.Implicit(members=4, granularity="batch"),
        lb.RankOne(members=4),
        lb.BatchEnsemble(members=4),
        lb.SharedEnsemble(members=4, assign="split"),
        lb.Patching(members=4, scope="network", where="all", granularity="row"),
        lb.DeepEnsemble(members=4, init_std=0.0),
        lb.Compose([(S.linears, lb.RankOne(members=4))]),
        lb.Implicit(members=4, assign="interleave"),
    ],
    ids=lambda method: method.name,
)
def test_a_batch_smaller_than_the_members_is_an_error(method):
    model = lb.bayesianize(small(), method).train()
    words = r"3 rows cannot train 4 members.*batches of at least 4 \(DataLoader\(drop_last=True\)"
    with pytest.raises(lb.PlanError, match=words):
        model(data(3)[0])
    with pytest.raises(lb.PlanError, match=words):
        lb.objective(model, data(3), lb.Categorical(), num_data=10)
    assert model(data(4)[0]).shape == (4, 3)
    assert model(data(5)[0]).shape == (5, 3)  # a short last batch is fine
    assert model.eval()(data(1)[0]).shape == (1, 3)


@pytest.mark.parametrize("loader", [[], iter([]), (pair for pair in [])])
@pytest.mark.parametrize("criterion", ["loss_grad", "fisher", "output_jacobian"])
def test_an_empty_loader_scores_nothing(loader, criterion):
    with pytest.raises(lb.ConfigError, match=r"no datum.*batches of \(inputs, targets\)"):
        lb.sensitivity(small(), loader, lb.Categorical(), criterion=criterion)
    method = lb.Partial(rate=0.5, criterion=criterion)
    settings = {"data": loader, "likelihood": lb.Categorical()}
    assert_conversion_refused(method, "no datum", lb.ConfigError, **settings)


def test_scores_need_data_and_a_likelihood():
    assert_conversion_refused(
        lb.Partial(rate=0.5), r"data=loader.*lb.Categorical\(\)", lb.ConfigError
    )
    assert_conversion_refused(
        lb.Partial(rate=0.5), "needs a likelihood", lb.ConfigError, data=[data()], likelihood=None
    )
    with pytest.raises(lb.ConfigError, match=r"expected batches.*found Tensor"):
        lb.sensitivity(small(), [data()[0]], lb.Categorical())


NOWHERE = S.by_name("layer9.*")


@pytest.mark.parametrize(
    "method",
    [
        lb.MeanField(select=NOWHERE),
        lb.Implicit(select=NOWHERE),
        lb.RankOne(select=NOWHERE),
        lb.SharedEnsemble(select=NOWHERE),
        lb.BatchEnsemble(select=NOWHERE),
        lb.DeepEnsemble(select=NOWHERE),
        lb.Partial(select=NOWHERE, criterion="magnitude"),
        lb.Patching(where=NOWHERE),
        lb.Patching(select=NOWHERE),
        lb.DropConnect(where=NOWHERE),
        lb.MCDropout(where=NOWHERE),
    ],
    ids=lambda method: method.name,
)
def test_a_selector_that_matches_nothing_is_named_with_the_layers_there_are(method):
    assert_conversion_refused(method, rf"{method.name}.*LayerNorm, Linear.*name\(layer9\.\*\)")


def test_a_method_that_cannot_act_on_the_selected_layers_says_so():
    assert_conversion_refused(lb.Implicit(select=S.norms), r"implicit.*kind\(norm\)")
    assert_conversion_refused(lb.Patching(where="norm", select=S.linears), "patching")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda bad: lb.SharedEnsemble(preset=bad), "preset is 'recommended' or 'paper'"),
        (lambda bad: lb.Implicit(preset=bad), "preset is 'recommended' or 'paper'"),
        (lambda bad: lb.RankOne(preset=bad), "preset is 'recommended' or 'paper'"),
        (lambda bad: lb.Partial(preset=bad), "preset is 'recommended' or 'paper'"),
        (lambda bad: lb.Implicit(kl=bad), "kl is one of mean, sum, averaged_draw, pairwise"),
        (lambda bad: lb.RankOne(kl=bad), "kl is one of mean, sum, pairwise"),
        (lambda bad: lb.SharedEnsemble(kl=bad), "kl is"),
        (lambda bad: lb.Implicit(assign=bad), "split, interleave, random or tile"),
        (lambda bad: lb.RankOne(assign=bad), "split, interleave, random or tile"),
        (lambda bad: lb.BatchEnsemble(assign=bad), "split, interleave, random or tile"),
        (lambda bad: lb.DeepEnsemble(assign=bad), "split, interleave, random, turns"),
        (lambda bad: lb.Implicit(granularity=bad), "granularity is 'row' or 'batch'"),
        (lambda bad: lb.Patching(granularity=bad), "granularity is"),
        (lambda bad: lb.DropConnect(granularity=bad), "granularity is 'batch' or 'row'"),
        (lambda bad: lb.Patching(scope=bad), "scope is one of network, layer, input, element"),
        (lambda bad: lb.Patching(where=bad), "where is one of norm, output.*or a selector"),
        (lambda bad: lb.MCDropout(where=bad), "where is a selector such as"),
        (lambda bad: lb.DropConnect(where=bad), "where is a selector such as"),
        (lambda bad: lb.MCDropout(position=bad), "position is 'before' or 'after'"),
        (lambda bad: lb.RankOne(law=bad), "law is 'normal' or 'cauchy'"),
        (lambda bad: lb.RankOne(stochastic=bad), "stochastic is 'both', 'in' or 'out'"),
        (lambda bad: lb.Implicit(side=bad), "side is 'in' or 'out'"),
        (lambda bad: lb.MeanField(estimator=bad), "estimator must be one of auto"),
        (lambda bad: lb.Partial(estimator=bad), "estimator is one of auto"),
        (lambda bad: lb.Partial(criterion=bad), "criterion is one of loss_grad, fisher"),
        (lambda bad: lb.Partial(kl_reduction=bad), "kl_reduction is one of sum, tensor_mean"),
        (lambda bad: lb.sensitivity(small(), criterion=bad), "criterion is one of loss_grad"),
        (lambda bad: lb.Laplace(structure=bad), "structure is diagonal or kronecker"),
    ],
)
def test_unknown_words_are_answered_with_the_known_ones(make, words):
    with pytest.raises(lb.ConfigError, match=f"{words}.*found 'oddly'"):
        make("oddly")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lb.SharedEnsemble(rank=0), "rank must be.*at least 1, found 0"),
        (lambda: lb.SharedEnsemble(rank=1.5), "rank must be.*at least 1, found 1.5"),
        (lambda: lb.SharedEnsemble(groups=0), "groups must be.*at least 1, found 0"),
        (lambda: lb.SharedEnsemble(groups=4, assign="split"), "at random; found assign='split'"),
        (lambda: lb.Implicit(prior_std=0.0), "prior_std must be a positive number, found 0.0"),
        (lambda: lb.RankOne(prior_std=-1.0), "prior_std must be a positive number, found -1.0"),
        (lambda: lb.Patching(prior_std=math.inf), "prior_std must be a positive number, found inf"),
        (lambda: lb.Patching(init_std=-0.1), "init_std must be at least 0, found -0.1"),
        (lambda: lb.Implicit(init_std=-0.1), "init_std must be at least 0, found -0.1"),
        (lambda: lb.RankOne(init_std=-0.1), "init_std must be at least 0, found -0.1"),
        (lambda: lb.RankOne(init_scale=-0.1), "init_scale must be at least 0, found -0.1"),
        (lambda: lb.Implicit(init_scale=-0.1), "init_scale must be at least 0, found -0.1"),
        (lambda: lb.SharedEnsemble(init_std=-0.1), "init_std must be at least 0, found -0.1"),
        (lambda: lb.BatchEnsemble(init_std=-0.1), "init_std must be at least 0, found -0.1"),
        (lambda: lb.MeanField(init_std=-0.1), "init_std must be at least 0, found -0.1"),
        (lambda: lb.RankOne(clip=0.0), "clip must be a positive number or None, found 0.0"),
        (lambda: lb.SharedEnsemble(weight_decay=1e-4), "weight_decay needs num_data"),
        (lambda: lb.MeanField(prior_std=1.0, weight_decay=1e-4), "give one of them"),
        (lambda: lb.MeanField(num_data=50_000), "num_data=50000 says nothing without weight_decay"),
        (lambda: lb.Patching(prior_std=1.0, weight_decay=1e-4, num_data=9), "give one of them"),
        (lambda: lb.MeanField(groups=2), "groups counts the draws.*estimator='auto'"),
        (lambda: lb.Patching(members=1, zero_copy=True), "zero copy needs members >= 2"),
        (lambda: lb.Patching(keep=0.5), "keep is the probability of the trained copy"),
        (lambda: lb.Patching(members=2, zero_copy=True, keep=1.5), "keep is.*found 1.5"),
        (lambda: lb.RankOne(law="cauchy", kl="pairwise"), "use kl='mean' for Cauchy"),
        (lambda: lb.RankOne(tied_sign=True, kl="pairwise"), "each its own: write kl='mean'"),
        (lambda: lb.Patching(where=["norm"]), r"where is one of.*found \['norm'\]"),
    ],
)
def test_numbers_out_of_range_and_settings_that_contradict(make, words):
    with pytest.raises(lb.ConfigError, match=words):
        make()


def test_a_member_that_does_not_exist_cannot_be_collapsed():
    model = lb.bayesianize(small(), lb.RankOne(members=3))
    with pytest.raises(lb.ConversionError, match=r"member 3 does not exist.*has 3 members"):
        lb.collapse(model, member=3)
    with pytest.raises(lb.ConversionError, match="patching has 0 members"):
        lb.collapse(lb.bayesianize(small(), lb.Patching()), member=0)  # an index a layer


def test_samples_that_leave_members_out_are_warned_of():
    model = lb.bayesianize(small(), lb.RankOne(members=4))
    with pytest.warns(UserWarning, match="3 samples of 4 members.*write samples=4"):
        lb.predict(model, data()[0], likelihood=lb.Categorical(), samples=3)
    with pytest.raises(lb.ConfigError, match=r"samples must be a whole number.*found 0"):
        lb.predict(model, data()[0], likelihood=lb.Categorical(), samples=0)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lb.Implicit, r"found the class Implicit. Write lb.Implicit\(\)"),
        ("implicit", r"found 'implicit'. Write lb.Implicit\(\)"),
        ("bayes", r"found 'bayes'. Write lb.MeanField\(\), or another of lb.methods\(\)"),
        (None, r"found None. Write lb.MeanField\(\)"),
    ],
)
def test_a_name_or_a_class_is_no_method(wrong, words):
    assert_conversion_refused(wrong, words, lb.ConfigError)
    with pytest.raises(lb.ConfigError, match=words):
        lb.adapt(small(), wrong, data())
