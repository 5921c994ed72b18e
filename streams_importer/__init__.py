"""Imports millions of records from a rate-limited upstream into MongoDB, with as many workers as there are."""

__version__ = "0.1.0"
