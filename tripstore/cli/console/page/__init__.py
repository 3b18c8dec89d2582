"""The templates, the style and the script of the page."""
