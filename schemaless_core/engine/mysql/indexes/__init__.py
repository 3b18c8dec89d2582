"""Tables of index versions on a server: their entries, their values, and fields that do not parse."""
