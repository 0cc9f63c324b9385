"""The how-to page in Lightning: weights as by a plain loop."""

import copy

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import leanbayes as lb
from loop_cases import (
    DATA,
    METHOD,
    METHODS,
    ROWS,
    X,
    Y,
    adamw,
    assert_same,
    dense,
    imported,
    labels_of,
    names,
    noted,
    plain_loop,
    snippets,
)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run_lightning(model):
    """What the snippet made."""
    found = names(model, DATA, loader=DataLoader(DATA, 4, shuffle=True))
    exec(snippets("Lightning")[0], found)
    return found


@METHOD
def test_lightning(method):
    imported("lightning")
    model = dense(method)
    twin, calls = copy.deepcopy(model), noted(model, labels_of)
    found = run_lightning(model)
    assert len(calls) == 12
    plain_loop(twin, calls, adamw(twin), accumulate=2)
    assert_same(model, twin)
    parts = found["trainer"].predict(found["lit"], DataLoader(DATA, 10))
    wanted = lb.predict(model, X, likelihood=lb.Categorical(), seed=0).probs
    torch.testing.assert_close(torch.cat([p.probs for p in parts]), wanted)


def test_lightning_in_bfloat16():
    imported("lightning")
    model = dense(METHODS["mean_field"], torch.float32)
    twin, calls = copy.deepcopy(model), noted(model, labels_of)
    data = TensorDataset(X.float(), Y)
    code = snippets("Lightning")[0].replace("Trainer(", 'Trainer(precision="bf16-mixed", ')
    exec(code, names(model, data, loader=DataLoader(data, 4)))
    plain_loop(twin, calls, adamw(twin), accumulate=2, bf16=True)
    assert_same(model, twin, atol=1e-7)


def test_lightning_by_hand():
    """`automatic_optimization=False`: the optimiser that steps is a wrapper of Lightning's."""
    lightning = imported("lightning")
    model = dense(METHODS["mean_field"])
    twin, calls = copy.deepcopy(model), noted(model, labels_of)
    found = names(model, DATA)
    exec(snippets("Lightning")[0].partition("lit = Lit")[0], found)

    class ByHand(found["Lit"]):
        automatic_optimization = False

        def training_step(self, batch, index):
            optimizer = self.optimizers()
            self.manual_backward(super().training_step(batch, index))
            self.clip_gradients(optimizer, 1.0)
            optimizer.step()
            optimizer.zero_grad()

    lightning.Trainer(max_epochs=1).fit(ByHand(model, ROWS), DataLoader(DATA, 4))
    plain_loop(twin, calls, adamw(twin))
    assert_same(model, twin)


def test_lightning_fits_twice():
    """The first trainer keeps its optimiser alive: the second was refused."""
    lightning = imported("lightning")
    model = dense(METHODS["mean_field"])
    twin, calls = copy.deepcopy(model), noted(model, labels_of)
    found = run_lightning(model)
    settings = {"max_epochs": 1, "accumulate_grad_batches": 2, "gradient_clip_val": 1.0}
    lightning.Trainer(**settings).fit(found["lit"], found["loader"])
    plain_loop(twin, calls[:12], adamw(twin), accumulate=2)
    plain_loop(twin, calls, adamw(twin), accumulate=2, first=12)
    assert_same(model, twin)
    assert len(model.edits()) == 1


def test_lightning_goes_on_with_the_schedule_of_the_kl():
    lightning = imported("lightning")
    states = []
    for stops in ((2,), (1, 2)):
        checkpoint = None
        for epochs in stops:
            model = dense(METHODS["mean_field"])
            found = names(model, DATA)
            code = snippets("Lightning")[0].partition("lit = Lit")[0]
            exec(
                code.replace("num_data)\n        return", "num_data, kl_weight=W)\n        return"),
                found,
            )
            found["W"] = lb.schedule.linear_warmup(steps=20)
            lit = found["Lit"](model, ROWS)

            class Seeds(lightning.Callback):
                def on_train_batch_start(self, trainer, _module, _batch, _index):
                    torch.manual_seed(trainer.global_step)

            trainer = lightning.Trainer(max_epochs=epochs, callbacks=[Seeds()])
            trainer.fit(lit, DataLoader(DATA, 4), ckpt_path=checkpoint)
            checkpoint = "last.ckpt"
            trainer.save_checkpoint(checkpoint)
        assert model.edits()[0].steps == 12
        states.append(model)
    assert_same(*states, atol=0.0)
