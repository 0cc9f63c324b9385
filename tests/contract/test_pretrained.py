"""A trained network stays what it was when it becomes Bayesian, and gets better by fine-tuning."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.data import fashion_mini

SHARED = Path(__file__).resolve().parents[2].parent / "shared"


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(12)
        self.conv2 = nn.Conv2d(12, 24, 3, padding=1)
        self.fc1 = nn.Linear(24 * 49, 48)
        self.fc2 = nn.Linear(48, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def clothes():
    """Embedded Fashion-MNIST at 14 x 14; 1,000 to train on, so that MAP ends overconfident."""
    data = fashion_mini()
    pool = nn.functional.avg_pool2d
    train_set = pool(data.x_train[::6], 2), data.y_train[::6]
    return train_set, (pool(data.x_test, 2), data.y_test)


def train(net, data, steps, lr):
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    x, y = data
    net.train()
    for step in range(steps):
        rows = batch_rows(len(x), step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    return net.eval()


def batch_rows(size, step, batch=64):
    generator = torch.Generator().manual_seed(step)
    return torch.randperm(size, generator=generator)[:batch]


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    train_set, test_set = clothes()
    return train(SmallNet(), train_set, 400, 3e-3), train_set, test_set


def scores(model, data, samples=None):
    x, y = data
    p = lb.predict(model, x, likelihood=lb.Categorical(), samples=samples, seed=0)
    return lb.metrics.accuracy(p.probs, y).item(), lb.metrics.nll(p.probs, y).item()


def rate(method):
    """Log-scales stand large steps of Adam; copies and factors of weights are weights."""
    return 1e-2 if method.name in ("mean_field", "partial", "deep_ensemble") else 1e-4


def fine_tune(model, data, steps, lr, posterior_lr):
    x, y = data
    optimizer = torch.optim.Adam(lb.param_groups(model, lr=lr, posterior_lr=posterior_lr))
    lb.attach_kl(optimizer, model, num_data=len(x))
    model.train()
    for step in range(steps):
        rows = batch_rows(len(x), step)
        optimizer.zero_grad()
        batch = (x[rows], y[rows])
        lb.objective(model, batch, lb.Categorical(), include_kl=False).loss.backward()
        optimizer.step()


@pytest.fixture(params=sorted(lb.methods()))
def method(request):
    """Every method as a user meets it: default arguments."""
    cls = lb.methods()[request.param]
    if cls is lb.Compose:
        select = lb.select
        parts = [(select.norms, lb.Patching()), (select.output, lb.MeanField())]
        return lb.Compose([*parts, (select.convs, lb.RankOne())])
    return cls()


def converted(net, method, data):
    """A Bayesian copy of the network; methods that look at data get the training set."""
    x, y = data
    looks = {"data": list(zip(x.split(100), y.split(100), strict=True))}
    options = {**looks, "likelihood": lb.Categorical()} if method.looks_at_data else {}
    return lb.bayesianize(copy.deepcopy(net), method, example=x[:8], **options)


def test_untrained_predictions_keep_the_accuracy(method, trained):
    net, train_set, test_set = trained
    plain = lb.bayesianize(copy.deepcopy(net), lb.MAP())
    model = converted(net, method, train_set)
    base, _ = scores(plain, test_set)
    accuracy, _ = scores(model, test_set)
    assert base > 0.78
    assert abs(accuracy - base) <= 0.01


def test_two_hundred_steps_do_not_worsen_the_nll(method, trained):
    net, train_set, test_set = trained
    _, before = scores(lb.bayesianize(copy.deepcopy(net), lb.MAP()), test_set)
    model = converted(net, method, train_set)
    fine_tune(model, train_set, 200, lr=1e-4, posterior_lr=rate(method))
    _, after = scores(model, test_set)
    if method.is_random:  # a point estimate that trains on overfits: the reference, not a claim
        assert after <= before


def cifar():
    import sys

    sys.path.insert(0, str(SHARED / "data"))
    try:
        import load
    finally:
        sys.path.pop(0)
    data = load.cifar10(parts=("train-0", "test"))
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])

    def images(x):
        return ((torch.from_numpy(x).float() / 255 - mean) / std).permute(0, 3, 1, 2).contiguous()

    train_set = images(data["x_train"][:5000]), torch.from_numpy(data["y_train"][:5000]).long()
    return train_set, (
        images(data["x_test"][:2000]),
        torch.from_numpy(data["y_test"][:2000]).long(),
    )


@pytest.fixture(scope="module")
def resnet20():
    path = SHARED / "data" / "resnet_cifar10" / "resnet20-12fca82f.th"
    if not path.exists():
        pytest.skip("the shared data are not here")
    net = lb.models.create("resnet20")
    state = torch.load(path, weights_only=True, map_location="cpu")["state_dict"]
    net.load_state_dict({key.removeprefix("module."): value for key, value in state.items()})
    return net.eval(), *cifar()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_real_pretrained_resnet_keeps_its_accuracy_and_improves(method, resnet20):
    net, train_set, test_set = resnet20
    base, before = scores(lb.bayesianize(copy.deepcopy(net), lb.MAP()), test_set)
    model = converted(net, method, train_set)
    accuracy, _ = scores(
        model, test_set, samples=max(method.index_members, min(10, method.default_samples))
    )
    assert base > 0.90
    assert abs(accuracy - base) <= 0.01
    if method.name == "deep_ensemble":
        pytest.skip("200 steps do not train its fresh members")
    for module in model.modules():  # no augmentation here: keep the statistics of training
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = 0.0
    fine_tune(model, train_set, 200, lr=1e-5, posterior_lr=rate(method))
    _, after = scores(
        model, test_set, samples=max(method.index_members, min(10, method.default_samples))
    )
    if method.is_random:
        assert after <= before
