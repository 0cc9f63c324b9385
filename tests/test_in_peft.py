"""The how-to page on adapters of peft: what is random, trained, saved and merged."""

from pathlib import Path

import pytest
import torch

import leanbayes as lb
from loop_cases import IDS, ROWS, Words, Y, adamw, imported, names, snippets, transformer

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def adapted_by(method=None):
    """The model and the merged network of the snippet."""
    imported("peft")
    found = names(None, Words(), net=transformer(), inputs={"input_ids": IDS[:4]})
    code = snippets("peft")[0]
    if method is not None:
        code, found["method"] = code.replace("lb.MeanField(", "method("), method
    torch.manual_seed(3)  # of the adapters
    exec(code, found)
    return found["model"], found["merged"]


def test_adapters_of_peft_have_all_of_the_kl_and_all_of_the_gradients():
    model, merged = adapted_by()
    layers = [layer.name for layer in model.report.converted]
    assert len(layers) == 4
    assert all("lora_A" in name or "lora_B" in name for name in layers)
    laws = [
        (torch.distributions.Normal(base, q.log_std.exp()), torch.distributions.Normal(0.0, 1.0))
        for _, _, q, base in model.posteriors()
    ]
    exact = sum(torch.distributions.kl_divergence(q, p).sum() for q, p in laws)
    torch.testing.assert_close(model.kl(), exact)
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    assert all("lora_" in name or "modules_to_save" in name for name in trained)
    with torch.no_grad():
        wanted = model.eval()(input_ids=IDS).logits
        torch.testing.assert_close(merged.eval()(input_ids=IDS).logits, wanted)


@pytest.mark.parametrize(
    "method",
    [
        lb.MeanField,
        lambda **select: lb.RankOne(members=2, **select),
        lambda **select: lb.SharedEnsemble(members=4, **select),
    ],
)
def test_adapters_of_peft_are_trained_saved_and_merged(method):
    model, _ = adapted_by(method)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = adamw(model, lr=1e-2)
    lb.attach_kl(optimizer, model, num_data=ROWS)
    for part in (slice(0, 12), slice(12, 24)):
        batch = {"input_ids": IDS[part]}, Y[part]
        lb.objective(model.train(), batch, lb.Categorical(), include_kl=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name]) != p.requires_grad, name
    lb.save(model, "adapters", posterior_only=True)
    lb.save(model, "full")
    sizes = [Path(folder, "model.safetensors").stat().st_size for folder in ("adapters", "full")]
    assert sizes[0] < sizes[1] / 2
    fresh, _ = adapted_by(method)
    again = lb.load(lb.collapse(fresh), "adapters")
    asked = {"likelihood": lb.Categorical(), "samples": 4, "seed": 0}
    ours, theirs = (lb.predict(m, {"input_ids": IDS}, **asked).probs for m in (model, again))
    assert torch.equal(ours, theirs)
    with torch.no_grad():
        merged = lb.collapse(model).merge_and_unload().eval()(input_ids=IDS).logits
        torch.testing.assert_close(merged, model.eval()(input_ids=IDS).logits)
