"""What the endpoints answer is what `lb.predict` gives for the same input, samples and seed."""

import base64
import json

import numpy as np
import pytest
import torch

import leanbayes as lb


def predicted(served, x, **options):
    return lb.predict(served.model, served.prepared(x), keep_samples=True, **options)


def close(found, expected, rel=1e-6):
    assert found == pytest.approx(torch.as_tensor(expected).flatten().tolist(), rel=rel, abs=1e-9)


def test_an_image_gets_the_numbers_of_lb_predict(client, made):
    pixels = made.pixels()
    answer = client.ask(made.png(pixels), "/predict?samples=7&seed=5").json
    served = client.server.routes.served
    p = predicted(served, pixels[None, None], samples=7, seed=5)
    assert answer["label"] == served.classes[p.label]
    assert answer["index"] == int(p.label)
    close(answer["probabilities"], p.probs)
    for name in ("confidence", "total", "aleatoric", "epistemic"):
        close([answer[name]], getattr(p, name), rel=1e-5)
    assert (answer["samples"], answer["seed"], answer["task"]) == (7, 5, "classes")
    assert answer["classes"] == list(served.classes)
    assert answer["set"] is None
    assert answer["calibration"] is None
    assert answer["milliseconds"] > 0


def test_the_spread_holds_weighted_quantiles_of_the_draws(serving, made):
    # 7 draws of 3 members: those of the first member weigh less.
    model = made.image_model(lb.SharedEnsemble(members=3))
    found = serving(made.images(model))
    pixels = made.pixels()
    answer = found.ask(made.png(pixels), "/predict?samples=7&draws=1").json
    p = predicted(made.images(model), pixels[None, None], samples=7, seed=0)
    draws, weights = p.samples[:, 0].numpy(), p.weights.numpy()
    assert weights.std() > 0.01
    for level, values in answer["spread"].items():
        for at in range(3):
            options = {"method": "inverted_cdf", "weights": weights}
            expected = np.quantile(draws[:, at], float(level), **options)
            assert values[at] == pytest.approx(expected, rel=1e-6)
    order = np.argsort(-p.probs[0].numpy()).tolist()
    assert [each["index"] for each in answer["draws"]] == order
    close(answer["draws"][0]["values"], draws[:, order[0]])


def test_bytes_base64_a_data_url_and_numbers_are_the_same_input(client, made):
    pixels = made.pixels(3)
    body = made.png(pixels)
    text = base64.b64encode(body).decode()
    numbers = (pixels.double() / 255).tolist()
    bodies = [
        body,
        json.dumps({"image": text}),
        json.dumps({"image": f"data:image/png;base64,{text}"}),
        json.dumps({"inputs": [numbers]}),
        json.dumps({"inputs": pixels.double().div(255).flatten().tolist()}),
    ]
    answers = [client.ask(each).json["probabilities"] for each in bodies]
    for answer in answers[1:]:
        close(answer, answers[0], rel=1e-5)


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "PNG"])
def test_large_images_of_each_kind_are_cut_and_scaled_as_predict_does(client, made, kind):
    from io import BytesIO

    from leanbayes.data.decode import Frame, decode

    body = made.png(made.pixels(1, (40, 60, 3)), kind)
    x = decode(BytesIO(body), Frame.of((8, 8)), 1)
    p = predicted(client.server.routes.served, x[None], samples=20, seed=0)
    close(client.ask(body).json["probabilities"], p.probs)


def test_the_same_seed_gives_the_same_answer_and_another_another(client, made):
    body = made.png(made.pixels())
    one, two, three = (client.ask(body, f"/predict?seed={s}").json for s in (1, 1, 2))
    assert one["probabilities"] == two["probabilities"]
    assert one["probabilities"] != three["probabilities"]


def test_a_table_answers_in_the_units_of_its_target(serving, made):
    served = made.table()
    found = serving(served)
    answer = found.ask(json.dumps({"inputs": [0.5, 0, 1]}), "/predict?samples=9&seed=1").json
    p = predicted(served, torch.tensor([[0.5, 0.0, 1.0]]), samples=9, seed=1)
    low, high = p.interval(0.95)
    named = {"mean": p.mean, "std": p.std, "low": low, "high": high, "total": p.total}
    for name, values in (named | {"aleatoric": p.aleatoric, "epistemic": p.epistemic}).items():
        close(answer[name], values, rel=1e-5)
    assert 800 < answer["mean"][0] < 1200
    columns = {"columns": {"size": 0.5, "colour": "red"}}
    by_name = found.ask(json.dumps(columns), "/predict?samples=9&seed=1").json
    close(by_name["mean"], answer["mean"])
    middle = np.quantile(p.samples[:, 0, 0, 0].numpy(), 0.5, method="inverted_cdf")
    assert answer["spread"]["0.5"][0] == pytest.approx(float(middle), rel=1e-6)


