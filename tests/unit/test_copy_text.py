"""Lines of COPY that we write ourselves: what is read of them is what was written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tripstore.backends.postgres.cells.sums.lines import columns_of
from tripstore.backends.postgres.codec.copy_text import NULL, as_lines, unescaped

#: As Postgres keeps them: any character but the first; those that COPY escapes are frequent here.
TEXTS = (
    st.none() | st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])) | st.text("\\N\tn\b\v")
)
ROWS = st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[TEXTS] * width), min_size=1, max_size=5))


@given(ROWS)
def test_texts_and_nulls_are_read_as_they_were_written(rows: list[tuple[str | None, ...]]) -> None:
    columns = columns_of(as_lines(rows))

    assert [tuple(map(unescaped, row)) for row in zip(*columns, strict=True)] == rows


def test_what_has_no_escapes_stands_as_it_is() -> None:
    assert as_lines([("1", None, "a b")]) == [b"1\t\\N\ta b\n"]
    assert as_lines([("1", None, NULL)]) == [b"1\t\\N\t\\\\N\n"]
