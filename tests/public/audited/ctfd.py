"""A contest platform with inherited tables, and a migration by another library. Read by hand; paths and lines only."""

from __future__ import annotations

from tests.public.audited.code import AuditedCode

CTFD = AuditedCode(
    name="ctfd",
    repository="CTFd/CTFd",
    commit="91ced62d44d3ec3142a0948ee96ed19947cfc979",
    kind="Flask-SQLAlchemy",
    table="solves",
    uses={
        "CTFd/api/v1/statistics/challenges.py": "54-62 107-113 117-125",
        "CTFd/api/v1/statistics/progression.py": "39-53",
        "CTFd/api/v1/submissions.py": "193-197 206-213 226",
        "CTFd/api/v1/users.py": "283",
        "CTFd/utils/social/__init__.py": "75-77 151-153",
        "migrations/1_2_0_upgrade_2_0_0.py": "169",
        "tests/admin/test_config.py": "118 132 189 234 250",
        "tests/models/test_model_utils.py": "18",
        "tests/utils/test_ctftime.py": "48 113 141",
    },
    rows={
        "CTFd/api/v1/submissions.py": "214 229",
    },
    either={
        "CTFd/api/v1/statistics/challenges.py": "64-72",
    },
    files=(
        "CTFd/api/v1/solutions.py",
        "CTFd/api/v1/statistics/challenges.py",
        "CTFd/api/v1/statistics/progression.py",
        "CTFd/api/v1/submissions.py",
        "CTFd/api/v1/users.py",
        "CTFd/cache/__init__.py",
        "CTFd/exceptions/challenges.py",
        "CTFd/forms/config.py",
        "CTFd/utils/social/__init__.py",
        "migrations/1_2_0_upgrade_2_0_0.py",
        "tests/admin/test_config.py",
        "tests/api/v1/test_scoreboard.py",
        "tests/cache/test_challenges.py",
        "tests/challenges/test_challenge_logic.py",
        "tests/models/test_model_utils.py",
        "tests/teams/test_challenges.py",
        "tests/teams/test_teams.py",
        "tests/users/test_scoreboard.py",
        "tests/users/test_users.py",
        "tests/utils/test_ctftime.py",
    ),
    chosen='20 of the 53 files of up to 600 lines that have "solve" in any case, by random.Random(28)',
    part="read after the mends",
)
