"""What is an axes object, to a module that must not load matplotlib until something is drawn?"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

__all__ = ["Axes"]
