"""Bad input to bayesianize and collapse: a clear error, and an unchanged network."""

import copy

import pytest
import torch
from torch import nn

import leanbayes as lb


def unchanged(net, before):
    same = [type(m) for m in net.modules()] == [type(m) for m in before.modules()]
    state = before.state_dict()
    return same and all(torch.equal(v, state[k]) for k, v in net.state_dict().items())


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.gain


@pytest.mark.parametrize("net", [nn.ReLU(), nn.Sequential(nn.ReLU(), nn.Flatten()), Scale()])
def test_no_convertible_layer(net):
    with pytest.raises(lb.ConversionError, match=r"no convertible layer.*register_host"):
        lb.bayesianize(net, lb.MeanField())


def test_what_has_no_host_is_listed_with_the_reason():
    net = nn.Sequential(nn.Linear(3, 3), Scale(), nn.PReLU())
    report = lb.bayesianize(net, lb.MeanField(), example=torch.randn(4, 3)).report
    assert {(s.name, s.type) for s in report.skipped} == {("1", "Scale"), ("2", "PReLU")}
    assert all("no host for this type" in s.reason for s in report.skipped)
    assert "no host for this type" in str(report)


class TimeFirst(nn.Module):
    """[T, B, I] -> [B, O]: the batch is dim 1."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x.mean(0))


class MixesRows(nn.Module):
    """An output of the right size whose rows depend on the order of the batch."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x.cumsum(0))


class Masked(nn.Module):
    """Outputs of which some are infinite."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x).masked_fill(torch.tensor([False, True, False]), -torch.inf)


def test_infinite_outputs_do_not_hide_rows_that_mix():
    with pytest.raises(lb.ConversionError, match="is not the batch"):
        lb.bayesianize(Masked(MixesRows()), lb.MeanField(), example=torch.randn(5, 4))
    model = lb.bayesianize(Masked(nn.Linear(4, 3)), lb.MeanField(), example=torch.randn(5, 4))
    assert len(model.report.converted) == 1


def test_an_example_with_missing_values_proves_by_its_other_rows():
    example = torch.randn(5, 4)
    example[1, 2] = torch.nan
    model = lb.bayesianize(nn.Linear(4, 3), lb.MeanField(), example=example)
    assert len(model.report.converted) == 1
    with pytest.raises(lb.ConversionError, match="is not the batch"):
        lb.bayesianize(MixesRows(), lb.MeanField(), example=example)


@pytest.mark.parametrize(("net", "shape"), [(TimeFirst(), (5, 3, 4)), (MixesRows(), (5, 4))])
def test_a_batch_that_is_not_dim_0(net, shape):
    before = copy.deepcopy(net)
    with pytest.raises(lb.ConversionError, match=r"is not the batch.*The network is unchanged"):
        lb.bayesianize(net, lb.MeanField(), example=torch.randn(shape))
    assert unchanged(net, before)


def untracked(*last):
    return nn.Sequential(
        nn.Linear(4, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.ReLU(), *last
    )


@pytest.mark.parametrize("name", ["mean_field", "rank_one", "shared_ensemble", "deep_ensemble"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_batchnorm_without_running_statistics_is_proved_as_any_other(name, dtype):
    """Draws of one pass would share its statistics: `predict` gives each a pass of its own."""
    net = untracked(nn.Linear(5, 3)).to(dtype)
    before, x = copy.deepcopy(net), torch.randn(6, 4, dtype=dtype)
    model = lb.bayesianize(net, lb.methods()[name](), example=x)
    assert "BatchNorm without running statistics" in str(model.report)
    assert net[1].running_mean is net[1].running_var is None
    assert not net[1]._forward_pre_hooks
    assert torch.equal(lb.collapse(model)(x), before(x)) or name != "mean_field"


def test_rows_that_a_network_mixes_beside_such_a_norm_are_still_found():
    net = untracked(nn.Linear(5, 4), MixesRows())
    before = copy.deepcopy(net)
    with pytest.raises(lb.ConversionError, match="is not the batch"):
        lb.bayesianize(net, lb.MeanField(), example=torch.randn(5, 4))
    assert unchanged(net, before)
    net = untracked(Sideways())
    with pytest.raises(lb.ConversionError, match=r"'3\.fc' gets an input without rows in dim 0"):
        lb.bayesianize(net, lb.MeanField(), example=torch.randn(6, 4))
    assert net[1].running_mean is None
    assert not net[1]._forward_pre_hooks


class Sideways(nn.Module):
    """A layer inside that gets its rows in dim 1."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x):
        times = torch.stack([x, x.tanh()])  # [2, B, 5]
        return self.head(x) + self.fc(times).sum(0)