def test_a_yes_or_no_is_two_classes(serving, made):
    torch.manual_seed(0)
    net = torch.nn.Linear(2, 1)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.5), likelihood=lb.Bernoulli())
    served = made.images(model, shape=(2,), classes=("no", "yes"))
    answer = serving(served).ask('{"inputs": [1, -2]}', "/predict?samples=5&seed=2").json
    p = predicted(served, torch.tensor([[1.0, -2.0]]), samples=5, seed=2)
    close(answer["probabilities"], [1 - p.probs.item(), p.probs.item()])
    assert answer["label"] == ("no", "yes")[int(p.label)]
    close([answer["total"]], p.total)


def test_a_calibrated_model_says_so_and_answers_as_it_was_calibrated(serving, made):
    served = made.images()
    x = torch.rand(60, 1, 8, 8)
    y = lb.predict(served.model, x, samples=6, seed=11).label
    y[::3] = (y[::3] + 1) % 3  # a third is wrong
    lb.calibrate(served.model, (x, y), samples=6, seed=11)
    known = lb.calibrate(served.model, (x, y), method="conformal", samples=6, seed=11)
    found = serving(served)
    pixels = made.pixels()
    answer = found.ask(made.png(pixels)).json
    p = predicted(served, pixels[None, None], samples=6, seed=11)
    assert (answer["samples"], answer["seed"]) == (6, 11)
    close(answer["probabilities"], p.probs)
    held = {served.classes[at] for at in p.sets()[0].nonzero().flatten()}
    assert set(answer["set"]) == held
    about = {"temperature": known.temperature, "coverage": 0.9, "guaranteed": True}
    assert answer["calibration"] == about
    assert not found.ask(made.png(pixels), "/predict?seed=1").json["calibration"]["guaranteed"]
    conformal = {"score": "lac", "alpha": 0.1}
    assert found.get("/info").json["calibration"]["conformal"] == conformal


def test_a_request_without_samples_gets_those_of_the_calibration(serving, made):
    model = made.image_model(lb.Patching(where="norm+output", exact_output=True))
    x, y = torch.rand(30, 1, 8, 8), torch.arange(30) % 3
    lb.calibrate(model, (x, y), method="conformal", samples=6, seed=2**60 + 1)
    answer = serving(made.images(model)).ask(made.png(made.pixels())).json
    assert (answer["samples"], answer["seed"]) == (6, 2**60 + 1)
    assert answer["calibration"]["guaranteed"]


def test_an_interval_without_end_is_null(serving, made):
    served = made.table()
    with pytest.warns(UserWarning, match="cannot cover"):
        lb.calibrate(
            served.model, (torch.rand(3, 3), torch.full((3, 1), 1000.0)), method="conformal"
        )
    answer = serving(served).ask('{"inputs": [0, 0, 0]}').json
    assert (answer["low"], answer["high"]) == ([None], [None])


def test_info_and_health_say_what_is_served_and_that_it_runs(client):
    info = client.get("/info").json
    assert info["method"]["name"] == "mean_field"
    assert info["classes"] == ["shirt", "shoe <b>", "bag"]
    assert info["input"] == {"shape": [1, 8, 8], "image": True, "whole": False, "columns": []}
    assert info["samples"] == {"default": 20, "most": 200}
    health = client.get("/health").json
    assert health["status"] == "ok"
    assert health["waiting"] == 0


def test_classes_without_names_are_numbered(serving, made):
    assert serving(made.images(classes=())).get("/info").json["classes"] == ["0", "1", "2"]


def test_a_network_that_labels_pixels_is_refused_at_the_start(made):
    from leanbayes.serving import Server

    net = torch.nn.Conv2d(1, 3, 1)
    model = lb.bayesianize(net, lb.MeanField(), likelihood=lb.Categorical())
    with pytest.raises(lb.ConfigError, match=r"8x8 labels.*--picture"):
        Server(made.images(model))


def test_the_page_is_self_contained_and_its_policy_allows_its_own_script_alone(client):
    import hashlib
    import re

    reply = client.get("/")
    text, policy = reply.body.decode(), reply.headers["Content-Security-Policy"]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "shoe <b>" not in text  # names cannot become markup
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", text)
    assert reply.headers["X-Frame-Options"] == "DENY"
    assert client.ask(None, "/", "HEAD").body == b""
