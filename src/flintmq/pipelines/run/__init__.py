"""Pipelines that run: started, watched, started again, tested. Begin with runner.py."""
