"""The gallery as a person uses it: select by mouse and keys, label many at once, take it back."""

from __future__ import annotations

import re

from playwright.sync_api import expect


def tiles(page):
    return page.locator(".grid-list .tile")


def first(page, n):
    """Ids of the first n tiles, in their order."""
    page.wait_for_selector(".tile img.ready")
    return [int(i) for i in page.eval_on_selector_all(".grid-list .tile", "all => all.map(one => one.dataset.id)")[:n]]


def new_class(page, name):
    page.keyboard.press("c")
    page.keyboard.type(name)
    page.keyboard.press("Enter")


def test_a_click_and_a_typed_name_label_an_image(visit, site):
    page = visit("gallery")
    image = first(page, 1)[0]
    tiles(page).first.click()
    new_class(page, "stripes & bars")
    expect(page.locator(f"#tile-{image} .chip:not(.pending)")).to_have_text("stripes & bars")
    expect(page.locator(".tally b")).to_have_text("1")
    assert list(site.labels().values()) == ["stripes & bars"]


def test_a_key_labels_a_range_and_undo_takes_it_back(visit, site):
    site.api.post("/classes", json={"name": "bars", "key": "1"})
    page = visit("gallery")
    ids = first(page, 4)
    tiles(page).nth(0).click()
    tiles(page).nth(3).click(modifiers=["Shift"])
    expect(page.locator(".selection b")).to_have_text("4 selected")
    page.keyboard.press("1")
    expect(page.locator(".tile.labelled .chip:not(.pending)")).to_have_count(4)  # they are on disk
    assert all(site.label_of(i) is not None for i in ids)
    page.keyboard.press("Control+z")
    expect(page.locator(".tile.labelled")).to_have_count(0)
    assert site.labels() == {}
    page.keyboard.press("Control+Shift+z")
    expect(page.locator(".tile.labelled")).to_have_count(4)
    page.locator(".tools").get_by_role("button", name="Undo").click()
    expect(page.locator(".tile.labelled")).to_have_count(0)


def test_keys_alone_suffice(visit, site):
    site.api.post("/classes", json={"name": "bars", "key": "b"})
    page = visit("gallery")
    ids = first(page, 8)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("b")
    expect(page.locator(".tile.labelled .chip:not(.pending)")).to_have_count(2)
    assert [site.label_of(i) is not None for i in ids[:4]] == [False, True, True, False]
    # the next image is in focus, ready for the next key
    expect(page.locator(".grid-list")).to_have_attribute("aria-activedescendant", f"tile-{ids[3]}")
    page.keyboard.press("b")
    expect(page.locator(".tile.labelled")).to_have_count(3)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Delete")
    expect(page.locator(".tile.labelled")).to_have_count(2)
    page.keyboard.press("Enter")
    page.wait_for_selector("main.view-image")


def test_a_drag_selects_what_it_touches(visit):
    page = visit("gallery")
    first(page, 1)
    a, b = tiles(page).nth(0).bounding_box(), tiles(page).nth(1).bounding_box()
    page.mouse.move(a["x"] + 20, a["y"] + 20)
    page.mouse.down()
    page.mouse.move(a["x"] + 60, a["y"] + 50)
    page.mouse.move(b["x"] + 40, b["y"] + 60, steps=4)
    page.mouse.up()
    expect(page.locator('.tile[aria-selected="true"]')).to_have_count(2)
    page.keyboard.press("Escape")
    expect(page.locator('.tile[aria-selected="true"]')).to_have_count(0)
    tiles(page).nth(2).click()
    tiles(page).nth(4).click(modifiers=["Control"])
    expect(page.locator(".selection b")).to_have_text("2 selected")
    page.keyboard.press("Control+a")
    expect(page.locator(".selection b")).to_have_text("36 selected")


def test_groups_are_accepted_at_once_and_labels_of_people_stay(visit, site):
    site.teach()
    stray = next(i for i in site.ids() if site.truth(i) == "bars" and site.label_of(i) is None)
    site.api.post("/labels", json={"ids": [stray], "name": "stripes"})
    page = visit("gallery?group=predicted")
    page.get_by_role("button", name=re.compile("Accept all as bars")).click()
    expect(page.locator(".toast").last).to_contain_text("bars: ")
    assert sum(label == "bars" for label in site.labels().values()) >= 8
    assert site.labels()[site.names[stray]] == "stripes"
    site.wait(lambda: not site.state()["describing"])
    page.get_by_label("Accept all shown as …").select_option("the model expects")
    expect(page.locator(".tally b")).to_have_text("36")


def test_all_that_is_shown_becomes_a_class_in_one_step(visit, site):
    site.teach(2)
    page = visit("gallery?filter=unlabelled&text=diagonals")
    expect(page.locator(".tally-shown")).to_have_text("10 images")
    page.get_by_label("Accept all shown as …").select_option("diagonals")
    expect(page.locator(".toast").last).to_contain_text("diagonals: 10 images")
    assert sum(label == "diagonals" for label in site.labels().values()) == 12
    page.keyboard.press("Control+z")
    expect(page.locator(".tally-shown")).to_have_text("10 images")


def test_filters_order_and_names(visit, site):
    site.teach(2)
    page = visit("gallery")
    expect(page.locator(".tally-shown")).to_have_text("36 images")
    page.get_by_label("Which images").select_option("unlabelled")
    expect(page.locator(".tally-shown")).to_have_text("30 images")
    page.get_by_label("Part of the name").fill("stripes")
    expect(page.locator(".tally-shown")).to_have_text("10 images")
    page.get_by_label("Part of the name").fill("")
    page.get_by_label("Order", exact=True).select_option("doubt")
    site.wait(lambda: first(page, 5) == site.ids(filter="unlabelled", sort="doubt")[:5])
    doubts = [site.details([i])[0]["doubt"] for i in first(page, 5)]
    assert doubts == sorted(doubts, reverse=True)
    tiles(page).nth(3).click()
    page.get_by_role("button", name="Order by likeness").click()
    expect(page.get_by_label("Order", exact=True)).to_have_value("similarity")
    page.get_by_label("Which images").select_option("broken")
    expect(page.locator(".tile")).to_have_count(1)
    (name,) = (site.names[i] for i in site.ids(filter="broken"))
    expect(page.locator(".tile .line")).to_have_text(f"cannot be read{name}")


def test_labels_of_others_show_up(visit, site):
    page = visit("gallery")
    image = first(page, 1)[0]
    site.api.post("/labels", json={"ids": [image], "name": "bars"}, headers={"X-Person": "Ann"})
    expect(page.locator(f"#tile-{image} .chip")).to_have_text("bars")
    expect(page.locator("#live")).to_have_text("Ann labelled 1 image")
