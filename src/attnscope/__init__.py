"""How does a model attend, how did it learn to, and may its attention be read as an explanation?"""

__version__ = "0.1.0"
