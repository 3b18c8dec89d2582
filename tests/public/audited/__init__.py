"""Public code bases of several kinds, and how much of them `audit code` finds."""

from __future__ import annotations

from tests.public.audited.ctfd import CTFD
from tests.public.audited.healthchecks import HEALTHCHECKS, HEALTHCHECKS_VIEWS
from tests.public.audited.locallibrary import LOCALLIBRARY
from tests.public.audited.microblog import MICROBLOG, MICROBLOG_POST
from tests.public.audited.scout import SCOUT
from tests.public.audited.sydent import SYDENT
from tests.public.audited.template import TEMPLATE
from tests.public.audited.warehouse import WAREHOUSE, WAREHOUSE_SECOND

CODE = (
    MICROBLOG,
    TEMPLATE,
    HEALTHCHECKS,
    SCOUT,
    SYDENT,
    WAREHOUSE,
    MICROBLOG_POST,
    HEALTHCHECKS_VIEWS,
    WAREHOUSE_SECOND,
    LOCALLIBRARY,
    CTFD,
)
