"""Loops of other libraries: the code of the how-to page, as printed, and what it is compared with.

Every pass of a run is noted with its seed, and made again in a plain loop in which the KL is added
by autograd; the weights are the same afterwards.
"""

import importlib
import re
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import leanbayes as lb
from leanbayes.likelihood import tensor_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "how-to.md"
ROWS = 24
X = torch.arange(ROWS * 4.0, dtype=torch.float64).reshape(ROWS, 4).sin()
Y = torch.arange(ROWS) % 3
IDS = (torch.arange(ROWS * 7) * 5 % 29 + 1).reshape(ROWS, 7)
METHODS = {
    "mean_field": lb.MeanField(init_std=0.1),
    "rank_one": lb.RankOne(members=2),
    "patching": lb.Patching(members=2),
    "shared_ensemble": lb.SharedEnsemble(members=4),
}
METHOD = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def imported(name):
    """A library, or a skip where it is missing or broken (Lightning imports much besides)."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        pytest.skip(f"{name}: {error}")


def snippets(library):
    """The blocks under the paragraph of a library."""
    text = re.search(rf"\n\*\*{library}\.?\*\*(.*?)\n(\*\*|## )", PAGE.read_text(), flags=re.S)[1]
    return re.findall(r"```py\n(.*?)```", text, flags=re.S)


class Words(Dataset):
    """As a tokenised dataset of sentences."""

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return {"input_ids": IDS[row], "labels": Y[row]}


def dense(method, dtype=torch.float64):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3)).to(dtype)
    return lb.bayesianize(net, method, example=X[:4].to(dtype)).train()


def transformer(**options):
    """A BERT of nine neurons; its labels have a meaning for it, and it sums means of parts."""
    library = imported("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    config = library.BertConfig(
        **{"vocab_size": 30, "num_attention_heads": 2, "num_labels": 3, **sizes, **options},
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return library.BertForSequenceClassification(config).double()


def language(method):
    return lb.bayesianize(transformer(), method, example={"input_ids": IDS[:4]}).train()


Call = namedtuple("Call", "args kwargs labels")


def noted(model, labels):
    """The passes of training to come, each with a seed of its own: its number."""
    calls = []

    def note(module, args, kwargs):
        if module.training:
            torch.manual_seed(len(calls))
            rows = next(x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor))
            calls.append(Call(args, kwargs, labels(rows)))

    model.register_forward_pre_hook(note, with_kwargs=True)
    return calls


def labels_of(x):
    """The labels of rows of X or of IDS."""
    table = X if x.is_floating_point() else IDS
    return Y[[int((table.to(x.dtype) == row).all(1).nonzero()) for row in x]]


def plain_loop(model, calls, optimizer, accumulate=1, schedule=None, first=0, bf16=False):
    """The same passes, from the first one on; the KL by autograd, behind the clip."""
    rates = schedule and torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    for number, call in enumerate(calls[first:], first):
        torch.manual_seed(number)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = tensor_of(model(*call.args, **call.kwargs))
        logits = logits.float() if bf16 else logits
        (nn.functional.cross_entropy(logits, call.labels) / accumulate).backward()
        if (number + 1) % accumulate == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            (model.kl() / ROWS).backward()
            optimizer.step()
            optimizer.zero_grad()
            if rates:
                rates.step()


def adamw(model, lr=1e-4):
    return torch.optim.AdamW(lb.param_groups(model, lr=lr, posterior_lr=1e-3))


def assert_same(model, twin, atol=1e-14):
    named = zip(model.named_parameters(), twin.named_parameters(), strict=True)
    for (name, ours), (_, theirs) in named:
        torch.testing.assert_close(ours, theirs, rtol=0.0, atol=atol, msg=name)


def names(model, train_set, **more):
    return {"torch": torch, "lb": lb, "model": model, "train_set": train_set, **more}


DATA = TensorDataset(X, Y)
