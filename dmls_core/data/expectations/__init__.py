"""Is the data what it must be? Great Expectations' answer, in a process of its own.

Great Expectations takes seconds to import, so that ``dmls_core.data.validation`` runs
``python -m dmls_core.data.expectations`` side by side with the search; nothing else imports this package.
"""