def test_layers_with_their_rows_elsewhere_are_named_so_that_they_can_be_left():
    net = Sideways()
    x = torch.randn(5, 5)
    with pytest.raises(lb.ConversionError, match=r"select=~lb\.select\.by_name\('fc'\)"):
        lb.bayesianize(net, lb.MeanField(), example=x)
    assert type(net.fc) is nn.Linear
    left = lb.MeanField(select=~lb.select.by_name("fc"))
    assert [layer.name for layer in lb.bayesianize(net, left, example=x).report.converted] == [
        "head"
    ]


class Queries(nn.Module):
    """A layer whose input has as many rows as the network's, but is none of them."""

    def __init__(self):
        super().__init__()
        self.learned = nn.Parameter(torch.randn(6, 5))
        self.fc, self.head = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(x) + self.fc(self.learned).mean(0)


@pytest.mark.parametrize("rows", [1, 4, 6])
@pytest.mark.parametrize("name", ["mean_field", "rank_one", "patching", "mc_dropout"])
def test_a_layer_without_rows_is_left_and_listed(name, rows):
    """No draw of a row could act in it; draws of the others do, each by its own."""
    net, x = Queries(), torch.randn(rows, 5)
    more = {"rate": 0.3} if name == "mc_dropout" else {}
    model = lb.bayesianize(net, lb.methods()[name](**more), example=x)
    assert type(net.fc) is nn.Linear
    assert [layer.name for layer in model.report.converted] == ["head"]
    reasons = {left.name: left.reason for left in model.report.skipped}
    assert "the same input for any number of rows" in reasons["fc"]
    options = {"likelihood": lb.Categorical(), "samples": 4, "seed": 0}
    folded, looped = (lb.predict(model, x, chunk=n, **options).probs for n in (4, 1))
    torch.testing.assert_close(folded, looped)


def test_a_network_of_such_layers_alone_is_told_that_its_batch_is_elsewhere():
    with pytest.raises(lb.ConversionError, match="is not the batch"):
        lb.bayesianize(TimeFirst(), lb.MeanField(), example=torch.randn(7, 3, 4))


class Tied(nn.Module):
    """BART's way: a table that is never called, tied to one that is."""

    def __init__(self):
        super().__init__()
        self.shared, self.words = nn.Embedding(7, 4), nn.Embedding(7, 4)
        self.words.weight = self.shared.weight
        self.head = nn.Linear(4, 3)

    def forward(self, ids):
        return self.head(self.words(ids).mean(1))


def test_a_layer_that_never_runs_may_share_the_draw_of_one_that_does():
    ids = torch.randint(0, 7, (5, 3))
    model = lb.bayesianize(Tied(), lb.MeanField(), example=ids)
    assert model.net.shared.slots.weight is model.net.words.slots.weight
    alone = Tied()
    alone.shared.weight = nn.Parameter(alone.shared.weight.detach().clone())
    with pytest.raises(lb.ConversionError, match=r"shared\.weight does not act"):
        lb.bayesianize(alone, lb.MeanField(), example=ids)


class OwnHead(nn.Linear):
    def forward(self, input):
        return nn.functional.linear(input, self.weight, self.bias)


