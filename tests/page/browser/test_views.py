"""Search, why, check, map, classes and out."""

from __future__ import annotations

import base64
import json
import re

from PIL import Image
from playwright.sync_api import expect

DROP = """([name, type, data]) => {
  const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
  const file = new File([bytes], name, { type });
  const transfer = new DataTransfer();
  transfer.items.add(file);
  return transfer;
}"""

PAINTED = """(() => {
  const canvas = document.querySelector('.heat');
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return data.some(Boolean);
})()"""


def picture(site, name):
    return base64.b64encode(next(site.folder.glob(name)).read_bytes()).decode()


def found(page):
    page.wait_for_selector(".search-main .tile img.ready")
    return [int(i) for i in page.eval_on_selector_all(".search-main .tile", "all => all.map(one => one.dataset.id)")]


def test_a_dropped_and_a_pasted_picture_are_searched_for(visit, site):
    page = visit("search")
    transfer = page.evaluate_handle(DROP, ["stranger.png", "image/png", picture(site, "bars_00.png")])
    page.dispatch_event(".drop", "drop", {"dataTransfer": transfer})
    assert site.names[found(page)[0]] == "bars_00.png"
    distances = [float(text) for text in page.locator(".distance").all_inner_texts()]
    assert distances == sorted(distances)
    page.goto(f"{site.url}/#/classes")
    transfer = page.evaluate_handle(DROP, ["pasted.png", "image/png", picture(site, "stripes_30.png")])
    page.evaluate("data => window.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data }))", transfer)
    page.wait_for_selector("main.view-search")
    assert site.names[found(page)[0]] == "stripes_30.png"


def test_the_images_of_an_earlier_search_do_not_stand_beside_a_picture_that_cannot_be_read(visit, site):
    page = visit("search")
    transfer = page.evaluate_handle(DROP, ["stranger.png", "image/png", picture(site, "bars_00.png")])
    page.dispatch_event(".drop", "drop", {"dataTransfer": transfer})
    assert found(page)
    transfer = page.evaluate_handle(DROP, ["text.png", "image/png", base64.b64encode(b"no picture").decode()])
    page.dispatch_event(".drop", "drop", {"dataTransfer": transfer})
    expect(page.get_by_role("status").filter(has_text="is not an image")).to_be_visible()
    expect(page.locator(".search-main .tile:visible")).to_have_count(0)


def test_a_rectangle_in_an_image_is_searched_for(visit, site, until):
    image = site.ids()[3]
    page = visit(f"image/{image}")
    until("document.querySelector('.picture img').naturalWidth > 0")
    box = page.locator(".picture").bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.9 * box["height"], steps=5)
    page.mouse.up()
    with page.expect_response(re.compile(f"/api/search/image/{image}.*left=0\\.2")) as answer:
        page.get_by_role("button", name="Find this part").click()
    assert answer.value.ok
    assert len(found(page)) > 5
    expect(page.locator(".rectangle")).to_be_visible()
    page.locator(".picture").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowDown")
    with page.expect_response(re.compile(f"/api/search/image/{image}.*left=0\\.3000&top_=0\\.25.*bottom=0\\.8")):
        page.keyboard.press("Enter")


def test_why_shows_patches_and_images_whose_sum_is_the_score(visit, site):
    site.teach()
    image = next(i for i in site.ids(filter="unlabelled") if site.truth(i) == "bars")
    page = visit(f"image/{image}")
    with page.expect_response(re.compile("/why")):
        page.reload()
    expect(page.locator(".sums b")).to_have_text(re.compile("bars|diagonals|stripes"))
    said = site.api.get(f"/images/{image}/why").json()
    total = said["base"] + sum(map(sum, said["grid"]["values"]))
    assert abs(total - said["score"]) < 1e-4
    assert page.evaluate("document.querySelector('.heat').width") == said["grid"]["columns"]
    painted = page.evaluate(PAINTED)
    assert painted
    expect(page.locator(".image-side .thumbs .tile").first).to_be_visible()
    first = page.locator(".sums b").inner_text()
    page.locator(".segment[aria-pressed=false]").first.click()
    expect(page.locator(".sums b")).not_to_have_text(first)  # the same for the runner-up
    page.keyboard.press("h")
    expect(page.locator(".heat")).to_be_hidden()


