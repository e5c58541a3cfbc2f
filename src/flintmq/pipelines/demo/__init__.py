"""The demo: a broker, market data, two pipelines and a view of it. Begin with demo.py."""
