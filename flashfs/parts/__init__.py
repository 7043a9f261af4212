"""The shelf that schemes choose from: parts of an FTL that more than one of them is made of."""
