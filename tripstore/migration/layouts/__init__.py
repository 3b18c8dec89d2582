"""A layout on its way into force: what it changes of the meaning of cells, and how every process is brought to it."""
