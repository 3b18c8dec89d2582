"""A service whose handlers get their objects from annotated parameters. Read by hand; paths and lines only."""

from __future__ import annotations

from tests.public.audited.code import AuditedCode

TEMPLATE = AuditedCode(
    name="template",
    repository="fastapi/full-stack-fastapi-template",
    commit="68adb40d37425f6f8668ec7e5a054500d045e43e",
    kind="SQLModel",
    table="user",
    uses={
        "backend/app/alembic/versions/1a31ce608336_add_cascade_delete_relationships.py": "26 33",
        "backend/app/alembic/versions/9c0a54914c78_add_max_length_for_string_varchar_.py": ("22-25 28-31 48-51 54-57"),
        "backend/app/alembic/versions/d98dd8ec85a3_edit_replace_id_integers_in_all_models_.py": (
            "26 31 33 36 44 45 51 55 59 65 68 71 72 79 80 86 90"
        ),
        "backend/app/alembic/versions/e2412789c190_initialize_models.py": "21-32 33 34-45 52 53",
        "backend/app/alembic/versions/fe56fa70289e_add_created_at_to_user_and_item.py": "23 29",
        "backend/app/api/deps.py": "30 41 49 52",
        "backend/app/api/routes/private.py": "29-33",
        "backend/app/api/routes/users.py": "42 45-47 169 197 221",
        "backend/app/core/db.py": "24-26",
        "backend/app/crud.py": "10 11-13 20 34 35 45",
        "backend/app/models.py": "97-99 100",
        "backend/tests/api/routes/test_login.py": "141 175",
        "backend/tests/api/routes/test_private.py": "22",
        "backend/tests/api/routes/test_users.py": "217 241 333 377 443 446 478",
        "backend/tests/conftest.py": "22",
        "backend/tests/crud/test_user.py": "74 89 107",
        "backend/tests/utils/user.py": "22",
    },
    rows={
        "backend/app/api/routes/private.py": "35",
        "backend/app/api/routes/users.py": "96 97 99 118 119 141 230",
        "backend/app/crud.py": "14 16 27 28 30 56 57 59",
        "backend/tests/api/routes/test_login.py": "108 142 144 154 176 178 188",
        "backend/tests/api/routes/test_users.py": "258 379",
        "backend/tests/crud/test_user.py": "108 110 120",
    },
    either={
        "backend/app/api/routes/items.py": "13-16 48-49 61-64 75-82 99-102",
        "backend/app/api/routes/login.py": "45-46",
        "backend/app/api/routes/users.py": "81-84 103-106 124-125 132-133 162-165 214-217",
    },
)
