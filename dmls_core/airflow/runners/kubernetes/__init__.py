"""The runner ``kubernetes``: trainers in pods."""
