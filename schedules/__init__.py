"""TE schedules of blocks."""
