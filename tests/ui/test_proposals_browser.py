"""Proposals in the editor of a new sweep, in a real browser: by keyboard, by finger, in the dark and at phone width."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsers import needs_chromium
from visiting import Visitor, serving

pytestmark = [pytest.mark.slow, needs_chromium]

MODULE = "def train(hp, report):\n    report(val_accuracy=hp.depth)\n"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "typed.py").write_text(MODULE)
    (tmp_path / "results").mkdir()
    with serving(tmp_path) as found:
        yield found


class Editor:
    """The editor of a new sweep with a text in it, and the cursor at its end."""

    def __init__(self, browser: Any, address: str, text: str, **context: Any) -> None:
        self.visitor = Visitor(browser, address, **context)
        self.visitor.open("/-/new", ready=False)
        self.page = self.visitor.page
        self.page.fill("#text", text)
        self.page.evaluate(
            "() => { const t = find('text'); t.focus(); t.setSelectionRange(t.value.length, t.value.length) }"
        )

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def wait_for_list(self) -> None:
        self.visitor.wait("!find('proposals').hidden && find('proposals').children.length")

    def has_list(self) -> bool:
        return bool(self.page.evaluate("!find('proposals').hidden"))

    @property
    def labels(self) -> list[str]:
        return list(
            self.page.eval_on_selector_all(
                "#proposals code", "(found) => found.map((one) => one.textContent)"
            )
        )

    @property
    def chosen(self) -> str:
        return str(
            self.page.evaluate(
                "document.querySelector('#proposals [aria-selected=true] code')?.textContent ?? ''"
            )
        )

    @property
    def text(self) -> str:
        return str(self.page.input_value("#text"))

    def close(self) -> None:
        self.visitor.context.close()
        assert self.visitor.troubles == []


def test_proposals_by_keyboard(browser: Any, address: str) -> None:
    editor = Editor(browser, address, "trainable: typed:train\n")
    editor.type("ear")
    editor.wait_for_list()
    assert editor.labels == ["early_terminate"]
    editor.press("Enter")
    assert editor.text.endswith("\nearly_terminate: ")
    editor.wait_for_list()  # the values of the key that was chosen
    assert editor.chosen == ""
    editor.press("ArrowDown", "ArrowDown", "ArrowUp")
    assert editor.chosen == "{type: asha}"
    text = editor.page.locator("#text")
    assert text.get_attribute("aria-activedescendant") == "proposal-0"
    assert text.get_attribute("aria-controls") == "proposals"
    assert editor.page.get_attribute("#proposals", "role") == "listbox"
    assert editor.page.get_attribute("#proposal-0", "role") == "option"
    editor.press("Tab")
    assert editor.text.endswith("\nearly_terminate: {type: asha}")
    assert not editor.has_list()
    assert text.get_attribute("aria-activedescendant") is None
    assert editor.page.evaluate("find('heard').textContent") == "{type: asha} inserted"
    editor.press("Enter")  # a new line again
    assert editor.text.endswith("asha}\n")
    editor.close()


def test_proposals_that_are_asked_for(browser: Any, address: str) -> None:
    editor = Editor(browser, address, "trainable: typed:train\nparameters:\n  ")
    editor.press("Control+Space")
    editor.visitor.wait(
        "[...document.querySelectorAll('#proposals code')].some((one) => one.textContent === 'depth')"
    )
    assert editor.chosen == "depth"
    assert "suggestions, the first is depth" in editor.page.evaluate("find('heard').textContent")
    editor.press("Escape")
    assert not editor.has_list()
    editor.press("Tab")  # that Escape closed the list alone
    assert editor.text.endswith("\n    ")
    editor.press("Backspace", "Backspace", "Alt+ArrowDown")
    editor.wait_for_list()
    editor.page.click("#proposals li:first-child")
    assert editor.text.endswith("\n  depth: ")
    assert editor.page.evaluate("document.activeElement.id") == "text"
    editor.wait_for_list()
    editor.press("Enter")  # nothing is chosen yet
    assert editor.text.endswith("\n  depth: \n    ")
    editor.close()


def test_no_list_covers_what_is_not_asked_for(browser: Any, address: str) -> None:
    editor = Editor(browser, address, "")
    editor.type("# epo")
    editor.press("Enter")
    editor.page.wait_for_timeout(600)
    assert not editor.has_list()
    editor.type("method: gri")
    editor.wait_for_list()
    assert editor.labels == ["grid"]
    editor.press("ArrowLeft")
    assert not editor.has_list()
    editor.press("End")
    editor.type("d")
    editor.page.wait_for_timeout(600)
    assert not editor.has_list()  # it is typed
    editor.press("Control+Home", "Control+Space")
    editor.visitor.has_exactly("#no-proposals", "No suggestions here.")
    assert editor.page.is_visible("#no-proposals")
    assert editor.page.evaluate("find('heard').textContent") == "No suggestions here."
    editor.press("Escape")
    assert not editor.page.is_visible("#no-proposals")
    editor.close()


def test_a_word_is_mended_from_its_end(browser: Any, address: str) -> None:
    editor = Editor(browser, address, "trainable: typed:train\nmetod")
    editor.press("Control+Space")
    editor.wait_for_list()
    assert editor.chosen == "method"
    editor.press("Enter")
    editor.type("grid")
    editor.press("Control+Space")
    editor.wait_for_list()
    assert editor.labels[0] == "grid"
    assert "random" in editor.labels
    editor.press("Enter")  # it is typed: a new line
    assert editor.text.endswith("method: grid\n")
    editor.close()


def test_the_trainables_of_the_folder_are_proposed(browser: Any, address: str) -> None:
    editor = Editor(browser, address, "trainable: ")
    editor.press("Control+Space")
    editor.wait_for_list()
    assert editor.chosen == "typed:train"
    assert "trainables.digits_cnn:DigitsCNN" in editor.labels
    editor.close()


def test_a_file_is_opened_changed_and_overwritten(
    browser: Any, address: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    text = "name: mine\nparameters: {}\n"
    path.write_text(text)
    editor = Editor(browser, address, "name: other\n")
    editor.page.select_option("#open", "mine.yaml")
    editor.page.click("dialog button[value=cancel]")  # what was typed would be lost
    assert editor.text == "name: other\n"
    editor.page.select_option("#open", "mine.yaml")
    editor.page.click("dialog button[type=submit]")
    editor.visitor.has_exactly("h1", "mine.yaml")
    assert editor.text == text
    assert editor.page.input_value("#file") == "mine.yaml"
    editor.page.fill("#text", f"{text}seed: 1\n")
    editor.page.click("#save")
    editor.visitor.has_text("dialog", "Overwrite mine.yaml\\?")
    editor.press("Enter")  # nothing is lost by a key that was pressed once too often
    editor.visitor.wait("!document.querySelector('dialog').open")
    assert path.read_text() == text
    editor.page.click("#save")
    editor.page.click("dialog button[type=submit]")
    editor.visitor.has_exactly("#saved", "mine.yaml is saved")
    assert path.read_text() == f"{text}seed: 1\n"
    editor.page.fill("#file", "../mine.yaml")
    editor.page.click("#save")
    editor.visitor.has_text("#jobs", "expected a plain name")
    assert [trouble[-17:] for trouble in editor.visitor.troubles] == ["400 (Bad Request)"]
    editor.visitor.troubles.clear()
    editor.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_proposals_by_finger_at_phone_width(browser: Any, address: str, scheme: str) -> None:
    phone = {
        "viewport": {"width": 390, "height": 760},
        "has_touch": True,
        "is_mobile": True,
        "color_scheme": scheme,
    }
    editor = Editor(browser, address, "training: {loop: own, deterministic: true, pre", **phone)
    editor.page.tap("#complete")
    editor.wait_for_list()
    assert editor.labels == ["precision"]
    box = editor.page.locator("#proposals").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert editor.page.evaluate("document.documentElement.scrollWidth") <= 390
    contrast = """() => {
      const linear = (x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
      const light = (text) => {
        const [r, g, b] = text.match(/[\\d.]+/g).map((part) => linear(Number(part) / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const item = getComputedStyle(document.querySelector("#proposals [aria-selected=true]"));
      const about = getComputedStyle(document.querySelector("#proposals [aria-selected=true] .about"));
      const [one, other] = [light(item.backgroundColor), light(about.color)].sort((a, b) => b - a);
      return (one + 0.05) / (other + 0.05);
    }"""
    assert editor.page.evaluate(contrast) >= 4.5
    editor.page.tap("#proposals li")
    assert editor.text.endswith("true, precision: ")
    editor.close()
