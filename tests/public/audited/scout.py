"""A search server that imports all of Peewee's names by a star. Read by hand; paths and lines only."""

from __future__ import annotations

from tests.public.audited.code import AuditedCode

SCOUT = AuditedCode(
    name="scout",
    repository="coleifer/scout",
    commit="42694869866584c79435783c08273c8704761d15",
    kind="Peewee",
    table="main_document",
    uses={
        "migrate_fts5.py": "12-13 14 15-17 18-19 27-29",
        "scout/models.py": "43-44 134-138 139 143 145 158-162 183 230 265 270-272 289-292 297",
        "scout/search.py": "25 27 105-107 111-115 129",
        "scout/server.py": "82-89 93-94 107-109 110 112-114 116-118 129-132",
        "scout/tests.py": (
            "72-79 162-164 174 177-179 192 193-195 207 213 298 300 311 585 731 787 826 843-846 907 942 990 "
            "995 1118 1127 1129 1177 1180 1245 1265 1276 1294 1301 1315 1423 1438 1485 2290 2402 2423 3255 "
            "3281 3282 3283"
        ),
        "scout/views.py": "291 314-319 322 337-341 343 348-350 484-491 568-572",
    },
    rows={
        "scout/models.py": "172 176 277 280",
        "scout/tests.py": "560 3054",
        "scout/views.py": "382 394 444",
    },
    either={
        "scout/models.py": "47-50 65-67 70 75-78 109-111 255 276 284",
        "scout/search.py": "31 33-35 37 42 122 150",
        "scout/serializers.py": "48-53",
        "scout/tests.py": "216-220 285 286 291 292",
        "scout/views.py": "222-227 356 399 401 409-412 425-427 435-438 439-442 443 465 494-501",
    },
)
