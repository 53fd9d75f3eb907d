"""``dmls demo``: the iris spec from a dropped file to a served model, on real services."""