@pytest.mark.parametrize("tail", [(), (nn.Dropout(0.1),)], ids=["last", "before_dropout"])
def test_the_report_says_where_the_output_is_not_the_last_layer(tail):
    x = torch.randn(5, 4)
    net = nn.Sequential(nn.Linear(4, 4), OwnHead(4, 3), *tail)
    report = lb.bayesianize(net, lb.MeanField(), example=x).report
    assert report.output == "0"
    assert "'1' runs last and stays as it is: the output is '0'" in str(report)
    plain = nn.Sequential(OwnHead(4, 4), nn.Linear(4, 3), *tail)
    assert "runs last" not in str(lb.bayesianize(plain, lb.MeanField(), example=x).report)


class Fused(nn.Module):
    """An attention that takes the rate of its dropout and never calls it."""

    def __init__(self):
        super().__init__()
        self.qkv, self.dropout = nn.Linear(4, 12), nn.Dropout(0.2)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        rate = self.dropout.p if self.training else 0.0
        return nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=rate).mean(1)


def test_a_dropout_that_is_never_called_is_told_of_fused_attention():
    with pytest.raises(lb.ConversionError, match=r"dropout\.mask.*fused attention.*by_name"):
        lb.bayesianize(Fused(), lb.MCDropout(), example=torch.randn(5, 3, 4))


def test_a_forward_that_fails_on_the_example_leaves_the_network_as_it_was():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    before = copy.deepcopy(net)
    with pytest.raises(RuntimeError):
        lb.bayesianize(net, lb.MeanField(), example=torch.randn(2, 7))
    assert unchanged(net, before)


def test_a_network_that_is_wrapped_for_several_processes_is_refused(tmp_path):
    """What conversion adds would be unknown to the wrapper: every process would learn its own."""
    address = f"file://{tmp_path / 'meeting'}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(nn.Linear(3, 2))
        with pytest.raises(lb.ConversionError, match=r"DistributedDataParallel.*wrapped\.module"):
            lb.bayesianize(wrapped, lb.MeanField())
        assert type(wrapped.module) is nn.Linear
    finally:
        torch.distributed.destroy_process_group()
    net = nn.Sequential(nn.Linear(3, 3), nn.DataParallel(nn.Linear(3, 2)))
    with pytest.raises(lb.ConversionError, match=r"'1' is wrapped in DataParallel"):
        lb.bayesianize(net, lb.MeanField())


@pytest.mark.parametrize("rows", [6, 9])
def test_a_network_that_is_called_by_itself_is_the_mean_network(rows):
    """It went on by the plan of the proof: as many rows were sampled, others failed."""
    net, x = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), torch.randn(9, 4)
    expected = net(x[:rows])
    lb.bayesianize(net, lb.MeanField(init_std=1.0), example=x[:6])
    torch.testing.assert_close(net(x[:rows]), expected)


def test_copies_in_threads_are_refused():
    """As DataParallel makes them: they would share one plan, and mix each other's rows."""
    model = lb.bayesianize(nn.Linear(3, 2), lb.MeanField())
    with pytest.raises(lb.ConfigError, match=r"DataParallel.*torchrun"):
        model._replicate_for_data_parallel()


@pytest.mark.parametrize("where", ["whole", "part", "in_place"])
def test_a_compiled_network_converts_with_an_example(where):
    """Draws by key cannot be traced, so that the proof runs without the graphs."""
    net, x = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)), torch.randn(6, 4)
    expected = net(x)
    if where == "in_place":
        net.compile(backend="eager")
    elif where == "part":
        net[0] = torch.compile(net[0], backend="eager")
    else:
        net = torch.compile(net, backend="eager")
    model = lb.bayesianize(net, lb.MeanField(init_std=0.5), example=x).eval()
    assert len(model.report.converted) == 2
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected)
    first, again = (lb.predict(model, x, likelihood=lb.Categorical(), seed=0) for _ in range(2))
    assert torch.equal(first.probs, again.probs)
    torch.compiler.reset()


