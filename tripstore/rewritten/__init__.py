"""What code calls after `tripstore audit rewrite`: rows of mapped tables as bodies of cells, meaning what SQL meant.

A row that is not there is None, whether it never was or ends in a tombstone. Queries are verified: what was put is
found.

It knows no layout: each call says the column of cells and, of child rows, how many bits of a ref key are their version.
"""

from tripstore.rewritten.bodies import (
    FoundBody,
    RewrittenStore,
)
from tripstore.rewritten.changes import (
    change,
    change_child_of_id,
    change_found,
    change_of_id,
    delete_child_of_id,
    delete_found,
)
from tripstore.rewritten.children import (
    children_found,
    insert_child,
    insert_child_of_id,
    last_number,
)
from tripstore.rewritten.computed import (
    ComputedValue,
    added_decimal,
    added_int,
    joined_text,
)
from tripstore.rewritten.lookups import (
    NO_ROW,
    looked_up,
)
from tripstore.rewritten.reads import (
    child_of_id,
    found,
    found_first,
    found_one,
    latest,
    latest_of_id,
    number_of,
    only_if,
    or_404,
    required,
    tuple_of,
    value_of,
)
from tripstore.rewritten.values import (
    as_bytes,
    as_date,
    as_datetime,
    as_decimal,
    as_float,
    as_list,
    as_uuid,
    bool_value,
    bytes_text,
    date_text,
    datetime_text,
    decimal_text,
    float_value,
    int_value,
    json_object,
    json_value,
    list_value,
    text_value,
    uuid_text,
    whole_number,
)

__all__ = [
    "ComputedValue",
    "FoundBody",
    "NO_ROW",
    "RewrittenStore",
    "added_decimal",
    "added_int",
    "as_bytes",
    "as_date",
    "as_datetime",
    "as_decimal",
    "as_float",
    "as_list",
    "as_uuid",
    "bool_value",
    "bytes_text",
    "change",
    "change_child_of_id",
    "change_found",
    "change_of_id",
    "child_of_id",
    "children_found",
    "date_text",
    "datetime_text",
    "decimal_text",
    "delete_child_of_id",
    "delete_found",
    "float_value",
    "found",
    "found_first",
    "found_one",
    "insert_child",
    "insert_child_of_id",
    "int_value",
    "joined_text",
    "json_object",
    "json_value",
    "last_number",
    "latest",
    "latest_of_id",
    "list_value",
    "looked_up",
    "number_of",
    "only_if",
    "or_404",
    "required",
    "text_value",
    "tuple_of",
    "uuid_text",
    "value_of",
    "whole_number",
]
