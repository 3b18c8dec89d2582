"""A proposal for tables, and what it says of them."""

from __future__ import annotations

import yaml

from tests.layouts import company_database
from tripstore.backends.postgres.checks.layout import check_layout
from tripstore.backends.postgres.layout.layout import Layout, TableName
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.proposals.fit import fitted
from tripstore.backends.postgres.proposals.proposal import Proposal
from tripstore.backends.postgres.proposals.proposing import propose
from tripstore.backends.postgres.proposals.text import render, undecided
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

TABLES = ("billing_attempts", "trips", "trip_notes")


class Proposed:
    """What is proposed for tables after some statements, and what is said of it."""

    def __init__(
        self,
        servers: LocalServers,
        flavour: Flavour,
        statements: str = "",
        tables: tuple[str, ...] = TABLES,
        facts: tuple[str, ...] = (),
    ) -> None:
        with connected(company_database(servers, flavour), "test", search_path="public") as connection:
            if statements:
                rows(connection, statements)
                rows(connection, "SELECT pg_stat_force_next_flush()")
            names, said = ([TableName("public", name) for name in each] for each in (tables, facts))
            self.proposal: Proposal
            self.proposal, _ = fitted(connection, propose(connection, names, "trips", said))
            self.text = render(self.proposal)
            self.layout: Layout = load_layout(yaml.safe_load(self.text))
            self.errors = [str(each) for each in check_layout(connection, self.layout) if each.is_error]
        self.undecided = undecided(self.proposal)

    def says(self, words: str) -> bool:
        """In the list and in the text."""
        return any(words in remark for remark in self.undecided) and words.lower() in self.text.lower()
