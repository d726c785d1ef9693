"""Small inputs from public bug reports of this field, each named by the report it was first seen in."""
