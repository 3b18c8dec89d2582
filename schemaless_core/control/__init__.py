"""The control database: topology, documents, leases, audit log. For changes; cells are read and written without it."""
