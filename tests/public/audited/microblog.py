"""A web application whose models name no table. Read by hand; paths and lines only."""

from __future__ import annotations

from tests.public.audited.code import AuditedCode

MICROBLOG = AuditedCode(
    name="microblog",
    repository="miguelgrinberg/microblog",
    commit="a975ef64864354867c88e0ed3a17ba7d17dca752",
    kind="Flask-SQLAlchemy",
    table="user",
    uses={
        "app/api/auth.py": "13 25",
        "app/api/users.py": "13 21-22 28 31-32 38 41-42 50-51 53-54 56 69 71-73 75-77",
        "app/auth/forms.py": "27-28 33-34",
        "app/auth/routes.py": "20-21 45 61-62 76",
        "app/main/forms.py": "23-24",
        "app/main/routes.py": "74 92 119-120 140-141 184",
        "app/models.py": (
            "88-95 146 150 153 157-158 162-163 167 168 169-179 193 275 284 293-294 297 305-306 307-308 "
            "313-315 316-318 327-328 332 342 345"
        ),
        "app/tasks.py": "21-22 30",
        "microblog.py": "11-12",
        "migrations/versions/37f06a334dbf_new_fields_in_user_model.py": "21 30",
        "migrations/versions/780739b227a7_posts_table.py": "21-28",
        "migrations/versions/834b1a697901_user_tokens.py": "21 22 23 29 30 31",
        "migrations/versions/ae346256b650_followers.py": "21-27",
        "migrations/versions/c81bac34faab_tasks.py": "21-29",
        "migrations/versions/d049de007ccf_private_messages.py": "21-30 37 44",
        "migrations/versions/e517276bb1c2_users_table.py": "21-27 28 37 41",
        "migrations/versions/f7ac3d27bb1d_notifications.py": "21-29",
        "tests.py": "28 34 40 41 45 46 55 56 68 69 70 71",
    },
    rows={
        "app/api/users.py": "58",
        "app/auth/routes.py": "47",
        "app/main/routes.py": "19 102 103 202",
        "app/models.py": "135 255 264 265 266 270-271",
        "tests.py": "42 43 72",
    },
    either={
        "app/main/routes.py": "35-36 187-188",
        "app/models.py": "197-198 205 212-213",
        "migrations/versions/37f06a334dbf_new_fields_in_user_model.py": "22 23 31 32",
        "migrations/versions/d049de007ccf_private_messages.py": "38 45",
        "migrations/versions/e517276bb1c2_users_table.py": "29 30 38 39",
        "tests.py": "76-77 78-79 80-81 82-83",
    },
)

MICROBLOG_POST = AuditedCode(
    name="microblog",
    repository="miguelgrinberg/microblog",
    commit="a975ef64864354867c88e0ed3a17ba7d17dca752",
    kind="Flask-SQLAlchemy",
    table="post",
    uses={
        "app/main/routes.py": "35-36 58 76 171-172",
        "app/models.py": "113-114 169-179 227-228",
        "app/tasks.py": "34-35 36-37",
        "microblog.py": "11-12",
        "migrations/versions/2b017edaa91f_add_language_to_posts.py": "21 29",
        "migrations/versions/780739b227a7_posts_table.py": "21-28 29 38 42",
        "tests.py": "76-77 78-79 80-81 82-83",
    },
    rows={
        "app/main/routes.py": "37",
        "tests.py": "84",
    },
    either={
        "app/models.py": "22 27 30 55",
        "migrations/versions/2b017edaa91f_add_language_to_posts.py": "22 30",
        "migrations/versions/780739b227a7_posts_table.py": "30 31 39 40",
    },
    chosen="all files",
    part="read after the mends",
)
