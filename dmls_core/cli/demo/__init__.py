"""``dmls demo``: the iris example from an upload to a served model, on real services."""
