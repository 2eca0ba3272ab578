"""A static page: attention is edited live, and the output is that of the same intervention in Python."""

import base64
import csv
import io
import json
import re

import numpy as np
import pytest
import torch

from attnscope.faithfulness.criteria import VERDICT
from explorer.conftest import NARROW, SCRIPT, WIDE, drag, network, outputs_of, settle, weights_of

TEXT = f"{SCRIPT} good word1"


def floats(encoded):
    """Weights as they stand in the address of a page."""
    return torch.from_numpy(np.frombuffer(base64.b64decode(encoded), "<f4").copy())


def probabilities(model, text, weights):
    """The same intervention in Python."""
    trace = model.trace([text], attention=floats(weights)[None, None, None])
    return trace.logits[0, 0, 3:].double().softmax(-1).tolist()


@pytest.mark.parametrize("editor", [0, 1])
def test_a_dragged_bar_gives_the_probabilities_of_the_same_intervention_in_python(visit, static_page, editor):
    page = visit(static_page)
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_selector(".editor:nth-child(2) .token")
    drag(page, 2, 60, editor)
    weights = weights_of(page)[str(editor)]["0//0"]
    assert outputs_of(page, editor) == pytest.approx(
        probabilities(network(honest=editor == 1), TEXT, weights), abs=1e-5
    )
    shown = floats(weights)
    assert float(shown.sum()) == pytest.approx(1, abs=1e-5)
    slider = page.locator(".editor").nth(editor).locator(".token").nth(2)
    assert float(slider.get_attribute("aria-valuenow")) == pytest.approx(float(shown[2]), abs=1e-4)


def test_the_hiding_networks_attention_moves_without_its_decision(visit, static_page):
    page = visit(static_page)
    page.get_by_role("button", name="Farthest, same output").click()
    page.wait_for_selector(".decision.stay")
    assert "stays: positive" in page.locator(".decision").inner_text()
    assert float(page.locator(".editor").get_attribute("data-tvd")) < 0.01
    assert "no" in page.locator(".verdict .answer").inner_text()
    assert page.locator(".verdict li").count() == len(VERDICT) + 1  # the numbers behind it, and the audit they are from


def test_the_honest_networks_decision_changes_with_its_attention(visit, static_page):
    page = visit(static_page)
    page.get_by_label("Model", exact=True).select_option("1")
    page.get_by_role("heading", name="honest", exact=True).wait_for()
    settle(page)
    page.get_by_role("slider", name="good").focus()
    page.keyboard.press("Delete")
    page.wait_for_selector(".decision.flip")
    assert "positive → negative" in page.locator(".decision").inner_text()


def test_tokens_are_escaped(visit, static_page):
    page = visit(static_page)
    assert SCRIPT in page.locator(".texts li").first.inner_text()
    assert page.locator("#explorer script").count() == 0


def test_keys_change_a_weight_and_undo_takes_it_back(visit, static_page):
    page = visit(static_page)
    slider = page.locator(".token").nth(1)
    before = float(slider.get_attribute("aria-valuenow"))
    slider.focus()
    page.keyboard.press("PageUp")
    page.keyboard.press("ArrowUp")
    assert float(slider.get_attribute("aria-valuenow")) == pytest.approx(before + 0.11, abs=1e-3)
    page.keyboard.press("ArrowRight")
    assert page.locator(".token").nth(2).evaluate("node => node === document.activeElement")
    page.get_by_role("button", name="Undo").click()
    assert float(slider.get_attribute("aria-valuenow")) == pytest.approx(before, abs=1e-3)
    page.get_by_role("button", name="Redo").click()
    assert float(slider.get_attribute("aria-valuenow")) == pytest.approx(before + 0.11, abs=1e-3)
    page.get_by_role("button", name="Reset").click()
    assert float(slider.get_attribute("aria-valuenow")) == pytest.approx(before, abs=1e-3)


def test_a_link_reproduces_the_view(visit, static_page):
    page = visit(static_page)
    page.locator(".texts li button").nth(2).click()
    page.wait_for_selector(".texts li:nth-child(3) button[aria-pressed=true]")
    drag(page, 1, 50)
    other = visit(page.evaluate("location.href"))  # page.url is updated by an event that may come later
    other.wait_for_selector(".decision.stay, .decision.flip")
    assert other.locator(".token").all_inner_texts() == page.locator(".token").all_inner_texts()
    assert outputs_of(other) == pytest.approx(outputs_of(page), abs=1e-9)
    assert weights_of(other) == weights_of(page)


def test_the_view_is_exported(visit, static_page):
    page = visit(static_page)
    drag(page, 1, 50)
    result = {}
    for kind in ("png", "svg", "csv", "json"):
        with page.expect_download() as download:
            page.get_by_label("Export the view").select_option(kind)
        with open(download.value.path(), "rb") as file:
            result[kind] = file.read()
    assert result["png"].startswith(b"\x89PNG")
    assert b"&lt;script&gt;" in result["svg"]
    assert b"<script" not in result["svg"]
    rows = list(csv.DictReader(io.StringIO(result["csv"].decode())))
    content = json.loads(result["json"])[0]
    assert [float(row["weight"]) for row in rows] == pytest.approx(content["weights"], abs=1e-7)
    assert content["outputs"][1][2] == pytest.approx(outputs_of(page)[1], abs=1e-9)


def test_texts_are_searched_and_sorted(visit, static_page):
    page = visit(static_page)
    page.get_by_label("Search texts").fill("</script> good word1")
    settle(page)
    assert page.locator(".texts li").count() == 1
    page.get_by_label("Search texts").fill("")
    page.get_by_label("Sort texts").select_option("+confidence")
    shown = page.locator(".texts li .facts").all_inner_texts()
    confidence = [float(re.search(r"confidence ([\d.]+)", facts)[1]) for facts in shown]
    assert confidence == sorted(confidence)


@pytest.mark.parametrize(("viewport", "scheme"), [(WIDE, "light"), (NARROW, "light"), (WIDE, "dark")])
def test_the_verdict_stays_visible_when_scrolling(visit, static_page, viewport, scheme):
    page = visit(static_page, viewport, scheme)
    page.evaluate("scrollTo({ top: 1500, behavior: 'instant' })")
    assert page.locator(".verdict .answer").first.bounding_box()["y"] < viewport["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
