"""Four hospitals, one model, and the few records that they may share."""
