"""Relay passes."""
