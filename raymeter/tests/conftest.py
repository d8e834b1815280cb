"""Tests of raymeter: run `pytest` in the folder above."""
