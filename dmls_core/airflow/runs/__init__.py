"""One run of a job, as its tasks see it: the job, its intervals and data, and its status."""
