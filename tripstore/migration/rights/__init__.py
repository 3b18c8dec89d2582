"""Which right each role needs on which server, in which phase: one table, and the GRANTs that follow from it."""
