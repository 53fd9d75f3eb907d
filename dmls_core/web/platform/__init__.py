"""How the platform is: each part is asked with a deadline, so that a slow one shows as such."""
