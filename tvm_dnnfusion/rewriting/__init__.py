"""Rewriting by mathematical properties: equations as data, and one engine for all."""
