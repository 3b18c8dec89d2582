"""The models of the tables of a layout: their attributes, and what else happens as their objects load or change."""
