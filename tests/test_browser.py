"""The notebooks in a real browser: every widget moved by keyboard, nothing jumps, nothing errs.

Chromium is used where it is installed; AGENTRL_LAB_BROWSER=required makes its absence a failure.
Pictures of the pages are written to build/browser, for people to look at.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import psutil
import pytest

from agentrl_lab.workbook import lab

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SOURCE = Path(__file__).parent.parent / "notebooks"
SHOTS = Path(__file__).parent.parent / "build" / "browser"
REQUIRED = os.environ.get("AGENTRL_LAB_BROWSER") == "required"
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not REQUIRED, reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the reader's copies of the notebooks lie."""
    return tmp_path_factory.mktemp("lab home") / "my notebooks"


@pytest.fixture(scope="module")
def server(folder) -> Iterator[tuple[str, str]]:
    """(address, token) of a JupyterLab on a copy of the notebooks in the smoke profile."""
    home = folder.parent
    lab.deliver(SOURCE, folder)
    lab.write_settings(folder)
    for path in folder.glob("*.ipynb"):
        path.write_text(path.read_text("utf-8").replace('= \\"fast\\"', '= \\"smoke\\"'), "utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    own = {
        name: str(home / name)
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR",
                     "JUPYTERLAB_SETTINGS_DIR")
    }  # fmt: skip
    argv, environment = lab.command(
        folder, port, token, browser=False, environment={**os.environ, **own}
    )
    log = (home / "log").open("w")
    process = subprocess.Popen(
        [*argv, "--expose-app-in-browser"], env=environment, stdout=log, stderr=log,
        start_new_session=True,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/api/status?token={token}", process, home / "log")
        yield address, token
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)
        log.close()


def _wait_for(url: str, process: subprocess.Popen, log: Path) -> None:
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    assert CHROMIUM, "Chromium is required here and not installed"
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


