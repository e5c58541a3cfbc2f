"""One queue or stream as a source: how far it goes, and what a batch of it is. Begin with feed.py."""
