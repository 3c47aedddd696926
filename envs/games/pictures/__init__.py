"""Structures as pictures: panels of cells side by side, with captions; as pixels, text and GIF."""

from .panels import COLOURS, Colour, Layer, Picture, Row, ansi, colours, drawn, write_gif

__all__ = ["COLOURS", "Colour", "Layer", "Picture", "Row", "ansi", "colours", "drawn", "write_gif"]
