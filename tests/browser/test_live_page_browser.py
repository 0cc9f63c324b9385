"""The live page in a real browser: drop, draw, slide, switch colours, and no error anywhere."""

import base64
import io
import re
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from torch import nn

import leanbayes as lb
from leanbayes.data.dataset import as_float
from leanbayes.data.tables import Column
from leanbayes.serving import Served, Server

CLASSES = ("shirt", "shoe <b>bold</b>", "bag")
DROP = """([zone, text]) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const carried = new DataTransfer();
  carried.items.add(new File([bytes], "own.png", { type: "image/png" }));
  const options = { dataTransfer: carried, bubbles: true, cancelable: true };
  zone.dispatchEvent(new DragEvent("dragover", options));
  zone.dispatchEvent(new DragEvent("drop", options));
}"""


def image_model():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 3))
    likelihood, x = lb.Categorical(), torch.rand(60, 1, 28, 28)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.1), example=x[:2], likelihood=likelihood)
    y = lb.predict(model, x, samples=20, seed=0).label
    y[::3] = (y[::3] + 1) % 3
    lb.calibrate(model, (x, y), samples=20, seed=0)
    lb.calibrate(model, (x, y), method="conformal", samples=20, seed=0)
    return model


@pytest.fixture(scope="module")
def images():
    about = {"name": "own", "data": "made up", "classes": CLASSES, "shape": (1, 28, 28)}
    with Server(Served(model=image_model(), prepared=as_float, **about)) as server:
        yield server