def test_a_wrong_label_is_found_and_changed(visit, site):
    site.teach(6)
    wrong = next(i for i in site.ids() if site.truth(i) == "stripes" and site.label_of(i) is not None)
    site.api.post("/labels", json={"ids": [wrong], "name": "bars"})
    site.wait(lambda: wrong in [one["id"] for one in site.api.get("/check/errors").json()["items"]])
    page = visit("check/errors")
    card = page.locator(".check-card").filter(has=page.locator(f'a[href="#/image/{wrong}"]'))
    card.get_by_role("button", name="Change to stripes").click()
    expect(card).to_have_count(0)
    assert site.labels()[site.names[wrong]] == "stripes"
    page.get_by_role("tab", name="Confused classes").click()
    expect(page.locator(".confusion tbody tr")).to_have_count(3)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Stand alone")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".check-card").first).to_be_visible()


def test_a_lasso_selects_and_a_key_labels(visit, site):
    site.api.post("/classes", json={"name": "bars", "key": "1"})
    site.api.post("/map", json={})
    site.wait(lambda: site.api.get("/map").json()["ready"])
    page = visit("map")
    expect(page.locator(".map .gallery-main > .small")).not_to_have_text("")
    page.wait_for_timeout(300)
    box = page.locator(".scatter").bounding_box()
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.03)]
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=4)
    page.mouse.up()
    expect(page.locator(".dock p")).to_have_text(re.compile(r"^\d+ images selected"))
    n = int(page.locator(".dock p").inner_text().split()[0])  # an image may lie on the very edge
    assert n >= 0.8 * len(site.api.get("/map").json()["ids"])
    page.keyboard.press("1")
    expect(page.locator(".tally b")).to_have_text(str(n))
    page.locator(".scatter").focus()
    page.keyboard.press("Escape")
    expect(page.locator(".dock p")).to_have_text("Nothing is selected.")
    for key in (*11 * "]", "Enter"):  # to the largest circle: where the images lie is not known
        page.keyboard.press(key)
    expect(page.locator(".dock p")).to_have_text(re.compile(r"[1-9]\d* images? selected"))
    page.get_by_role("button", name="Doubt").click()
    expect(page.locator(".legend")).to_contain_text("no idea")


def test_classes_are_renamed_recoloured_merged_split_and_removed(visit, site):
    site.teach(3)
    page = visit("classes")
    page.get_by_label("Name of bars").fill("beams")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Name of beams")).to_be_visible()
    assert "beams" in site.labels().values()
    page.get_by_label("Key of beams").fill("q")
    page.keyboard.press("Tab")
    site.wait(lambda: "q" in [one["key"] for one in site.state()["classes"]])
    page.get_by_label("Key of stripes").fill("")
    page.keyboard.press("Tab")
    site.wait(lambda: {one["name"]: one["key"] for one in site.state()["classes"]}["stripes"] is None)
    page.locator("input[type=color]").first.fill("#112233")
    site.wait(lambda: "#112233" in [one["color"] for one in site.state()["classes"]])
    page.get_by_label("Merge stripes into").select_option(label="beams")
    page.get_by_role("button", name="Merge", exact=True).click()
    expect(page.locator(".classes tbody tr")).to_have_count(2)
    assert sum(name == "beams" for name in site.labels().values()) == 6
    page.get_by_role("button", name="Split beams").click()
    page.get_by_role("button", name="Make it a class").first.click()
    page.get_by_role("textbox", name="Name of part 1").fill("half")
    page.keyboard.press("Enter")
    expect(page.locator(".classes tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Remove half").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.locator(".classes tbody tr")).to_have_count(2)
    assert "half" not in site.labels().values()
    page.locator(".tools").get_by_role("button", name="Undo").click()
    expect(page.locator(".classes tbody tr")).to_have_count(3)


def test_labels_go_out_and_come_back(visit, site, tmp_path):
    site.teach(3)
    before = site.labels()
    page = visit("out")
    saved = {}
    for name in ("labels.csv", "Label Studio", "COCO"):
        with page.expect_download() as download:
            page.get_by_role("link", name=name, exact=True).click()
        saved[name] = tmp_path / name
        download.value.save_as(saved[name])
    assert "bars_00.png" in saved["labels.csv"].read_text()
    assert len(json.loads(saved["COCO"].read_text())["annotations"]) == len(before)
    for button, name in (("Label Studio JSON", "Label Studio"), ("COCO JSON", "COCO"), ("CSV", "labels.csv")):
        site.forget()
        page.get_by_label(re.compile(f"^{button}"), exact=False).set_input_files(saved[name])
        expect(page.locator(".toast").last).to_contain_text(f"{len(before)} labels read")
        site.wait(lambda: site.labels() == before)


