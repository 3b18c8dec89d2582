"""Generic views, which name their model in an attribute, and many migrations. Read by hand; paths and lines only."""

from __future__ import annotations

from tests.public.audited.code import AuditedCode

LOCALLIBRARY = AuditedCode(
    name="locallibrary",
    repository="mdn/django-locallibrary-tutorial",
    commit="3dbedbed216386e068723f5d3fefeae63bcfe16d",
    kind="Django",
    table="catalog_book",
    uses={
        "catalog/admin.py": "21 54",
        "catalog/migrations/0001_initial.py": "16-47",
        "catalog/migrations/0002_auto_20160921_1401.py": "15-21",
        "catalog/migrations/0003_auto_20160921_1420.py": "14-25",
        "catalog/migrations/0004_auto_20160921_1422.py": "14-20",
        "catalog/migrations/0005_auto_20160921_1433.py": "14-41",
        "catalog/migrations/0008_auto_20160921_1511.py": "16-41",
        "catalog/migrations/0010_auto_20160921_1527.py": "15-21",
        "catalog/migrations/0011_auto_20160922_1029.py": "16-36",
        "catalog/migrations/0016_auto_20160927_1947.py": "14-39",
        "catalog/migrations/0018_book_language.py": "15-21",
        "catalog/migrations/0023_auto_20201201_0238.py": "12-22",
        "catalog/migrations/0024_auto_20210302_0630.py": "13-19",
        "catalog/migrations/0025_auto_20220222_0623.py": "12-33",
        "catalog/migrations/0026_alter_book_author_alter_genre_name_and_more.py": "13-29",
        "catalog/models.py": "104 139",
        "catalog/tests/test_views.py": "76-82 225-226 349",
        "catalog/views.py": "10 36 41 186 192 198",
    },
    rows={
        "catalog/tests/test_views.py": "86 230",
        "catalog/views.py": "204",
    },
    either={
        "catalog/admin.py": "65 68-75",
        "catalog/tests/test_views.py": "85 97-98 229 234-236 240-241",
        "catalog/views.py": "250",
    },
    chosen="all files",
    part="read after the mends",
)
