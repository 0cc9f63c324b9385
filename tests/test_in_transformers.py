"""The how-to page in Hugging Face's Trainer: weights as by a plain loop."""

import copy

import pytest
import torch
from torch import nn

import leanbayes as lb
from loop_cases import (
    IDS,
    METHOD,
    METHODS,
    Words,
    Y,
    adamw,
    assert_same,
    imported,
    labels_of,
    language,
    names,
    noted,
    plain_loop,
    snippets,
    transformer,
)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run_trainer(model, code=None, **more):
    """The snippet, with further settings of TrainingArguments."""
    imported("transformers")
    found = names(model, Words(), test_set=Words(), warm_up=lb.schedule.linear_warmup(steps=20))
    options = "".join(f", {name}={value!r}" for name, value in more.items())
    code = snippets("Hugging Face's Trainer")[0] if code is None else code
    exec(code.replace('"labels"])', f'"labels"]{options})'), found)
    return found


@METHOD
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_trainer_of_hugging_face(method, accumulate):
    """With two parts a step the means of both were summed, against one KL."""
    model = language(method)
    twin, calls = copy.deepcopy(model), noted(model, labels_of)
    found = run_trainer(
        model, gradient_accumulation_steps=accumulate, per_device_train_batch_size=4
    )
    steps = 18 // accumulate
    assert (len(calls), model.edits()[0].steps) == (18, steps)
    assert all(torch.equal(call.kwargs["labels"], call.labels) for call in calls)
    plain_loop(twin, calls, adamw(twin, 2e-5), accumulate, schedule=lambda step: 1 - step / steps)
    assert_same(model, twin)
    wanted = lb.predict(model, {"input_ids": IDS}, likelihood=lb.Categorical(), seed=0).probs
    torch.testing.assert_close(found["p"].probs, wanted)
    again = lb.load(transformer(), "saved")
    assert_same(model, again, atol=0.0)
    with torch.no_grad():
        mean = model.eval()(input_ids=IDS, labels=Y).loss.item()
    assert found["trainer"].evaluate()["eval_loss"] == pytest.approx(mean, rel=1e-6)


def test_the_trainer_goes_on_with_the_schedule_of_the_kl():
    states = []
    code = snippets("Hugging Face's Trainer")[0].replace("set))", "set), kl_weight=warm_up)")
    for resumed in ("", "resume_from_checkpoint='runs/bert/checkpoint-3'"):
        model = language(METHODS["mean_field"])
        calls = noted(model, labels_of)
        calls += [None] * 3 if resumed else []  # seeds go on as well
        ordered = {"train_sampling_strategy": "sequential", "save_steps": 3}
        found = run_trainer(model, code.replace("train()", f"train({resumed})"), **ordered)
        assert (len(calls), found["opt"].param_groups[0]["kl_steps"]) == (9, 9)
        states.append(model)
    assert_same(*states, atol=0.0)


def test_the_trainer_saves_tied_weights_as_copies():
    transformers = imported("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    config = transformers.BertConfig(vocab_size=30, num_attention_heads=2, **sizes)
    net = transformers.BertForMaskedLM(config)
    model = lb.bayesianize(net, METHODS["mean_field"], example={"input_ids": IDS[:4]})
    found = {"Trainer": transformers.Trainer}
    exec(snippets("Hugging Face's Trainer")[1], found)
    args = transformers.TrainingArguments("tied", remove_unused_columns=False)
    with pytest.raises(RuntimeError, match="share memory"):
        transformers.Trainer(model, args).save_model("tied")
    found["Untied"](model, args).save_model("tied")
    from safetensors.torch import load_file

    state = load_file("tied/model.safetensors")
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())


def test_a_network_without_kwargs_trains_by_the_trainer():
    """It was given `num_items_in_batch`, for the **kwargs of the model around it."""
    imported("transformers")

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(30, 4), nn.Linear(4, 3)

        def forward(self, input_ids, labels):
            logits = self.head(self.table(input_ids).mean(1))
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    example = {"input_ids": IDS[:4], "labels": Y[:4]}
    model = lb.bayesianize(Plain().double(), METHODS["mean_field"], example=example).train()
    twin, calls = copy.deepcopy(model), noted(model, labels_of)
    run_trainer(model)
    assert len(calls) == 9
    plain_loop(twin, calls, adamw(twin, 2e-5), schedule=lambda step: 1 - step / 9)
    assert_same(model, twin)


def test_checkpointing_of_activations_changes_nothing():
    states = []
    for checkpointing in (False, True):
        model = language(METHODS["mean_field"])
        if checkpointing:
            model.net.gradient_checkpointing_enable()
        noted(model, labels_of)
        run_trainer(model)
        states.append(model)
    assert_same(*states)


def test_a_tokenizers_batch_is_a_dict():
    transformers = imported("transformers")
    model = language(METHODS["mean_field"])
    asked = {"likelihood": lb.Categorical(), "samples": 3, "seed": 0}
    wanted = lb.predict(model, {"input_ids": IDS}, **asked).probs
    batch = transformers.BatchEncoding({"input_ids": IDS})
    assert torch.equal(lb.predict(model, batch, **asked).probs, wanted)
