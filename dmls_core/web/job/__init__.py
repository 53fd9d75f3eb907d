"""One job: its versions, its runs, what they left, and what can be done with it."""
