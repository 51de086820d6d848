# SPDX-License-Identifier: BSD-3-Clause
"""IRMA radiographs (ImageCLEFmed 2009) and the part of the body that each shows.

The layout is that of the distribution, which is given to those who ask RWTH Aachen for it::

    ImageCLEFmed2009_train.02/1877.png
    ImageCLEFmed2009_train_codes.02.csv       # "image_id;irma_code;...", "1877;1121-120-942-700;..."

A code has four parts: modality, direction, anatomy, biological system (Lehmann et al. 2003).  The first digits of the
anatomy are the part of the body.  ``PARTS`` are the 12 of piro2010 §6.3; the thesis does not say where wrists and
forearms (42, 43) belong, nor whether arms and legs that are not specified further (40, 90) do; here they have no label,
like whole bodies and abdomens, which it leaves out.
"""

import csv
from pathlib import Path
from typing import Literal

from patchbag.collection import Collection, CollectionError, open_collection

# first digits of the anatomical code → part of the body
PARTS = {
    "2": "cranium",
    "3": "spine",
    "41": "hand",
    "44": "elbow",
    "45": "shoulder and upper arm",
    "46": "shoulder and upper arm",
    "5": "chest",
    "6": "breast",
    "8": "pelvis",
    "91": "foot",
    "92": "ankle and lower leg",
    "93": "ankle and lower leg",
    "94": "knee and middle leg",
    "95": "hip and upper leg",
    "96": "hip and upper leg",
}


def body_part(code: str) -> str | None:
    """The part of the body that an IRMA code names, None for one that is not among the 12.

    >>> body_part("1121-120-942-700"), body_part("1121-127-700-500")
    ('knee and middle leg', None)
    """
    anatomy = code.replace("-", "")[7:10]
    return PARTS.get(anatomy[:1], PARTS.get(anatomy[:2]))


def open_irma(folder: str | Path, labels: Literal["parts", "codes"] = "parts") -> Collection:
    """The radiographs of a folder, labelled by the part of the body or by their whole code; those without one last."""
    root = Path(folder)
    tables = sorted(root.rglob("*_codes*.csv"))
    if not tables:
        raise CollectionError(
            f"{root} has no table *_codes*.csv of IRMA codes, such as ImageCLEFmed2009_train_codes.02.csv"
        )
    found: dict[str, str | None] = {}
    for table in tables:
        with table.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, delimiter=";")
            if not {"image_id", "irma_code"} <= set(rows.fieldnames or ()):
                raise CollectionError(f"{table}: expected the columns image_id;irma_code, got {rows.fieldnames}")
            for row in rows:
                code = (row["irma_code"] or "").strip()
                if len(code.replace("-", "")) != 13:
                    raise CollectionError(
                        f"{table}, line {rows.line_num}: an IRMA code is like 1121-120-942-700, got {code!r}"
                    )
                found[f"{row['image_id'].strip()}.png"] = code if labels == "codes" else body_part(code)
    return open_collection(root, labels=found)
