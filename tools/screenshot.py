"""A picture of a page for the docs: python tools/screenshot.py report.html docs/report.png.

Needs chromium and `pip install 'leanbayes[browser]'`. The size and the colours are arguments, so
that the same page gives the same picture.
"""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright


def main() -> None:
    """Open the page without a window and save what is seen."""
    parser = argparse.ArgumentParser(description="A picture of a page.")
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=960)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--at", default="", help="anchor of a section: reliability")
    asked = parser.parse_args()
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(
            viewport={"width": asked.width, "height": asked.height}, color_scheme=asked.scheme
        )
        page.goto(f"{asked.page.resolve().as_uri()}#{asked.at}")
        page.screenshot(path=asked.picture)
        browser.close()


if __name__ == "__main__":
    main()
