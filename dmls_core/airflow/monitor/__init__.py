"""What the monitor DAG does: looks for drift and decay, tells of it, and mends what is served."""
