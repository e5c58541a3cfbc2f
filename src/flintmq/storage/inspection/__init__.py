"""A data directory looked at, checked and repaired by people, with no broker running."""
