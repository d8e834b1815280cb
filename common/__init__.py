"""Shared code of the scripts. Nothing here sends a payload to another actor: the scripts do."""
