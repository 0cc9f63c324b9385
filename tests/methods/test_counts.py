"""The sizes that the five papers print, as exact integers of our own networks and conversions.

Networks are built without memory: a conversion reads shapes alone. Labels P1 to P19 number the
claims. Where a paper's figure is wrong, the test holds the right one and says what was printed.
"""

import pytest
import torch

import leanbayes as lb

DEEP = {"inputs": 100, "hidden": (100,) * 99, "outputs": 100, "output_bias": False}


def build(name, **options):
    with torch.device("meta"):
        return lb.models.create(name, **options)


def size(module):
    return sum(p.numel() for p in module.parameters())


def converted(name, method, **options):
    """The converted network; its report tells the same sizes as its parameters."""
    net = build(name, **options)
    before = size(net)
    model = lb.bayesianize(net, method)
    assert (model.report.base, model.report.added) == (before, size(model) - before)
    return model


def converted_size(name, method, **options):
    return size(converted(name, method, **options))


@pytest.mark.parametrize(
    ("name", "where", "parameters", "overhead"),
    [
        ("resnet18", "norm+output", 13_779_912, 17.883),  # P1: 4 (9,600 of norms + 513,000)
        ("resnet18", "norm", 11_727_912, 0.3285),  # P2
        ("resnet18", "output", 13_741_512, 17.554),  # the paper says 17.6 %
        ("pyramidnet110_270", "norm+output", 28_825_299, 1.1013),  # P4
    ],
)
def test_p1_p2_p4_patching_adds_four_copies_of_norms_and_output(name, where, parameters, overhead):
    model = converted(name, lb.Patching(members=5, where=where))
    assert size(model) == parameters
    assert 100 * model.report.added / model.report.base == pytest.approx(overhead, rel=1e-4)
    crossed = lb.Patching(members=5, where=where, cross=True)
    assert converted_size(name, crossed) == parameters  # the index is drawn, not stored


@pytest.mark.parametrize(
    ("name", "parameters"), [("resnet18", 58_447_560), ("pyramidnet110_270", 142_556_535)]
)
def test_p3_p4_explicit_ensembles_have_five_networks(name, parameters):
    whole = lb.Patching(members=5, scope="network", where="all")
    assert converted_size(name, whole) == parameters
    assert converted_size(name, lb.DeepEnsemble(members=5)) == parameters


def test_p5_p6_the_papers_mlp_counts_norm_copies_of_a_net_without_norms():
    # Printed: 1,009,900 without norms, and 1,129,100 with EMP, whose overhead belongs to 99 norms.
    assert size(build("mlp", **DEEP)) == 1_009_900
    model = converted("mlp", lb.Patching(members=5), **DEEP, hidden_bias=False, norm=True)
    assert (model.report.base, size(model)) == (1_019_800, 1_139_000)
    assert model.report.added == 4 * (99 * 200 + 100 * 100) == 119_200
    assert 1_009_900 + model.report.added == 1_129_100


