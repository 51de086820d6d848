"""Every view in every size and colour: no serious fault of accessibility (axe-core), nothing that sticks out."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

VIEWS = ("gallery", "gallery?group=predicted", "ask", "check", "check/confusions", "search", "map", "classes", "out")


def serious(page):
    found = Axe().run(page).response["violations"]
    return [
        (one["id"], one["help"], [node["html"][:160] for node in one["nodes"]][:3])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def test_axe_finds_no_serious_issue(visit, site):
    site.teach()
    for view in (*VIEWS, f"image/{site.ids()[5]}"):
        page = visit(view)
        page.wait_for_timeout(300)
        assert serious(page) == [], view


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_nothing_sticks_out_of_the_window(visit, site, page):
    site.teach()
    for width in (360, 768, 3840):
        page.set_viewport_size({"width": width, "height": 740 if width < 1000 else 2160})
        for view in (*VIEWS, f"image/{site.ids()[5]}"):
            visit(view)
            page.wait_for_timeout(100)
            wide = page.evaluate("[document.documentElement.scrollWidth, document.querySelector('main').scrollWidth]")
            assert max(wide) <= width, view


def test_names_of_files_are_text(visit):
    page = visit("gallery?filter=broken")
    expect(page.locator(".tile")).to_have_count(1)
    expect(page.locator(".tile")).to_have_attribute("title", re.compile("<img"))
    page.locator(".tile").dblclick()
    expect(page.locator("h1")).to_contain_text("<img")
    assert page.locator("h1 img").count() == 0


def test_the_colours_can_be_switched_and_stay(visit):
    page = visit("gallery")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Light or dark").click()
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before != after
    page.reload()
    page.wait_for_selector(".tabs a")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after


def test_every_view_is_reached_by_keys_and_the_focus_is_seen(visit):
    page = visit("gallery")
    page.locator(".brand").focus()
    for name in ("Gallery", "Ask me", "Check", "Search", "Map", "Classes", "Out"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == name
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_selector("main.view-out")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("undo, redo")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
