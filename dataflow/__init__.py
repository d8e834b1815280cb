"""The suite: it measures how long the messages of a flow take over many transports (python3 -m dataflow)."""


def explain(message: object) -> None:
    """Print what a message costs with Ray, field by field, and what makes it cheaper."""
    from dataflow.profile.explain import explain

    explain(message)
