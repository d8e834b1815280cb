"""What the scripts share: the flow, the clock, the check, the record. Nothing here moves a payload."""
