"""report.html in a real browser: no error, no request, no sideways scrolling, all of it on paper."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

import sample_run
from surefoot.reports.html import render

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip
TROUBLE = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.loadingFailed")

pytestmark = pytest.mark.slow


class Browser:
    """Chromium over the DevTools pipe (NUL-separated JSON on file descriptors 3 and 4)."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM, "the report is looked at in Chromium: apt-get install chromium"
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The shell moves the two pipes to where Chromium looks for them, without a fork hook.
        script = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", script, str(CHROMIUM), *QUIET, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._count = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._write)
        os.close(self._read)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 20)
            assert part, "the browser closed its pipe"
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)  # type: ignore[no-any-return]

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]  # type: ignore[no-any-return]
            self.events.append(answer)

    def evaluate(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def open(self, path: Path, *, width: int = 1280, scheme: str = "light", media: str = "") -> None:
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self.call(
            "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        self.call("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + 30
        while self.evaluate("document.readyState + location.pathname") != f"complete{path}":
            assert time.monotonic() < deadline, "the page did not load in 30 s"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    found = {}
    for name, run in sample_run.all_runs().items():
        found[name] = folder / f"{name}.html"
        found[name].write_text(render(run.manifest, run.results, run.overall))
    return found


@pytest.mark.parametrize("name", ["passed", "failed", "interrupted"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_opens_without_console_error_and_asks_for_nothing_but_itself(
    browser: Browser, pages: dict[str, Path], name: str, scheme: str
) -> None:
    browser.open(pages[name], scheme=scheme)
    assert [e for e in browser.events if e["method"] in TROUBLE] == []
    asked = {e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if not url.startswith("data:")} == {pages[name].as_uri()}
    assert browser.evaluate("document.querySelectorAll('.ladder > .rung').length") == 14


def test_a_console_error_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<script>console.error('x'); nothing()</script><img src='http://127.0.0.1:9/x.png'>")
    browser.open(page)
    seen = {e["method"] for e in browser.events}
    assert {"Runtime.exceptionThrown", "Runtime.consoleAPICalled"} <= seen
    assert any(
        "127.0.0.1:9" in e["params"]["request"]["url"]
        for e in browser.events
        if e["method"] == "Network.requestWillBeSent"
    )


@pytest.mark.parametrize("name", ["passed", "failed", "interrupted"])
def test_a_phone_needs_no_sideways_scrolling(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name], width=375)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") == 375


def test_dark_and_print_have_the_background_they_should(browser: Browser, pages: dict[str, Path]) -> None:
    brightness = (
        "(c => c.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0) / 3)(getComputedStyle(document.body).color)"
    )
    browser.open(pages["passed"], scheme="light")
    assert browser.evaluate(brightness) < 80
    browser.open(pages["passed"], scheme="dark")
    assert browser.evaluate(brightness) > 180
    browser.open(pages["passed"], scheme="dark", media="print")
    assert browser.evaluate(brightness) < 80


def test_printing_unfolds_every_rung_and_folds_it_again(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["passed"])
    count = "document.querySelectorAll('.rung > details[open]').length"
    assert browser.evaluate(count) == 0
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.evaluate(count) == 14
    browser.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert browser.evaluate(count) == 0
