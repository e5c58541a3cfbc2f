"""A pipeline's file: read, checked and modelled without Spark. Begin with checking.py and model.py."""
