"""The report in a browser: it sorts, copies, chooses, turns dark, fits a phone, and asks nobody."""

import csv
import io
import json

import pytest

import made_files
import made_results
from leanbayes.reporting import build, page, read

LABELS = ("map", "mean_field", "ensemble", *(f"method {at}" for at in range(8)))


@pytest.fixture(scope="module")
def files():
    kinds = made_results.KINDS[:3]
    demo = made_files.demo(LABELS, kinds=kinds)
    demo["methods"][3]["evaluation"]["splits"]["test"]["examples"] = {}
    compared = made_files.compared(("map", "ensemble"), seeds=(0,), kinds=kinds)
    return [demo, compared, made_files.landscape(), made_files.trajectory(), made_files.regressed()]


@pytest.fixture(scope="module")
def address(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    paths = []
    for at, data in enumerate(files):
        paths.append(folder / f"{at}.json")
        paths[-1].write_text(json.dumps(data))
    target = folder / "report.html"
    target.write_text(page("A report", build([read(path) for path in paths]), "about"))
    return target.as_uri()


def column(page, at):
    return page.locator("table.sortable").first.locator(
        f"tbody tr > :nth-child({at})"
    ).all_inner_texts()  # fmt: skip


def open_all(page):
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")


def test_it_opens_without_a_word_on_the_console_and_asks_nobody(opened, address):
    page, watch = opened(address)
    assert page.title() == "A report"
    assert page.locator("section").count() >= 16
    page.wait_for_load_state("load")
    assert watch.said == []
    assert watch.asked == []


def test_what_a_file_smuggles_in_would_not_run(opened, address):
    page, _ = opened(address)
    page.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        "document.body.appendChild(s)"
    )
    assert page.evaluate("window.ran") is None


def test_a_click_sorts_the_table_and_another_turns_it(opened, address, files):
    page, watch = opened(address)
    wanted = sorted(row["nll"]["mean"] for row in files[0]["methods"])
    head = page.locator("table.sortable").first.locator("th button", has_text="NLL").first
    head.click()
    shown = [float(words.split()[0]) for words in column(page, 3)]
    assert shown == pytest.approx(wanted, abs=1e-4)
    assert head.locator("..").get_attribute("aria-sort") == "ascending"
    head.press("Enter")
    shown = [float(words.split()[0]) for words in column(page, 3)]
    assert shown == pytest.approx(wanted[::-1], abs=1e-4)
    page.locator("table.sortable").first.locator("th button", has_text="method").click()
    assert column(page, 1) == sorted(LABELS, key=str.lower)
    assert watch.said == []


def ground(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_switch_turns_dark_and_is_remembered(opened, address):
    page, watch = opened(address)
    assert ground(page) == "rgb(255, 255, 255)"
    page.locator("button.theme").click()
    dark = ground(page)
    assert dark == "rgb(18, 22, 27)"
    page.reload()
    assert ground(page) == dark
    page.locator("button.theme").click()
    assert ground(page) == "rgb(255, 255, 255)"
    assert watch.said == []


def test_it_follows_the_system_and_is_light_on_paper(opened, address):
    page, _ = opened(address, scheme="dark")
    assert ground(page) == "rgb(18, 22, 27)"
    page.emulate_media(media="print")
    assert ground(page) == "rgb(255, 255, 255)"
    assert page.locator("nav").is_hidden()


def test_copy_buttons_copy_csv_and_latex(opened, address, files):
    page, watch = opened(address)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    buttons = page.locator("button.copy")
    buttons.nth(0).click()
    page.locator("button.copy", has_text="Copied").wait_for()
    rows = list(csv.reader(io.StringIO(page.evaluate("navigator.clipboard.readText()"))))
    assert [row[0] for row in rows[1:]] == list(LABELS)
    accuracy = files[0]["methods"][1]["accuracy"]["mean"]
    assert float(rows[2][1]) == accuracy
    page.locator("button.copy", has_text="Copied").wait_for(state="detached")
    buttons.nth(1).click()
    page.locator("button.copy", has_text="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith(r"\begin{tabular}{l")
    assert watch.said == []


def test_no_page_is_wider_than_its_screen(opened, address):
    page, _ = opened(address)
    open_all(page)
    for width in (1280, 768, 375, 320):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def boxes_of(page):
    return page.evaluate(
        "[...document.querySelectorAll('figure, figure svg[role=img], .strip img')].map(e => {"
        "const b = e.getBoundingClientRect(); return [b.width, b.height, b.right]})"
    )


def test_every_figure_has_a_box_and_a_name(opened, address):
    page, _ = opened(address)
    open_all(page)
    page.evaluate("document.querySelectorAll('button.some[data-some=all]').forEach(b => b.click())")
    for width in (1280, 375):
        page.set_viewport_size({"width": width, "height": 800})
        boxes = boxes_of(page)
        assert len(boxes) > 200
        assert all(wide > 20 and high > 20 and right <= width for wide, high, right in boxes)
    names = page.evaluate(
        "[...document.querySelectorAll('svg[role=img]')].map(e => e.getAttribute('aria-label'))"
    )
    assert all(names)
    assert len(set(names)) > 50
    images = page.evaluate("[...document.images].map(i => [i.alt, i.naturalWidth])")
    assert images
    assert all(alt and wide > 0 for alt, wide in images)


def test_a_reader_chooses_methods_and_all_legends_follow(opened, address):
    page, watch = opened(address)
    hidden = page.locator("#reliability figure.off").first
    label = hidden.locator("figcaption").text_content()
    chip = page.locator("#reliability .chip", has_text=label).first
    shown = page.locator("#reliability figure:not(.off)").count()
    chip.click()
    assert page.locator("#reliability figure:not(.off)").count() == shown + 1
    other = page.locator("#corrupted-data .chip", has_text=label).first.locator("input")
    assert other.is_checked()
    chip.locator("input").focus()
    page.keyboard.press("Space")
    assert page.locator("#reliability figure:not(.off)").count() == shown
    assert not other.is_checked()
    page.locator("#reliability button.some", has_text="all").first.click()
    assert page.locator("#reliability figure.off").count() == 0
    assert page.locator("#corrupted-data g.method.off").count() == 0
    page.locator("#reliability button.some", has_text="few").first.click()
    assert page.locator("#reliability figure:not(.off)").count() == shown
    assert watch.said == []


def test_without_scripts_everything_is_there(opened, address):
    page, _ = opened(address, java_script_enabled=False)
    assert page.locator("#reliability figure").nth(10).is_visible()
    assert page.locator("table.sortable").first.is_visible()
    assert page.locator("button.theme").is_hidden()


def test_links_of_the_head_lead_to_sections(opened, address):
    page, _ = opened(address)
    for link in page.locator("nav a").all():
        assert page.locator(link.get_attribute("href")).count() == 1
    page.locator("nav a", has_text="Loss landscape").click()
    page.locator("nav a.here").first.wait_for()
    assert page.locator("#loss-landscape").is_visible()


def test_names_of_methods_can_be_read_whole_on_a_phone(opened, address):
    """Those that begin alike would look alike where they are cut off."""
    page, _ = opened(address, width=375)
    open_all(page)
    names = "[...document.querySelectorAll('th[scope=row]')]"
    page.evaluate(f"{names}.forEach(e => e.textContent = 'shared_ensemble_with_dropout')")
    assert page.evaluate(f"{names}.length") > 10
    assert page.evaluate(f"{names}.filter(e => e.scrollWidth > e.clientWidth).length") == 0