@pytest.fixture
def opened(browser):
    """Open a page; at the end nothing may have been logged, and nobody else asked."""
    contexts, seen = [], SimpleNamespace(errors=[], requests=[])

    def start(url, **options):
        context = browser.new_context(**{"viewport": {"width": 1100, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: seen.errors.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("request", lambda request: seen.requests.append(request.url))
        page.goto(url)
        seen.url = url
        return page

    yield start
    for context in contexts:
        context.close()
    assert seen.errors == []
    foreign = [u for u in seen.requests if not u.startswith((seen.url, "data:", "blob:"))]
    assert foreign == []


def picture(seed=0):
    pixels = torch.randint(256, (28, 28), generator=torch.Generator().manual_seed(seed)).byte()
    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, "PNG")
    return pixels, file.getvalue()


def drop(page, body):
    text = base64.b64encode(body).decode()
    page.evaluate(DROP, [page.query_selector("#drop"), text])
    page.locator(".bar-row").first.wait_for()


def slide(page, samples):
    page.locator("#samples").fill(str(samples))
    words = "1 sample," if samples == 1 else f"{samples} samples"
    page.locator("#figures", has_text=re.compile(f"^{words}")).wait_for()


def draw(page, places):
    box = page.locator("#stage").bounding_box()
    at = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in places]
    page.mouse.move(*at[0])
    page.mouse.down()
    for place in at[1:]:
        page.mouse.move(*place, steps=3)
    page.mouse.up()


def shown(page):
    """Probabilities on the page, in per cent."""
    return [float(text.split()[0]) for text in page.locator(".bar-row .value").all_inner_texts()]


def after(page, act):
    """What is shown once the server has answered to something that is done."""
    with page.expect_response(re.compile("/predict")):
        act()
    page.locator("#answer:not(.waiting)").wait_for()
    return shown(page)


def expected(server, x, samples):
    p = lb.predict(server.routes.served.model, x, samples=samples, seed=0)
    return [100 * value for value in p.probs[0].tolist()]


def test_a_dropped_image_shows_the_numbers_of_lb_predict_and_the_slider_changes_them(
    opened, images
):
    page = opened(images.url)
    pixels, body = picture()
    drop(page, body)
    x = as_float(pixels)[None, None]
    assert shown(page) == pytest.approx(expected(images, x, 20), abs=0.06)
    for samples in (1, 150):
        slide(page, samples)
        assert shown(page) == pytest.approx(expected(images, x, samples), abs=0.06)
        assert page.locator(".bar-row").first.locator("circle").count() == samples
    best = CLASSES[max(range(3), key=lambda at: shown(page)[at])]
    assert page.locator("#headline").inner_text().startswith(best)
    assert page.locator("b").count() == 0  # names are text
    assert best in page.locator("#said").text_content()


def test_a_calibrated_model_says_so_on_the_page(opened, images):
    page = opened(images.url)
    drop(page, picture()[1])
    note = page.locator("#calibrated")
    assert "Temperature" in note.inner_text()
    assert "conformal set (90 %)" in note.inner_text()
    assert "these are others" not in note.inner_text()
    page.locator("#again").click()
    page.get_by_text("these are others").wait_for()
    assert page.locator(".held-mark").count() >= 1


def test_the_stacked_bar_is_as_long_as_the_uncertainty(opened, images):
    page = opened(images.url)
    pixels, body = picture(2)
    drop(page, body)
    p = lb.predict(images.routes.served.model, as_float(pixels)[None, None], samples=20, seed=0)
    page.wait_for_timeout(400)  # bars grow slowly
    whole = page.locator(".stack").bounding_box()["width"]
    most = torch.tensor(3.0).log()
    for name in ("aleatoric", "epistemic"):
        share = float(getattr(p, name) / most)
        width = page.locator(f".stack .{name}").bounding_box()["width"]
        assert width / whole == pytest.approx(share, abs=0.01)


def test_a_drawing_is_predicted_undone_and_cleared(opened, images):
    page = opened(images.url)
    assert page.locator("#headline").inner_text() == "Nothing to predict yet"
    draw(page, [(0.3, 0.2), (0.7, 0.2), (0.5, 0.8)])
    page.locator(".bar-row").first.wait_for()
    one = shown(page)
    page.locator("#fill").check()
    assert after(page, lambda: draw(page, [(0.1, 0.5), (0.9, 0.5), (0.5, 0.9)])) != one
    assert after(page, page.locator("#undo").click) == one
    assert after(page, page.locator("#invert").check) != one
    page.locator("#clear").click()
    page.get_by_text("Nothing to predict yet").wait_for()
    assert page.locator(".bar-row").count() == 0


def test_a_finger_draws_on_a_phone_where_nothing_is_cut_off(opened, images):
    page = opened(
        images.url, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True
    )
    page.locator("#stage").tap(position={"x": 100, "y": 100})
    page.locator(".bar-row").first.wait_for()
    wide = page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= 360
    assert page.locator("#samples").bounding_box()["width"] > 100


def test_dark_mode_follows_the_system_and_the_button_and_is_kept(opened, images):
    page = opened(images.url, color_scheme="dark")
    ground = "() => getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)"
    assert max(page.evaluate(ground)) < 60
    page.get_by_role("button", name="Light or dark").click()
    assert min(page.evaluate(ground)) > 200
    page.reload()
    assert min(page.evaluate(ground)) > 200


def test_a_file_that_is_no_image_is_said_and_the_page_goes_on(opened, images):
    page = opened(images.url)
    page.evaluate(DROP, [page.query_selector("#drop"), base64.b64encode(b"words").decode()])
    page.get_by_role("alert").get_by_text("cannot be read as an image").wait_for()
    drop(page, picture()[1])
    assert page.get_by_role("alert").count() == 0


def test_everything_can_be_reached_and_is_named(opened, images):
    page = opened(images.url)
    names = "() => [...document.querySelectorAll('input, button')].map((e) => "
    names += "e.labels && e.labels.length ? e.labels[0].innerText : e.innerText)"
    assert all(text.strip() for text in page.evaluate(names)), page.evaluate(names)
    drop(page, picture()[1])
    assert "shirt" in page.locator("#chart").get_attribute("aria-label")
    page.locator("#samples").focus()
    page.keyboard.press("ArrowRight")
    page.locator("#figures", has_text=re.compile("^21 samples")).wait_for()


def test_a_table_has_a_field_for_every_column(opened):
    torch.manual_seed(0)
    likelihood = lb.Gaussian(precision=0.04, target_mean=1000.0, target_std=50.0)
    model = lb.bayesianize(nn.Linear(3, 1), lb.MeanField(init_std=0.2), likelihood=likelihood)
    columns = (Column("size"), Column("colour", ("blue", "red")))
    about = {"name": "own", "data": "made up", "classes": (), "shape": (3,)}
    # Before the server's thread has the model: two must not predict with one model at a time.
    p = lb.predict(model, torch.tensor([[1.5, 0.0, 1.0]]), samples=20, seed=0)
    value = f"{float(p.mean):.4g}"
    with Server(Served(model=model, prepared=as_float, columns=columns, **about)) as server:
        page = opened(server.url)
        page.get_by_label("size").fill("1.5")
        page.get_by_label("colour").select_option("red")
        page.locator("#headline", has_text=value).wait_for()
        assert page.locator("circle").count() == 20
