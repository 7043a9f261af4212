"""Parts of an FTL that more than one scheme uses."""
