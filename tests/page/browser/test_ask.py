"""Questions and answers: keys, typed names, skipping, taking back, and what is said beside them."""

from __future__ import annotations

import re

from playwright.sync_api import expect


def asked(page):
    page.wait_for_selector(".asked[data-id]")
    return int(page.locator(".asked").get_attribute("data-id"))


def answer(page, press):
    """Answer, and wait for another image."""
    before = asked(page)
    press()
    page.wait_for_selector(f'.asked[data-id]:not([data-id="{before}"])')
    return before


def test_new_classes_are_typed_and_known_ones_have_keys(visit, site):
    page = visit("ask")
    done = {}
    for _ in range(6):
        name = site.truth(asked(page))
        keys = {one["name"]: one["key"] for one in site.state()["classes"]}

        def press(name=name, keys=keys):
            if name in keys:
                page.keyboard.press(keys[name])
            else:
                page.keyboard.type(name)  # the first letter opens the field
                page.keyboard.press("Shift+Enter")

        done[site.names[answer(page, press)]] = name
    assert site.labels() == done
    expect(page.locator(".ask-standing .figures b").first).to_have_text("6")
    expect(page.locator(".why")).not_to_be_empty()
    assert page.locator(".pick .pick-bar").count() == len(set(done.values()))


def test_bars_hold_probabilities_that_sum_to_one(visit, site):
    site.teach()
    page = visit("ask")
    asked(page)
    expect(page.locator(".pick small").first).to_have_text(re.compile("%"))
    shares = page.eval_on_selector_all(
        ".pick-bar", "all => all.map(b => Number(/scaleX\\((.*)\\)/.exec(b.style.transform)[1]))"
    )
    assert abs(sum(shares) - 1) < 0.06 and shares == sorted(shares, reverse=True)
    expect(page.locator(".curve")).to_have_attribute("aria-label", re.compile("Expected accuracy .* between .* and"))


def test_what_was_learned_is_said_without_another_answer(visit, site):
    page = visit("ask")
    asked(page)
    site.teach()
    expect(page.locator(".ask-standing .figures")).to_contain_text("right")
    expect(page.locator(".stop-hint")).to_contain_text(re.compile("Keep going|You can stop"))
    expect(page.locator(".stop-hint")).not_to_contain_text("fewer than two classes")


def test_space_sets_aside_and_backspace_takes_back(visit, site):
    site.teach(1)
    page = visit("ask")
    first = answer(page, lambda: page.keyboard.press("Space"))
    site.wait(lambda: first in site.ids(filter="skipped"))
    second = answer(page, lambda: page.keyboard.press("1"))
    assert site.label_of(second) is not None
    page.keyboard.press("Backspace")
    expect(page.locator(".asked")).to_have_attribute("data-id", str(second))  # it is asked for anew
    expect(page.locator(".why")).to_have_text("You took this answer back.")
    assert site.label_of(second) is None
    page.keyboard.press("Backspace")
    site.wait(lambda: first not in site.ids(filter="skipped"))


def test_a_click_on_a_bar_answers(visit, site):
    site.teach(2)
    page = visit("ask")
    image = answer(page, lambda: page.locator(".pick", has_text="diagonals").click())
    assert site.labels()[site.names[image]] == "diagonals"


def test_the_next_picture_is_there_before_it_is_asked_for(visit, site):
    site.teach(2)
    page = visit("ask")
    wanted = []
    page.on("request", lambda sent: wanted.append(sent.url) if "/picture" in sent.url else None)
    for _ in range(4):
        answer(page, lambda: page.keyboard.press("2"))
    page.wait_for_function("performance.getEntriesByName('answer to next question').length === 4")
    page.wait_for_timeout(200)
    assert len(wanted) == len(set(wanted))  # each picture is fetched once, before or when it is shown


def test_two_people_are_asked_different_questions(visit, site):
    site.teach(1)
    page = visit("ask")
    mine = asked(page)
    theirs = site.api.get("/ask", headers={"X-Person": "Ann"}).json()["image"]["id"]
    assert theirs != mine
    site.api.post("/ask/release", json={}, headers={"X-Person": "Ann"})
