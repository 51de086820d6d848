# SPDX-License-Identifier: BSD-3-Clause
"""Results of a search as one HTML page of thumbnails: no scripts, nothing fetched from anywhere."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from patchbag.images.thumbnails import thumbnail
from patchbag.storage.replacing import write_text

STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; color: #1d2733; background: #f6f8fa; margin: 0; padding: 24px }
h1 { font-size: 22px; margin: 0 0 16px }
section { background: #fff; border: 1px solid #dde3ea; border-radius: 10px; padding: 16px; margin: 0 0 16px }
section { display: grid; gap: 14px; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)) }
figure { margin: 0 } img { width: 100%; aspect-ratio: 1; object-fit: contain; border-radius: 6px; background: #eef2f6 }
figcaption { font-size: 13px; overflow-wrap: anywhere } small { color: #5b6876 }
.query img { outline: 3px solid #2b66b1 }
@media (prefers-color-scheme: dark) {
  body { color: #dbe2ea; background: #12181f } section { background: #1b232c; border-color: #2f3a46 }
  img { background: #0e1318 } small { color: #93a1b0 } .query img { outline-color: #6ea8f0 }
}
"""


def write_page(path: str | Path, title: str, rows: Sequence[Sequence[tuple[str, str]]]) -> Path:
    """Write a page with one row of images per query or group; each image is (path, caption), the first one marked."""
    sections = "\n".join(f"<section>{''.join(_figures(row))}</section>" for row in rows)
    text = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · patchbag</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>
{sections}
</body></html>"""
    return write_text(path, text)


def _figures(row: Sequence[tuple[str, str]]) -> list[str]:
    return [
        f'<figure{" class=query" if i == 0 else ""}><img alt="" loading="lazy" src="{thumbnail(image)}">'
        f"<figcaption>{escape(caption)}<br><small>{escape(image)}</small></figcaption></figure>"
        for i, (image, caption) in enumerate(row)
    ]