def nodes(model):
    """Numbers that one draw of the factors holds; as many means as scales a member."""
    banks = [q for _, _, q, _ in model.posteriors()]
    assert all(q.location.shape == q.rho.shape == (q.members, *q.rho.shape[1:]) for q in banks)
    return sum(q.location.numel() // q.members for q in banks)


@pytest.mark.parametrize(
    ("name", "options", "inputs"),
    [
        ("alexnet", {}, 18_307),
        ("vgg16", {"size": "small"}, 5_251),
        ("vgg16", {"size": "large"}, 36_995),
        ("resnet50", {}, 24_579),
        ("wide_resnet", {}, 9_475),
    ],
)
def test_p7_implicit_factors_are_the_nodes_of_the_ibnn_paper(name, options, inputs):
    model = converted(name, lb.Implicit(members=4), **options)
    assert nodes(model) == model.report.random_dimensions == inputs
    assert model.report.added == 2 * 4 * inputs


def test_p8_lenet_has_207_nodes_where_the_paper_prints_23():
    # 1 + 6 + 16 are the inputs of the convolutions alone: 120 and 64 of the Linears are missing.
    model = converted("lenet", lb.Implicit(members=3))
    assert model.report.base == 41_806
    assert nodes(model) == 1 + 6 + 16 + 120 + 64 == 207
    convs = lb.Implicit(members=3, select=lb.select.convs)
    assert nodes(converted("lenet", convs)) == 23
    assert round(41_806 / 207) == 202  # weights a node; the paper prints 1800


@pytest.mark.parametrize(
    ("width", "base", "inputs"),
    [(1, 41_806, 207), (2, 165_202, 413), (4, 656_794, 825), (8, 2_619_178, 1_649)],
)
def test_p9_wider_lenets(width, base, inputs):
    model = converted("lenet", lb.Implicit(), width=width)
    assert (model.report.base, nodes(model)) == (base, inputs)
    assert inputs == 1 + (6 + 16 + 120 + 64) * width


@pytest.mark.parametrize(
    ("rank", "parameters", "by_channel"),
    [
        (1, 27_206_852, 26_599_812),
        (8, 38_755_592, 33_899_272),
        (16, 51_954_152, 42_241_512),
    ],
)
def test_p10_shared_ensembles_of_resnet50_need_factors_by_kernel_position(
    rank, parameters, by_channel
):
    # Printed: 27.21, 38.76 and 51.95 million. Factors by channel alone would give fewer.
    settings = {"members": 20, "rank": rank}
    assert converted_size("resnet50", lb.SharedEnsemble(**settings)) == parameters
    channels = lb.SharedEnsemble(**settings, per_channel=True)
    assert converted_size("resnet50", channels) == by_channel


@pytest.mark.parametrize(
    ("name", "batch_ensemble", "rank_one", "channels", "biases"),
    [
        ("resnet50", 25_768_588, 25_977_144, 52_139, 1_000),  # P11; printed 25.8M and 26.0M
        ("wide_resnet", 36_557_548, 36_635_872, 19_581, 10),  # P12; printed 36.6M
    ],
)
def test_p11_p12_rank_one_adds_means_scales_and_biases(
    name, batch_ensemble, rank_one, channels, biases
):
    points = converted(name, lb.BatchEnsemble(members=4))
    assert size(points) == batch_ensemble
    assert points.report.added == 4 * channels + 3 * biases
    model = converted(name, lb.RankOne(members=4))
    assert size(model) == rank_one
    assert model.report.added == 2 * 4 * channels + 3 * biases
    assert converted_size(name, lb.RankOne(members=4, law="cauchy")) == rank_one


def test_p13_ten_gaussian_components_are_four_percent_of_a_resnet50_not_point_four():
    # The paper says '0.4 % for a mixture of size 10': 0.408 % is one component.
    def overhead(method):
        report = converted("resnet50", method).report
        return 100 * report.added / report.base

    assert overhead(lb.RankOne(members=1)) == pytest.approx(0.408, abs=5e-4)
    assert overhead(lb.RankOne(members=10)) == pytest.approx(4.12, abs=5e-3)
    assert overhead(lb.BatchEnsemble(members=10)) == pytest.approx(2.08, abs=5e-3)
    assert overhead(lb.RankOne(members=4)) == pytest.approx(1.64, abs=5e-3)  # its own Table 1


def test_p14_four_resnet50_are_102_million_not_146_7():
    # Table 1 of the Rank-1 paper prints 146.7M there, which is near four WRN-28-10.
    assert converted_size("resnet50", lb.DeepEnsemble(members=4)) == 102_228_128
    assert converted_size("wide_resnet", lb.DeepEnsemble(members=4)) == 145_916_776


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet18", 23_379_024),  # printed 23.4M
        ("pyramidnet110_270", 57_022_614),  # 57.0M
        ("wide_resnet", 72_958_388),  # 73M
    ],
)
def test_p16_mean_field_doubles_the_parameters(name, parameters):
    model = converted(name, lb.MeanField())
    assert size(model) == 2 * model.report.base == parameters
    assert model.report.random_dimensions == model.report.base


@pytest.mark.parametrize(
    ("name", "options", "rate", "added"),
    [
        ("resnet18", {}, 0.01, 116_895),  # P17
        ("resnet18", {}, 0.05, 584_476),
        ("unet", {}, 0.01, 313_802),  # P18
        ("lenet300", {}, 0.1, 26_661),  # P19
        ("lenet300", {"norm": True}, 0.1, 26_741),
    ],
)
def test_p17_p18_p19_partial_adds_round_rate_n_scales(name, options, rate, added):
    net = lb.models.create(name, **options)  # ranks need numbers
    base = size(net)
    model = lb.bayesianize(net, lb.Partial(rate=rate, criterion="magnitude"))
    assert size(model) == base + added == base + round(rate * base)
    assert model.report.random_dimensions == added
    # Against a mean field of everything, and against five networks.
    assert 1 - size(model) / (2 * base) == pytest.approx((1 - rate) / 2, abs=1e-4)
    assert 1 - size(model) / (5 * base) == pytest.approx(0.8 - rate / 5, abs=1e-4)


def test_p18_p19_the_networks_of_the_pbn_paper():
    assert size(build("unet")) == 31_380_180
    assert size(build("lenet300")) == 266_610
    assert size(build("lenet300", norm=True)) == 267_410
    assert converted_size("unet", lb.MeanField()) == 62_760_360
