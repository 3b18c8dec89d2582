"""The report that justifies a switch: what it holds, its JSON schema, and how it is drawn as one page."""
