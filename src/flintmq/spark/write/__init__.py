"""Data frames published: writers.py for the mode `confirm`, transactional.py for the mode `transactional`."""
