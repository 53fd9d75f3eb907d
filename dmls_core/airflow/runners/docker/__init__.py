"""The runner ``docker``: trainers in containers."""