def test_groups_that_do_not_divide_the_rows():
    model = lb.bayesianize(nn.Linear(3, 2), lb.MeanField())
    with pytest.raises(lb.PlanError, match="5 rows cannot be cut into 2"):
        model(torch.randn(5, 3), plan=lb.Plan(groups=2))


def test_data_or_scores_for_a_method_that_takes_none():
    with pytest.raises(lb.ConfigError, match="without data or scores"):
        lb.bayesianize(nn.Linear(3, 2), lb.MeanField(), data=[torch.zeros(1, 3)])


def test_collapse_of_a_member_that_does_not_exist():
    model = lb.bayesianize(nn.Linear(3, 2), lb.MeanField())
    with pytest.raises(lb.ConversionError, match="member 1 does not exist"):
        lb.collapse(model, member=1)
    with pytest.raises(TypeError, match="expected a BayesianModel"):
        lb.collapse(nn.Linear(2, 2))


def test_collapse_leaves_the_model_alive_and_gives_hooks_and_flags_back():
    net = nn.Sequential(
        nn.Linear(3, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 2)
    ).eval()
    seen = []
    net[0].register_forward_hook(lambda *_: seen.append(1))
    model = lb.bayesianize(net, lb.MeanField(), example=torch.randn(2, 4, 3))
    plain = lb.collapse(model)
    assert net[1].activation_relu_or_gelu == 0
    assert plain[1].activation_relu_or_gelu != 0
    seen.clear()
    plain(torch.randn(2, 4, 3))
    model(torch.randn(2, 4, 3))
    assert len(seen) == 2
    assert all(not hasattr(m, "slots") and not hasattr(m, "scope") for m in plain.modules())


def test_parametrised_layers_and_a_networks_own_dropout_are_listed():
    net = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)), nn.Dropout(0.1), nn.Linear(3, 2)
    )
    report = lb.bayesianize(net, lb.MeanField(), example=torch.randn(4, 3)).report
    assert any(s.name == "0" and "parametrisations" in s.reason for s in report.skipped)
    assert any("own dropout stays: 1" in note for note in report.notes)


@pytest.mark.parametrize("function", ["weight_norm", "spectral_norm"])
def test_a_network_of_parametrised_layers_alone_is_told_the_cure(function):
    wrap = getattr(nn.utils.parametrizations, function)
    net = nn.Sequential(wrap(nn.Linear(3, 4)), nn.ReLU(), wrap(nn.Linear(4, 2)))
    with pytest.raises(lb.ConversionError, match=r"'0' and 1 more: has para.*remove_parametrizat"):
        lb.bayesianize(net, lb.MeanField())
    for layer in (net[0], net[2]):
        nn.utils.parametrize.remove_parametrizations(layer, "weight")
    assert len(lb.bayesianize(net, lb.MeanField(), example=torch.randn(4, 3)).report.converted) == 2


def test_the_same_method_name_cannot_be_taken_twice():
    with pytest.raises(lb.ConfigError, match="'mean_field' is taken"):

        class Impostor(lb.Method, name="mean_field"):
            def slots(self, site):
                return dict.fromkeys(site.tensors)


def test_whole_network_calls_go_through_sampling():
    model = lb.bayesianize(nn.Linear(3, 2), lb.MeanField(init_std=1.0)).eval()
    x = torch.ones(4, 3)
    with model.sampling(lb.Plan(groups=2)) as net:
        y = net(x)
    assert torch.equal(y[0], y[1])
    assert not torch.equal(y[1], y[2])
    assert torch.equal(model.net(x), model(x))
    with pytest.raises(lb.PlanError, match="per_row"), model.sampling(lb.Plan(per_row=True)):
        pass


def test_a_loss_is_no_likelihood():
    """It was kept with the model, whose checkpoint could then not be loaded."""
    net = nn.Linear(4, 3)
    with pytest.raises(lb.ConfigError, match="found CrossEntropyLoss"):
        lb.bayesianize(net, lb.MeanField(), likelihood=nn.CrossEntropyLoss(torch.ones(3)))
    assert type(net) is nn.Linear