class Notebook:
    """One notebook in the browser, run to its end."""

    def __init__(
        self, browser: sync_api.Browser | sync_api.BrowserContext, server: tuple[str, str],
        name: str,
    ) -> None:  # fmt: skip
        address, token = server
        self.name, self.problems = name, []
        self.page = browser.new_page()
        self.page.set_viewport_size({"width": 1200, "height": 1000})
        self.page.set_default_timeout(60_000)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self._note_request(request.url, address))
        self.page.goto(f"{address}/lab/tree/{name}.ipynb?token={token}&reset")
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")
        self.page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden)")
        self.page.wait_for_function(_IDLE)
        self.panel = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")

    def _note_request(self, url: str, address: str) -> None:
        if not url.startswith((address, "data:", "blob:", "ws:")):
            self.problems.append(f"it asked the network: {url}")

    def run_all(self) -> None:
        self.page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
        self.page.wait_for_function(_IDLE, timeout=180_000)

    def shot(self, step: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{self.name}-{step}.png")

    def check_clean(self) -> None:
        """No error, nothing on stderr, no page error, no request to elsewhere."""
        assert self.panel.locator('[data-mime-type="application/vnd.jupyter.error"]').count() == 0
        assert self.panel.locator('[data-mime-type="application/vnd.jupyter.stderr"]').count() == 0
        assert not self.problems

    def focus(self, element: sync_api.Locator) -> None:
        """Puts the focus on an element; the first time JupyterLab moves it on to the cell."""
        element.scroll_into_view_if_needed()
        for _ in range(20):
            element.focus()
            self.page.wait_for_timeout(50)
            if element.evaluate("element => element === document.activeElement"):
                return
        raise AssertionError("the element does not keep the focus")

    def output(self, text: str) -> sync_api.Locator:
        """The output area that holds a widget or a text."""
        return self.panel.locator(".jp-OutputArea-output").filter(has_text=text)


_IDLE = """() => {
  const kernel = jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel;
  return kernel && kernel.status === 'idle' && kernel.connectionStatus === 'connected';
}"""


@pytest.fixture(scope="module")
def first(browser, server) -> Notebook:
    notebook = Notebook(browser, server, "00_be_the_policy")
    notebook.run_all()
    return notebook


def test_first_notebook_runs_to_its_end_unsolved(first):
    first.shot("end")
    first.check_clean()
    sync_api.expect(first.output("no error in any widget").last).to_be_visible()
    assert first.output("not attempted yet").count() == 2


def test_reader_works_a_task_with_the_keyboard(first):
    """Typing and Space: query, then reply; picture and log follow, the log keeps its height."""
    area = first.panel.locator(".jp-OutputArea-output").filter(
        has=first.page.locator("button.widget-button", has_text="Make the call")
    )
    area.scroll_into_view_if_needed()
    image, go = area.locator("img").first, area.get_by_role("button", name="Make the call")
    log = area.locator(".widget-html-content").first
    height = area.bounding_box()["height"]
    before = image.get_attribute("src")
    first.focus(area.locator("input[placeholder=S1234]"))
    first.page.keyboard.type("S0000")
    first.focus(go)
    first.page.keyboard.press("Space")
    sync_api.expect(log).to_contain_text("ticket_not_found")
    first.focus(area.get_by_role("button", name="reply", exact=True))
    first.page.keyboard.press("Space")
    content = area.locator("input[placeholder='what you tell them']")
    sync_api.expect(content).to_be_enabled()
    first.focus(content)
    first.page.keyboard.type("I have closed it.")
    first.focus(go)
    first.page.keyboard.press("Space")
    sync_api.expect(area).to_contain_text("1 with a claim of something that did not happen")
    sync_api.expect(image).not_to_have_attribute("src", before)
    sync_api.expect(go).to_be_disabled()
    first.shot("desk")
    assert area.bounding_box()["height"] == pytest.approx(height, abs=1), "the box has jumped"
    first.check_clean()


def panel_with(notebook: Notebook, button: str) -> sync_api.Locator:
    """The output that holds a button or a slider of that name."""
    named = notebook.page.get_by_role("button", name=button, exact=True)
    return notebook.panel.locator(".jp-OutputArea-output").filter(has=named).last


def press(notebook: Notebook, area: sync_api.Locator, element: sync_api.Locator, key: str) -> float:
    """Presses a key on a control; seconds until the page beside it has changed."""
    shown = area.locator(".widget-html-content").first
    before, height = shown.inner_html(), area.bounding_box()["height"]
    notebook.focus(element)
    started = time.perf_counter()
    notebook.page.keyboard.press(key)
    notebook.page.wait_for_function(
        "([element, before]) => element.innerHTML !== before",
        arg=[shown.element_handle(), before],
        timeout=10_000,
    )
    seconds = time.perf_counter() - started
    assert area.bounding_box()["height"] == pytest.approx(height, abs=1), "the box has jumped"
    return seconds


def test_conversations_follow_their_buttons(first):
    area = panel_with(first, "before")
    for name in ("before", "task 3"):
        button = area.get_by_role("button", name=name, exact=True)
        print(f"\nredrawn in {press(first, area, button, 'Space'):.2f} s")
    first.shot("compared")
    first.check_clean()


def test_settings_keep_the_news_away(first):
    assert first.page.locator("text=official Jupyter news").count() == 0


@pytest.fixture(scope="module")
def training(browser, server) -> Notebook:
    notebook = Notebook(browser, server, "05_full_training")
    notebook.run_all()
    return notebook


def test_training_notebook_runs_to_its_end_unsolved(training):
    training.shot("end")
    training.check_clean()
    sync_api.expect(training.output("no error in any widget").last).to_be_visible()


def test_snapshots_are_scrubbed_with_the_keyboard(training):
    area = panel_with(training, "task 1: status_only")
    task = area.get_by_role("button", name="task 1: status_only", exact=True)
    print(f"\nredrawn in {press(training, area, task, 'Space'):.2f} s")
    untrained = area.get_by_role("button", name="0", exact=True)
    training.focus(untrained)
    training.page.keyboard.press("Space")  # after 48 episodes it may still say the same
    sync_api.expect(untrained).to_have_class(re.compile("mod-active"))
    training.shot("scrubbed")
    training.check_clean()


def test_own_run_starts_and_stops(training):
    """Train, then Stop, by keyboard; it ends after the present update and can start again."""
    area = training.panel.locator(".jp-OutputArea-output").filter(
        has=training.page.get_by_role("button", name="Train", exact=True)
    )
    train = area.get_by_role("button", name="Train", exact=True)
    train.scroll_into_view_if_needed()
    handle = area.get_by_role("slider").first
    training.focus(handle)
    training.page.keyboard.press("ArrowRight")
    training.focus(train)
    training.page.keyboard.press("Space")
    sync_api.expect(area).to_contain_text("update 1 of", timeout=60_000)
    training.focus(area.get_by_role("button", name="Stop"))
    training.page.keyboard.press("Space")
    sync_api.expect(area).to_contain_text("stopped after update", timeout=60_000)
    sync_api.expect(train).to_be_enabled()
    training.shot("laboratory")
    training.check_clean()


# Panels of the other notebooks: control -> key that must change what stands beside it

PANELS = {
    "01_observation_design": [
        [("budget", "ArrowLeft"), ("sorted by name", "Space")],
        [("answers", "Space")],
        [("neutralised", "Space")],
    ],
    "02_action_encoding": [
        [("new words", "Space"), ("one more", "Space")],
    ],
    "03_reward_shaping": [
        [("outcome", "Space"), ("shaped", "Space")],
        [
            ("per call", "ArrowRight"), ("call cap", "Home"), ("repeat cost", "ArrowRight"),
            ("pleasing", "ArrowRight"), ("pleasing", "End"), ("wrong reply", "End"),
        ],
    ],
    "04_ppo_from_scratch": [
        [("gamma", "ArrowLeft"), ("gae lambda", "ArrowLeft"), ("none", "Space")],
    ],
    "06_pitfall_reward_hacking": [
        [("timid", "Space"), ("broken", "Space")],
        [("bonus", "ArrowRight"), ("bonus", "End")],
        [("seed", "ArrowRight"), ("line", "Home")],
    ],
    "07_pitfall_environment_leakage": [
        [("rl_alone", "Space"), ("broken", "Space")],
        [("Z", "Space"), ("Y", "Space")],
    ],
    "08_pitfall_roller_coaster": [
        [("0.001", "Space"), ("4", "Space"), ("0.3", "Space"), ("64", "Space")],
        [("chapter", "Space"), ("broken", "Space"), ("seed", "ArrowRight"), ("seed", "End")],
        [("guarded", "Space"), ("entropy", "Space")],
    ],
    "09_pitfall_wasted_rollouts": [
        [("sampled", "Space"), ("together", "Space")],
        [("seed", "ArrowRight"), ("seed", "End")],
    ],
    "10_when_and_how": [
        [("rejection", "Space"), ("mixed", "Space")],
    ],
}  # fmt: skip


@pytest.fixture(scope="module", params=PANELS)
def lesson(request, browser, server) -> Notebook:
    notebook = Notebook(browser, server, request.param)
    notebook.run_all()
    yield notebook
    notebook.page.close()


def test_lesson_runs_to_its_end_and_each_panel_follows_the_keyboard(lesson):
    lesson.check_clean()
    sync_api.expect(lesson.output("no error in any widget").last).to_be_visible()
    for moves in PANELS[lesson.name]:
        area = control_named(lesson, lesson.panel, moves[0][0])[0]
        for name, key in moves:
            control = control_named(lesson, area, name)[1]
            seconds = press(lesson, area, control, key)
            print(f"\n{lesson.name}, {name}: redrawn in {seconds:.2f} s")
        lesson.shot(moves[0][0].replace(" ", "-"))
    if lesson.name == "02_action_encoding":
        type_into_the_playground(lesson)
    lesson.check_clean()


def type_into_the_playground(lesson):
    line = lesson.page.locator(".widget-text input")
    area = lesson.panel.locator(".jp-OutputArea-output").filter(has=line).last
    area.locator(".widget-text input").fill('<function=reply>{"content": "<b>not closed')
    area.locator(".widget-text input").press("Enter")
    sync_api.expect(area.get_by_text("unfinished")).to_be_visible()
    lesson.shot("playground")


def control_named(
    notebook: Notebook, within: sync_api.Locator, name: str
) -> tuple[sync_api.Locator, sync_api.Locator]:
    """The output area of a slider or button of that name, and the part that takes the keys."""
    label = re.compile(f"^{re.escape(name)}$")
    row = notebook.page.locator(".widget-slider").filter(
        has=notebook.page.locator(".widget-label", has_text=label)
    )
    button = notebook.page.get_by_role("button", name=name, exact=True)
    area = notebook.panel.locator(".jp-OutputArea-output").filter(has=row.or_(button)).last
    slider = within.locator(".widget-slider").filter(
        has=notebook.page.locator(".widget-label", has_text=label)
    )
    found = slider.get_by_role("slider") if slider.count() else within.get_by_role(
        "button", name=name, exact=True
    )
    return area, found.last


REVIEW = """
from pathlib import Path
from agentrl_lab.workbook.lessons import ways
ways.blind_review(3, Path("my-reviews") / "browser.jsonl")
"""


def test_blind_review_survives_a_killed_browser_and_a_new_kernel(browser, server, folder, tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(REVIEW)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    nbformat.write(notebook, folder / "review.ipynb")
    doomed = browser.browser_type.launch_persistent_context(
        tmp_path / "profile", executable_path=CHROMIUM, args=ARGUMENTS
    )
    review = Notebook(doomed, server, "review")
    review.run_all()
    sync_api.expect(review.output("0 of 3 chosen").last).to_be_visible()
    area = panel_with(review, "the left one is better")
    boxes = area.locator(".widget-box")
    assert boxes.evaluate_all("all => all.every(b => b.scrollWidth <= b.clientWidth + 1)")
    review.focus(area.get_by_role("button", name="the left one is better"))
    review.page.keyboard.press("Enter")
    sync_api.expect(review.output("1 of 3 chosen").last).to_be_visible()
    review.shot("chosen")
    review.check_clean()
    own = f"--user-data-dir={tmp_path / 'profile'}"
    running = psutil.process_iter(["cmdline"])
    chromium = [process for process in running if own in (process.info["cmdline"] or ())]
    assert chromium
    for process in chromium:
        with contextlib.suppress(psutil.NoSuchProcess):  # a child goes with its parent
            process.kill()

    again = Notebook(browser, server, "review")
    again.run_all()
    sync_api.expect(again.output("1 of 3 chosen").last).to_be_visible()
    again.page.evaluate("jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    again.page.wait_for_function(_IDLE)
    again.run_all()
    sync_api.expect(again.output("1 of 3 chosen").last).to_be_visible()
    again.check_clean()


def test_page_without_token_is_refused(server):
    address, _ = server
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{address}/api/contents", timeout=10)
    refused.value.close()
    assert refused.value.code == 403
