"""What keeps a platform running: monitor, repair and scoring DAGs, watchdog, health and capacity."""
