"""The example company: the Postgres that a legacy system would have, and the services that write to it.

It knows nothing of cells. The models and the revisions are the company's; `layout.yaml` and `indexes` are what we add.
"""

from pathlib import Path

#: How the company's tables hold the columns of cells.
LAYOUT = Path(__file__).with_name("layout.yaml")
#: The indexes over these columns.
INDEXES = Path(__file__).with_name("indexes")