def test_images_are_sorted_into_folders_and_taken_back(visit, site):
    site.teach(2)
    page = visit("out")
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Go").click()
    expect(page.locator(".toast").last).to_contain_text("6 files in")
    assert len(list(site.folder.parent.rglob("bars/bars_*.png"))) == 2
    page.locator(".tools").get_by_role("button", name="Undo").click()
    expect(page.locator(".toast").last).to_contain_text("Undone")
    assert not list(site.folder.parent.rglob("bars/bars_*.png"))


def test_a_model_is_trained_and_downloaded(visit, site):
    site.teach(4)
    page = visit("out")
    page.get_by_role("button", name=re.compile("Train a model")).click()
    link = page.get_by_role("link", name="Download the model")
    expect(link).to_be_visible(timeout=60_000)
    with page.expect_download() as download:
        link.click()
    assert download.value.path().stat().st_size > 1000


def test_a_person_gives_a_name(visit, site):
    page = visit("gallery")
    page.get_by_role("button", name="Your name").click()
    page.get_by_label("Your name", exact=True).last.fill("Zoë")
    page.keyboard.press("Enter")
    expect(page.locator(".who span")).to_have_text("Zoë")
    page.locator(".tile").first.click()
    page.keyboard.press("c")
    page.keyboard.type("mine")
    page.keyboard.press("Enter")
    expect(page.locator(".tally b")).to_have_text("1")
    votes = [vote["who"] for image in site.details(site.ids()) for vote in image["votes"]]
    assert votes == ["Zoë"]


def test_of_near_duplicates_one_is_kept(visit, site):
    copy = site.folder / "bars_copy.png"
    if not copy.exists():
        Image.open(site.folder / "bars_03.png").resize((140, 94)).save(copy)
        site.wait(lambda: site.state()["images"] == 38 and not site.state()["describing"])
        site.names |= {image["id"]: image["name"] for image in site.details(site.ids())}
    page = visit("check/duplicates")
    look = page.get_by_role("button", name=re.compile("Look"))
    page.wait_for_selector(".check-content .card, .check-content .button")
    if look.count():
        look.click()
    group = page.locator(".check-content .card").filter(has_text="copies").first
    expect(group).to_be_visible(timeout=30_000)
    group.get_by_role("button", name="Keep this one").first.click()
    expect(page.locator(".toast").last).to_contain_text("Kept one")
    assert copy.exists() and len(site.ids(filter="skipped")) >= 1


def press_until(page, expression, key="Tab", most=40):
    """Press a key until something holds of the element in focus."""
    for _ in range(most):
        page.keyboard.press(key)
        if page.evaluate(f"(() => {{ const one = document.activeElement; return {expression}; }})()"):
            return
    raise AssertionError(f"{key} never leads to {expression}")


def test_check_and_search_need_no_mouse(visit, site):
    site.teach(6)
    wrong = [i for i in site.ids(filter="labelled") if site.truth(i) == "stripes"][:2]
    site.api.post("/labels", json={"ids": wrong, "name": "bars"})
    site.wait(lambda: set(wrong) <= {one["id"] for one in site.api.get("/check/errors").json()["items"]})
    page = visit("check/errors")
    expect(page.locator(".check-card").first).to_be_visible()
    before = page.locator(".check-card").count()
    press_until(page, "one.textContent.startsWith('Change to')")
    page.keyboard.press("Enter")
    expect(page.locator(".check-card")).to_have_count(before - 1)
    press_until(page, "one.textContent.startsWith('Keep ')")  # the focus has gone on to the next card
    page.keyboard.press("Enter")
    expect(page.locator(".check-card")).to_have_count(before - 2)
    page.reload()
    page.wait_for_selector(".check-content > *")
    assert page.locator(".check-card").count() <= before - 2  # what was kept stays kept
    visit("gallery")
    page.wait_for_selector(".tile img.ready")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.wait_for_selector("main.view-image")
    press_until(page, "one.textContent === 'Find alike'")
    page.keyboard.press("Enter")
    page.wait_for_selector("main.view-search")
    assert len(found(page)) > 5
    press_until(page, "one.matches('.search-main .grid-list')")
    chosen = page.locator('.search-main .tile[aria-selected="true"]')
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowRight")
    expect(chosen).to_have_count(2)


def test_a_view_that_comes_late_does_not_take_the_keys(visit, site, page):
    site.teach(2)
    held = []
    page.route(re.compile("/why"), lambda route: held.append(route))  # as if it took long
    image = site.ids()[4]
    page.goto(f"{site.url}/#/image/{image}")
    page.get_by_role("button", name="Find alike").click()
    assert len(found(page)) > 5
    for route in held:
        route.continue_()
    page.wait_for_timeout(300)
    page.locator(".search-main .grid-list").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator('.search-main .tile[aria-selected="true"]')).to_have_count(2)
