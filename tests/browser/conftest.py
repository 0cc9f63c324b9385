"""A browser for tests of pages; where there is none, they are skipped and say why."""

import shutil

import pytest

WHERE = "apt-get install chromium, pip install 'leanbayes[browser]'"


@pytest.fixture(scope="session")
def browser():
    """Debian's chromium, without a window. New pages: `browser.new_page(...)`."""
    driver = pytest.importorskip(
        "playwright.sync_api", reason=f"playwright is missing: {WHERE}", exc_type=ImportError
    )
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip(f"chromium is missing: {WHERE}")
    with driver.sync_playwright() as play:
        # No sandbox: tests may run as root, where chromium has none; they open our pages alone.
        found = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


class Watch:
    """What a page says to the console, and what it asks the network for."""

    def __init__(self, page, own):
        self.said, self.asked, self.own = [], [], own
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self._ask(request.url))

    def _hear(self, kind, text):
        if kind in ("error", "warning"):
            self.said.append(text)

    def _ask(self, url):
        if not url.startswith(("data:", "blob:")) and url.split("#")[0] != self.own:
            self.asked.append(url)


@pytest.fixture
def opened(browser):
    """Open an address in a page of its own: (page, watch). All is closed at the end."""
    contexts = []

    def open_(address, *, width=1280, scheme="light", **more):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **more
        )
        contexts.append(context)
        page = context.new_page()
        watch = Watch(page, address)
        page.goto(address)
        return page, watch

    yield open_
    for context in contexts:
        context.close()
