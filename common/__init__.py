"""What the scripts share. Nothing here hands a payload from one role to the next: the scripts do."""
