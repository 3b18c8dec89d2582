"""Names that a configuration may give: hostile ones, and words that SQL has already."""

from __future__ import annotations

from hypothesis import strategies as st

#: What ends a quotation, begins a statement or a comment, is a parameter of a driver, or is cut somewhere.
HOSTILE = (
    'x"; DROP TABLE canary; --',
    "x'; DROP TABLE canary; --",
    "x`; DROP TABLE canary; --",
    "x`.`y",
    "$$; DROP TABLE canary; $$",
    "x\\'; DROP TABLE canary; --",
    "/*", "*/", "--", "#", ";", "'", '"', "`", "\\", "%", "%s", "%(x)s", "%%", ":x", ":", "?", "{0}", "{name}", "${x}",
    "\0", "a\0b", "a\nb", "a\tb", "\x1b[2J", "\u202eevil", "\ud800", " ", " a", "a ", "a b", "a.b", ".", "..", "a/b",
    "é" * 31, "é" * 32, "表", "\U0001d518", "İ", "ß", "a" * 63, "a" * 64, "a" * 65, "x" * 300, "1", "1a", "-", "_",
)  # fmt: skip
WORDS = ("select", "key", "order", "table", "group", "user", "from", "index", "default", "null", "true", "all", "rows")

hostile = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(min_size=1, max_size=70),
    st.text(alphabet="ab'\"`\\%;:$-./ {}\n\0", min_size=1, max_size=12),
)
